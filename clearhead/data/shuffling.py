"""The random order of more examples than fit into memory, by arithmetic.

A shuffled list of 40 million windows takes gigabytes. A Feistel network gives entry i of such a
list without the others: it splits the bits of i into two halves and mixes them in rounds,

    left, right  ←  right, left ⊕ f(round, right)               f: random bits of (seed, epoch)

Each round can be undone whatever f is, so different numbers stay different: the network is a
permutation of 0 … 2ᵇ − 1, where b is the number of bits. For 0 … n − 1 we take the smallest b with
2ᵇ ≥ n, and where the result is not below n we apply the network again until it is (cycle walking,
Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). A walk from i follows a cycle that
leads back to i, so it ends, and two walks never end at the same number. A number passes the network
fewer than two times on average.

The order is a function of (seed, epoch, index) alone. So any number of processes can share an
epoch, and a run can resume anywhere.
"""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from clearhead.data.randomness import Words, check_index, draw_bits
from clearhead.shapes import check_positive

ROUNDS = 8  # an even number, after which the halves have their first widths again
Indices = NDArray[np.int64]


def shuffle_indices(indices: Any, n: int, *, seed: int, epoch: int) -> Indices:
    """Entries `indices` of the numbers 0 … n − 1 in the random order of this epoch.

    >>> shuffle_indices(range(7), 7, seed=0, epoch=0).tolist()
    [1, 5, 2, 6, 0, 4, 3]
    >>> shuffle_indices([5], 7, seed=0, epoch=0).tolist()
    [4]
    """
    check_positive(n=n)
    asked = np.asarray(indices, dtype=np.int64)
    if asked.size and not 0 <= asked.min() <= asked.max() < n:
        raise ValueError(f"indices must be from 0 to {n - 1}, got {asked.min()} to {asked.max()}")
    keys = draw_bits(seed, "shuffle", check_index("epoch", epoch), np.arange(ROUNDS))
    x = _mix_halves(asked.astype(np.uint64), keys, (n - 1).bit_length())
    while (outside := x >= n).any():
        x[outside] = _mix_halves(x[outside], keys, (n - 1).bit_length())
    return x.astype(np.int64)


def _mix_halves(x: Words, keys: Words, n_bits: int) -> Words:
    """The network: a permutation of the numbers of n_bits bits."""
    n_left, n_right = n_bits // 2, n_bits - n_bits // 2
    left, right = x >> np.uint64(n_right), x & np.uint64((1 << n_right) - 1)
    for key in keys:
        bits = draw_bits(int(key), "round", right) & np.uint64((1 << n_left) - 1)
        left, right = right, left ^ bits
        n_left, n_right = n_right, n_left
    return left << np.uint64(n_right) | right


class EvenPlans(Sequence[list[int]]):
    """The examples of each batch of an epoch (its plans), made when asked for.

    Each plan has batch_size examples; the last may have fewer.

    take: the examples in places start … stop − 1 of the epoch's order, given range(start, stop).
    """

    def __init__(
        self, n_examples: int, batch_size: int, take: Callable[[range], list[int]]
    ) -> None:
        check_positive(batch_size=batch_size)
        self.take = take
        self.starts = range(0, n_examples, batch_size)  # the place of each plan's first example

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._make(start) for start in self.starts[index]]
        return self._make(self.starts[index])

    def _make(self, start: int) -> list[int]:
        return self.take(range(start, min(start + self.starts.step, self.starts.stop)))
