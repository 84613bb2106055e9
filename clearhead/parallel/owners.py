"""Each process updates its own parameters, and sends them to the others.

    rank 0    embedding, blocks 0 … 2        adds up their gradients, updates them, sends them
    rank 1    blocks 3 … 5, head             likewise

A step of the optimizer takes long: in shakespeare-char Muon needs a third of the time of both
passes. If each process updated all parameters, more processes would not make it faster. Sending the
new parameters instead of the summed gradients costs nothing more. This is the first stage of ZeRO
(Rajbhandari et al. 2020), except that every process has room for all tensors of the optimizer: each
keeps its own up to date, and all are collected before a snapshot.

The parameters are divided in their own order, so that each process has about the same work.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearhead.parallel.waiting import finish
from clearhead.training.optimizer import Optimizer, find_inner_matrices

ADAMW_COST = 100  # an AdamW update of one number takes as long as so many operations of Muon


class Owners:
    """Which parameters each process updates.

    ranges[rank]: the indices of its parameters. slices[rank]: where they start and end in a vector
    of all parameters.
    """

    def __init__(self, model: nn.Module, *, rank: int, size: int, is_muon: bool) -> None:
        self.rank = rank
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        inner = set(find_inner_matrices(model).values()) if is_muon else set()
        costs = [estimate_cost(p, is_muon=p in inner) for p in self.parameters]
        self.ranges = divide_costs(costs, size)
        ends = [0, *accumulate(p.numel() for p in self.parameters)]
        self.slices = [(ends[own.start], ends[own.stop]) for own in self.ranges]

    @property
    def own(self) -> range:
        return self.ranges[self.rank]

    def drop_others(self) -> None:
        """Drop the gradients of the parameters that other processes update."""
        for i, parameter in enumerate(self.parameters):
            if i not in self.own:
                parameter.grad = None

    @torch.no_grad()
    def send_parameters(self) -> None:
        """Send the own parameters to the other processes, and get theirs."""
        vector = self.parameters[0].new_empty(self.slices[-1][1])
        pieces = vector.split([p.numel() for p in self.parameters])
        for i in self.own:
            pieces[i].copy_(self.parameters[i].flatten())
        parts = [(rank, vector[start:end]) for rank, (start, end) in enumerate(self.slices)]
        works = [dist.broadcast(part, rank, async_op=True) for rank, part in parts if len(part)]
        finish(works, vector.device)
        for i, (parameter, piece) in enumerate(zip(self.parameters, pieces, strict=True)):
            if i not in self.own:
                parameter.copy_(piece.view(parameter.shape))

    @torch.no_grad()
    def send_optimizer(self, optimizer: Optimizer) -> None:
        """Send what the optimizer keeps for the own parameters, and get the rest."""
        for rank, indices in enumerate(self.ranges):
            tensors = [t for i in indices for t in optimizer.find_tensors(self.parameters[i])]
            if not tensors:
                continue
            vector = torch.cat([tensor.flatten() for tensor in tensors])
            dist.broadcast(vector, rank)
            pieces = vector.split([tensor.numel() for tensor in tensors])
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view(tensor.shape))


def estimate_cost(parameter: Tensor, *, is_muon: bool) -> int:
    """About how many operations an update takes.

    A Newton–Schulz step multiplies (r, c) (c, r), (r, r) (r, r) and (r, r) (r, c), where r ≤ c.
    """
    cost = ADAMW_COST * parameter.numel()
    if is_muon:
        r, c = sorted(parameter.flatten(1).shape)
        cost += 5 * 2 * (2 * r * r * c + r**3)
    return cost


def divide_costs(costs: Sequence[int], size: int) -> list[range]:
    """Divide a row of costs into one part for each process, all of about the same cost."""
    ends = torch.tensor([0, *costs], dtype=torch.float64).cumsum(0)
    targets = ends[-1] * torch.arange(size + 1) / size
    cuts = (ends - targets.unsqueeze(1)).abs().argmin(1)  # the nearest end to each target
    cuts[-1] = len(costs)
    return [range(start, stop) for start, stop in pairwise(cuts.tolist())]
