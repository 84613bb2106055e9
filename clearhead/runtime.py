"""Seed, device and threads: chosen once per run.

More threads are not always faster. When another program keeps a core busy, every small parallel
operation waits for the slower thread, and two threads can be ten times slower than one. So `auto`
measures. (The command line also sets OMP_WAIT_POLICY=passive before torch starts, so that waiting
threads sleep instead of spinning; set it yourself when you use the library from Python on a busy
machine.)
"""

import os
import random
from typing import Literal

import torch

from clearhead.shapes import check_positive
from clearhead.timing import measure_seconds

MOST_THREADS = 1024  # beyond what a process may start, the thread library ends it without a word
CLEARLY = 1.25  # times as fast


def seed_everything(seed: int) -> None:
    """The generators of Python and of torch; nothing here draws from NumPy's."""
    random.seed(seed)
    torch.manual_seed(seed)


def pick_device(name: str = "auto") -> torch.device:
    """`auto` is the accelerator if there is one, else the CPU; a device not there is refused."""
    if name == "auto":
        if not torch.accelerator.is_available():
            return torch.device("cpu")
        return torch.accelerator.current_accelerator() or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as reason:
        raise ValueError(
            f"device {name!r} cannot be used here ({str(reason).splitlines()[0]}); use auto or cpu"
        ) from reason
    return device


def widest_float(device: torch.device) -> torch.dtype:
    """float64 where there is one; Apple's GPUs have none."""
    return torch.float32 if device.type == "mps" else torch.float64


def set_threads(threads: int | Literal["auto"] = "auto") -> int:
    """Use this many threads from now on, `auto` by measuring; returns the number chosen."""
    if threads == "auto":
        threads = choose_threads()
    check_positive(threads=threads)
    if threads > MOST_THREADS:
        raise ValueError(f"threads must be at most {MOST_THREADS}, got {threads}; take auto")
    torch.set_num_threads(threads)
    return threads


def choose_threads() -> int:
    """1, or all cores this process may use if they are clearly faster at this moment.

    What gains little here loses where a model is smaller: the threads wait after each operation.
    """
    cores = _usable_cores()
    seconds = measure_threads((1, cores))
    return cores if seconds[cores] * CLEARLY < seconds[1] else 1


def measure_threads(candidates: tuple[int, ...], repeats: int = 5) -> dict[int, float]:
    """Seconds that a few milliseconds of typical work take with each number of threads.

    The work is what a small model does: matrix products and element-wise passes. The candidates
    take turns, and the median counts: the best of several would hide the waiting that hurts. A
    candidate that falls far behind is not tried again.
    """
    before = torch.get_num_threads()
    # Not drawn: measuring must not move the generator of the run.
    x, w = torch.full((256, 384), 0.5), torch.full((384, 384), 0.05)
    seconds: dict[int, list[float]] = {threads: [] for threads in candidates}
    try:
        for _ in range(repeats):
            best = min((min(times) for times in seconds.values() if times), default=0.0)
            for threads, times in seconds.items():
                if times and min(times) > 3 * best:
                    continue
                torch.set_num_threads(threads)
                _small_work(x, w)  # wakes the threads up
                times.append(measure_seconds(lambda: _small_work(x, w)))
    finally:
        torch.set_num_threads(before)
    return {threads: sorted(times)[len(times) // 2] for threads, times in seconds.items()}


def _small_work(x: torch.Tensor, w: torch.Tensor) -> None:
    with torch.no_grad():
        for _ in range(4):
            torch.softmax(torch.relu(x @ w), dim=-1)


def _usable_cores() -> int:
    """Cores this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
