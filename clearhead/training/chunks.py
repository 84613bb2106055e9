r"""The gradient of a step in chunks: the same bits on any number of processes.

    training.parallel=exact  training.chunks=4         a step is divided into 4 chunks

Floating-point sums depend on their order: (a + b) + c is not always a + (b + c). So the gradients
of the chunks are always added along the same tree, whichever process computes them:

    0   1   2   3
     \ /     \ /          one process adds up everything; with two, one adds 0 and 1, the
     0-1     2-3          other 2 and 3, and then each sends the other a part of its sum
        \   /
         0-3

With several processes, each needs the sum for its own parameters only: it updates these, and then
sends them to the others.

Everything else in a chunk depends on (seed, step, chunk) alone: its examples, its augmentation and
its dropout. The gradient of the step is the mean over all terms of its loss, so a smaller chunk
has less weight. Batch norm sees one chunk at a time. Its running statistics, and all other buffers
that hold numbers, change by the mean of their changes over the chunks (whole numbers are rounded).
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from clearhead.data.batch import Batch
from clearhead.models.model import Model
from clearhead.shapes import all_finite
from clearhead.training.gradient import Gradients, MakeBatch, StepLoss, check_workers
from clearhead.training.recipe import TrainingConfig
from clearhead.training.state import seed_torch
from clearhead.training.tasks.task import Plan, Task

if TYPE_CHECKING:
    from clearhead.training.group import Group

Span = tuple[int, int]  # (first, end): the chunks first … end − 1

# The tree


def split_span(span: Span) -> tuple[Span, Span]:
    """The two subtrees of a span; the left one has the largest power of two below the size."""
    first, end = span
    middle = first + (1 << (end - first - 1).bit_length() - 1)
    return (first, middle), (middle, end)


def list_subtrees(chunks: range, span: Span) -> list[Span]:
    """The largest subtrees of `span` that contain only these chunks."""
    first, end = span
    if first in chunks and end - 1 in chunks:
        return [span]
    if end - first == 1:
        return []
    return [found for half in split_span(span) for found in list_subtrees(chunks, half)]


def add_tree(span: Span, find: Callable[[Span], Tensor | None]) -> Tensor:
    """Add up the chunks of `span` along the tree, in place.

    find: returns the sum of a span, or None if it must first be added up.
    """
    known = find(span)
    if known is not None:
        return known
    left, right = split_span(span)
    total = add_tree(left, find)
    return total.add_(add_tree(right, find))


def count_chunks(c: TrainingConfig) -> int:
    """The chunks of a step: `chunks`, rounded up so that each batch has equally many, but at most
    one for each example.

    The last batch of an epoch may be smaller, and have fewer.
    """
    return c.accumulate * min(c.batch_size, -(-c.chunks // c.accumulate))


def cut_plan(plan: Plan, n: int) -> list[Plan]:
    """Divide a batch into n parts of nearly equal size; some are empty if n is too large."""
    ends = [len(plan) * i // n for i in range(n + 1)]
    return [plan[a:b] for a, b in pairwise(ends)]


def split_plan(plan: Plan, n: int) -> list[Plan]:
    """Divide a batch into at most n parts of nearly equal size, none of them empty."""
    return [part for part in cut_plan(plan, n) if len(part)]


def share_chunks(n: int, rank: int, size: int) -> range:
    """Which of n chunks the process of this rank computes; each chunk belongs to one process."""
    return range(rank * n // size, (rank + 1) * n // size)


# The gradient


class ChunkedGradients(Gradients):
    """Computes the chunks of this process, and takes part in the sum over all processes."""

    def __init__(
        self,
        model: Model,
        task: Task,
        config: TrainingConfig,
        *,
        workers: int,
        group: "Group",
    ) -> None:
        """workers: how many chunks this process computes at once; group: who adds them up."""
        super().__init__(model, task.loss, precision=config.precision)
        check_workers(model.config, workers)
        self.task, self.config, self.group = task, config, group
        self.own = group.list_own(len(self.parameters))
        shared = {id(p): p for p in model.parameters()}
        copies = [copy.deepcopy(model, {**shared}) for _ in range(workers - 1)]
        self.replicas = [Replica(each, self.parameters) for each in (model, *copies)]
        self.worker_pool = ThreadPoolExecutor(workers) if workers > 1 else None

    def split(self, plans: Sequence[Plan]) -> list[Plan]:
        """Divide the batches of a step into the chunks of all processes."""
        n = -(-self.config.chunks // len(plans))
        return [part for plan in plans for part in split_plan(plan, n)]

    def learn(self, parts: Sequence[Plan], make_batch: MakeBatch, step: int) -> StepLoss:
        n, own = len(parts), self.group.share(len(parts))
        first = self.replicas[0]
        before = [buffer.clone() for buffer in first.buffers]
        for replica in self.replicas:
            if not replica.model.training:  # asking is cheaper than setting every module's flag
                replica.model.train()

        def make(chunk: int) -> Batch:
            seed_torch(self.device, self.config.seed, "chunk", step, chunk)
            return make_batch(parts[chunk])

        vectors = self._run(own, make, n, before)

        def find(span: Span) -> Tensor | None:  # add_tree asks for the chunks in their order
            return next(vectors) if span[1] - span[0] == 1 else None

        sums = {span: add_tree(span, find) for span in list_subtrees(own, (0, n))}
        total = self.group.add_up(sums, n, first.measure_vector(n))
        return first.unpack(total, n, before, self.own)

    def norm(self) -> Tensor:
        """The length of the gradient, from the length for each parameter."""
        lengths = torch.zeros(len(self.parameters), device=self.device)
        own = {i: g for i in self.own if (g := self.parameters[i].grad) is not None}
        if own:
            lengths[list(own)] = torch.stack([torch.linalg.vector_norm(g) for g in own.values()])
        return torch.linalg.vector_norm(self.group.add_own(lengths))

    def find_not_finite(self) -> nn.Parameter | None:
        flags = torch.zeros(len(self.parameters))
        for i in self.own:
            gradient = self.parameters[i].grad
            flags[i] = gradient is not None and not all_finite(gradient)
        found = self.group.add_own(flags).nonzero().flatten().tolist()
        return self.parameters[found[0]] if found else None

    def _run(
        self, own: range, make: Callable[[int], Batch], n: int, before: Sequence[Tensor]
    ) -> Iterator[Tensor]:
        """The vector of each chunk, in order; several are computed at once if there are workers."""

        def differentiate(replica: Replica, chunk: int, batch: Batch) -> Tensor:
            for buffer, old in zip(replica.buffers, before, strict=True):
                buffer.copy_(old)
            loss, gradient = self._differentiate(replica.model, batch)
            return replica.pack(gradient, loss, self.task.count_terms(batch), chunk, n, before)

        if self.worker_pool is None:
            for chunk in own:
                yield differentiate(self.replicas[0], chunk, make(chunk))
            return
        free: SimpleQueue[Replica] = SimpleQueue()
        for replica in self.replicas:
            free.put(replica)

        def work(chunk: int, batch: Batch) -> Tensor:
            replica = free.get()
            try:
                return differentiate(replica, chunk, batch)
            finally:
                free.put(replica)

        yield from self.worker_pool.map(work, own, [make(chunk) for chunk in own])


class Replica:
    """Packs all results of a chunk into one vector, so that they can be added up over the chunks.

    gradient     the gradient of the sum of all loss terms; `unpack` divides by their number
    is_used      for each parameter: 1 if this chunk has a gradient for it, else 0
    losses       a number for each chunk: the loss of this chunk, and 0 for all others
    terms        a number for each chunk: how many loss terms this one has, and 0 for all others
    changes      by how much the buffers changed, such as the running statistics of batch norm
    """

    def __init__(self, model: Model, parameters: Sequence[nn.Parameter]) -> None:
        self.model, self.parameters = model, parameters
        self.buffers = [buffer for buffer in model.buffers() if buffer.dtype is not torch.bool]

    def measure_vector(self, n: int) -> int:
        """The length of the vector of a step with n chunks."""
        tensors = (*self.parameters, *self.buffers)
        return sum(t.numel() for t in tensors) + len(self.parameters) + 2 * n

    def pack(
        self,
        gradient: Sequence[Tensor | None],
        loss: Tensor,
        n_terms: int,
        chunk: int,
        n: int,
        before: Sequence[Tensor],
    ) -> Tensor:
        """The vector of one chunk of n; before: the buffers before this step."""
        dtype = self.parameters[0].dtype
        gradients = [
            torch.zeros_like(parameter) if part is None else part
            for parameter, part in zip(self.parameters, gradient, strict=True)
        ]
        is_used = torch.tensor([part is not None for part in gradient], device=loss.device)
        losses, terms = torch.zeros(2, n, dtype=dtype, device=loss.device)
        losses[chunk], terms[chunk] = loss, n_terms
        changes = [  # inf − inf would be NaN
            torch.where(buffer == old, 0, buffer - old)
            for buffer, old in zip(self.buffers, before, strict=True)
        ]
        pieces = (*gradients, is_used, losses, terms, *changes)
        vector = torch.cat([piece.flatten().to(dtype) for piece in pieces])
        vector[: sum(part.numel() for part in gradients)].mul_(n_terms)
        return vector

    def unpack(self, vector: Tensor, n: int, before: Sequence[Tensor], own: range) -> StepLoss:
        """Set each .grad to the mean over all terms, and change the buffers by the mean change.

        own: the indices of the parameters whose gradient is in the vector.
        """
        pieces = self._cut(vector, n, own)
        n_terms = pieces.terms.sum().clamp(min=1)  # a mean over nothing is 0
        is_used = pieces.is_used.tolist()
        for i, piece in zip(own, pieces.gradient, strict=True):
            if is_used[i]:
                parameter = self.parameters[i]
                # In the parameter's memory layout: the fused AdamW reads both in this order.
                parameter.grad = torch.empty_like(parameter, requires_grad=False)
                torch.div(piece.view(parameter.shape), n_terms, out=parameter.grad)
        for buffer, piece, old in zip(self.buffers, pieces.changes, before, strict=True):
            change = piece.view(buffer.shape) / n
            if not old.is_floating_point():
                change = change.round().to(old.dtype)
            buffer.copy_(old + change)
        mean = (pieces.losses * pieces.terms).sum() / n_terms
        return StepLoss(list(pieces.losses), mean)

    def _cut(self, vector: Tensor, n: int, own: range) -> "Pieces":
        """Divide the vector of a step, which has the gradients of the own parameters only."""
        k = len(own)
        gradient = [self.parameters[i].numel() for i in own]
        changes = [buffer.numel() for buffer in self.buffers]
        pieces = vector.split([*gradient, len(self.parameters), n, n, *changes])
        is_used, losses, terms = pieces[k : k + 3]
        return Pieces(pieces[:k], is_used, losses, terms, pieces[k + 3 :])


@dataclass(frozen=True)
class Pieces:
    """The vector of a Replica, cut into its parts."""

    gradient: Sequence[Tensor]
    is_used: Tensor
    losses: Tensor
    terms: Tensor
    changes: Sequence[Tensor]
