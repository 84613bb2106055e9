"""Positions as pictures: sinusoids as waves and as a table, biases by distance as matrices."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.inspection.matrices import array, colour_bar, draw_bias, draw_signed
from clearhead.inspection.picture import (
    LINES,
    Array,
    Picture,
    add_legend_above,
    keep_outer_labels,
    open_axes,
    panel_grid,
    panels,
)
from clearhead.positions.sinusoidal import sinusoid_table
from clearhead.shapes import check_positive, format_shape

ALIKE = 4  # biases of heads whose sizes differ by at most this factor share a scale


def position_waves(
    d_model: int | Tensor, dimensions: Sequence[int] = (4, 5, 6, 7), n_positions: int = 60
) -> Picture:
    """The encoding along the sequence, one wave for each chosen dimension.

    d_model is the width of the sinusoid table, or any finished table (positions, d_model).
    """
    table = _position_table(d_model, n_positions)
    width = table.shape[1]
    wrong = [i for i in dimensions if not 0 <= i < width]
    if wrong:
        raise ValueError(
            f"dimensions has {wrong} but d_model is {width}: they go from 0 to {width - 1}"
        )
    with panels(7.5, 3.4) as (figure, [axes]):
        for order, i in enumerate(dimensions):
            colour, _ = LINES[order % len(LINES)]
            _, dashes = LINES[(order + order // len(LINES)) % len(LINES)]  # no two lines alike
            kind = "" if isinstance(d_model, Tensor) else (" (cos)" if i % 2 else " (sin)")
            axes.plot(table[:, i], color=colour, linestyle=dashes, label=f"dimension {i}{kind}")
        axes.set(xlabel="position (tokens)", ylabel="value of the encoding")
        axes.margins(x=0.01)
        open_axes(axes)
        if dimensions:
            add_legend_above(axes, columns=4, loc="upper center", fontsize=8)
    return Picture(
        figure, f"Positional encoding over {len(table)} positions, dimensions {list(dimensions)}"
    )


def position_table(d_model: int | Tensor, n_positions: int = 60) -> Picture:
    """The whole encoding: a row for each position, a column for each dimension.

    d_model is the width of the sinusoid table, or any finished table (positions, d_model).
    """
    table = _position_table(d_model, n_positions)
    top = _largest(table) if isinstance(d_model, Tensor) else 1.0
    with panels(7.5, 4.2) as (figure, [axes]):
        image = draw_signed(axes, table, top)
        axes.set(xlabel="dimension", ylabel="position (tokens)", aspect="auto")
        colour_bar(figure, image, [axes], "value of the encoding")
    return Picture(
        figure, f"Positional encoding of {table.shape[0]} positions × {table.shape[1]} dimensions"
    )


def toeplitz_matrices(bias: Tensor | nn.Module, T: int = 12) -> Picture:
    """The bias by distance of each head: a tensor (H, T, S), or a module such as ToeplitzBias.

    A module is drawn for T queries and T keys. A Toeplitz matrix is constant along each diagonal.
    Heads share a scale, unless their sizes differ much: those of ALiBi by a factor of up to 128.
    """
    if isinstance(bias, nn.Module):
        with torch.no_grad():
            bias = bias(T, T)
    matrices = array(bias)
    if matrices.ndim != 3 or not len(matrices):
        raise ValueError(
            f"bias must have shape (H, T, S) with at least one head, got {matrices.shape}"
        )
    spans = [_largest(matrix) for matrix in matrices]
    is_shared = max(spans) <= ALIKE * min(spans)
    panel = (2.15, 2.3) if is_shared else (2.6, 2.3)
    with panel_grid(len(matrices), panel, (1.5, 0.5), most_columns=4) as (figure, grid):
        for head, (axes, matrix) in enumerate(zip(grid, matrices, strict=True)):
            image = draw_bias(axes, matrix, matrices if is_shared else matrix)
            axes.set_title(f"head {head}")
            axes.set(xlabel="key (position)", ylabel="query (position)")
            if not is_shared:
                colour_bar(figure, image, [axes], "bias of the score")
        keep_outer_labels(grid, most_columns=4)
        if is_shared:
            colour_bar(figure, image, grid, "bias of the score")
    return Picture(figure, f"Relative position bias of {len(matrices)} heads")


def _position_table(d_model: int | Tensor, n_positions: int) -> Array:
    if not isinstance(d_model, Tensor):
        check_positive(d_model=d_model, n_positions=n_positions)
        return array(sinusoid_table(n_positions, d_model))
    if d_model.ndim != 2:
        raise ValueError(
            f"a table must have shape (positions, d_model), got {format_shape(d_model)}"
        )
    return array(d_model[:n_positions])


def _largest(matrix: Array) -> float:
    return float(np.nan_to_num(np.abs(matrix), nan=0.0).max(initial=0.0)) or 1.0
