"""ALiBi (Press et al. 2022): each head has its own penalty on distance; nothing is learned.

    weights       = softmax(q kᵀ / √Dh + bias)              added after the division
    bias[h, i, j] = −slope[h] · |i − j|                     query at position i, key at position j
    slope[h]      = 2^(−8 h / H)                            h = 1 … H, for H a power of two

For other H the paper takes the slopes of the next smaller power of two, n, and then every second
one of the slopes of 2n.
"""

import torch
from torch import Tensor

from clearhead.positions.scheme import PositionScheme
from clearhead.positions.tables import offsets
from clearhead.shapes import check_positive


def alibi_slopes(n_heads: int) -> list[float]:
    """The slope of each head."""
    n = 1 << n_heads.bit_length() - 1
    slopes = [2 ** (-8 * h / n) for h in range(1, n + 1)]
    between = [2 ** (-8 * h / (2 * n)) for h in range(1, 2 * n, 2)]
    return slopes + between[: n_heads - n]


class AlibiBias(PositionScheme):
    """A penalty that grows with the distance. No parameters, no limit on the length."""

    acts_on = "scores"
    has_unscaled_bias = True
    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        check_positive(n_heads=n_heads)
        self.n_heads = n_heads
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def forward(self, T: int, S: int | None = None) -> Tensor:
        """The bias (H, T, S) of T queries, the last of S positions; S = T unless given."""
        S = T if S is None else S
        return offsets(T, S, self.slopes.device).abs() * -self.slopes[:, None, None]

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}"
