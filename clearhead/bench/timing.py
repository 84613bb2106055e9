"""How we measure: competitors take turns in one run, and only ratios are trusted.

The machine may be shared, so a time measured now says little about a time measured a minute ago.
Here every round runs each competitor once, in turn. Other programs only ever add time, so each
competitor's best round is what it costs, and the ratio of two bests is the result.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def best_seconds(
    competitors: Mapping[str, Callable[[], object]], *, seconds: float = 3.0, rounds: int = 5
) -> dict[str, float]:
    """The best time of each competitor, in at least `rounds` rounds and about `seconds`."""
    for work in competitors.values():
        work()  # the first call pays for allocation and for kernels that set themselves up
    best = dict.fromkeys(competitors, float("inf"))
    end = time.perf_counter() + seconds
    done = 0
    while done < rounds or time.perf_counter() < end:
        for name, work in competitors.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
        done += 1
    return best


@dataclass(frozen=True)
class Row:
    """One line of the table: ours against another way, in seconds or bytes, and the aim."""

    what: str
    ours: float
    other: str
    theirs: float
    aim: str = ""
    unit: str = "ms"  # or MB

    @property
    def ratio(self) -> float:
        """Ours divided by theirs: below 1 we are better."""
        return self.ours / self.theirs

    def text(self) -> str:
        """The row as it is printed."""
        number = f"{1 / self.ratio:.1f}× less" if self.ratio < 0.5 else f"{self.ratio:.2f}×"
        factor = {"ms": 1e3, "MB": 1e-6}[self.unit]
        ours, theirs = (f"{x * factor:9.3f} {self.unit}" for x in (self.ours, self.theirs))
        return f"{self.what:<44}{ours}   {self.other:<34}{theirs}   {number:<12} {self.aim}"
