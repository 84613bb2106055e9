"""The processes of a run, and how they exchange tensors.

torchrun starts the processes and gives each its rank. They meet at a store (meeting.py). From then
on they exchange tensors directly: by gloo on CPUs, by the backend of the accelerator on GPUs. All
messages are numbers or JSON.

If an exchange fails or takes longer than the time limit, the processes find out which of them is
gone (signs.py). The limit is CLEARHEAD_TIMEOUT, in seconds. It must be longer than an evaluation
and than a save, because all processes wait for those.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from clearhead.models.model import Model
from clearhead.parallel.meeting import explain_absence, meet, read_timeout
from clearhead.parallel.owners import Owners
from clearhead.parallel.signs import Signs, ask_store
from clearhead.parallel.waiting import finish
from clearhead.runtime import Place
from clearhead.timing import Timer
from clearhead.training.chunks import (
    Span,
    add_tree,
    count_chunks,
    list_subtrees,
    share_chunks,
)
from clearhead.training.gradient import Gradients
from clearhead.training.group import Group, Stop
from clearhead.training.optimizer import Optimizer
from clearhead.training.recipe import TrainingConfig
from clearhead.training.tasks.task import Task

# The group of this process. It stays set after an error, for the command line, which asks it by
# `say_first` whether to print the message.
current: "Processes | None" = None


@contextmanager
def join_group(parallel: str | None, device: torch.device, place: Place) -> Iterator[Group]:
    """Within a `with` block this process belongs to the group of its run."""
    if place.size == 1 and parallel in (None, "exact"):
        yield Group(has_agent=place.has_agent)
        return
    global current
    group = current = _find_kind(parallel, place)(device, place)
    try:
        yield group
        group.wait()  # without this, one of two processes sometimes ended by SIGABRT
        current = None
    except BaseException as fault:
        group.signs.say_end(fault)
        raise
    finally:
        group.leave()


def _find_kind(parallel: str | None, place: Place) -> "type[Processes]":
    if parallel is None:
        raise ValueError(
            f"{place.size} processes need training.parallel=exact (the same numbers on any number "
            f"of processes), ddp (the usual choice) or fsdp (for a model too large for one process)"
        )
    if parallel == "ddp":
        from clearhead.parallel.replicated import Replicated

        return Replicated
    if parallel == "fsdp":
        from clearhead.parallel.sharded import Sharded

        return Sharded
    return Processes


class Processes(Group):
    """One of several processes. As it is, for training.parallel=exact: each adds up the gradients
    of its chunks. Replicated and Sharded are made from it for the other modes."""

    def __init__(self, device: torch.device, place: Place) -> None:
        super().__init__(has_agent=place.has_agent)
        self.rank, self.size, self.device = place.rank, place.size, device
        self.timeout = read_timeout()
        self.parent = os.getppid()  # the program that started this process
        self.seconds_exchanging = 0.0
        self.store = meet(place, self.timeout)
        backend = "gloo"
        if device.type != "cpu":
            backend = f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
            torch.accelerator.set_device_index(device.index or 0)
        with explain_absence(self.store, self.size, self.timeout):
            dist.init_process_group(
                backend,
                store=dist.PrefixStore("exchange", self.store),
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=self.timeout),
            )
        self.signs = Signs(self.store, self.rank, self.size, self.timeout)

    def make_gradients(self, model: Model, task: Task, config: TrainingConfig) -> Gradients:
        is_muon = config.optimizer == "muon"
        self.owners = Owners(model, rank=self.rank, size=self.size, is_muon=is_muon)
        return super().make_gradients(model, task, config)

    def find_notice(self, config: TrainingConfig) -> str | None:
        is_exact = config.parallel == "exact"
        n = count_chunks(config) if is_exact else config.batch_size
        if n >= self.size:
            return None
        if is_exact:
            wanted = {"chunks": self.size, "batch_size": -(-self.size // config.accumulate)}
            changes = [f"training.{k}={v}" for k, v in wanted.items() if getattr(config, k) < v]
            return (
                f"a step has {n} chunks, so only {n} of {self.size} processes compute; with "
                f"{' '.join(changes)} all would, but the results would be different numbers"
            )
        return (
            f"a batch has {n} examples, so only {n} of {self.size} processes learn from it; "
            f"training.batch_size={self.size} would give each of them one"
        )

    def describe_cost(self, seconds: float) -> str | None:
        if not self.seconds_exchanging:
            return None
        share = self.seconds_exchanging / seconds
        return (
            f"{share:.0%} of the training time went into the exchange with other processes, "
            f"waiting included"
        )

    # What all processes do together

    def add_up(self, parts: Mapping[Span, Tensor], n: int, length: int) -> Tensor:
        """Each process gets the gradients of its own parameters, and all that follows them.

        A vector has the gradients of all parameters, and then numbers that every process needs.
        """
        slices = self.owners.slices
        rest = length - slices[-1][1]  # how many numbers every process needs
        lengths = [end - start + rest for start, end in slices]
        shares = [share_chunks(n, rank, self.size) for rank in range(self.size)]
        spans = [list_subtrees(share, (0, n)) for share in shares]  # by rank: what it has added up
        own = spans[self.rank]
        pieces = [
            piece
            for start, end in slices
            for span in own
            for piece in (parts[span][start:end], parts[span][-rest:])
        ]
        sent = torch.cat([torch.empty(0, device=self.device), *pieces])  # maybe there are none
        counts = [len(found) * lengths[self.rank] for found in spans]
        received = sent.new_empty(sum(counts))
        with self.exchanging():
            given = [len(own) * each for each in lengths]
            finish(
                [dist.all_to_all_single(received, sent, counts, given, async_op=True)], self.device
            )
        rows = received.view(-1, lengths[self.rank])
        known = dict(zip([span for found in spans for span in found], rows, strict=True))
        return add_tree((0, n), known.get)

    def list_own(self, n: int) -> range:
        return self.owners.own

    def add_own(self, numbers: Tensor) -> Tensor:
        with self.exchanging():
            # In any order: all but one of the numbers are 0.
            finish([dist.all_reduce(numbers, async_op=True)], self.device)
        return numbers

    def update(self, optimizer: Optimizer, factor: float) -> None:
        """Each process updates its own parameters, and sends them to the others."""
        self.owners.drop_others()
        optimizer.step(factor)
        with self.exchanging():
            self.owners.send_parameters()

    def collect(self, optimizer: Optimizer) -> None:
        with self.explain_faults():
            self.owners.send_optimizer(optimizer)

    def any(self, flag: bool) -> bool:
        """Also true if the program that started this process has ended and cannot stop it."""
        is_orphan = os.getppid() != self.parent
        found = torch.tensor(int(flag or is_orphan))
        with self.explain_faults():
            finish([dist.all_reduce(found, dist.ReduceOp.MAX, async_op=True)], found.device)
        return bool(found)

    def ask_first(self, question: Callable[[], Any]) -> Any:
        message, stop = "", None
        if self.rank == 0:
            try:
                message = json.dumps({"answer": question()})
            except Stop as fault:
                message, stop = json.dumps({"stop": True}), fault
        reply = json.loads(self._tell_all(message))
        if "stop" in reply:
            raise stop or Stop
        return reply["answer"]

    def gather_numbers(self, own: Sequence[float]) -> list[list[float]]:
        """The numbers of each process; every process must give equally many."""
        given = torch.tensor(own, dtype=torch.float64)
        found = [torch.empty_like(given) for _ in range(self.size)]
        with self.explain_faults():
            finish([dist.all_gather(found, given, async_op=True)], given.device)
        return [numbers.tolist() for numbers in found]

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            dense = tensor.detach().contiguous()
            with self.explain_faults():
                dist.broadcast(dense, 0)
            if dense.data_ptr() != tensor.data_ptr():
                tensor.copy_(dense)

    def gather(self, own: Any) -> list[Any]:
        """What each process gives: anything that JSON can hold."""
        return [json.loads(text) for text in self._gather(json.dumps(own))]

    def compare(self, facts: Mapping[str, Any], ignore: Collection[str] = ()) -> None:
        known = [dict(_flatten(each)) for each in self.gather(facts)]
        for rank, other in enumerate(known):
            for name in sorted((known[0].keys() | other.keys()) - set(ignore)):
                one, two = (each.get(name, "nothing") for each in (known[0], other))
                if one != two:
                    raise ValueError(
                        f"the processes differ in {name}: {one!r:.200} on rank 0, {two!r:.200} "
                        f"on rank {rank}; start all of them in the same way, with the same files"
                    )

    def wait(self) -> None:
        self.any(False)

    # Messages

    def _tell_all(self, message: str) -> str:
        """The message of the first process."""
        data = bytearray(message.encode())
        length = torch.tensor(len(data))
        with self.explain_faults():
            dist.broadcast(length, 0)
            text = torch.zeros(int(length), dtype=torch.uint8)
            if self.rank == 0:
                text = torch.frombuffer(data, dtype=torch.uint8)
            dist.broadcast(text, 0)
        return bytes(text.tolist()).decode()

    def _gather(self, message: str) -> list[str]:
        """The message of each process."""
        data = torch.frombuffer(bytearray(message.encode()), dtype=torch.uint8)
        with self.explain_faults():
            lengths = [torch.tensor(0) for _ in range(self.size)]
            dist.all_gather(lengths, torch.tensor(len(data)))
            longest = max(map(int, lengths))
            texts = [torch.zeros(longest, dtype=torch.uint8) for _ in lengths]
            dist.all_gather(texts, torch.nn.functional.pad(data, (0, longest - len(data))))
        pairs = zip(texts, lengths, strict=True)
        return [bytes(text[: int(length)].tolist()).decode() for text, length in pairs]

    def say_first(self, sentence: str) -> bool:
        """True for the first process that says this sentence, False for all later ones."""
        if self.signs.is_cut_off:  # the others cannot be asked
            return True
        return ask_store(lambda: self.store.add(f"said/{sentence}", 1) == 1, otherwise=True)

    # Faults

    def leave(self) -> None:
        """Close the connections."""
        self.signs.stop()
        with suppress(RuntimeError):
            dist.destroy_process_group()

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """A `with` block of an exchange in each step: its time is counted, its faults explained."""
        timer = Timer()
        with self.explain_faults():
            yield
        self.seconds_exchanging += timer.seconds

    def explain_faults(self) -> AbstractContextManager[None]:
        """If an exchange in this `with` block fails, name the rank that is the cause."""
        return self.signs.explain_faults()


def _flatten(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of nested dictionaries, with its full name."""
    if not isinstance(values, dict):
        yield name, values
        return
    for key, value in values.items():
        yield from _flatten(value, f"{name}.{key}" if name else str(key))
