"""Rotary positions (Su et al. 2021): q and k are rotated by an angle that grows with the position.

Columns i and i + Dh/2 of a head are a point in a plane. At position p it is turned by the angle
a = p / base^(2i / Dh):

    y[i]        = x[i] cos a − x[i + Dh/2] sin a
    y[i + Dh/2] = x[i + Dh/2] cos a + x[i] sin a

No length changes, position 0 changes nothing, and q·k depends only on the distance of q and k.
"""

import torch
from torch import Tensor

from clearhead.positions.scheme import PositionScheme
from clearhead.positions.tables import angles, cache_table, check_positions, count_rows
from clearhead.runtime import widen
from clearhead.shapes import check_above_zero, check_last_axis, check_positive


def rotations(positions: Tensor, d_head: int, base: float) -> Tensor:
    """(...) → (..., 2, Dh): row 0 multiplies x, row 1 multiplies x with its halves exchanged."""
    angle = angles(positions, d_head, base)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=-2)


@cache_table
def _table(n: int, d_head: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The rotations of the first n positions, (n, 2, Dh), computed in float64 and then rounded."""
    return rotations(torch.arange(n, device="cpu"), d_head, base).to(device=device, dtype=dtype)


class RotaryPositions(PositionScheme):
    """Turns queries or keys by their positions. No parameters, no limit on the length."""

    acts_on = "q and k"
    d_head: int

    def __init__(self, d_head: int, *, base: float = 10000.0) -> None:
        super().__init__()
        check_positive(d_head=d_head)
        if d_head % 2:
            raise ValueError(
                f"d_head must be even, because rotary positions turn pairs of columns, "
                f"got {d_head}; take d_head={d_head + 1} or another scheme"
            )
        check_above_zero(base=base)
        self.d_head, self.base = d_head, float(base)

    def forward(self, x: Tensor, *, positions: Tensor | None = None) -> Tensor:
        """x (..., T, Dh) → the same shape, turned; positions (T,) or (B, T), or None = 0 … T−1.

        Half-precision x is turned in float32 and rounded once at the end.
        """
        check_last_axis("x", x, "d_head", self.d_head, min_axes=2)
        wide = widen(x)
        cos, sin = self._rotations(wide, positions).unbind(-2)  # each (T, Dh) or (B, 1, T, Dh)
        return torch.addcmul(wide * cos, wide.roll(self.d_head // 2, -1), sin).to(x.dtype)

    def rotation_table(self, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return _table(n, self.d_head, self.base, dtype, device)

    def _rotations(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """The rotation at each position: (T, 2, Dh) or (B, 1, T, 2, Dh)."""
        if positions is None:
            return _table(x.size(-2), self.d_head, self.base, x.dtype, x.device)
        check_positions(positions, x)
        if positions.ndim == 2:  # add the axes between batch and T, such as the heads
            positions = positions.view(x.size(0), *[1] * (x.ndim - 3), x.size(-2))
        if (n := count_rows(positions)) is None:
            return rotations(positions, self.d_head, self.base).to(x.dtype)
        return _table(n, self.d_head, self.base, x.dtype, x.device)[positions.long()]

    def extra_repr(self) -> str:
        return f"d_head={self.d_head}, base={self.base:g}"
