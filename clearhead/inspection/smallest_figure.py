"""The smallest transformer at a glance: its three matrices and all that it computes with them.

smallest_panels(designs.first(4), np.eye(3)[[2, 0, 2]], tokens=list("CAC")).save("first.png")

Km    Qm    Vm    Attn        what is fixed, and who listens to whom in this sequence
K     Q     V     Out         a row for each token; K = x Km stands under Km, column by column
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.inspection.picture import (
    Array,
    Picture,
    array,
    check_tokens,
    draw_signed,
    draw_weights,
    inches,
    label_tokens,
    new_figure,
    style,
    write_numbers,
)
from clearhead.models.smallest import NumpyTransformer, TorchTransformer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["smallest_panels"]

# In the order of reading; each with its place in the grid and what its columns are.
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


def smallest_panels(
    model: NumpyTransformer | TorchTransformer,
    seq: Any,
    *,
    tokens: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
) -> Picture:
    """Km Qm Vm K Q V Attn Out of a model on one sequence (n, d_input).

    tokens name the rows of seq, inputs the numbers of a token and of its place: the rows of Km, Qm
    and Vm. Each panel is coloured by its own largest number; in a small picture the numbers stand
    in their cells.
    """
    if isinstance(model, TorchTransformer):
        model = model.to_numpy()
    if not isinstance(model, NumpyTransformer):
        raise TypeError(
            f"model must be a NumpyTransformer or TorchTransformer, got {type(model).__name__}"
        )
    steps = model.steps(seq)
    if tokens is not None:
        check_tokens("tokens", tokens, len(steps.x), "queries")
    if inputs is not None and len(inputs) != len(model.Km):
        raise ValueError(f"inputs has {len(inputs)} entries but Km has {len(model.Km)} rows")
    matrices = {"Km": model.Km, "Qm": model.Qm, "Vm": model.Vm, "K": steps.K, "Q": steps.Q}
    matrices |= {"V": steps.V, "Attn": steps.attention, "Out": steps.output}
    return _draw({name: array(matrix) for name, matrix in matrices.items()}, tokens, inputs)


def _draw(
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
    small = max(side for matrix in matrices.values() for side in matrix.shape) <= 14
    with style():
        figure = new_figure(sum(widths) + 3.6, sum(heights) + 1.6)
        grid = figure.subplots(2, 4, width_ratios=widths, height_ratios=heights)
        for name, (row, column, meaning) in PANELS.items():
            axes, size = grid[row, column], (heights[row], widths[column])
            rows = inputs if name in ("Km", "Qm", "Vm") else tokens
            if name == "Attn":
                draw_weights(axes, matrices[name])
                write_numbers(axes, matrices[name], size if small else (0.0, 0.0))
            else:
                meaning += _draw_numbers(axes, matrices[name], small)
            label_tokens(axes, rows, tokens if name == "Attn" else None, size)
            axes.set(title=name, xlabel=meaning)
        for axes, label in zip(grid[:, 0], ("input", "token"), strict=True):
            axes.set(ylabel=label)
        grid[0, 3].set(ylabel="query")
    n = len(matrices["K"])
    return Picture(figure, f"The smallest transformer on {n} tokens: {' '.join(PANELS)}")


def _draw_numbers(axes: "Axes", matrix: Array, small: bool) -> str:
    """Draw it, and say how to read its colours if no numbers stand in the cells."""
    top = float(np.abs(matrix).max(initial=0.0)) or 1.0
    draw_signed(axes, matrix, top)
    if not small:
        return f"\ncolours ±{top:.3g}"
    for (row, column), value in np.ndenumerate(matrix):
        if abs(value) >= 0.005 * top:  # less is 0 beside the largest
            colour = "#222222" if value > 0.2 * top else "white"
            text = (f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.2g}").replace("-", "−")
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    return ""
