"""How long something takes: one clock for the whole package.

    timer = Timer(); …; timer.seconds             the seconds since it was started
    measure_seconds(work)                         how long one call takes
    best_seconds({"a": work, …}, seconds=3)       the best time of each, measured in turns
    format_duration(200)                          "3 min 20 s"

The machine may be shared, so a time measured now says little about a time measured a minute ago.
`best_seconds` therefore runs each piece of work once per round, in turn. Other programs only ever
add time, so the best round is what the work costs, and the ratio of two bests can be trusted.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


class Timer:
    """Measures the seconds since it was made; `clock` is any function that returns seconds."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.perf_counter
        self._start = self._clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._start


def best_seconds(
    functions: Mapping[Name, Callable[[], object]],
    *,
    seconds: float = 3.0,
    rounds: int = 5,
    clock: Callable[[], float] | None = None,
    repeat_below: float = 0.0,
) -> dict[Name, float]:
    """The best time of each, in at least `rounds` rounds and for about `seconds` in all.

    Work shorter than `repeat_below` is measured a second time at once, because the work before it
    has filled the caches with its own data.
    """
    for work in functions.values():
        work()  # the first call pays for allocation and for kernels that set themselves up
    best = dict.fromkeys(functions, float("inf"))
    total, done = Timer(), 0
    while done < rounds or total.seconds < seconds:
        for name, work in functions.items():
            taken = measure_seconds(work, clock)
            if taken < repeat_below:
                taken = min(taken, measure_seconds(work, clock))
            best[name] = min(best[name], taken)
        done += 1
    return best


def measure_seconds(work: Callable[[], object], clock: Callable[[], float] | None = None) -> float:
    """How long one call takes."""
    timer = Timer(clock)
    work()
    return timer.seconds


def format_duration(seconds: float) -> str:
    """1.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
