"""How a run went, and what its model mixes up, as pictures.

Curves are drawn over steps, one figure for each measure; a baseline is a dashed line across.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clearhead.inspection.picture import (
    LINES,
    Picture,
    array,
    draw_weights,
    new_figure,
    open_axes,
    style,
)

__all__ = ["confusion_picture", "curve"]

CURVE_INCHES = (4.75, 2.8)
LONG = 20  # a curve that falls by more than this factor is drawn on a logarithmic scale


def curve(
    title: str,
    lines: Mapping[str, Sequence[tuple[int, float]]],
    baselines: Mapping[str, float] | None = None,
) -> Picture:
    """Measures over steps: name → (step, value) pairs; baselines: name → a value that stays."""
    from matplotlib.ticker import MaxNLocator

    with style():
        figure = new_figure(*CURVE_INCHES)
        axes = figure.subplots()
        for (name, points), (colour, dashes) in zip(lines.items(), LINES, strict=False):
            steps, values = zip(*points, strict=True)
            dot = "o" if len(points) < 40 else None
            axes.plot(
                steps, values, dashes, color=colour, label=name, marker=dot, ms=2.5, linewidth=1.2
            )
        for name, value in (baselines or {}).items():
            axes.axhline(value, color="#555555", linestyle=(0, (5, 4)), linewidth=1, label=name)
        heights = [value for points in lines.values() for _, value in points]
        if "loss" in title and min(heights) > 0 and max(heights) > LONG * min(heights):
            axes.set_yscale("log")
        axes.set(xlabel="step", ylabel=title)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.margins(x=0.02)
        open_axes(axes)
        if len(lines) + len(baselines or {}) > 1:
            axes.legend(frameon=False)
    return Picture(figure, f"{title} over the steps of the run")


def confusion_picture(table: Any, names: Sequence[str]) -> Picture:
    """How many of each class (row) were taken for each (column); the colour is the row's share."""
    counts = array(table)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(max(len(names) * 0.5, 2.4), 9.0)
    with style():
        figure = new_figure(side + 1.4, side + 1.0)
        axes = figure.subplots()
        draw_weights(axes, shares)
        places = range(len(names))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(list(places), list(names), parse_math=False)
        axes.tick_params(axis="x", labelrotation=90)
        axes.set(xlabel="taken for", ylabel="is")
        if side / len(names) >= 0.3:
            for (row, column), count in np.ndenumerate(counts):
                if count:
                    colour = "white" if shares[row, column] > 0.55 else "#333333"
                    axes.text(
                        column, row, f"{count:.0f}", ha="center", va="center", size=7, color=colour
                    )
    return Picture(figure, f"Confusion of {len(names)} classes")
