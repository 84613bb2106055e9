"""How the learning rate goes up and down: a factor between 0 and 1 for every step.

    WarmupLinear      0 ↗ 1 at `warmup`, ↘ 0 at `max_steps`
    WarmupCosine      the same, but down along half a cosine
    WarmupStable      the same way up, then 1, and down to 0 over the last `cooldown` steps

A schedule is a plain function of the step, so none of it has to be saved. Update number s, counted
from 0, uses the factor at s + ½, so that neither the first nor the last update has a factor of 0.
"""

import math
from dataclasses import dataclass

from clearhead.shapes import check_choice, check_count


@dataclass(frozen=True)
class Schedule:
    """A factor for every step. A subclass defines how it falls after the warm-up."""

    warmup: int
    max_steps: int

    def __post_init__(self) -> None:
        check_count(warmup=self.warmup, max_steps=self.max_steps)
        if self.warmup > self.max_steps:
            raise ValueError(
                f"warmup must not be longer than the run of {self.max_steps} steps, "
                f"got {self.warmup}"
            )

    def __call__(self, step: float) -> float:
        """The factor at this step: 0 at step 0 if there is a warm-up, 0 from max_steps on."""
        if step >= self.max_steps or step < 0:
            return 0.0
        if step < self.warmup:
            return step / self.warmup
        return self.after_warmup(step)

    def after_warmup(self, step: float) -> float:
        """The factor from the end of the warm-up, where it is 1, to max_steps."""
        raise NotImplementedError


@dataclass(frozen=True)
class WarmupLinear(Schedule):
    """Straight up, straight down."""

    def after_warmup(self, step: float) -> float:
        return (self.max_steps - step) / (self.max_steps - self.warmup)


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """Straight up, down along a cosine to `lowest` (Loshchilov & Hutter 2017)."""

    lowest: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lowest <= 1:
            raise ValueError(f"lowest must be a factor from 0 to 1, got {self.lowest}")

    def after_warmup(self, step: float) -> float:
        done = (step - self.warmup) / (self.max_steps - self.warmup)
        return self.lowest + (1 - self.lowest) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class WarmupStable(Schedule):
    """Straight up, level, straight down over the last `cooldown` steps."""

    cooldown: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(cooldown=self.cooldown)
        if self.warmup + self.cooldown > self.max_steps:
            raise ValueError(
                f"warmup and cooldown must fit the run of {self.max_steps} steps, "
                f"got {self.warmup} and {self.cooldown}"
            )

    def after_warmup(self, step: float) -> float:
        left = self.max_steps - step
        return left / self.cooldown if left < self.cooldown else 1.0


SCHEDULES = ("linear", "cosine", "stable")


def make_schedule(kind: str, warmup: int, max_steps: int, *, cooldown: int = 0) -> Schedule:
    """The schedule of this name; cooldown is for "stable"."""
    check_choice("schedule", kind, SCHEDULES)
    if kind == "stable":
        return WarmupStable(warmup, max_steps, cooldown)
    return {"linear": WarmupLinear, "cosine": WarmupCosine}[kind](warmup, max_steps)
