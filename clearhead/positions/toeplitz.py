"""Relative positions as one learned Toeplitz matrix per head: constant along every diagonal.

    bias[h, i, j] = weight[h, max_len + (j − i)]            query at position i, key at position j
    weights       = softmax((q kᵀ + bias) / √Dh)            added before the division

Each row of the matrix is the row above it moved one step to the right. So the rows, from
the last to the first, are a window that slides over the weights: an `unfold` view. The gradient of
a weight is the sum of a diagonal.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.positions.scheme import PositionScheme
from clearhead.shapes import check_length, check_positive


class ToeplitzBias(PositionScheme):
    """A learned number for each head and distance, 2·max_len + 1 per head, zero at the start."""

    acts_on = "scores"
    has_limit = True

    def __init__(self, n_heads: int, max_len: int) -> None:
        super().__init__()
        check_positive(n_heads=n_heads, max_len=max_len)
        self.n_heads, self.max_len = n_heads, max_len
        self.weight = nn.Parameter(torch.zeros(n_heads, 2 * max_len + 1))

    def forward(self, T: int, S: int | None = None) -> Tensor:
        """The bias (H, T, S) of T queries, the last of S positions; S = T unless given."""
        S = T if S is None else S
        check_length("the query sequence", T, self.max_len)
        check_length("the key sequence", S, self.max_len)
        if T == 0 or S == 0:
            return self.weight[:, :1, None].expand(-1, T, S)
        # j − i runs from −(S−1), last query and first key, to T−1, first query and last key.
        return _Toeplitz.apply(self.weight[:, self.max_len - S + 1 : self.max_len + T], S)

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, max_len={self.max_len}"


class _Toeplitz(torch.autograd.Function):
    """(H, T+S−1) numbers, one for each diagonal from the lowest to the highest → (H, T, S)."""

    @staticmethod
    def forward(ctx: Any, diagonals: Tensor, S: int) -> Tensor:
        return diagonals.unfold(-1, S, 1).flip(-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return sum_diagonals(grads[0]), None


def sum_diagonals(matrix: Tensor) -> Tensor:
    """(H, T, S) → (H, T+S−1): the sum of each diagonal, from the lowest to the highest.

    Each row is written one step further left than the one above it: diagonals become columns.
    """
    _, T, S = matrix.shape
    width = T + S - 1
    skewed = matrix.new_zeros(T * width)
    rows = skewed.as_strided((T, S), (width - 1, 1), T - 1)
    sums = []
    # Head by head through one small buffer, which stays in the processor's cache: measured faster.
    for head in matrix:
        rows.copy_(head)
        sums.append(skewed.view(T, width).sum(0))
    return torch.stack(sums)
