"""The state of a run: everything a checkpoint holds besides weights and optimizer.

The order of the data is a function of (seed, epoch, cursor), and what a step draws at random, such
as dropout, is a function of (seed, step). So no generator has to be saved: a run that resumes from
these few numbers continues bit for bit.
"""

import dataclasses
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Self

import torch

from clearhead.config import read_dataclass
from clearhead.data.randomness import draw_bits
from clearhead.data.shuffling import EvenPlans
from clearhead.training.tasks.task import Plan, Task


@dataclass
class State:
    """The progress of a run, as state.json holds it."""

    step: int = 0  # updates made
    epoch: int = 0
    cursor: int = 0  # examples of this epoch that were used
    logged: int = 0  # the last step whose evaluation, if due, and log are complete
    loss_sum: float = 0.0  # of the steps since the last logged loss
    loss_steps: int = 0  # how many steps these are
    best: float | None = None
    best_step: int | None = None
    best_metrics: dict[str, float] = field(default_factory=dict)
    stale: int = 0  # evaluations since the best one
    seconds: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)  # of the log files, where there are any
    finished: bool = False

    @property
    def is_logged(self) -> bool:
        """Whether evaluation and log of the last step are complete."""
        return self.logged == self.step

    def add_step(self, loss: float) -> None:
        """Count an update and its loss."""
        self.step += 1
        self.loss_sum += loss
        self.loss_steps += 1

    def take_mean_loss(self) -> float:
        """The mean loss of the steps since the last call."""
        mean = self.loss_sum / self.loss_steps
        self.loss_sum, self.loss_steps = 0.0, 0
        return mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read the values of `to_dict`: every field, no other, each of its type and range."""
        state = read_dataclass(cls, values)
        state.check()
        return state

    def check(self) -> None:
        """Refuse impossible numbers, such as a negative step."""
        counts = {name: value for name, value in vars(self).items() if type(value) is int}
        for name, count in {**counts, **self.sizes}.items():
            if count < 0:
                raise ValueError(f"{name} must not be negative, got {count}")
        if not self.step - 1 <= self.logged <= self.step:
            raise ValueError(f"logged must be step or the one before, got {self.logged}")
        if not self.is_logged and self.loss_steps < 1:
            raise ValueError("loss_steps must be at least 1 after a step that is not logged, got 0")


class DataOrder:
    """The plans of a run, one for each batch, in their order.

    The cursor counts examples, not batches. So the order of the examples stays the same if a run is
    resumed with another batch size. The cursor may then be inside a batch, and the first batch is
    the rest of that one.
    """

    def __init__(self, task: Task, seed: int, batch_size: int) -> None:
        self.task, self.seed, self.batch_size = task, seed, batch_size
        self.epoch = -1
        self.plans: Sequence[Plan] = []
        self.starts: Sequence[int] = []  # the cursor before each plan

    def next(self, state: State) -> Plan:
        """The plan of the next batch; moves the cursor of the state past it."""
        while True:
            self._make_plans(state.epoch)
            number = bisect_right(self.starts, state.cursor) - 1
            start, plan = self.starts[number], self.plans[number]
            end = start + max(1, len(plan))
            if state.cursor < end:
                rest = plan[state.cursor - start :]
                state.cursor = end
                return rest
            state.epoch, state.cursor = state.epoch + 1, 0

    def steps_per_epoch(self, accumulate: int) -> int:
        """Updates until every example of the first epoch was used."""
        self._make_plans(0)
        return -(-len(self.plans) // accumulate)

    def _make_plans(self, epoch: int) -> None:
        """Make the plans of an epoch, unless they are already made."""
        if self.epoch != epoch:
            plans = self.task.plans(self.seed, epoch, self.batch_size)
            # Even plans are made when asked for: there may be more than fit into memory.
            self.plans = plans if isinstance(plans, EvenPlans) else list(plans)
            if not self.plans:
                raise ValueError(f"there are no examples to learn from in epoch {epoch}")
            if isinstance(self.plans, EvenPlans):
                self.starts = self.plans.starts
            else:
                sizes = (max(1, len(plan)) for plan in self.plans[:-1])
                self.starts = list(accumulate(sizes, initial=0))
            self.epoch = epoch


def seed_weights(task: Task, seed: int) -> None:
    """Set torch's generator for the weights of a new model, which are drawn on the CPU."""
    if task.seeds_torch:
        torch.default_generator.manual_seed(seed)
    else:
        seed_torch(torch.device("cpu"), seed, "weights", 0)


def seed_torch(device: torch.device, seed: int, purpose: str, *counters: int) -> None:
    """Set torch's generators to numbers that depend on (seed, purpose, counters) alone.

    Not by torch.manual_seed, which records a stack trace for each missing device: 1 ms a step.
    """
    number = int(draw_bits(seed, purpose, *counters)[0]) >> 1
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
