"""What all pictures share: the style, panels, saving.

    with panels(7.5, 3.4) as (figure, [axes]):
        axes.plot(x, y)
    Picture(figure, "y over x").save("curve.svg")

How a matrix is drawn is in matrices.py. matplotlib is imported when something is drawn.
"""

import base64
import functools
import html
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.files.writing import replace_file
from clearhead.shapes import check_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes = Figure = Any

Array = np.ndarray[Any, Any]

PADDING = 0.06  # around a picture, in inches
MAX_DPI = 2400
SCREEN_DPI = (
    120  # in a notebook or a page, which would be half as large again with the 160 of files
)
# The forms of a file, and the metadata without which the same picture is the same file.
UNDATED: dict[str, dict[str, Any] | None] = {
    "png": None,
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "savefig.bbox": "tight",  # nothing cut off, no empty border
    "savefig.pad_inches": PADDING,
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and restyled
    "svg.hashsalt": "clearhead",  # the same picture is the same file
}
FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Hiragino Sans", "Microsoft YaHei", "Noto Emoji")
LEGEND_ROW = 0.19  # the height of a line of a legend, in inches
# Colour and dashes of each line: they differ in grey too.
LINES = [("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#000000", "-")]


class Picture:
    """A drawn figure with a description in words; notebooks show it, `save` writes it."""

    def __init__(self, figure: Figure, description: str) -> None:
        self.figure = figure
        self.description = description

    def save(
        self, path: str | os.PathLike[str], *, dpi: int | None = None, panel: int | None = None
    ) -> Path:
        """Write a .png, .svg or .pdf file, whole or not at all; returns its path.

        dpi: pixels per inch of a PNG, 160 unless given. panel: only this one, counted from 0 in
        reading order.
        """
        path = Path(path)
        form = path.suffix.lower().removeprefix(".")
        if form not in UNDATED:
            raise ValueError(f"path must end in .png, .svg or .pdf, got {path.name!r}")
        if dpi is not None:
            check_whole("dpi", dpi, least=1, most=MAX_DPI)
        return write_whole(path, self._render(form, dpi, panel))

    @property
    def panels(self) -> list[Axes]:
        """The panels in reading order, without scales of colour."""
        return [axes for axes in self.figure.axes if axes.axison and not _is_colour_scale(axes)]

    def _render(self, form: str, dpi: int | None = None, panel: int | None = None) -> bytes:
        file = io.BytesIO()
        with style(), warnings.catch_warnings():
            # Letters that no font has are boxes in a PNG; an SVG leaves the font to its viewer.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            chosen: dict[str, Any] = {} if dpi is None else {"dpi": dpi}
            if panel is not None:
                chosen["bbox_inches"] = self._find_box(panel)
            self.figure.savefig(file, format=form, metadata=UNDATED[form], **chosen)
        return file.getvalue()

    def _find_box(self, panel: int) -> Any:
        """The rectangle of one panel with its labels, in inches."""
        panels = self.panels
        if not isinstance(panel, int) or not 0 <= panel < len(panels):
            raise ValueError(
                f"panel must be a number from 0 to {len(panels) - 1}: the picture has "
                f"{len(panels)}, got {panel!r}"
            )
        self.figure.draw_without_rendering()  # places the labels
        box = panels[panel].get_tightbbox()
        assert box is not None  # the panel is visible
        return box.transformed(self.figure.dpi_scale_trans.inverted()).padded(PADDING)

    def _repr_html_(self) -> str:
        png = self._render("png", SCREEN_DPI)
        pixels = int.from_bytes(png[16:20], "big")  # the width, by the PNG standard
        width = round(pixels / SCREEN_DPI * 96)  # a browser has 96 pixels per inch
        return (
            f'<img alt="{html.escape(self.description)}" style="width:{width}px;max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )

    def __repr__(self) -> str:
        return f"Picture: {self.description}"


def _is_colour_scale(axes: Axes) -> bool:
    return bool(axes.get_label() == "<colorbar>")


def write_whole(path: Path, data: bytes) -> Path:
    """Write a file, and its folders, whole or not at all; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(data)
    return path


@contextmanager
def style() -> Iterator[None]:
    """The typography of all pictures, inside a `with`."""
    import matplotlib

    settings: Any = {**STYLE, "font.family": _fonts()}
    with matplotlib.rc_context(settings):
        yield


@functools.cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [name for name in FONTS if name in installed]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches. pyplot does not know it, so nothing has to be closed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="compressed")


@contextmanager
def panels(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in inches and its panels, row by row; options as those of `Figure.subplots`."""
    with style():
        figure = new_figure(width, height)
        yield figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


@contextmanager
def panel_grid(
    n: int, panel: tuple[float, float], margin: tuple[float, float], most_columns: int
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of n panels, each (width, height) inches, in rows of up to `most_columns`."""
    columns = max(1, min(n, most_columns))
    rows = max(1, -(-n // columns))
    size = columns * panel[0] + margin[0], rows * panel[1] + margin[1]
    with panels(*size, columns, rows) as (figure, grid):
        for axes in grid[n:]:
            axes.set_axis_off()
        yield figure, grid[:n]


def keep_outer_labels(grid: Sequence[Axes], most_columns: int) -> None:
    """Remove the axis labels of panels of a `panel_grid` that have one to the left, or below."""
    for i, axes in enumerate(grid):
        if i % most_columns:
            axes.set_ylabel("")
        if i + most_columns < len(grid):
            axes.set_xlabel("")


def open_axes(axes: Axes) -> None:
    """Axes for curves and bars: a light grid, no frame at the top and at the right."""
    axes.grid(color="#e3e3e3", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend_above(axes: Axes, columns: int = 1, **options: Any) -> None:
    """A legend inside the panel, above the curves; the vertical axis is extended to make room."""
    look: dict[str, Any] = {"loc": "upper right", "columnspacing": 1.5, "frameon": False}
    legend = axes.legend(ncols=columns, **look | options)
    low, high = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    rows = -(-len(legend.get_texts()) // columns)
    inches = axes.get_window_extent().height / axes.figure.dpi
    share = min((rows + 0.5) * LEGEND_ROW / inches, 0.5)  # of the panel
    to_scale = axes.transScale + axes.transLimits
    top = to_scale.inverted().transform((0, 1 / (1 - share)))[1]
    axes.set_ylim(low, top)
    axes.set_yticks(ticks)


def image_box(image: Array) -> tuple[float, float, float, float]:
    """The `extent` with which a map of any size covers this image."""
    height, width = image.shape[:2]
    return (-0.5, width - 0.5, height - 0.5, -0.5)
