"""What all pictures share: the style, how a matrix is drawn, how tokens are named, how it is saved.

Weights have one scale, 0 to 1, so that two pictures can be compared; colours grow darker with the
number and stay readable in grey. matplotlib is imported when something is drawn.
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
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

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
    "savefig.pad_inches": 0.06,
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and restyled
    "svg.hashsalt": "clearhead",  # the same picture is the same file
}
FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Hiragino Sans", "Microsoft YaHei", "Noto Emoji")
WEIGHT_COLOURS = "Blues"  # 0 is white paper
SIGNED_COLOURS = "cividis"  # lightness grows from −1 to 1, so both ends differ in grey too
NAN_COLOUR = "#D55E00"  # NaN is shown, not hidden
LINES = [("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#000000", "-")]
LABEL_INCHES = 0.16  # room that one token label needs along an axis
CELL_INCHES = 0.34  # room that a weight written into its cell wants


class Picture:
    """A drawn figure: saves itself, shows itself in a notebook, says in words what it shows."""

    def __init__(self, figure: "Figure", description: str) -> None:
        self.figure = figure
        self.description = description

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .png or .svg file, whole or not at all; returns its path."""
        path = Path(path)
        form = path.suffix.lower().removeprefix(".")
        if form not in ("png", "svg"):
            raise ValueError(f"path must end in .png or .svg, got {path.name!r}")
        return write_whole(path, self._render(form))

    def _render(self, form: str) -> bytes:
        file = io.BytesIO()
        with style(), warnings.catch_warnings():
            # A script that no font has is boxes in a PNG; an SVG leaves the choice to its reader.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            self.figure.savefig(
                file, format=form, metadata={"Date": None} if form == "svg" else None
            )
        return file.getvalue()

    def _repr_html_(self) -> str:
        png = self._render("png")
        pixels = int.from_bytes(png[16:20], "big")  # the width, by the PNG standard
        width = round(pixels / STYLE["savefig.dpi"] * 96)  # 96 of a browser's pixels are one inch
        return (
            f'<img alt="{html.escape(self.description)}" style="width:{width}px;max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )

    def __repr__(self) -> str:
        return f"Picture: {self.description}"


def write_whole(path: Path, data: bytes) -> Path:
    """Write a file under another name beside it, then rename it: no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


# Tokens


def readable_token(token: Any, longest: int = 24) -> str:
    """A token as people see it: spaces and line ends visible, control characters written out."""
    text = str(token)
    shown = {" ": "␣", "\n": "↵", "\t": "⇥", "": "∅"}.get(text)
    if shown is None:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def token_names(
    T: int, S: int, tokens: Sequence[str] | None, source_tokens: Sequence[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """Names of the T queries and the S keys, None where none were given.

    Without source_tokens the tokens name all S keys, and the queries are the last T of them.
    """
    if source_tokens is not None:
        check_tokens("source_tokens", source_tokens, S, "keys")
        if tokens is None:
            return None, list(source_tokens)
        check_tokens("tokens", tokens, T, "queries")
        return list(tokens), list(source_tokens)
    if tokens is None:
        return None, None
    if T > S:
        raise ValueError(f"{T} queries look at {S} other tokens; name those by source_tokens")
    check_tokens("tokens", tokens, S, "keys")
    return list(tokens)[S - T :], list(tokens)


def check_tokens(name: str, tokens: Sequence[str], n: int, what: str) -> None:
    """A list with one name for each of n queries or keys."""
    if isinstance(tokens, str):
        raise TypeError(
            f"{name} must be a list of tokens, got the string {tokens!r}; use list({name})"
        )
    if len(tokens) != n:
        raise ValueError(f"{name} has {len(tokens)} entries but the weights have {n} {what}")


# Drawing


def array(x: Any) -> Array:
    """Any tensor or array as float32 NumPy."""
    if isinstance(x, Tensor):
        return x.detach().float().cpu().numpy()
    return np.asarray(x, dtype=np.float32)


@contextmanager
def style() -> Iterator[None]:
    """The typography of all pictures, for the length of a `with`."""
    import matplotlib

    settings: Any = {**STYLE, "font.family": _fonts()}
    with matplotlib.rc_context(settings):
        yield


@functools.cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [name for name in FONTS if name in installed]


def new_figure(width: float, height: float) -> "Figure":
    """A figure of its own, in inches: pyplot does not know it, so nothing has to be closed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="compressed")


def inches(n: int, least: float, most: float) -> float:
    """The side of a matrix with n rows or columns."""
    return min(max(n * CELL_INCHES, least), most)


def draw_weights(axes: "Axes", weights: Array, top: float = 1.0) -> Any:
    """A matrix of weights from 0 (white) to top (dark)."""
    return _draw(axes, weights, WEIGHT_COLOURS, 0.0, top)


def draw_signed(axes: "Axes", matrix: Array, top: float) -> Any:
    """A matrix of numbers from −top to top."""
    return _draw(axes, matrix, SIGNED_COLOURS, -top, top)


def _draw(axes: "Axes", matrix: Array, colours: str, low: float, high: float) -> Any:
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    axes.tick_params(length=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    colour_map = matplotlib.colormaps[colours].with_extremes(bad=NAN_COLOUR)
    T, S = matrix.shape
    box = (-0.5, max(S, 1) - 0.5, max(T, 1) - 0.5, -0.5)  # an empty matrix still has an outline
    return axes.imshow(
        matrix, cmap=colour_map, vmin=low, vmax=high, interpolation="nearest", extent=box
    )


def label_tokens(
    axes: "Axes",
    queries: Sequence[str] | None,
    keys: Sequence[str] | None,
    size: tuple[float, float],
) -> None:
    """Token names along both axes of a (height, width) panel; every n-th if all would not fit."""
    for axis, names, room in zip((axes.yaxis, axes.xaxis), (queries, keys), size, strict=True):
        if names is None:
            continue
        step = max(1, -int(-len(names) * LABEL_INCHES // room))
        places = range(0, len(names), step)
        # Tokens are text: $ and _ are no mathematics here.
        axis.set_ticks(list(places), [readable_token(names[i]) for i in places], parse_math=False)
    if keys and max(len(readable_token(name)) for name in keys) > 2:
        axes.tick_params(axis="x", labelrotation=90)


def write_numbers(axes: "Axes", weights: Array, size: tuple[float, float]) -> None:
    """The weights as text in the cells of a (height, width) panel, if they fit."""
    if any(n and room / n < 0.3 for n, room in zip(weights.shape, size, strict=True)):
        return
    for (t, s), weight in np.ndenumerate(weights):
        if not weight < 0.005:
            colour = "white" if weight > 0.55 else "#333333"
            text = f"{weight:.2f}".removeprefix("0")
            axes.text(s, t, text, ha="center", va="center", fontsize=7, color=colour)


def draw_cell_lines(axes: "Axes", T: int, S: int) -> None:
    """Thin lines between the cells of a (T, S) matrix."""
    axes.set_xticks(np.arange(S) + 0.5, minor=True)
    axes.set_yticks(np.arange(T) + 0.5, minor=True)
    axes.grid(which="minor", color="#cccccc", linewidth=0.4)
    axes.tick_params(which="minor", length=0)


def open_axes(axes: "Axes") -> None:
    """For curves and bars: a light grid, and no frame above and to the right."""
    axes.grid(color="#e3e3e3", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def colour_bar(figure: "Figure", image: Any, axes: "list[Axes]", label: str) -> None:
    """The scale beside the panels, as thin on a large page as on a small one."""
    thin = 5 * float(figure.get_figheight())
    bar = figure.colorbar(
        image, ax=axes, label=label, shrink=0.8, aspect=thin, pad=0.02, fraction=0.1
    )
    bar.outline.set_visible(False)
