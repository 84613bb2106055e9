"""What a position scheme does: one of three things, each of which tells attention the order.

    add       x[t] + a vector for position t          before the first block: learned, sinusoidal
    rotate    q and k, each turned by its position    inside attention: rotary
    bias      a number for each head and distance     inside attention: Toeplitz, ALiBi

A scheme computes one of the three in `forward` and says in `acts_on` which; its other two methods
do nothing. A new scheme is one file with such a class, and its name in by_name.py.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn


class PositionScheme(nn.Module):
    """The base of all schemes; by itself it does nothing."""

    acts_on: ClassVar[str] = "nothing"  # "x", "q and k" or "scores"
    has_limit: ClassVar[bool] = False  # whether it serves at most max_len positions
    # Whether the bias is added after the division by √Dh: attention multiplies it by √Dh first.
    has_unscaled_bias: ClassVar[bool] = False
    n_heads: int | None = None  # the number of heads it was built for, None for any
    d_head: int | None = None  # the width of the heads it was built for, None for any

    def add(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x (B, T, D) → (B, T, D); positions (T,) or (B, T), or None = 0 … T−1."""
        return self(x, positions=positions) if self.acts_on == "x" else x

    def rotate(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Queries or keys (..., T, Dh) → the same shape; positions as in `add`."""
        return self(x, positions=positions) if self.acts_on == "q and k" else x

    def bias(self, T: int, S: int) -> Tensor | None:
        """What T queries, the last of S positions, add to their scores: (H, T, S) or None."""
        return self(T, S) if self.acts_on == "scores" else None

    def rotation_table(self, n: int, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """The factors of `rotate` at positions 0 … n − 1, (n, 2, Dh): see rotary.rotations."""
        return None
