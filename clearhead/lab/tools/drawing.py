"""How the experiments draw: panels with a light grid, lines that can be told apart in grey.

with panels(9.6, 3.9, 2) as (figure, (left, right)):
    left.plot(x, y, **line_style(0, label="softmax"))
    finish(left, "upper left", xlabel="T (inputs)", ylabel="time (ms)", yscale="log")
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clearhead.inspection import picture
from clearhead.inspection.picture import LINES, Axes, Figure, open_axes

MARKERS = "osD^v"
SMALL: dict[str, Any] = {"fontsize": 8}
NOTE: dict[str, Any] = {"fontsize": 8, "color": "#555555"}  # of words inside a panel


@contextmanager
def panels(
    width: float, height: float, columns: int, rows: int = 1, **options: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in inches and its panels for curves; arguments as those of `picture.panels`."""
    with picture.panels(width, height, columns, rows, **options) as (figure, grid):
        for axes in grid:
            open_axes(axes)
        yield figure, grid


def line_style(order: int, **changes: Any) -> dict[str, Any]:
    """Colour, dashes and marker of the line of this number, as arguments of `Axes.plot`."""
    colour, dashes = LINES[order]
    style = {"color": colour, "linestyle": dashes, "marker": MARKERS[order], "markersize": 4.5}
    return style | changes


def finish(axes: Axes, legend: Any = None, **settings: Any) -> None:
    """Set title, axis labels, scales and limits as `Axes.set` does, and place the legend."""
    axes.set(**settings)
    if legend:
        axes.legend(loc=legend, frameon=False)
