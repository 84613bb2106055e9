"""The gradient of a step: of its batches one after the other, or of several side by side.

    learner = Learner(model, task.loss, workers=2)
    losses = learner.learn(batches)         each parameter's .grad is now the mean over the batches

Threads inside an operation have to meet after each one; workers, of which each takes a whole batch,
meet once a batch. On two cores two workers learn 1.5 times as many pictures as one with two
threads, and a busy core costs no more than its share.

The workers share the parameters. What a forward pass changes in a model, the running means of batch
norm, each has for itself, and the mean of all is kept. The gradients are added in the order of the
batches. So the numbers depend on how many workers there are, never on how many run at once; what a
step draws at random is drawn before, since workers would come to the generator in any order.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data.batch import Batch
from clearhead.models.model import Model
from clearhead.shapes import check_positive

Loss = Callable[[Any, Batch], Tensor]
Gradient = tuple[Tensor | None, ...]


class Learner:
    """Some copies of a model with the same parameters, and threads that go through them."""

    def __init__(
        self,
        model: Model,
        loss: Loss,
        *,
        workers: int = 1,
        compiled: Callable[..., Any] | None = None,
    ) -> None:
        """workers: batches at once; compiled: the model in a faster form, for one worker."""
        check_workers(model.config, workers)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = model.device
        self.loss, self.threads = loss, torch.get_num_threads()
        shared = {id(p): p for p in model.parameters()}
        self.models = [model, *(copy.deepcopy(model, {**shared}) for _ in range(workers - 1))]
        self.forwards = self.models if compiled is None else [compiled]
        self.pool = ThreadPoolExecutor(min(workers, self.threads)) if workers > 1 else None

    def learn(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Set each gradient, None before, to the mean over these batches; returns their losses."""
        losses: list[Tensor] = []
        for start in range(0, len(batches), len(self.models)):
            for loss, gradient in self._side_by_side(batches[start : start + len(self.models)]):
                losses.append(loss)
                _add(self.parameters, gradient, 1 / len(batches))
        return losses

    def _side_by_side(self, batches: Sequence[Batch]) -> list[tuple[Tensor, Gradient]]:
        """The loss and the gradient of as many batches as there are workers, or fewer."""
        for model in self.models:
            if not model.training:  # to ask is cheaper than to tell every part of it
                model.train()
        forwards = self.forwards[: len(batches)]
        if self.pool is None:
            return [self._gradient(forwards[0], batches[0])]
        _copy_buffers(self.models)
        torch.set_num_threads(max(1, self.threads // len(self.models)))
        try:
            found = list(self.pool.map(self._gradient, forwards, batches))
        finally:
            torch.set_num_threads(self.threads)
        _average_buffers(self.models[: len(batches)])
        return found

    def _gradient(self, forward: Callable[..., Any], batch: Batch) -> tuple[Tensor, Gradient]:
        # Half precision where an accelerator has it; never on a CPU, where it is slower.
        on_gpu = self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = self.loss(forward, batch)
        return loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True)


def check_workers(config: Config, workers: int) -> None:
    """A model with this config can be learned by so many."""
    check_positive(workers=workers)
    if workers > 1 and getattr(config, "dropout", None):
        raise ValueError(
            f"workers={workers} would draw dropout in any order, and a run could not be repeated; "
            f"take training.workers=1 or model.dropout=0"
        )


def _add(parameters: Sequence[nn.Parameter], gradient: Gradient, share: float) -> None:
    """Add a share of a batch's gradient to that of the step."""
    for parameter, part in zip(parameters, gradient, strict=True):
        if part is None:
            continue
        if parameter.grad is None:
            # Laid out as the parameter: the fused AdamW pairs numbers by their place in memory.
            parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(part)
            if share != 1:
                parameter.grad.mul_(share)
        else:
            parameter.grad.add_(part, alpha=share)


def _copy_buffers(models: Sequence[nn.Module]) -> None:
    """Those of the first to all others."""
    for first, *others in zip(*(model.buffers() for model in models), strict=True):
        for other in others:
            other.copy_(first)


def _average_buffers(models: Sequence[nn.Module]) -> None:
    """The mean of all to the first; what all have alike stays, to the bit."""
    for first, *others in zip(*(model.buffers() for model in models), strict=True):
        if not all(torch.equal(first, other) for other in others):
            first.copy_(torch.stack([first, *others]).mean(0))
