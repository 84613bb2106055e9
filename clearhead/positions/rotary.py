"""Rotary positions (Su et al. 2021): q and k are rotated by an angle that grows with the position.

Columns i and i + Dh/2 of a head are a point in a plane. At position p it is turned by the angle
a = p / base^(2i / Dh):

    y[i]        = x[i] cos a − x[i + Dh/2] sin a
    y[i + Dh/2] = x[i + Dh/2] cos a + x[i] sin a

No length changes, position 0 changes nothing, and q·k depends only on the distance of q and k.

`scale_frequencies` lowers the frequencies, so that a trained model can read longer texts.
"""

import math

import torch
from torch import Tensor

from clearhead.positions.scheme import PositionScheme
from clearhead.positions.tables import cache_table, check_positions, count_rows, frequencies
from clearhead.runtime import widen
from clearhead.shapes import check_above_zero, check_last_axis, check_positive

Scaling = float | tuple[float, float, float, int] | None


def scale_frequencies(frequency: Tensor, scaling: Scaling) -> Tensor:
    """Lower the frequencies, for a context longer than that of the first training.

        factor                          divides all frequencies              Chen et al. 2023
        (factor, low, high, length)     divides only the low frequencies     Llama 3.1

    Within `length` positions, the first context, a pair of columns makes length · frequency / 2π
    turns. Below `low` turns its frequency is divided by factor, above `high` it is unchanged, and
    between them it is a mixture of both: a pair with many turns encodes short distances, which are
    the same in a longer context.
    """
    if scaling is None:
        return frequency
    if not isinstance(scaling, tuple):
        return frequency / scaling
    factor, low, high, length = scaling
    turns = length * frequency / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * frequency / factor + kept * frequency


def check_scaling(scaling: Scaling) -> None:
    """A factor above 0, or Llama's four numbers, with high above low."""
    if not isinstance(scaling, tuple):
        check_above_zero(scaling=scaling)
        return
    if len(scaling) != 4:
        raise ValueError(
            f"scaling must be a factor or (factor, low, high, length), got {len(scaling)} numbers"
        )
    factor, low, high, length = scaling
    check_above_zero(**{"scaling factor": factor, "low": low, "high": high})
    check_positive(length=length)
    if high <= low:
        raise ValueError(f"high must be above low, got high={high} and low={low}")


def rotations(
    positions: Tensor, d_head: int, base: float = 10000.0, scaling: Scaling = None
) -> Tensor:
    """(...) → (..., 2, Dh): row 0 multiplies x, row 1 multiplies x with its halves exchanged."""
    frequency = scale_frequencies(frequencies(d_head, base, positions.device), scaling)
    angle = positions.unsqueeze(-1) * frequency
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=-2)


@cache_table
def _table(
    n: int,
    d_head: int,
    base: float,
    scaling: Scaling,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The rotations of the first n positions, (n, 2, Dh), computed in float64 and then rounded."""
    table = rotations(torch.arange(n, device="cpu"), d_head, base, scaling)
    return table.to(device=device, dtype=dtype)


class RotaryPositions(PositionScheme):
    """Turns queries or keys by their positions. No parameters, no limit on the length."""

    acts_on = "q and k"
    d_head: int

    def __init__(self, d_head: int, *, base: float = 10000.0, scaling: Scaling = None) -> None:
        """scaling: a factor, or (factor, low, high, length); see scale_frequencies."""
        super().__init__()
        check_positive(d_head=d_head)
        if d_head % 2:
            raise ValueError(
                f"d_head must be even, because rotary positions turn pairs of columns, "
                f"got {d_head}; take d_head={d_head + 1} or another scheme"
            )
        check_above_zero(base=base)
        check_scaling(scaling)
        self.d_head, self.base, self.scaling = d_head, float(base), scaling

    def forward(self, x: Tensor, *, positions: Tensor | None = None) -> Tensor:
        """x (..., T, Dh) → the same shape, turned; positions (T,) or (B, T), or None = 0 … T−1.

        Half-precision x is turned in float32 and rounded once at the end.
        """
        check_last_axis("x", x, "d_head", self.d_head, min_axes=2)
        wide = widen(x)
        cos, sin = self._rotations(wide, positions).unbind(-2)  # each (T, Dh) or (B, 1, T, Dh)
        return torch.addcmul(wide * cos, wide.roll(self.d_head // 2, -1), sin).to(x.dtype)

    def rotation_table(self, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return _table(n, self.d_head, self.base, self.scaling, dtype, device)

    def _rotations(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """The rotation at each position: (T, 2, Dh) or (B, 1, T, 2, Dh)."""
        if positions is None:
            return self.rotation_table(x.size(-2), x.dtype, x.device)
        check_positions(positions, x)
        if positions.ndim == 2:  # add the axes between batch and T, such as the heads
            positions = positions.view(x.size(0), *[1] * (x.ndim - 3), x.size(-2))
        if (n := count_rows(positions)) is None:
            return rotations(positions, self.d_head, self.base, self.scaling).to(x.dtype)
        return self.rotation_table(n, x.dtype, x.device)[positions.long()]

    def extra_repr(self) -> str:
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return f"d_head={self.d_head}, base={self.base:g}{scaling}"
