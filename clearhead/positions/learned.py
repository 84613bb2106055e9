"""Learned positions: a vector for each position, added to the token there.

y[t] = x[t] + weight[position of t]
"""

import torch
from torch import Tensor, nn

from clearhead.positions.scheme import PositionScheme
from clearhead.positions.tables import check_position_limit, check_positions
from clearhead.shapes import check_length, check_positive, check_sequence


class LearnedPositions(PositionScheme):
    """A (max_len, D) table, drawn from N(0, 0.02²) and trained with the model."""

    acts_on = "x"
    has_limit = True

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
