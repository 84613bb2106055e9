"""A matrix as a picture: colours, cells, token names, the scale beside it.

Weights have one scale, 0 to 1, so that two pictures can be compared; larger numbers are darker, in
grey too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.inspection.picture import Array, Axes, Figure

WEIGHT_COLOURS = "Blues"  # 0 is white paper
SIGNED_COLOURS = "cividis"  # lightness grows from −1 to 1, so both ends differ in grey too
NAN_COLOUR = "#D55E00"  # NaN is shown, not hidden
LABEL_INCHES = 0.16  # that one token label needs along an axis
CELL_INCHES = 0.34  # the side of a cell, where there is room
NUMBER_INCHES = 0.3  # the smallest cell in which a number can be read


def array(x: Any) -> Array:
    """Any tensor or array as float32 NumPy."""
    if isinstance(x, Tensor):
        return x.detach().float().cpu().numpy()
    return np.asarray(x, dtype=np.float32)


def inches(n: int, least: float, most: float) -> float:
    """The side of a matrix with n rows or columns, in inches."""
    return min(max(n * CELL_INCHES, least), most)


def draw_weights(axes: Axes, weights: Array, top: float = 1.0) -> Any:
    """A matrix of weights from 0 (white) to top (dark)."""
    return _draw(axes, weights, WEIGHT_COLOURS, 0.0, top)


def draw_signed(axes: Axes, matrix: Array, top: float) -> Any:
    """A matrix of numbers from −top to top."""
    return _draw(axes, matrix, SIGNED_COLOURS, -top, top)


def draw_bias(axes: Axes, matrix: Array, scale: Array) -> Any:
    """A matrix on the scale of these numbers: signed, or on one side of 0 if they all are."""
    low, high = float(np.nanmin(scale, initial=0.0)), float(np.nanmax(scale, initial=0.0))
    if low < 0 < high:
        return draw_signed(axes, matrix, max(-low, high))
    if low < 0:
        return _draw(axes, matrix, WEIGHT_COLOURS + "_r", low, 0.0)
    return draw_weights(axes, matrix, high or 1.0)


def _draw(axes: Axes, matrix: Array, colours: str, low: float, high: float) -> Any:
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
    axes: Axes,
    queries: Sequence[str] | None,
    keys: Sequence[str] | None,
    size: tuple[float, float],
) -> None:
    """Token names along both axes of a (height, width) panel; every n-th where not all fit."""
    for axis, names, room in zip((axes.yaxis, axes.xaxis), (queries, keys), size, strict=True):
        if names is None:
            continue
        step = max(1, -int(-len(names) * LABEL_INCHES // room))
        ticks = range(0, len(names), step)
        # parse_math=False, because $ in a token does not begin a formula.
        axis.set_ticks(list(ticks), [readable_token(names[i]) for i in ticks], parse_math=False)
    if keys and max(len(readable_token(name)) for name in keys) > 2:
        axes.tick_params(axis="x", labelrotation=90)


def write_numbers(axes: Axes, weights: Array, size: tuple[float, float]) -> None:
    """The weights as text in the cells of a (height, width) panel, if they fit."""
    if any(n and room / n < NUMBER_INCHES for n, room in zip(weights.shape, size, strict=True)):
        return

    def format_weight(weight: float) -> str:
        return "" if weight < 0.005 else f"{weight:.2f}".removeprefix("0")

    write_cells(axes, weights, format_weight, is_dark=weights > 0.55)


def write_cells(
    axes: Axes, matrix: Array, format_entry: Callable[[float], str], is_dark: Array, size: float = 7
) -> None:
    """Write each entry into its cell, white where the cell is dark; an empty text is left out."""
    for (row, column), entry in np.ndenumerate(matrix):
        if text := format_entry(entry):
            colour = "white" if is_dark[row, column] else "#333333"
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def draw_cell_lines(axes: Axes, T: int, S: int) -> None:
    """Thin lines between the cells of a (T, S) matrix."""
    axes.set_xticks(np.arange(S) + 0.5, minor=True)
    axes.set_yticks(np.arange(T) + 0.5, minor=True)
    axes.grid(which="minor", color="#cccccc", linewidth=0.4)
    axes.tick_params(which="minor", length=0)


def colour_bar(figure: Figure, image: Any, axes: list[Axes], label: str) -> None:
    """The scale beside the panels, equally thin in figures of every size."""
    thin = 5 * float(figure.get_figheight())
    bar = figure.colorbar(
        image, ax=axes, label=label, shrink=0.8, aspect=thin, pad=0.02, fraction=0.1
    )
    bar.outline.set_visible(False)


# Tokens


def readable_token(token: Any, longest: int = 24) -> str:
    """A token as a label: spaces and line ends visible, control characters written out."""
    text = str(token)
    shown = {" ": "␣", "\n": "↵", "\t": "⇥", "": "∅"}.get(text)
    if shown is None:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def token_names(
    T: int, S: int, tokens: Sequence[str] | None, source_tokens: Sequence[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """Names of the T queries and of the S keys; None where none are given.

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
    """Check that tokens is a list with one name for each of n queries or keys."""
    if isinstance(tokens, str):
        raise TypeError(
            f"{name} must be a list of tokens, got the string {tokens!r}; use list({name})"
        )
    if len(tokens) != n:
        raise ValueError(f"{name} has {len(tokens)} entries but the weights have {n} {what}")
