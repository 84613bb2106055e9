"""A soft cap: numbers near 0 stay, large ones come close to the cap but not above it.

y  = cap · tanh(x / cap)              |y| ≤ cap, order kept          (Gemma Team 2024)
y′ = 1 − tanh²(x / cap)               the slope, for who computes gradients by hand
"""

from torch import Tensor

from clearhead.renamed import forward
from clearhead.shapes import check_number


def apply_soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """x (...) → the same shape, within ±cap; None = no cap."""
    return x if cap is None else cap * (x / cap).tanh()


def cap_in_place(x: Tensor, cap: float) -> Tensor:
    """The same written over x; returns the slope at each number."""
    bent = x.div_(cap).tanh_()
    slope = 1 - bent.square()
    x.mul_(cap)
    return slope


def check_soft_cap(cap: float | None) -> None:
    """A positive number, or None for no cap."""
    if cap is not None:
        check_number("soft_cap", cap, low=0, above=True, way_out="; None = no cap")


__getattr__ = forward(__name__)
