"""The processes that train one run together; in this file, a single process.

The loop asks its group wherever all processes must do the same: stop after the same step, evaluate
the same model, continue from the same weights, and update by the same gradient. One process has
nobody to ask, so every answer is its own. clearhead/parallel/group.py has the same methods for
several processes, and no other part of the loop knows how many there are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.models.model import Model
from clearhead.training.chunks import ChunkedGradients, Span, share_chunks
from clearhead.training.gradient import Gradients
from clearhead.training.optimizer import Optimizer, orthogonalise_each
from clearhead.training.recipe import TrainingConfig
from clearhead.training.tasks.task import Task


class Stop(BaseException):
    """Ends the loop, or an evaluation at once. No `except Exception` catches a BaseException."""


class Group:
    """One process alone."""

    rank: int = 0
    size: int = 1
    can_interrupt: bool = True  # whether a signal may end an evaluation that is being computed
    can_sample: bool = True  # whether the model can write samples while it trains

    def __init__(self, *, has_agent: bool = False) -> None:
        """has_agent: another program has started this process and will end it."""
        self.has_agent = has_agent

    # What is trained

    def prepare(self, model: Model, device: torch.device) -> Model:
        """The model as this process holds it."""
        return model.to(device)

    def make_gradients(self, model: Model, task: Task, config: TrainingConfig) -> Gradients:
        """The object that computes the gradient of a step."""
        if config.parallel is None:
            compiled = torch.compile(model) if config.compile else None
            workers, precision = config.workers, config.precision
            return Gradients(
                model, task.loss, workers=workers, compiled=compiled, precision=precision
            )
        if config.parallel == "exact":
            workers = config.workers if self.size == 1 else 1  # the processes replace the workers
            return ChunkedGradients(model, task, config, workers=workers, group=self)
        raise ValueError(
            f"training.parallel={config.parallel} needs a group of processes: "
            f"use clearhead.training.train or clearhead launch, or take training.parallel=exact"
        )

    def make_optimizer(self, model: Model, config: TrainingConfig) -> Optimizer:
        """The optimizer of the weights that this process holds."""
        optimizer = config.make_optimizer(model)
        if config.parallel == "exact":  # a process may update any number of the matrices
            optimizer.muon.orthogonalise = orthogonalise_each
        return optimizer

    def find_notice(self, config: TrainingConfig) -> str | None:
        """A sentence that the user should read before the first step, or None."""
        return None

    def describe_cost(self, seconds: float) -> str | None:
        """A sentence: how much of these seconds of training the exchange took, or None."""
        return None

    # What all processes do together

    def share(self, n: int) -> range:
        """Which of n chunks this process computes."""
        return share_chunks(n, self.rank, self.size)

    def add_up(self, parts: Mapping[Span, Tensor], n: int, length: int) -> Tensor:
        """The sum of the vectors of all n chunks.

        parts: for each subtree of this process, the sum of its vectors. length: of a vector; a
        process without chunks has none to measure. A vector starts with the gradients of all
        parameters; the result starts with those that this process updates, and no others.
        """
        return parts[0, n]

    def list_own(self, n: int) -> range:
        """Which of n parameters this process updates: its own parameters."""
        return range(n)

    def add_own(self, numbers: Tensor) -> Tensor:
        """Add up a vector with a number for each parameter, 0 for those of other processes."""
        return numbers

    def update(self, optimizer: Optimizer, factor: float) -> None:
        """Update all parameters, with the learning rates times this factor."""
        optimizer.step(factor)

    def collect(self, optimizer: Optimizer) -> None:
        """Before a snapshot: get the tensors of the optimizer from those who update them."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def ask_first(self, question: Callable[[], Any]) -> Any:
        """The answer of the first process; if its question raises Stop, all processes raise it."""
        return question()

    def measure(self, question: Callable[[], Any]) -> Any:
        """The answer of the first process to a question about the model."""
        return self.ask_first(question)

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite these tensors with those of the first process."""

    def compare(self, facts: Mapping[str, Any], ignore: Collection[str] = ()) -> None:
        """Refuse to start if a fact, such as a setting, differs between processes.

        ignore: the full names of facts that may differ, such as "python".
        """

    def wait(self) -> None:
        """Wait until all processes are here."""
