"""The progress of a run: its metrics, its speed and the time left."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clearhead.data.batch import IGNORE, Batch
from clearhead.timing import Timer


@dataclass(frozen=True)
class Progress:
    """What the loop reports when it logs a step."""

    step: int
    steps: int
    metrics: dict[str, float]
    rate: float | None  # units learned per second; None before the first step of this process
    unit: str  # "tokens" or "examples"
    seconds_left: float


Tell = Callable[[Progress | str], None]


class Clock:
    """Counts the seconds of a run, over all its processes, and the units learned in this one."""

    def __init__(self, unit: str, seconds: float = 0.0) -> None:
        """unit: "tokens" or "examples"; seconds: what the run took in earlier processes."""
        self.unit, self.n_units, self.seconds_learning = unit, 0, 0.0
        self.n_own = self.n_examples = 0  # of this process, and of all at the same time
        self.timer, self.before = Timer(), seconds

    @property
    def seconds(self) -> float:
        """How long the run has taken, without the time between its processes."""
        return self.before + self.timer.seconds

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Count the time of a `with` block as time spent on updates."""
        timer = Timer()
        yield
        self.seconds_learning += timer.seconds

    def count(self, batch: Batch, n_examples: int) -> None:
        """Count the tokens that are predicted, or the examples, of a batch of this process."""
        is_text = self.unit == "tokens"
        self.n_units += int((batch.targets != IGNORE).sum()) if is_text else len(batch)
        self.n_own += n_examples

    def count_step(self, parts: Sequence[Sequence[Any]]) -> None:
        """Count the examples of a step, of all processes."""
        self.n_examples += sum(map(len, parts))

    def progress(self, step: int, steps: int, metrics: dict[str, float]) -> Progress:
        """The report of a step; the time left is estimated from the time so far."""
        n_units = self.n_units * (self.n_examples / self.n_own) if self.n_own else 0
        rate = n_units / self.seconds_learning if n_units else None
        seconds_left = self.seconds / max(step, 1) * (steps - step)
        return Progress(step, steps, metrics, rate, self.unit, seconds_left)
