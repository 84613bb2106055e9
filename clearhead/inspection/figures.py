"""Attention and masks as pictures; those of positions are in position_figures.py.

    attention_grid(trace, tokens=["the", "cat", "sat"]).save("heads.svg")

Every function takes plain tensors, arrays or a Trace and returns a Picture, which shows itself in a
notebook and saves itself as PNG or SVG. How pictures look is settled in picture.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.attention.masks import Mask
from clearhead.inspection.measures import Layers, check_one_size, named_layers
from clearhead.inspection.picture import (
    WEIGHT_COLOURS,
    Array,
    Picture,
    array,
    check_tokens,
    colour_bar,
    draw_cell_lines,
    draw_weights,
    inches,
    label_tokens,
    new_figure,
    style,
    token_names,
    write_numbers,
)
from clearhead.shapes import check_positive


def attention_map(
    weights: Any,
    *,
    head: int | str | None = None,
    batch: int = 0,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    title: str | None = None,
    top: float = 1.0,
) -> Picture:
    """One head: a row for each query, a column for each key.

    weights (T, S), (H, T, S) or (B, H, T, S); head is a number or "mean". tokens name the queries
    and source_tokens the keys; without source_tokens the tokens name all S keys, the queries being
    the last T. The darkest colour is the weight `top`.
    """
    matrix = one_head(weights, head, batch)
    T, S = matrix.shape
    queries, keys = token_names(T, S, tokens, source_tokens)
    with style():
        size = inches(T, 0.4, 9), inches(S, 1.6, 9)
        figure = new_figure(size[1] + 1.9, max(size[0] + 1.1, 2.0))
        axes = figure.subplots()
        image = draw_weights(axes, matrix, top)
        label_tokens(axes, queries, keys, size)
        write_numbers(axes, matrix, size)
        axes.set(xlabel="key (attended to)", ylabel="query (attends)")
        if title:
            axes.set_title(title, parse_math=False)
        colour_bar(figure, image, [axes], "attention weight")
    return Picture(figure, f"Attention weights of {T} queries over {S} keys")


def attention_grid(
    layers: Layers,
    *,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    batch: int = 0,
    top: float = 1.0,
) -> Picture:
    """Every head of every layer: a row of maps for each layer, a column for each head.

    layers is a Trace, a mapping from names, or a list of (B, H, T, S) tensors or arrays.
    """
    named = named_layers(layers, names)
    T, S = check_one_size(named)
    queries, keys = token_names(T, S, tokens, source_tokens)
    n_heads = max(weights.size(1) for weights in named.values())
    with style():
        most = max(1.1, min(2.6, 14 / max(n_heads, 1)))  # a page is some 14 inches wide
        size = inches(T, 0.4, most), inches(S, 1.1, most)
        figure = new_figure(n_heads * (size[1] + 0.12) + 2.2, len(named) * (size[0] + 0.2) + 1.3)
        grid = figure.subplots(len(named), max(n_heads, 1), squeeze=False)
        for row, (name, weights) in enumerate(named.items()):
            for head, axes in enumerate(grid[row]):
                if head >= weights.size(1):
                    axes.set_axis_off()
                    continue
                image = draw_weights(axes, one_head(weights, head, batch), top)
                label_tokens(axes, queries, keys, size)
                axes.set_title(f"head {head}" if row == 0 else "")
                axes.set_ylabel(f"{name or 'attention'}\nquery", parse_math=False)
                axes.set_xlabel("key")
                axes.label_outer()
        if n_heads:
            colour_bar(figure, image, list(grid.flat), "attention weight")
    return Picture(figure, f"Attention weights of {len(named)} layers with {n_heads} heads")


def alignment(
    weights: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    title: str | None = None,
) -> Picture:
    """Which source words each target word was made from: weights (T_target, T_source)."""
    matrix = one_head(weights, None, 0)
    T, S = matrix.shape
    check_tokens("source_tokens", source_tokens, S, "columns")
    check_tokens("target_tokens", target_tokens, T, "rows")
    with style():
        size = inches(T, 1.6, 9), inches(S, 1.6, 9)
        figure = new_figure(size[1] + 2.2, size[0] + 1.4)
        axes = figure.subplots()
        image = draw_weights(axes, matrix)
        axes.xaxis.set_label_position("top")
        axes.xaxis.tick_top()
        label_tokens(axes, target_tokens, source_tokens, size)
        write_numbers(axes, matrix, size)
        axes.set(xlabel="source (read)", ylabel="target (written)")
        if title:
            axes.set_title(title, parse_math=False)
        colour_bar(figure, image, [axes], "attention weight")
    return Picture(figure, f"Alignment of {T} target tokens with {S} source tokens")


def class_token_overlay(image: Any, heat: Any, *, title: str | None = None) -> Picture:
    """What the class token looks at: image (3, height, width) from 0 to 1, heat (rows, columns).

    Where it looks the image keeps its light, elsewhere it is dimmed; beside it the map itself.
    Weights over many patches are small, so the scale ends at the largest. With a batch axis on
    both there is a row for each image.
    """
    images, heats = array(image), array(heat)
    images, heats = (x[None] if x.ndim == n else x for x, n in ((images, 3), (heats, 2)))
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"image must have shape (3, height, width), got {tuple(np.shape(image))}")
    if heats.ndim != 3 or len(heats) != len(images):
        raise ValueError(
            f"heat must have shape (rows, columns), one for each image, got "
            f"{tuple(np.shape(heat))} for {len(images)} images"
        )
    with style():
        figure = new_figure(7.0, 2.2 * len(images) + 0.4)
        grid = figure.subplots(len(images), 3, squeeze=False)
        for row, picture, one in zip(grid, images, heats, strict=True):
            shown = np.clip(picture.transpose(1, 2, 0), 0, 1).repeat(3 // picture.shape[0], axis=2)
            top = float(one.max(initial=0)) or 1.0
            box = (-0.5, shown.shape[1] - 0.5, shown.shape[0] - 0.5, -0.5)
            row[0].imshow(shown)
            row[1].imshow(shown)
            veil = 0.8 * (1 - np.clip(one / top, 0, 1))  # black, most opaque where it does not look
            row[1].imshow(
                np.zeros_like(one), alpha=veil, cmap="gray", extent=box, interpolation="bilinear"
            )
            drawn = row[2].imshow(one, cmap=WEIGHT_COLOURS, vmin=0, vmax=top, extent=box)
            colour_bar(figure, drawn, [row[2]], "attention weight")
            for axes in row:
                axes.set(xticks=[], yticks=[])
        for axes, name in zip(
            grid[0], ("image", "where it looks", "attention by patch"), strict=True
        ):
            axes.set_title(name)
        if title:
            figure.suptitle(title, parse_math=False)
    return Picture(figure, f"What the class token attends to in {len(images)} images")


def mask_picture(
    mask: Mask | Tensor, T: int, S: int | None = None, *, tokens: Sequence[str] | None = None
) -> Picture:
    """Who may attend to whom: dark = may. One panel for each batch element and head that differ."""
    S = T if S is None else S
    check_positive(T=T, S=S)
    mask = Mask.of(mask)
    allowed = mask.dense(T, S)
    heads = allowed.size(1) if allowed.ndim == 4 else 1
    panels = array(allowed.reshape(-1, T, S))
    queries, keys = token_names(T, S, tokens, None)
    columns = max(1, min(len(panels), 4))
    with style():
        size = inches(T, 1.2, 4), inches(S, 1.2, 4)
        rows = max(1, -(-len(panels) // columns))
        figure = new_figure(columns * (size[1] + 0.7) + 0.4, rows * (size[0] + 0.7) + 0.7)
        grid = figure.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_axis_off()
                continue
            draw_weights(axes, panels[place], top=1.3)
            label_tokens(axes, queries, keys, size)
            draw_cell_lines(axes, T, S)
            axes.set(xlabel="key" if place // columns == rows - 1 else "")
            axes.set(ylabel="query" if place % columns == 0 else "")
            if len(panels) > 1:
                element, head = divmod(place, heads)
                axes.set_title(f"element {element}" + (f", head {head}" if heads > 1 else ""))
        figure.suptitle(f"{mask}\ndark = may attend", fontsize=9, parse_math=False)
    return Picture(figure, f"{mask} for {T} queries and {S} keys")


def one_head(weights: Any, head: int | str | None, batch: int) -> Array:
    """The (T, S) matrix of one head – or the mean of all – of one batch element."""
    shape = tuple(np.shape(weights))
    if len(shape) not in (2, 3, 4):
        raise ValueError(f"weights must have shape (T, S), (H, T, S) or (B, H, T, S), got {shape}")
    if len(shape) == 2:
        return array(weights)
    if len(shape) == 4:
        if not -shape[0] <= batch < shape[0]:
            raise IndexError(
                f"batch={batch} does not exist: weights {shape} have {shape[0]} elements"
            )
        weights = weights[batch]
    n_heads = shape[-3]
    if head == "mean":
        return array(weights).mean(axis=0)
    if head is None and n_heads != 1:
        raise ValueError(
            f"weights {shape} have {n_heads} heads; choose head=0 … {n_heads - 1} or head='mean', "
            f"or see all with attention_grid([weights])"
        )
    place = 0 if head is None else head
    if not isinstance(place, int) or not -n_heads <= place < n_heads:
        raise IndexError(f"head={head!r} does not exist: weights {shape} have {n_heads} heads")
    return array(weights[place])
