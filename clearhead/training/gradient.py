"""The gradient of a step: the mean over its batches, one after the other or several side by side.

    gradients = Gradients(model, task.loss, workers=2)
    losses = gradients.accumulate(batches)      each parameter's .grad is now the mean over them

Threads share a batch and wait for each other after every operation; workers have a batch each and
wait once per batch. On two cores, two workers learn 1.5 times as many pictures as one worker with
two threads, and they lose less if a core is also used by another program.

The workers share the parameters. Each has its own buffers, such as the running means of batch norm,
and after each batch the model keeps the mean of them. Gradients are added in the order of the
batches. So the numbers depend on the number of workers, not on how many of them the machine runs
at the same time. Workers would draw random numbers in an unpredictable order, so augmentation is
drawn before they start, and models with dropout are refused.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from clearhead.config import Config
from clearhead.data.batch import Batch
from clearhead.models.model import Model
from clearhead.models.registry import check_config
from clearhead.shapes import all_finite, check_positive
from clearhead.training.recipe import Recipe
from clearhead.training.tasks.task import Plan, Task

SHOWN = 8  # examples of a batch, in an error
HINT = "a smaller training.lr may help"

Loss = Callable[[Any, Batch], Tensor]
Gradient = tuple[Tensor | None, ...]
MakeBatch = Callable[[Plan], Batch]


@dataclass(frozen=True)
class StepLoss:
    """The loss of each part of a step, and over all of them."""

    losses: Sequence[Tensor]
    mean: Tensor


class Gradients:
    """Computes the gradients of a model by one or several workers."""

    def __init__(
        self,
        model: Model,
        loss: Loss,
        *,
        workers: int = 1,
        compiled: Callable[..., Any] | None = None,
        precision: str = "auto",
    ) -> None:
        """workers: batches at once; compiled: the model in a faster form, for one worker;
        precision: of matrix products in the model, as TrainingConfig has it."""
        check_workers(model.config, workers)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = model.device
        self.is_mixed = choose_mixed(precision, self.device)
        self.loss, self.threads = loss, torch.get_num_threads()
        shared = {id(p): p for p in model.parameters()}
        self.models = [model, *(copy.deepcopy(model, {**shared}) for _ in range(workers - 1))]
        self.forwards = self.models if compiled is None else [compiled]
        self.pool = ThreadPoolExecutor(min(workers, self.threads)) if workers > 1 else None

    def split(self, plans: Sequence[Plan]) -> list[Plan]:
        """The parts of a step whose gradients are computed one by one: here, its batches."""
        return list(plans)

    def learn(self, parts: Sequence[Plan], make_batch: MakeBatch, step: int) -> StepLoss:
        """Set each .grad, which must be None, to the gradient of the mean loss of these parts."""
        losses = self.accumulate([make_batch(part) for part in parts])
        return StepLoss(losses, torch.stack(losses).mean())

    def accumulate(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Set each .grad, which must be None, to the mean over these batches; returns losses."""
        losses: list[Tensor] = []
        for start in range(0, len(batches), len(self.models)):
            for loss, gradient in self._run_workers(batches[start : start + len(self.models)]):
                losses.append(loss)
                _add(self.parameters, gradient, 1 / len(batches))
        return losses

    def norm(self) -> Tensor:
        """The length of the gradient of all parameters together."""
        return get_total_norm([p.grad for p in self.parameters if p.grad is not None])

    def find_not_finite(self) -> nn.Parameter | None:
        """A parameter whose gradient is not finite; all processes call this together."""
        return next((p for p in self.parameters if not _is_finite(p.grad)), None)

    def _run_workers(self, batches: Sequence[Batch]) -> list[tuple[Tensor, Gradient]]:
        """The loss and the gradient of each batch; at most one batch per worker."""
        for model in self.models:
            if not model.training:  # asking is cheaper than setting the flag of every module
                model.train()
        forwards = self.forwards[: len(batches)]
        if self.pool is None:
            return [self._differentiate(forwards[0], batches[0])]
        _copy_buffers(self.models)
        torch.set_num_threads(max(1, self.threads // len(self.models)))
        try:
            found = list(self.pool.map(self._differentiate, forwards, batches))
        finally:
            torch.set_num_threads(self.threads)
        _average_buffers(self.models[: len(batches)])
        return found

    def _differentiate(self, forward: Callable[..., Any], batch: Batch) -> tuple[Tensor, Gradient]:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.is_mixed):
            loss = self.loss(forward, batch)
        return loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True)


def choose_mixed(precision: str, device: torch.device) -> bool:
    """Whether matrix products are computed in bfloat16, by a precision of TrainingConfig."""
    return precision == "bfloat16" or (precision == "auto" and device.type == "cuda")


def check_workers(config: Config, workers: int) -> None:
    """Refuse several workers for a model with dropout."""
    check_positive(workers=workers)
    if workers > 1 and getattr(config, "dropout", None):
        raise ValueError(
            f"workers={workers} would draw dropout in any order, and a run could not be repeated; "
            f"take training.workers=1 or model.dropout=0"
        )


def check_trainable(recipe: Recipe, task: Task) -> None:
    """Refuse what would fail in the first step, before a run is created."""
    check_config(recipe.model)
    check_workers(recipe.model, recipe.training.workers)
    _check_augment(task)
    if not recipe.training.compile:
        return
    if not task.can_compile:
        raise ValueError(
            f"training.compile is true, but the loss of a {type(task).__name__} goes through the "
            f"model in pieces, which are not compiled; set training.compile=false"
        )
    try:
        torch.compile(nn.Linear(2, 2))(torch.zeros(1, 2))
    except Exception as fault:
        raise ValueError(
            f"training.compile is true, but torch.compile does not work here "
            f"({type(fault).__name__}); set training.compile=false"
        ) from fault


def _check_augment(task: Task) -> None:
    """Refuse an `augment` that does not take the progress of the run."""
    try:
        signature(task.augment).bind(None, 0.0)
    except TypeError:
        raise ValueError(
            f"{type(task).__name__}.augment must take a batch and the progress of the run; define "
            f"it as augment(self, batch, progress=0.0)"
        ) from None


def _add(parameters: Sequence[nn.Parameter], gradient: Gradient, share: float) -> None:
    """Add this share of a batch's gradient to the gradient of the step."""
    for parameter, part in zip(parameters, gradient, strict=True):
        if part is None:
            continue
        if parameter.grad is None:
            # In the parameter's memory layout: the fused AdamW reads both in the order of memory.
            parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(part)
            if share != 1:
                parameter.grad.mul_(share)
        else:
            parameter.grad.add_(part, alpha=share)


def _copy_buffers(models: Sequence[nn.Module]) -> None:
    """Copy the buffers of the first model to all others."""
    for first, *others in zip(*(model.buffers() for model in models), strict=True):
        for other in others:
            other.copy_(first)


def _average_buffers(models: Sequence[nn.Module]) -> None:
    """Set the first model's buffers to the mean of all; equal ones stay as they are, to the bit."""
    for first, *others in zip(*(model.buffers() for model in models), strict=True):
        if not all(torch.equal(first, other) for other in others):
            first.copy_(torch.stack([first, *others]).mean(0))


# Numbers that are not finite


class NotFinite(ArithmeticError):
    """A loss, a gradient, a weight or a tensor of the optimizer is NaN or infinite."""


def check_finite_step(
    losses: Sequence[Tensor],
    norm: Tensor,
    plans: Sequence[Sequence[int]],
    find_name: Callable[[], str | None],
    step: int,
) -> None:
    """Raise NotFinite if a loss or the norm of the gradient is not finite.

    The norm is finite only if every number of the gradient is, so the gradients are searched only
    after a failure: find_name gives the name of a parameter whose gradient is not finite.
    """
    if bool(torch.stack([*losses, norm]).isfinite().all()):
        return
    for loss, plan in zip(losses, plans, strict=True):
        if len(plan) and not bool(loss.isfinite()):
            value, batch = float(loss), _list_examples(plan)
            raise NotFinite(f"the loss is {value} at step {step}, for {batch}; {HINT}")
    which = f"gradient of {name}" if (name := find_name()) else "norm of the gradient"
    batches = "; ".join(_list_examples(plan) for plan in plans)
    raise NotFinite(f"the {which} is not finite at step {step}, for {batches}; {HINT}")


def _is_finite(gradient: Tensor | None) -> bool:
    return gradient is None or all_finite(gradient)


def _list_examples(plan: Sequence[int]) -> str:
    numbers = ", ".join(str(number) for number in list(plan)[:SHOWN])
    rest = f", … ({len(plan)})" if len(plan) > SHOWN else ""
    return f"the batch of the examples {numbers}{rest}"
