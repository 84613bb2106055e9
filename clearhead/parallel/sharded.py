"""training.parallel=fsdp: each process holds a part of every weight, for models that do not fit.

PyTorch's FSDP2 (fully_shard) divides the rows of each weight among the processes, and with them
the gradients and the tensors of the optimizer. Before a block is computed, its weights are gathered
from all processes; afterwards they are dropped. So a process needs memory for its share of
the model, for one or two whole blocks, and for what lies outside the blocks: embedding and head.

    rank 0    rows 0 … 32 of a weight with 65 rows, and of its gradient, momentum, …
    rank 1    rows 33 … 64

Each process first builds the whole model on its CPU, so that the first weights are the same as in a
run of one process with the same seed. Then the model is sharded, and each process keeps its rows.

As with ddp, each process learns from its part of each batch, and the last digits depend on the
number of processes; with the same number, a run can be repeated and resumed bit for bit. Buffers,
such as the running statistics of batch norm, are whole in each process; after every step they
become the mean over the processes. All processes evaluate together, each on all examples, since
each has weights that the others need; the results of the first process are used. In mixed precision
an evaluation computes in bfloat16, unlike `clearhead eval` and the other modes. Samples need whole
weights, so a run writes them only at its end.
"""

import ctypes
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.utils.checkpoint import checkpoint

from clearhead.data.batch import Batch
from clearhead.models.model import Model
from clearhead.parallel.counting import find_blocks
from clearhead.parallel.group import Processes
from clearhead.parallel.meeting import NoAnswer
from clearhead.parallel.replicated import PartGradients
from clearhead.parallel.shards import take_rows
from clearhead.parallel.signs import ENDED
from clearhead.runtime import Place
from clearhead.shapes import all_finite
from clearhead.training.gradient import Gradients, MakeBatch, StepLoss, choose_mixed
from clearhead.training.optimizer import Optimizer, orthogonalise
from clearhead.training.recipe import TrainingConfig
from clearhead.training.tasks.task import Plan, Task

MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD in malloc.h


class Sharded(Processes):
    """Processes that each have a part of every weight."""

    can_interrupt = False  # the others would wait for the weights of this process
    can_sample = False

    def __init__(self, device: torch.device, place: Place) -> None:
        super().__init__(device, place)
        _return_freed_memory()

    def prepare(self, model: Model, device: torch.device) -> Model:
        """The model on the CPU, since a GPU may be too small; `shard` moves block after block."""
        return model

    def make_gradients(self, model: Model, task: Task, config: TrainingConfig) -> Gradients:
        """Shard the model in place, and return the object that computes its gradient."""
        self.compare({"the first weights": _hash_numbers(model.state_dict().values())})
        self.root = shard(
            model,
            kind=self.device.type,
            size=self.size,
            mixed=choose_mixed(config.precision, self.device),
            checkpoint_activations=config.checkpoint_activations,
        )
        return ShardedGradients(model, task, config, self)

    def make_optimizer(self, model: Model, config: TrainingConfig) -> Optimizer:
        optimizer = super().make_optimizer(model, config)
        optimizer.muon.orthogonalise = self.orthogonalise
        return optimizer

    def update(self, optimizer: Optimizer, factor: float) -> None:
        optimizer.step(factor)  # of the rows that this process holds

    def collect(self, optimizer: Optimizer) -> None:
        """Each process saves its own rows."""

    def orthogonalise(self, matrices: Sequence[Tensor], n_steps: int) -> Iterator[Tensor]:
        """The step of Muon for sharded matrices: gather one, orthogonalise it, keep our own rows.

        Every process computes every matrix, one after the other; it never gathers two at once.
        """
        for matrix in matrices:
            assert isinstance(matrix, DTensor)
            with self.explain_faults():
                whole = matrix.full_tensor()
            step = orthogonalise(whole.flatten(1).unsqueeze(0), n_steps).view(matrix.shape)
            yield take_rows(step, matrix)

    def measure(self, question: Callable[[], Any]) -> Any:
        """All processes compute an answer together; that of the first process is used."""
        with self.explain_faults():
            found = self.root(question)
        return self.ask_first(lambda: found)

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Sharded tensors stay as they are: each process has rows that no other has."""
        super().copy_first([tensor for tensor in tensors if not isinstance(tensor, DTensor)])

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Set these tensors to the mean over all processes; equal ones stay as they are."""
        if not tensors:
            return
        own = torch.cat([tensor.flatten() for tensor in tensors])
        every = own.new_empty(self.size, own.numel())
        with self.explain_faults():
            dist.all_gather(list(every), own)
        mean = torch.where((every == every[0]).all(0), every[0], every.mean(0))
        pieces = mean.split([tensor.numel() for tensor in tensors])
        for tensor, piece in zip(tensors, pieces, strict=True):
            tensor.copy_(piece.view(tensor.shape))

    def find_fault(self, own: str) -> tuple[int, str] | None:
        """The first rank with a fault, and its text; None if no process has one.

        own: the text of this process, such as the name of an error; empty if it has no fault.
        """
        found = enumerate(self.gather(own))
        return next(((rank, text) for rank, text in found if text), None)

    def try_together(self, work: Callable[[], None]) -> None:
        """Do this work in all processes; if one fails, all raise an error."""
        fault: Exception | None = None
        try:
            work()
        except Exception as found:
            fault = found
        failed = self.find_fault("" if fault is None else type(fault).__name__)
        if fault is not None:
            raise fault
        if failed is not None:
            raise NoAnswer(ENDED.format(failed[0]))


def _return_freed_memory() -> None:
    """Have the C library give memory back to the system when a tensor of a megabyte is freed.

    By default it keeps freed memory, in pieces that seldom fit the next tensor. Two processes, each
    with half of 300 MB of weights, grew to 1.9 GB by default, and to 1.1 GB with this setting.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 20)


def _hash_numbers(tensors: Iterable[Tensor]) -> str:
    """A checksum of all bits."""
    number = 0
    for tensor in tensors:
        dense = tensor.detach().cpu().contiguous()
        number = zlib.crc32(dense.reshape(-1).view(torch.uint8).numpy().data, number)
    return f"{number:08x}"


# The model


class Root(nn.Module):
    """Gathers the weights outside the blocks while something is computed with the model.

    A loss may call the model as a whole or in pieces, and an evaluation may call it many times.
    """

    def __init__(self, model: nn.Module, kind: str, mixed: bool) -> None:
        super().__init__()
        self.model, self.kind, self.mixed = model, kind, mixed

    def forward(self, question: Callable[[], Any]) -> Any:
        with torch.autocast(self.kind, dtype=torch.bfloat16, enabled=self.mixed):
            return question()


def shard(model: Model, *, kind: str, size: int, mixed: bool, checkpoint_activations: bool) -> Any:
    """Shard a model in place, block by block; returns the Root through which it is computed.

    kind: the type of the devices that the shards move to. mixed: gather the weights in bfloat16,
    and add up their gradients in float32.
    """
    settings: dict[str, Any] = {"mesh": init_device_mesh(kind, (size,))}
    if mixed:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                fully_shard(module, **settings)  # in float32, as its running statistics are
        # Inputs are not cast: blocks also get masks and caches, which FSDP would copy for that.
        settings["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for block in find_blocks(model):
        if checkpoint_activations:
            vars(block)["forward"] = partial(checkpoint, block.forward, use_reentrant=False)
        fully_shard(block, **settings)
    return fully_shard(Root(model, kind, mixed), **settings)


# The gradient


class ShardedGradients(PartGradients):
    """The gradient of the rows that this process holds."""

    def __init__(self, model: Model, task: Task, config: TrainingConfig, group: Sharded) -> None:
        super().__init__(model, task, config, group)
        self.root, self.average = group.root, group.average
        whole = [value for value in model.state_dict().values() if not isinstance(value, DTensor)]
        self.buffers = [buffer for buffer in whole if buffer.is_floating_point()]

    def learn(self, parts: Sequence[Plan], make_batch: MakeBatch, step: int) -> StepLoss:
        found = super().learn(parts, make_batch, step)
        self.average(self.buffers)
        return found

    def compute_loss(self, batch: Batch) -> Tensor:
        loss: Tensor = self.root(lambda: self.loss(self.model, batch))
        return loss

    @contextmanager
    def delay_exchange(self, wanted: bool) -> Iterator[None]:
        """While it is delayed, each process keeps a whole gradient, as large as all weights."""
        self.root.set_requires_gradient_sync(not wanted)
        yield

    def norm(self) -> Tensor:
        """The length of the whole gradient, from the rows of all processes."""
        own = [find_rows(p.grad) for p in self.parameters if p.grad is not None]
        every = self.group.gather_numbers([float(get_total_norm(own))])
        return torch.tensor(every).norm().float()

    def find_not_finite(self) -> nn.Parameter | None:
        """Each process looks at its own rows; all return the first parameter that one found."""
        gradients = [p.grad for p in self.parameters]
        flags = [g is not None and not all_finite(find_rows(g)) for g in gradients]
        found = zip(*self.group.gather_numbers(flags), strict=True)
        return next((p for p, each in zip(self.parameters, found, strict=True) if any(each)), None)


def find_rows(tensor: Tensor) -> Tensor:
    """The rows of a sharded tensor that are in this process."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
