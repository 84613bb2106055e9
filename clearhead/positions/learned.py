"""Learned absolute positions: a vector for each position, added to the token that stands there.

y[t] = x[t] + weight[position of t]
"""

import torch
from torch import Tensor, nn

from clearhead.shapes import (
    check_int_tensor,
    check_length,
    check_positive,
    check_sequence,
    shape_text,
    values_at_hand,
)


class LearnedPositions(nn.Module):
    """A (max_len, D) table, drawn from N(0, 0.02²) and trained with the model."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        check_positive(max_len=max_len, d_model=d_model)
        self.max_len, self.d_model = max_len, d_model
        self.weight = nn.Parameter(0.02 * torch.randn(max_len, d_model))

    def forward(self, x: Tensor, *, positions: Tensor | None = None) -> Tensor:
        """x (B, T, D) → x + a row for each token; positions (T,) or (B, T), or None = 0 … T−1."""
        check_sequence("x", x, self.d_model, self.weight)
        check_length("x", x.size(1), self.max_len)
        if positions is None:
            return x + self.weight[: x.size(1)]
        check_positions(positions, x)
        check_position_limit(positions, self.max_len)
        return x + nn.functional.embedding(positions.long(), self.weight)

    def extra_repr(self) -> str:
        return f"max_len={self.max_len}, d_model={self.d_model}"


def check_positions(positions: Tensor, x: Tensor) -> None:
    """Whole numbers (T,) or (B, T) for x (B, ..., T, width), none negative, on its device."""
    check_int_tensor("positions", positions)
    T = x.size(-2)
    expected: list[tuple[int, ...]] = [(T,), (x.size(0), T)] if x.ndim > 2 else [(T,)]
    if positions.shape not in expected:
        raise ValueError(
            f"positions must have shape {' or '.join(map(str, expected))} for x {shape_text(x)}, "
            f"got {shape_text(positions)}"
        )
    if positions.device != x.device:
        raise ValueError(
            f"positions must be on the device of x, {x.device}, got {positions.device}; "
            f"use positions.to(x.device)"
        )
    if values_at_hand(positions) and positions.numel() and (lowest := int(positions.min())) < 0:
        raise ValueError(f"positions must not be negative, got {lowest}; the first stands at 0")


def check_position_limit(positions: Tensor, max_len: int) -> None:
    """Every position has a row in a table of max_len rows."""
    if (
        values_at_hand(positions)
        and positions.numel()
        and (highest := int(positions.max())) >= max_len
    ):
        raise ValueError(
            f"positions reach {highest}, which needs a length of {highest + 1}, but max_len is "
            f"{max_len}; shorten the sequence or build the module with max_len={highest + 1}"
        )
