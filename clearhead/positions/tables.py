"""What several schemes share: angles, distances, cached tables, and the checks of `positions`.

    angle[p, i]  = p · frequency[i]           of position p and the pair of columns i
    frequency[i] = 1 / base^(2i / d)
    offset[t, s] = position of query t − position of key s

Sinusoidal positions take the sine and cosine of these angles, rotary positions rotate by them.
Queries are the last T of the S positions, so query t has position t + S − T.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.runtime import widest_float
from clearhead.shapes import can_read_values, check_int_tensor, format_shape


def frequencies(d: int, base: float, device: torch.device) -> Tensor:
    """1 / base^(2i/d) for each pair of columns i: (⌈d/2⌉,), exact to float64."""
    return base ** -(torch.arange(0, d, 2, dtype=widest_float(device), device=device) / d)


def angles(positions: Tensor, d: int, base: float = 10000.0) -> Tensor:
    """positions / base^(2i/d) for each pair of columns: (...) → (..., ⌈d/2⌉), exact to float64."""
    return positions.unsqueeze(-1) * frequencies(d, base, positions.device)


def offsets(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Position of each of T queries minus position of each of S keys, (T, S): future < 0."""
    queries = torch.arange(S - T, S, device=device)
    return queries[:, None] - torch.arange(S, device=device)


def cache_table(build: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make build(n, *key) → (n, ...) remember its tables: one for each key and rounded-up n.

    The tables are not part of any module: no checkpoint holds them, and all layers share them.
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


def count_rows(positions: Tensor) -> int | None:
    """The length of the table that holds these positions, or None if a table does not pay.

    It does not for a few positions far out, nor where reading them would wait for an accelerator.
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
