"""Pictures of the measures of cause: lens, attribution, sweeps, head scores, maps and curves.

    sweep_picture(patch_sweep(model, clean, corrupted, metric)).save("sweep.png")

Every function takes the result of a measure and returns a Picture.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.inspection.attribution import Attribution
from clearhead.inspection.head_scores import HeadScores
from clearhead.inspection.matrices import (
    array,
    check_tokens,
    colour_bar,
    draw_bias,
    draw_weights,
    inches,
    label_tokens,
    readable_token,
    write_cells,
)
from clearhead.inspection.picture import (
    LINES,
    Array,
    Axes,
    Picture,
    add_legend_above,
    image_box,
    open_axes,
    panels,
)
from clearhead.inspection.picture_maps import Faithfulness
from clearhead.inspection.sweeps import Sweep
from clearhead.shapes import check_positive, check_whole, format_shape

MAX_SINGLE = 4  # up to so many pictures, each has its own row; more are drawn two in a row
MAP_COLOURS = "viridis"  # lightness grows with the value, so it can be read in grey too


def lens_picture(
    lens: Tensor, vocabulary: Sequence[str], tokens: Sequence[str] | None = None, batch: int = 0
) -> Picture:
    """A table of the most likely token after each layer, darker where it is more probable.

    lens: (L + 1, B, T, V), from logit_lens. vocabulary: the text of each of the V tokens. tokens:
    the texts of the T input tokens. batch: which row of the batch.
    """
    if lens.ndim != 4:
        raise ValueError(f"lens must have shape (L + 1, B, T, V), got {format_shape(lens)}")
    check_whole("batch", batch, -lens.size(1), lens.size(1) - 1)
    if len(vocabulary) < lens.size(-1):
        raise ValueError(
            f"vocabulary must name each of {lens.size(-1)} tokens, got {len(vocabulary)}"
        )
    probs = lens[:, batch].softmax(-1)
    best = probs.max(dim=-1)
    n_rows, T = best.values.shape
    if tokens is not None:
        check_tokens("tokens", tokens, T, "columns")
    names = [[readable_token(vocabulary[i], 8) for i in row] for row in best.indices.tolist()]
    size = 0.34 * n_rows, inches(T, 2.4, 11)
    with panels(size[1] + 2.4, size[0] + 1.2) as (figure, [axes]):
        image = draw_weights(axes, array(best.values))
        axes.set_aspect("auto")
        layers = ["embedding", *(f"after layer {layer}" for layer in range(n_rows - 1))]
        label_tokens(axes, layers, tokens, (9, size[1]))
        for (row, column), prob in np.ndenumerate(array(best.values)):
            colour = "white" if prob > 0.55 else "#333333"
            where: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
            axes.text(column, row, names[row][column], color=colour, fontsize=7, **where)
        axes.set(xlabel="token read")
        colour_bar(figure, image, [axes], "probability")
    return Picture(figure, f"The most likely next token after each of {n_rows - 1} layers")


def attribution_picture(found: Attribution, batch: int = 0, most: int = 14) -> Picture:
    """The `most` largest terms of a logit as bars, in order; one more bar for the sum of others."""
    check_whole("batch", batch, -len(found.target), len(found.target) - 1)
    check_positive(most=most)
    terms = sorted(
        ((name, float(value[batch])) for name, value in found.terms.items()),
        key=lambda term: -abs(term[1]),
    )
    shown, rest = terms[:most], terms[most:]
    if rest:
        shown.append((f"{len(rest)} others", sum(value for _, value in rest)))
    names, values = zip(*shown, strict=True)
    with panels(6.4, 0.24 * len(shown) + 1.0) as (figure, [axes]):
        open_axes(axes)
        colours = [LINES[0][0] if value >= 0 else LINES[1][0] for value in values]
        axes.barh(range(len(shown)), values, color=colours, height=0.7)
        axes.set_yticks(range(len(shown)), names)
        axes.invert_yaxis()
        axes.axvline(0, color="#333333", linewidth=0.8)
        axes.set(xlabel=f"contribution to the logit; the sum of all is {found.total[batch]:.3f}")
    return Picture(figure, f"The {len(shown)} largest of {len(terms)} contributions to a logit")


def sweep_picture(
    sweep: Sweep, tokens: Sequence[str] | None = None, title: str | None = None
) -> Picture:
    """A sweep as a table of colours, with a row for each layer.

    For patch_sweep it shows `recovered`, for head_importance `effect`. tokens: the names of the
    columns, if the sweep is over positions.
    """
    is_patch = sweep.goal is not None
    matrix = array(sweep.recovered if is_patch else sweep.effect)
    L, N = matrix.shape
    is_heads = sweep.over == "head"
    if tokens is not None and not is_heads:
        check_tokens("tokens", tokens, N, "columns")
    size = inches(L, 0.5, 6), inches(N, 1.2, 11)
    with panels(size[1] + 2.2, size[0] + 1.3) as (figure, [axes]):
        image = draw_bias(axes, matrix, matrix)
        label_tokens(axes, None, None if is_heads else tokens, size)
        if is_heads:
            axes.set_xticks(range(N))
            _write_numbers(axes, matrix, _find_dark_cells(matrix))
        axes.set_yticks(range(L))
        axes.set(xlabel="head" if is_heads else "token", ylabel="layer")
        axes.set_title(title or "", parse_math=False)
        colour_bar(figure, image, [axes], "share recovered" if is_patch else "change of metric")
    return Picture(figure, f"The effect of a change at each of {L} × {N} places")


def head_scores_picture(scores: HeadScores) -> Picture:
    """The previous-token, duplicate-token and induction scores: three tables, layers by heads."""
    kinds = ("previous", "duplicate", "induction")
    L, H = scores.previous.shape
    size = inches(L, 0.5, 4), inches(H, 0.9, 4)
    with panels(3 * size[1] + 2.4, size[0] + 1.2, 3) as (figure, grid):
        for axes, kind in zip(grid, kinds, strict=True):
            matrix = array(getattr(scores, kind))
            image = draw_weights(axes, matrix)
            _write_numbers(axes, matrix, matrix > 0.55)
            axes.set_xticks(range(H))
            axes.set_yticks(range(L))
            axes.set(xlabel="head", title=f"{kind} token" if kind != "induction" else kind)
        grid[0].set_ylabel("layer")
        colour_bar(figure, image, grid, "attention weight")
    return Picture(figure, f"Scores of {L} × {H} heads: previous token, same token, induction")


def map_picture(
    images: Tensor,
    maps: Mapping[str, Tensor],
    title: str | None = None,
    *,
    labels: Sequence[str] | None = None,
) -> Picture:
    """Pictures (B, channels, height, width) from 0 to 1, each beside its maps (B, rows, columns).

    maps: title → maps. They are drawn beside the picture, not over it, each with its own scale of
    colours below. Add a map of an untrained model for comparison. labels: texts below the pictures.
    More than 4 pictures are drawn two in a row.
    """
    pixels = array(images)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise ValueError(
            f"images must have shape (B, 1 or 3, height, width), got {format_shape(images)}"
        )
    _check_maps(maps, len(pixels))
    in_row = 1 if len(pixels) <= MAX_SINGLE else 2
    columns, rows = 1 + len(maps), -(-len(pixels) // in_row)
    lines = max((label.count("\n") for label in labels or ()), default=0)  # after the first line
    size = 1.35 * columns * in_row + 0.2, (1.6 + 0.13 * lines) * rows + 0.4
    with panels(*size, columns * in_row, rows) as (figure, grid):
        for number, pixel in enumerate(pixels):
            cells = grid[number * columns : (number + 1) * columns]
            picture = draw_pixels(cells[0], pixel)
            if labels is not None:
                cells[0].set_xlabel(labels[number], size=8, labelpad=3, parse_math=False)
            for axes, heats in zip(cells[1:], maps.values(), strict=True):
                draw_map(axes, array(heats[number]), picture)
            if number < in_row:
                for axes, name in zip(cells, ("picture", *maps), strict=True):
                    axes.set_title(name, size=8)
        for axes in grid[len(pixels) * columns :]:
            axes.set_axis_off()
        figure.suptitle(title or "", parse_math=False)
    return Picture(figure, f"{len(pixels)} pictures beside their maps: {', '.join(maps)}")


def _check_maps(maps: Mapping[str, Tensor], n_pictures: int) -> None:
    for name, heats in maps.items():
        if heats.ndim != 3 or len(heats) != n_pictures:
            raise ValueError(
                f"the map {name!r} must have shape ({n_pictures}, rows, columns), one for each "
                f"picture, got {format_shape(heats)}"
            )


def draw_pixels(axes: Axes, pixels: Array) -> Array:
    """Draw a picture (channels, height, width); returns it as (height, width, 3) from 0 to 1."""
    picture: Array = np.clip(pixels.transpose(1, 2, 0), 0, 1).repeat(3 // len(pixels), axis=2)
    axes.imshow(picture)
    _remove_frame(axes)
    return picture


def draw_map(axes: Axes, heat: Array, picture: Array) -> None:
    """Draw a map in the size of its picture; below it, its colours from lowest to highest value."""
    low, high = float(heat.min()), float(heat.max())
    axes.imshow(heat, extent=image_box(picture), cmap=MAP_COLOURS, vmin=low, vmax=high)
    strip = axes.inset_axes((0.0, -0.1, 1.0, 0.05))
    strip.imshow(np.linspace(0, 1, 64)[None], cmap=MAP_COLOURS, aspect="auto")
    strip.set_axis_off()
    axes.set_xlabel(f"{low:.2g} … {high:.2g}".replace("-", "−"), size=7, labelpad=11)
    _remove_frame(axes)


def _remove_frame(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def faithfulness_picture(found: Mapping[str, Faithfulness]) -> Picture:
    """Deletion and insertion curves, as means over pictures; found: name of a map → its curves."""
    with panels(8.6, 3.2, 2, sharey=True) as (figure, grid):
        for axes, kind in zip(grid, ("deletion", "insertion"), strict=True):
            open_axes(axes)
            for number, (name, curves) in enumerate(found.items()):
                mean = array(getattr(curves, kind).mean(dim=0))
                colour, dashes = LINES[number % len(LINES)]
                share = np.linspace(0, 1, len(mean))
                label = f"{name} ({curves.score:+.3f})"
                axes.plot(share, mean, color=colour, linestyle=dashes, label=label)
            word = "covered" if kind == "deletion" else "shown"
            axes.set(title=kind.capitalize(), xlabel=f"share of patches {word}, the highest first")
        grid[0].set_ylabel("probability of the answer")
        add_legend_above(grid[0], columns=1, title="map (insertion − deletion)")
    return Picture(figure, f"Deletion and insertion curves of {', '.join(found)}")


def _write_numbers(axes: Axes, matrix: Array, is_dark: Array) -> None:
    """Write each number with two decimals into its cell, if there are few cells."""
    if matrix.size <= 144:
        write_cells(axes, matrix, lambda x: f"{x:z.2f}".replace("-", "−"), is_dark)  # no −0.00


def _find_dark_cells(matrix: Array) -> Array:
    """True where draw_bias draws a dark cell: low values if both signs occur, else large ones."""
    top = np.abs(matrix).max(initial=1e-12)
    has_both = matrix.min(initial=0) < 0 < matrix.max(initial=0)
    return matrix < 0.35 * top if has_both else np.abs(matrix) > 0.55 * top
