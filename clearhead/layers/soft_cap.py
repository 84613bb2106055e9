"""A soft cap: numbers near 0 stay, large ones approach the cap (Gemma Team 2024).

y  = cap · tanh(x / cap)              |y| ≤ cap; the order is kept
y′ = 1 − tanh²(x / cap)               the derivative, for gradients written by hand
"""

from torch import Tensor

from clearhead.shapes import check_number


def apply_soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """x (...) → the same shape, from −cap to cap; None = no cap."""
    return x if cap is None else cap * (x / cap).tanh()


def cap_in_place(x: Tensor, cap: float) -> Tensor:
    """The same written into x; returns the derivative at each number."""
    derivative = 1 - x.div_(cap).tanh_().square()
    x.mul_(cap)
    return derivative


def check_soft_cap(cap: float | None) -> None:
    """A positive number, or None for no cap."""
    if cap is not None:
        check_number("soft_cap", cap, low=0, above=True, way_out="; None = no cap")
