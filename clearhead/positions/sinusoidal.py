"""Sinusoidal positions (Vaswani et al. 2017, section 3.5): each pair of columns is a clock hand.

    PE[pos, 2i]   = sin(pos / 10000^(2i / D))       i = 0, 1, 2, … numbers the pairs, so that both
    PE[pos, 2i+1] = cos(pos / 10000^(2i / D))       columns of a pair share one angle

    y[t] = x[t] + PE[position of t]                 or √D · x[t] + PE, as in the paper

Each pair turns more slowly than the one before. There is no limit on the length: the table is
computed once, and again when it must be longer.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import dropout

from clearhead.positions.scheme import PositionScheme
from clearhead.positions.tables import (
    angles,
    cache_table,
    check_position_limit,
    check_positions,
    count_rows,
)
from clearhead.shapes import check_dropout, check_length, check_positive, check_sequence


def sinusoids(positions: Tensor, d: int, base: float = 10000.0) -> Tensor:
    """The rows PE[positions]: (...) → (..., d). An odd d ends with a sine."""
    angle = angles(positions, d, base)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[..., :d]


def sinusoid_table(
    n: int,
    d: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    *,
    base: float = 10000.0,
) -> Tensor:
    """The first n rows of PE, (n, d), computed in float64 and then rounded."""
    return sinusoids(torch.arange(n, device="cpu"), d, base).to(device=device, dtype=dtype)


_table = cache_table(sinusoid_table)


class SinusoidalPositions(PositionScheme):
    """x + PE, or √D · x + PE, then dropout. No parameters; no limit unless max_len sets one."""

    acts_on = "x"

    def __init__(
        self,
        d_model: int,
        *,
        scale_input: bool = False,
        dropout: float = 0.0,
        max_len: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, **({} if max_len is None else {"max_len": max_len}))
        check_dropout(dropout)
        self.d_model, self.max_len = d_model, max_len
        self.scale_input, self.dropout = scale_input, dropout

    def forward(self, x: Tensor, *, positions: Tensor | None = None) -> Tensor:
        """x (B, T, D) → (B, T, D); positions (T,) or (B, T), or None = 0 … T−1."""
        check_sequence("x", x, self.d_model)
        if self.max_len is not None:
            check_length("x", x.size(1), self.max_len)
        if self.scale_input:
            x = x * math.sqrt(self.d_model)
        return dropout(x + self._rows(x, positions), self.dropout, self.training)

    def _rows(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """PE of each token: (T, D) or (B, T, D)."""
        if positions is None:
            return _table(x.size(1), self.d_model, x.dtype, x.device)
        check_positions(positions, x)
        if self.max_len is not None:
            check_position_limit(positions, self.max_len)
        if (n := count_rows(positions)) is None:
            return sinusoids(positions, self.d_model).to(x.dtype)
        return _table(n, self.d_model, x.dtype, x.device)[positions.long()]

    def extra_repr(self) -> str:
        limit = "" if self.max_len is None else f", max_len={self.max_len}"
        return (
            f"d_model={self.d_model}, scale_input={self.scale_input}, dropout={self.dropout}{limit}"
        )
