"""training.parallel=ddp: each process has the whole model, and learns from its part of each batch.

PyTorch's DistributedDataParallel averages the gradients while the backward pass still runs, several
tensors at a time. The order of its sums depends on the number of processes, and so do the last
digits. With the same number of processes a run can be repeated and resumed bit for bit.

The gradient of a step is the mean over the loss terms of all processes, so a process with more
terms has more weight.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clearhead.data.batch import Batch
from clearhead.models.model import Model
from clearhead.parallel.group import Processes
from clearhead.parallel.owners import Owners
from clearhead.training.chunks import cut_plan
from clearhead.training.gradient import Gradients, Loss, MakeBatch, StepLoss
from clearhead.training.optimizer import Optimizer
from clearhead.training.recipe import TrainingConfig
from clearhead.training.state import seed_torch
from clearhead.training.tasks.task import Plan, Task


class Replicated(Processes):
    """Processes that each have the whole model."""

    def make_gradients(self, model: Model, task: Task, config: TrainingConfig) -> Gradients:
        self.shares_update = config.optimizer == "muon"
        self.owners = Owners(model, rank=self.rank, size=self.size, is_muon=self.shares_update)
        return ReplicatedGradients(model, task, config, self)

    def update(self, optimizer: Optimizer, factor: float) -> None:
        """Share out Muon's updates; those of AdamW and SGD take less time than sending them."""
        if self.shares_update:
            super().update(optimizer, factor)
        else:
            optimizer.step(factor)

    def collect(self, optimizer: Optimizer) -> None:
        if self.shares_update:
            super().collect(optimizer)

    def describe_cost(self, seconds: float) -> str | None:
        return None  # most of the exchange happens during the backward pass


class PartGradients(Gradients):
    """Each process learns from one part of every batch; the backward pass averages gradients."""

    def __init__(self, model: Model, task: Task, config: TrainingConfig, group: Processes) -> None:
        super().__init__(model, task.loss, precision=config.precision)
        self.model, self.task, self.config, self.group = model, task, config, group

    def split(self, plans: Sequence[Plan]) -> list[Plan]:
        """Divide each batch into one part for each process; parts may be empty."""
        return [part for plan in plans for part in cut_plan(plan, self.group.size)]

    def learn(self, parts: Sequence[Plan], make_batch: MakeBatch, step: int) -> StepLoss:
        if not self.model.training:
            self.model.train()
        size, own = self.group.size, range(self.group.rank, len(parts), self.group.size)
        batches = [self._make(parts, number, make_batch, step) for number in own]
        counts = [self._count(parts[i], batch) for i, batch in zip(own, batches, strict=True)]
        terms = self._collect(counts)
        n_terms, losses = max(1, sum(terms)), []  # a mean over nothing is 0
        with self.group.explain_faults():
            self.prepare(batches[0])
        for number, batch, n in zip(own, batches, counts, strict=True):
            seed_torch(self.device, self.config.seed, "dropout", step, number)
            with self.group.explain_faults(), self.delay_exchange(number != own[-1]):
                loss = self.compute_loss(batch)
                (loss * (n * size / n_terms)).backward()  # the exchange divides by size
            losses.append(float(loss.detach()))
        all_losses = self._collect(losses)
        mean = sum(loss * n for loss, n in zip(all_losses, terms, strict=True)) / n_terms
        return StepLoss([torch.tensor(loss) for loss in all_losses], torch.tensor(mean))

    def prepare(self, batch: Batch) -> None:
        """Called before each step, with one of its batches."""

    def compute_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch, whose backward pass will average the gradients of all processes."""
        raise NotImplementedError

    def delay_exchange(self, wanted: bool) -> AbstractContextManager[Any]:
        """A `with` block in which, if wanted, gradients are added up in this process only."""
        raise NotImplementedError

    def _make(self, parts: Sequence[Plan], number: int, make_batch: MakeBatch, step: int) -> Batch:
        """The batch of a part. All processes must compute something, so an empty part borrows an
        example from another part, with weight 0."""
        seed_torch(self.device, self.config.seed, "chunk", step, number)
        first = number - number % self.group.size
        others = (part[:1] for part in parts[first : first + self.group.size] if len(part))
        return make_batch(parts[number] if len(parts[number]) else next(others))

    def _count(self, part: Plan, batch: Batch) -> float:
        """The terms of the loss of a part: its weight; 0 if it only borrows an example."""
        return float(self.task.count_terms(batch)) if len(part) else 0.0

    def _collect(self, own: Sequence[float]) -> list[float]:
        """The numbers of all processes, in the order of the parts."""
        by_rank = self.group.gather_numbers(own)  # part i belongs to rank i % size
        return [number for row in zip(*by_rank, strict=True) for number in row]


class ReplicatedGradients(PartGradients):
    """Computes the gradient with DistributedDataParallel."""

    replica: DistributedDataParallel | None = None

    def prepare(self, batch: Batch) -> None:
        """Before the first step, make the replica and let it choose the order of the gradients.

        DistributedDataParallel orders them as its first backward pass computes them, and the sums
        depend on this order. That first pass is made here, and its gradients are dropped, so that
        a new run and a resumed run have the same order from their first step on.
        """
        if self.replica is not None:
            return
        before = [buffer.clone() for buffer in self.model.buffers()]
        _, gradient = self._differentiate(self.model, batch)
        has_unused = self.group.any(any(part is None for part in gradient))
        del gradient  # the replica needs the memory
        self.replica = DistributedDataParallel(
            _Loss(self.model, self.task.loss),
            find_unused_parameters=has_unused,
            gradient_as_bucket_view=True,
        )
        self.compute_loss(batch).backward()
        for parameter in self.parameters:
            parameter.grad = None
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)

    def compute_loss(self, batch: Batch) -> Tensor:
        assert self.replica is not None
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.is_mixed):
            loss: Tensor = self.replica(batch)
        return loss

    def delay_exchange(self, wanted: bool) -> AbstractContextManager[Any]:
        assert self.replica is not None
        return self.replica.no_sync() if wanted else nullcontext()

    def norm(self) -> Tensor:
        """The length of the gradient, on the CPU, where the losses are, too."""
        return super().norm().cpu()


class _Loss(nn.Module):
    """The loss as a module: DistributedDataParallel needs one, however the loss calls the model."""

    def __init__(self, model: Model, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)
