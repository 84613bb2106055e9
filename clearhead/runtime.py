"""Seed, device, threads and rank: chosen once per run; and floats wide enough to compute with.

More threads are not always faster. When another program keeps a core busy, every small parallel
operation waits for the slower thread, and two threads can be ten times slower than one. So `auto`
measures, unless the environment variable OMP_NUM_THREADS names a number. (The command line also
sets OMP_WAIT_POLICY=passive before torch starts, so that waiting threads sleep instead of spinning;
set it yourself when you use the library from Python on a busy machine.)
"""

import os
import random
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.shapes import check_positive
from clearhead.timing import measure_seconds

MOST_THREADS = 1024  # with more than the system allows, the thread library ends the process
CLEARLY_FASTER = 1.25  # how many times faster all cores must be to be chosen
HALVES = (torch.float16, torch.bfloat16)  # floats of 16 bits


def seed_everything(seed: int) -> None:
    """Seed the generators of Python and torch; clearhead does not use NumPy's."""
    random.seed(seed)
    torch.manual_seed(seed)


@dataclass(frozen=True)
class Place:
    """The rank of this process and the number of processes: in the run, and on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    has_agent: bool = False  # torchrun, launch or Ray started this process and will end it


def read_place() -> Place:
    """The place in the environment variables of torchrun; without them, that of one process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    given = {name: os.environ[name] for name in names if name in os.environ}
    if not given:
        return Place()
    for name in names:
        if not given.get(name, "").isdecimal():
            raise ValueError(
                f"{name} must be a number, as torchrun sets it, got {given.get(name)!r:.80}; start "
                f"with clearhead launch or torchrun, or unset {' and '.join(given)}"
            )
    rank, size, local_rank, local_size = (int(given[name]) for name in names)
    if not (rank < size and local_rank < local_size <= size):
        raise ValueError(
            f"{', '.join(f'{name}={given[name]}' for name in names)} do not fit together; "
            f"start with clearhead launch or torchrun, or unset them"
        )
    return Place(rank, size, local_rank, local_size, has_agent=True)


def pick_device(name: str = "auto", place: Place | None = None) -> torch.device:
    """A device by its name; `auto` is the accelerator if there is one, else the CPU.

    place: of several processes on this machine, each gets the accelerator of its number.
    """
    device = torch.device("cpu")
    if name == "auto":
        if torch.accelerator.is_available():
            device = torch.accelerator.current_accelerator() or device
    else:
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, ImportError) as reason:
            raise ValueError(
                f"device {name!r} cannot be used here ({str(reason).splitlines()[0]}); "
                f"use auto or cpu"
            ) from reason
    is_numbered = device.type == "cpu" or ":" in str(device)
    if place is not None and place.local_size > 1 and not is_numbered:
        check_device_count(device.type, place.local_size)
        return torch.device(device.type, place.local_rank)
    return device


def check_device_count(kind: str, processes: int) -> None:
    """Refuse more processes on this machine than it has devices of this kind."""
    if (n := torch.accelerator.device_count()) < processes:
        raise ValueError(
            f"{processes} processes on a machine need a {kind} device each, but it has {n}; "
            f"start {n}, or give --device cpu"
        )


def widen(x: Tensor) -> Tensor:
    """Half precision as float32: scores, sums and logarithms need more range and digits."""
    return x.float() if x.dtype in HALVES else x


def widest_float(device: torch.device) -> torch.dtype:
    """The widest float of a device: float64, but float32 on Apple's GPUs."""
    return torch.float32 if device.type == "mps" else torch.float64


def set_threads(threads: int | Literal["auto"] = "auto", place: Place | None = None) -> int:
    """Set the number of threads, for `auto` by measuring; returns the number chosen.

    place: the processes of a run on this machine share its cores.
    """
    if threads == "auto":
        threads = choose_threads(1 if place is None else place.local_size)
    check_positive(threads=threads)
    if threads > MOST_THREADS:
        raise ValueError(f"threads must be at most {MOST_THREADS}, got {threads}; take auto")
    torch.set_num_threads(threads)
    return threads


def choose_threads(processes: int = 1) -> int:
    """OMP_NUM_THREADS; if it is not set, 1, or all cores if they are clearly faster at this moment.

    processes: how many share the cores; "all cores" then means an equal share of them. A small gain
    here is a loss for smaller models, where the threads wait after each operation.
    """
    if (asked := read_omp_threads()) is not None:
        return asked
    cores = max(1, _count_cores() // processes)
    seconds = measure_threads((1, cores))
    return cores if seconds[cores] * CLEARLY_FASTER < seconds[1] else 1


def read_omp_threads() -> int | None:
    """The number in OMP_NUM_THREADS, the first if it is a list; None if there is none."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    is_number = first.isascii() and first.isdecimal() and 1 <= int(first) <= MOST_THREADS
    return int(first) if is_number else None


def measure_threads(candidates: tuple[int, ...], repeats: int = 5) -> dict[int, float]:
    """How many seconds a small piece of typical work takes with each number of threads.

    The work is that of a small model: matrix products and element-wise operations. The candidates
    take turns, and the median counts: the best of several would hide the time spent waiting. A
    candidate that is far slower is not tried again.
    """
    before = torch.get_num_threads()
    # Constants, because measuring must not advance the random generator of the run.
    x, w = torch.full((256, 384), 0.5), torch.full((384, 384), 0.05)
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    try:
        for _ in range(repeats):
            best = min((min(times) for times in seconds.values() if times), default=0.0)
            for threads, times in seconds.items():
                if times and min(times) > 3 * best:
                    continue
                torch.set_num_threads(threads)
                _run_layers(x, w)  # starts the threads
                times.append(measure_seconds(lambda: _run_layers(x, w)))
    finally:
        torch.set_num_threads(before)
    return {threads: sorted(times)[len(times) // 2] for threads, times in seconds.items()}


def _run_layers(x: torch.Tensor, w: torch.Tensor) -> None:
    with torch.no_grad():
        for _ in range(4):
            torch.softmax(torch.relu(x @ w), dim=-1)


def _count_cores() -> int:
    """The cores this process may run on; they can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
