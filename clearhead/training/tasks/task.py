"""A task: examples, what is predicted of them, what a wrong prediction costs, how well it goes.

The data of a task are a frozen config (`data` of a recipe); `open` reads them and gives the task.
The loop asks for plans, one for each batch of an epoch, as a function of (seed, epoch), and has
each plan made into a batch when its turn comes: so a run that was stopped goes on at its place.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.data.batch import Batch, in_batches
from clearhead.models.model import Config, Model

__all__ = ["DataConfig", "Task"]

Plan = Sequence[int]


@dataclass(frozen=True)
class DataConfig(Config):
    """Which examples; a subclass opens them."""

    def open(self) -> "Task":
        """Read the data."""
        raise NotImplementedError


class Task(ABC):
    """What is learned. Higher is better for `best_by` unless it is a loss or a perplexity."""

    model_type: type[Model]
    best_by: str = "val_loss"
    fingerprint: str  # 64 hexadecimal digits that stand for all examples
    n_examples: int  # of the training part

    @abstractmethod
    def complete(self, config: Config) -> Config:
        """The model's config with what the data decide, such as the size of the vocabulary."""

    def prepared(self, model: Any) -> Any:
        """A new model, after what of its numbers the data decide has been set; often nothing."""
        return model

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Plan]:
        """What each batch of an epoch is made of: every example once, in random order."""
        return in_batches(self.n_examples, batch_size, seed=seed, epoch=epoch)

    @abstractmethod
    def batch(self, plan: Plan) -> Batch:
        """The training examples of a plan."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The mean cost of the predictions for a batch, a number."""

    @abstractmethod
    def evaluate(self, model: Any) -> dict[str, float]:
        """Measures on the whole validation part: val_loss and others."""

    @abstractmethod
    def overfit(self, n: int) -> Self:
        """The same task with n training examples, on which it is also evaluated."""

    def sample(self, model: Any) -> str | None:
        """What the model says now, for people to read."""
        return None

    def predict(self, model: Any, text: str) -> dict[str, Any]:
        """The model's answer to one input, as values with names."""
        raise ValueError(f"{type(self).__name__} answers no single input")

    def next_command(self, run: Path) -> str:
        """What to do with the model now."""
        return f"clearhead eval {run}"

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what is needed to use the model later, such as the tokenizer."""

    def is_better(self, values: Mapping[str, float], best: float | None) -> bool:
        """Whether these measures are better than the best so far; NaN never is."""
        value = values[self.best_by]
        lower = self.best_by.endswith(("loss", "perplexity"))
        return value == value and (best is None or (value < best if lower else value > best))
