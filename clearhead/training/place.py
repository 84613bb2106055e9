"""How far a run has come: for itself, to go on from there, and for people, to see how it goes.

Data order and randomness are functions of the place alone, so beside the weights and what the
optimizer keeps these few numbers are all that a checkpoint must hold.
"""

import dataclasses
import types
import typing
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import torch

from clearhead.data.randomness import draw_bits
from clearhead.training.tasks.task import Plan, Task


@dataclass
class Place:
    """All that a run must remember beside its weights and its optimizer."""

    step: int = 0  # updates made
    epoch: int = 0
    taken: int = 0  # examples of the epoch that were learned from: the cursor
    told: int = 0  # the last step that was measured and written down
    loss_sum: float = 0.0  # since the last line with a loss
    loss_steps: int = 0  # how many losses that are
    best: float | None = None
    best_step: int | None = None
    best_metrics: dict[str, float] = field(default_factory=dict)
    stale: int = 0  # evaluations since the best
    seconds: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)  # bytes of metrics.jsonl and samples.txt
    finished: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The place of what `to_dict` gave: every name, no other, each of its type."""
        hints = typing.get_type_hints(cls)
        if odd := sorted(hints.keys() ^ values.keys()):
            word = "is missing" if odd[0] in hints else "is not known"
            raise ValueError(f"{odd[0]!r:.80} {word}")
        for name, value in values.items():
            if not _is_a(value, hints[name]):
                raise TypeError(f"{name!r} must be {hints[name]}, got {value!r:.80}")
        return cls(**values)


def _is_a(value: Any, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_is_a(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is dict:
        kind = typing.get_args(hint)[1]
        return isinstance(value, dict) and all(_is_a(item, kind) for item in value.values())
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


class Plans:
    """What each batch of a run is made of, one after the other.

    The cursor counts examples, not batches, so the order of the examples stays the same if a run
    is made to go on with another batch size; it then begins with the next whole batch.
    """

    def __init__(self, task: Task, seed: int, batch_size: int) -> None:
        self.task, self.seed, self.batch_size = task, seed, batch_size
        self.epoch, self.plans, self.starts = -1, list[Plan](), list[int]()

    def next(self, place: Place) -> Plan:
        """The plan of the next batch; the cursor of the place moves on."""
        while True:
            self._open(place.epoch)
            number = bisect_left(self.starts, place.taken)
            if number < len(self.plans):
                place.taken = self.starts[number + 1]
                return self.plans[number]
            place.epoch, place.taken = place.epoch + 1, 0

    def steps_in_epoch(self, accumulate: int) -> int:
        """Updates until every example of the first epoch was learned from."""
        self._open(0)
        return -(-len(self.plans) // accumulate)

    def _open(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.plans = list(self.task.plans(self.seed, epoch, self.batch_size))
            if not self.plans:
                raise ValueError(f"there are no examples to learn from in epoch {epoch}")
            self.starts = [0, *accumulate(max(1, len(plan)) for plan in self.plans)]
            self.epoch = epoch


def seed_torch(device: torch.device, seed: int, purpose: str, step: int) -> None:
    """Set torch's generators to numbers that depend on (seed, purpose, step) alone.

    Not by torch.manual_seed: for every device that is not there it notes who called, 1 ms a step.
    """
    number = int(draw_bits(seed, purpose, step)[0]) >> 1
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)


@dataclass(frozen=True)
class Progress:
    """How it goes, for people."""

    step: int
    steps: int
    metrics: dict[str, float]
    rate: float | None  # how many of the unit are learned in a second, once some were
    unit: str  # "tokens" or "examples"
    seconds_left: float


@dataclass(frozen=True)
class RunResult:
    """What a run came to; metrics and sample are of its best checkpoint."""

    run: Path
    steps: int
    seconds: float
    best_step: int | None
    metrics: dict[str, float]
    sample: str | None  # what the model says then
    next_command: str  # what to do with it


Tell = Callable[[Progress | str], None]
