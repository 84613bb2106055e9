"""The smallest transformer as a picture: its three matrices and everything computed with them.

    smallest_panels(designs.first(4), np.eye(3)[[2, 0, 2]], tokens=list("CAC")).save("first.png")

The eight panels:

    Km    Qm    Vm    Attn        the parameters, and the attention weights of this sequence
    K     Q     V     Out         a row for each token; K = x Km stands below Km, column by column
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.inspection.matrices import (
    array,
    check_tokens,
    draw_signed,
    draw_weights,
    inches,
    label_tokens,
    write_cells,
    write_numbers,
)
from clearhead.inspection.picture import Array, Axes, Picture, new_figure, panels, style
from clearhead.models.smallest import NumpyTransformer, TorchTransformer
from clearhead.models.smallest.panels import rescale

Transformer = NumpyTransformer | TorchTransformer

# In reading order: row and column in the grid, and the name of the columns.
PANELS = {
    "Km": (0, 0, "d_qk"),
    "Qm": (0, 1, "d_qk"),
    "Vm": (0, 2, "d_v"),
    "K": (1, 0, "d_qk"),
    "Q": (1, 1, "d_qk"),
    "V": (1, 2, "d_v"),
    "Attn": (0, 3, "key"),
    "Out": (1, 3, "d_v"),
}
ROW_INCHES = 1.25  # the height of a row of eight panels
MAX_WRITTEN = 14  # rows or columns of a matrix whose numbers are written into its cells


def smallest_panels(
    model: Transformer,
    seq: Any,
    *,
    tokens: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
) -> Picture:
    """Km Qm Vm K Q V Attn Out of a model on one sequence (n, d_input).

    tokens name the rows of seq. inputs name the rows of Km, Qm and Vm: the entries of a token, then
    those of its position. Each panel has its own scale; small matrices have their numbers in cells.
    """
    matrices = _read_arrays(model, seq)
    if tokens is not None:
        check_tokens("tokens", tokens, len(matrices["K"]), "queries")
    if inputs is not None and len(inputs) != len(matrices["Km"]):
        raise ValueError(f"inputs has {len(inputs)} entries but Km has {len(matrices['Km'])} rows")
    return _draw_panels(matrices, tokens, inputs)


def compute_matrices(model: Transformer, seq: Any) -> dict[str, Array]:
    """The matrices by the names of their panels, in the same order."""
    if isinstance(model, TorchTransformer):
        model = model.to_numpy()
    if not isinstance(model, NumpyTransformer):
        raise TypeError(
            f"model must be a NumpyTransformer or TorchTransformer, got {type(model).__name__}"
        )
    return model.name_matrices(model.steps(seq))


def _read_arrays(model: Transformer, seq: Any) -> dict[str, Array]:
    """The matrices in the precision that is drawn."""
    return {name: array(matrix) for name, matrix in compute_matrices(model, seq).items()}


def _draw_panels(
    matrices: dict[str, Array], tokens: Sequence[str] | None, inputs: Sequence[str] | None
) -> Picture:
    heights = [
        inches(max(len(matrices[name]) for name in names), 0.7, 5.0)
        for names in (("Km", "Attn"), ("K",))
    ]
    widths = [
        inches(max(matrices[name].shape[1] for name in names), 0.7, 5.0)
        for names in (("K",), ("Q",), ("V",), ("Attn", "Out"))
    ]
    is_small = max(side for matrix in matrices.values() for side in matrix.shape) <= MAX_WRITTEN
    page, ratios = (sum(widths) + 3.6, sum(heights) + 1.6), (widths, heights)
    with panels(*page, 4, 2, width_ratios=ratios[0], height_ratios=ratios[1]) as (figure, grid):
        for name, (row, column, meaning) in PANELS.items():
            axes, matrix, size = (
                grid[4 * row + column],
                matrices[name],
                (heights[row], widths[column]),
            )
            if name == "Attn":
                draw_weights(axes, matrix)
                write_numbers(axes, matrix, size if is_small else (0.0, 0.0))
            else:
                top = float(np.abs(matrix).max(initial=0.0)) or 1.0
                draw_signed(axes, matrix, top)
                if is_small:
                    _write_entries(axes, matrix, top)
                else:
                    meaning += f"\ncolours ±{top:.3g}"
            rows = inputs if name in ("Km", "Qm", "Vm") else tokens
            label_tokens(axes, rows, tokens if name == "Attn" else None, size)
            axes.set(title=name, xlabel=meaning)
        for panel, label in ((0, "input"), (4, "token"), (3, "query")):
            grid[panel].set(ylabel=label)
    n = len(matrices["K"])
    return Picture(figure, f"The smallest transformer on {n} tokens: {' '.join(PANELS)}")


def _write_entries(axes: Axes, matrix: Array, top: float) -> None:
    def format_entry(x: float) -> str:
        if abs(x) < 0.005 * top:  # less is 0 beside the largest
            return ""
        return (f"{x:.0f}" if abs(x) >= 99.5 else f"{x:.2g}").replace("-", "−")

    write_cells(axes, matrix, format_entry, is_dark=matrix <= 0.2 * top)


@dataclass(frozen=True)
class Compared:
    """Models to compare, by name, on one sequence (n, d_input) whose rows tokens name.

    inputs: for a model's name, the names of the rows of its Km.
    """

    title: str
    models: Mapping[str, Transformer]
    seq: Any
    tokens: Sequence[str]
    inputs: Mapping[str, Sequence[str]]


def smallest_rows(groups: Sequence[Compared]) -> Picture:
    """The eight panels of several models, a row for each model.

    Each panel is rescaled to 0–1, so that the patterns of matrices of any scale can be compared.
    """
    n_models = [len(group.models) for group in groups]
    heights = [ROW_INCHES * n + 0.4 for n in n_models]
    heights[-1] += 0.35  # for the labels below the last row
    with style():
        figure = new_figure(11.0, sum(heights))
        parts = figure.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, group in zip(parts, groups, strict=True):
            grid = draw_group(part, group)
        for axes, (_, _, meaning) in zip(grid[-1], PANELS.values(), strict=True):
            axes.set_xlabel(meaning)
        scale = "each panel has its own scale: white = its smallest entry, dark = its largest"
        parts[-1].supxlabel(scale, fontsize=9)
    shown = "; ".join(f"{group.title}: {', '.join(group.models)}" for group in groups)
    return Picture(figure, f"{' '.join(PANELS)} of {sum(n_models)} transformers. {shown}")


def draw_group(part: Any, group: Compared) -> Any:
    """Draw one group into its part of a figure; returns the panels (models, 8)."""
    part.suptitle(group.title, x=0.01, ha="left", fontsize=10, weight="bold")
    grid = part.subplots(len(group.models), len(PANELS), squeeze=False)
    for row, name in zip(grid, group.models, strict=True):
        _draw_row(row, group, name)
    for axes, panel in zip(grid[0], PANELS, strict=True):
        axes.set_title(panel)
    return grid


def _draw_row(row: Sequence[Axes], group: Compared, model: str) -> None:
    matrices = _read_arrays(group.models[model], group.seq)
    for axes, (name, matrix) in zip(row, matrices.items(), strict=True):
        draw_weights(axes, rescale(matrix))
        axes.set(aspect="auto", xticks=[], yticks=[])
        axes.tick_params(labelsize=7, length=0, pad=1)
        names = {"Km": group.inputs.get(model), "Attn": group.tokens}.get(name)
        if names is not None:
            room = 1.5 * ROW_INCHES  # labels are smaller here than in other pictures
            label_tokens(axes, names, None, (room, room))
    row[0].set_ylabel(model, rotation=0, ha="right", va="center", labelpad=18)
