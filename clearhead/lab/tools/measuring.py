"""Measure what a computation costs, and how the cost grows with the length T.

    count_costs(work).bytes, .products, .steps      counted as it runs
    best_milliseconds({"a": work, …}, seconds=8)    the best time of many rounds
    fit_slope({T: cost, …})                         p of a cost c·T^p, and its uncertainty

On logarithmic axes a cost c·T^p is a straight line; least squares over n points give its slope.
With s² = Σ residual² / (n − 2) the uncertainty is ± t s / √Σ(log T − mean)², where t cuts off 2.5 %
of Student's distribution with n − 2 degrees of freedom on each side.
"""

import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.timing import Name, best_seconds

# 97.5 % of Student's distribution lies below, for 1, 2, 3 … degrees of freedom.
T_QUANTILES: tuple[float, ...] = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)


class Count(TorchDispatchMode):
    """Counts memory, work and sequential steps of all operations inside a `with`.

    bytes       the most that new tensors held at one time
    products    multiplications inside matrix products
    steps       the longest chain of operations, each of which needs the result before it

    A view does not count as an operation; a sum over many numbers counts as one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.products = self.steps = 0
        self._alive = 0
        self._chains: dict[int, int] = {}  # storage → steps to its content

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {_storage_id(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        # new_zeros and the like use only the shape and dtype of their input.
        needed = () if func.__name__.startswith("new_") else inputs
        chain = 1 + max((self._chains.get(storage, 0) for storage in needed), default=0)
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and _storage_id(x) not in inputs:
                self._allocate(x.untyped_storage())
            elif not isinstance(x, Tensor) or not func._schema.is_mutable:
                continue  # a number, or a view of an input
            self._chains[_storage_id(x)] = chain
            self.steps = max(self.steps, chain)
        if "mm" in func.__name__:  # mm, bmm, addmm: each entry is a sum over the inner axis
            self.products += result.numel() * args[-2].size(-1)
        return result

    def _allocate(self, storage: torch.UntypedStorage) -> None:
        self._alive += storage.nbytes()
        self.bytes = max(self.bytes, self._alive)
        weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())

    def _free(self, storage: int, size: int) -> None:
        del self._chains[storage]
        self._alive -= size


def count_costs(work: Callable[[], Tensor]) -> Count:
    """The costs of one call."""
    with Count() as count:
        work()
    return count


def _storage_id(x: Tensor) -> int:
    """The same for all tensors that share memory."""
    return x.untyped_storage()._cdata


def best_milliseconds(
    works: Mapping[Name, Callable[[], Tensor]],
    device: torch.device | str = "cpu",
    *,
    seconds: float,
    rounds: int = 5,
) -> dict[Name, float]:
    """The best time of each on one thread, in at least `rounds` rounds and about `seconds`.

    On the CPU this is the processor time of this process, so that other programs add little.
    """
    fine = time.get_clock_info("process_time").resolution <= 1e-6
    clock = time.process_time if fine and torch.device(device).type == "cpu" else time.perf_counter
    finished = {name: partial(_finish, work) for name, work in works.items()}
    with _one_thread():
        best = best_seconds(
            finished, seconds=seconds, rounds=rounds, clock=clock, repeat_below=1e-3
        )
    return {name: 1e3 * taken for name, taken in best.items()}


def _finish(work: Callable[[], Tensor]) -> None:
    """Do the work and wait for the device: reading one number waits for all operations."""
    work().flatten()[:1].tolist()


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fit_slope(costs: Mapping[int, float]) -> tuple[float, float]:
    """The exponent p of costs c·T^p at 3 to 22 lengths T, and its uncertainty (95 %)."""
    free = len(costs) - 2
    if not 1 <= free <= len(T_QUANTILES):
        raise ValueError(f"costs must be given at 3 to 22 lengths, got {len(costs)}")
    x, y = np.log(list(costs)), np.log(list(costs.values()))
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    variance = float(((y - slope * x) ** 2).sum()) / free
    return slope, T_QUANTILES[free - 1] * math.sqrt(variance / float(x @ x))
