"""Metrics and learning rates over steps, and the confusion matrix, as pictures.

One run has a figure for each metric; several runs share one figure with a panel for each metric.
A baseline is a dashed horizontal line.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from clearhead.inspection.matrices import NUMBER_INCHES, array, draw_weights, write_cells
from clearhead.inspection.picture import (
    LINES,
    Axes,
    Picture,
    add_legend_above,
    open_axes,
    panel_grid,
    panels,
)
from clearhead.training.schedule import Schedule

Points = Sequence[tuple[float, float]]
Lines = Mapping[str, Points]

CURVE_INCHES = (4.75, 2.8)
N_POINTS = 501  # of a schedule
LONG_NAME = 24  # letters; a legend of longer names would hide the curves
SHARES = ("accuracy", "exact")  # measures between 0 and 1
LOG_FACTOR = 20  # a loss that falls by more than this factor gets a logarithmic scale


def curve(title: str, lines: Lines, baselines: Mapping[str, float] | None = None) -> Picture:
    """Metrics over steps: name → (step, value) pairs; baselines: name → one value."""
    with panels(*CURVE_INCHES) as (figure, [axes]):
        _draw(axes, title, lines, baselines or {})
        names = [*lines, *(baselines or {})]
        if len(names) > 1 and max(map(len, names)) > LONG_NAME:
            add_legend_above(axes)
        elif len(names) > 1:
            axes.legend(frameon=False)
    return Picture(figure, f"{title} over the steps of the run")


def lengths_picture(accuracy: Mapping[int, float], trained: tuple[int, int]) -> Picture:
    """Accuracy by the length of the input; the lengths of training are shaded."""
    with panels(*CURVE_INCHES) as (figure, [axes]):
        open_axes(axes)
        least, most = trained
        axes.axvspan(least - 0.5, most + 0.5, color="#e8eef5", label="lengths of training")
        colour, _ = LINES[0]
        axes.plot(list(accuracy), list(accuracy.values()), color=colour, marker="o", markersize=3.5)
        axes.set(xlabel="length", ylabel="accuracy", ylim=(0, 1.03))
        axes.set_xticks(list(accuracy))
        axes.legend(frameon=False, loc="lower left")
    return Picture(figure, "Accuracy by the length of the input")


def compare_runs(runs: Mapping[str, Mapping[str, Points]]) -> Picture:
    """Several runs, name → metric → (step, value) pairs: a panel for each metric."""
    names = list(dict.fromkeys(name for series in runs.values() for name in series))
    with panel_grid(len(names), CURVE_INCHES, (0, 0), most_columns=3) as (figure, grid):
        for axes, name in zip(grid, names, strict=True):
            _draw(axes, name, {run: series.get(name, ()) for run, series in runs.items()})
        if len(runs) > 1:
            add_legend_above(grid[0])
    return Picture(figure, f"{', '.join(names)} of {', '.join(runs)}")


def schedules_picture(schedules: Mapping[str, tuple[Schedule, float]]) -> Picture:
    """name → a schedule, and the learning rate that its factor multiplies."""
    lines = {}
    for name, (schedule, lr) in schedules.items():
        steps = np.linspace(0, schedule.max_steps, N_POINTS)
        lines[name] = [(float(step), lr * schedule(float(step))) for step in steps]
    picture = curve("learning rate", lines)
    return Picture(picture.figure, f"The learning rate of {', '.join(schedules)}")


def _draw(
    axes: Axes, title: str, lines: Lines, baselines: Mapping[str, float] | None = None
) -> None:
    from matplotlib.ticker import MaxNLocator

    for (name, points), (colour, dashes) in zip(lines.items(), cycle(LINES)):
        steps, values = zip(*points, strict=True) if points else ((), ())
        marker = "o" if len(points) < 40 else None
        look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 2.5, "linewidth": 1.2}
        axes.plot(steps, values, dashes, label=name, **look)
    for name, value in (baselines or {}).items():
        axes.axhline(value, color="#555555", linestyle=(0, (5, 4)), linewidth=1, label=name)
    heights = [value for points in lines.values() for _, value in points]
    if "loss" in title and 0 < LOG_FACTOR * min(heights, default=0) < max(heights, default=0):
        axes.set_yscale("log")
    axes.set(xlabel="step", ylabel=title)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.margins(x=0.02)
    axes.set_xlim(left=0)
    if title.endswith(SHARES):
        axes.set_ylim(-0.02, 1.02)
    open_axes(axes)


def confusion_picture(table: Any, names: Sequence[str]) -> Picture:
    """How many of each class (row) were taken for each class (column); colour: share of the row."""
    counts = array(table)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(max(len(names) * 0.5, 2.4), 9.0)
    with panels(side + 1.4, side + 1.0) as (figure, [axes]):
        draw_weights(axes, shares)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(range(len(names)), names, parse_math=False)
        axes.tick_params(axis="x", labelrotation=90)
        axes.set(xlabel="predicted class", ylabel="true class")
        if side / len(names) >= NUMBER_INCHES:
            write_cells(axes, counts, lambda n: f"{n:.0f}" if n else "", is_dark=shares > 0.55)
    return Picture(figure, f"Confusion of {len(names)} classes")
