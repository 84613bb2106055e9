"""What several schemes share: angles, tables computed once, and the checks of `positions`.

    angle[p, i] = p / base^(2i / d)         of position p and pair of columns i

Sinusoidal positions take the sine and cosine of these angles, rotary positions turn by them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.runtime import widest_float
from clearhead.shapes import can_read_values, check_int_tensor, format_shape


def angles(positions: Tensor, d: int, base: float = 10000.0) -> Tensor:
    """positions / base^(2i/d) for each pair of columns: (...) → (..., ⌈d/2⌉), exact to float64."""
    wide = widest_float(positions.device)
    exponents = torch.arange(0, d, 2, dtype=wide, device=positions.device) / d
    return positions.unsqueeze(-1) * base**-exponents


def kept_table(build: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make build(n, *key) → (n, ...) keep its results: one for each key and rounded-up n.

    The tables stay outside the modules: no checkpoint holds them, and all layers share them.
    """
    kept: dict[Any, Tensor] = {}

    def table(n: int, *key: Any) -> Tensor:
        rows = 1 << max(n - 1, 255).bit_length()
        found = kept.get((rows, *key))
        if found is None:
            with torch.inference_mode(False):  # so that the table can serve training later
                found = build(rows, *key)
            if type(found) is Tensor and not torch.compiler.is_compiling():
                kept[rows, *key] = found  # a tensor of a tracer must not outlive the tracer
        return found[:n]

    return table


def rows_needed(positions: Tensor) -> int | None:
    """The length of the table these positions need; None if they are better computed one by one.

    That is so where reading them would mean waiting for a device, and for a few far positions.
    """
    if not can_read_values(positions):
        return None
    n = int(positions.max()) + 1 if positions.numel() else 0
    return n if n <= max(4096, 4 * positions.numel()) else None


def check_positions(positions: Tensor, x: Tensor) -> None:
    """Whole numbers (T,) or (B, T) for x (B, ..., T, width), none negative, on its device."""
    check_int_tensor("positions", positions)
    T = x.size(-2)
    expected: list[tuple[int, ...]] = [(T,), (x.size(0), T)] if x.ndim > 2 else [(T,)]
    if positions.shape not in expected:
        raise ValueError(
            f"positions must have shape {' or '.join(map(str, expected))} for x {format_shape(x)}, "
            f"got {format_shape(positions)}"
        )
    if positions.device != x.device:
        raise ValueError(
            f"positions must be on the device of x, {x.device}, got {positions.device}; "
            f"use positions.to(x.device)"
        )
    if can_read_values(positions) and positions.numel() and (lowest := int(positions.min())) < 0:
        raise ValueError(f"positions must not be negative, got {lowest}; the first is 0")


def check_position_limit(positions: Tensor, max_len: int) -> None:
    """Every position has a row in a table of max_len rows."""
    if not can_read_values(positions) or not positions.numel():
        return
    if (highest := int(positions.max())) >= max_len:
        raise ValueError(
            f"positions reach {highest}, which needs a length of {highest + 1}, but max_len is "
            f"{max_len}; shorten the sequence or build the module with max_len={highest + 1}"
        )
