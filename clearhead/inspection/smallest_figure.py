"""The smallest transformer at a glance: its three matrices and all that it computes with them.

smallest_panels(designs.first(4), np.eye(3)[[2, 0, 2]], tokens=list("CAC")).save("first.png")

Km    Qm    Vm    Attn        what is fixed, and who listens to whom in this sequence
K     Q     V     Out         a row for each token; K = x Km stands under Km, column by column
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    matrices = _matrices(model, seq)
    if tokens is not None:
        check_tokens("tokens", tokens, len(matrices["K"]), "queries")
    if inputs is not None and len(inputs) != len(matrices["Km"]):
        raise ValueError(f"inputs has {len(inputs)} entries but Km has {len(matrices['Km'])} rows")
    return _draw(matrices, tokens, inputs)


def _matrices(model: NumpyTransformer | TorchTransformer, seq: Any) -> dict[str, Array]:
    """What the panels show, in their order."""
    if isinstance(model, TorchTransformer):
        model = model.to_numpy()
    if not isinstance(model, NumpyTransformer):
        raise TypeError(
            f"model must be a NumpyTransformer or TorchTransformer, got {type(model).__name__}"
        )
    steps = model.steps(seq)
    matrices = {"Km": model.Km, "Qm": model.Qm, "Vm": model.Vm, "K": steps.K, "Q": steps.Q}
    matrices |= {"V": steps.V, "Attn": steps.attention, "Out": steps.output}
    return {name: array(matrix) for name, matrix in matrices.items()}


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


@dataclass(frozen=True)
class Compared:
    """Models by their names, to be seen on one sequence (n, d_input), whose rows tokens name.

    inputs, of a model: the names of the numbers of a token and of its place, the rows of Km.
    """

    title: str
    models: Mapping[str, NumpyTransformer | TorchTransformer]
    seq: Any
    tokens: Sequence[str]
    inputs: Mapping[str, Sequence[str]]


def smallest_rows(groups: Sequence[Compared]) -> Picture:
    """The eight panels of several models, a row for each, each panel rescaled to 0–1.

    So one sees the pattern of a matrix, whatever its size.
    """
    n_models = [len(group.models) for group in groups]
    heights = [1.02 * n + 0.4 for n in n_models]
    heights[-1] += 0.35  # for what stands below the last row
    with style():
        figure = new_figure(11.0, sum(heights))
        parts = figure.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, group in zip(parts, groups, strict=True):
            part.suptitle(group.title, x=0.01, ha="left", fontsize=10, weight="bold")
            grid = part.subplots(len(group.models), len(PANELS), squeeze=False)
            for row, name in zip(grid, group.models, strict=True):
                _draw_row(row, group, name)
            for axes, panel in zip(grid[0], PANELS, strict=True):
                axes.set_title(panel)
        for axes, (_, _, meaning) in zip(grid[-1], PANELS.values(), strict=True):
            axes.set_xlabel(meaning)
        parts[-1].supxlabel("each panel: white is its least number, dark its largest", fontsize=8)
    shown = "; ".join(f"{group.title}: {', '.join(group.models)}" for group in groups)
    return Picture(figure, f"{' '.join(PANELS)} of {sum(n_models)} transformers. {shown}")


def _draw_row(row: "Sequence[Axes]", group: Compared, model: str) -> None:
    matrices = _matrices(group.models[model], group.seq)
    for axes, (name, matrix) in zip(row, matrices.items(), strict=True):
        low, high = float(matrix.min()), float(matrix.max())
        draw_weights(axes, (matrix - low) / (high - low if high > low else 1.0))
        axes.set(aspect="auto", xticks=[], yticks=[])
        axes.tick_params(labelsize=6, length=0, pad=1)
        names = {"Km": group.inputs.get(model), "Attn": group.tokens}.get(name)
        if names is not None:
            axes.set_yticks(range(len(names)), names, parse_math=False)
    row[0].set_ylabel(model, rotation=0, ha="right", va="center", labelpad=18)
