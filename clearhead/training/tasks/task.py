"""A task: examples, what is predicted of them, what a wrong prediction costs, how well it goes.

The data of a task are a frozen config (`data` of a recipe); `open` reads them and gives the task.
The loop asks for plans, one for each batch of an epoch, as a function of (seed, epoch), and has
each plan made into a batch when its turn comes: so a run that was stopped goes on at its place.
What a trained model is used with is the task's answerer, which is kept in the run folder and can be
had without the data.
"""

import dataclasses
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.config import Config
from clearhead.data.batch import Batch, plan_batches
from clearhead.models import build_model
from clearhead.models.model import Model
from clearhead.training.answerers.answerer import Answerer

Plan = Sequence[int]


@dataclass(frozen=True)
class DataConfig(Config):
    """Which examples; a subclass opens them."""

    def open(self) -> "Task":
        """Read the data."""
        raise NotImplementedError

    @property
    def decided(self) -> dict[str, Any]:
        """What of the model's config is known before the data are read; often nothing."""
        return {}

    def answerer(self, folder: Path) -> Answerer:
        """What the task of these data kept in a run folder; the data are not read."""
        raise NotImplementedError


class Task(ABC):
    """What is learned. Higher is better for `best_by` unless it is a loss or a perplexity."""

    answerer: Answerer
    config_type: type[Config]  # of the models that can learn it
    best_by: str = "val_loss"
    unit: str = "examples"  # or "tokens": what its speed is counted in
    writes: bool = False  # its samples are texts, which show how it goes better than numbers
    compiles: bool = True  # its loss calls the whole model, which torch.compile can make faster
    fingerprint: str  # 64 hexadecimal digits that stand for all examples
    n_examples: int  # of the training part

    @property
    def learned_from(self) -> str:
        """The training examples in words, for the report."""
        return f"{self.n_examples:,} examples"

    @property
    def measured_on(self) -> str:
        """What it is evaluated on, in words."""
        return "examples that it did not learn from"

    def complete(self, config: Config) -> Any:
        """The model's config with what the data decide, such as the size of the vocabulary."""
        if not isinstance(config, self.config_type):
            raise TypeError(
                f"a {type(self).__name__} is learned by the model of a "
                f"{self.config_type.__name__}, got a {type(config).__name__}"
            )
        return dataclasses.replace(config, **self.answerer.decided, **self.sizes(config))

    def sizes(self, config: Any) -> dict[str, Any]:
        """What else the data decide: how long or how large an example is."""
        return {}

    def build(self, config: Config) -> Model:
        """A new model of a complete config."""
        return build_model(config)

    def prepared(self, model: Any) -> Any:
        """The new model, once those of its numbers that the data decide are set; often none."""
        return model

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Plan]:
        """What each batch of an epoch is made of: every example once, in random order."""
        return plan_batches(self.n_examples, batch_size, seed=seed, epoch=epoch)

    @abstractmethod
    def batch(self, plan: Plan) -> Batch:
        """The training examples of a plan."""

    def changed(self, batch: Batch) -> Batch:
        """The batch with what chance changes in it, such as pictures shifted; often nothing.

        Chance is torch's own generator, which the loop sets anew for each step.
        """
        return batch

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

    def next_command(self, run: Path) -> str:
        """What to do with the model now."""
        return f"clearhead eval {shlex.quote(str(run))}"

    def save(self, folder: Path) -> None:
        """Write what is needed to use the model later, such as the tokenizer."""
        self.answerer.save(folder)

    def is_better(self, values: Mapping[str, float], best: float | None) -> bool:
        """Whether these measures are better than the best so far; NaN never is."""
        value = values[self.best_by]
        lower = self.best_by.endswith(("loss", "perplexity"))
        return value == value and (best is None or (value < best if lower else value > best))
