"""Attention and masks as pictures; positions are drawn in position_figures.py.

    attention_grid(trace, tokens=["the", "cat", "sat"]).save("heads.svg")

Every function takes plain tensors, arrays or a Trace and returns a Picture, which a notebook shows
and `save` writes as PNG or SVG.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.attention.masks import Mask
from clearhead.inspection.cause_figures import map_picture
from clearhead.inspection.matrices import (
    array,
    check_tokens,
    colour_bar,
    draw_cell_lines,
    draw_weights,
    inches,
    label_tokens,
    token_names,
    write_numbers,
)
from clearhead.inspection.measures import Layers, check_one_size, name_layers
from clearhead.inspection.picture import (
    Array,
    Picture,
    keep_outer_labels,
    panel_grid,
    panels,
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
    and source_tokens the keys; without source_tokens, tokens name all S keys, and the queries are
    the last T. Weights of `top` and more have the darkest colour.
    """
    matrix = select_head(weights, head, batch)
    T, S = matrix.shape
    queries, keys = token_names(T, S, tokens, source_tokens)
    size = inches(T, 0.4, 9), inches(S, 1.6, 9)
    with panels(size[1] + 1.9, max(size[0] + 1.1, 2.0)) as (figure, [axes]):
        image = draw_weights(axes, matrix, top)
        label_tokens(axes, queries, keys, size)
        write_numbers(axes, matrix, size)
        axes.set(xlabel="key (attended to)", ylabel="query (attends)")
        axes.set_title(title or "", parse_math=False)
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
    named = name_layers(layers, names)
    T, S = check_one_size(named)
    queries, keys = token_names(T, S, tokens, source_tokens)
    n_heads = max(weights.size(1) for weights in named.values())
    columns = max(n_heads, 1)
    most = max(1.1, min(2.6, 14 / columns))  # a page is some 14 inches wide
    size = inches(T, 0.4, most), inches(S, 1.1, most)
    page = n_heads * (size[1] + 0.12) + 2.2, len(named) * (size[0] + 0.2) + 1.3
    with panels(*page, columns, len(named)) as (figure, grid):
        for row, (name, weights) in enumerate(named.items()):
            for head, axes in enumerate(grid[row * columns : (row + 1) * columns]):
                if head >= weights.size(1):
                    axes.set_axis_off()
                    continue
                image = draw_weights(axes, select_head(weights, head, batch), top)
                label_tokens(axes, queries, keys, size)
                axes.set_title(f"head {head}" if row == 0 else "")
                axes.set_ylabel(f"{name or 'attention'}\nquery", parse_math=False)
                axes.set_xlabel("key")
                axes.label_outer()
        if n_heads:
            colour_bar(figure, image, grid, "attention weight")
    return Picture(figure, f"Attention weights of {len(named)} layers with {n_heads} heads")


def alignment(
    weights: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    title: str | None = None,
) -> Picture:
    """How much each target token attends to each source token: weights (T_target, T_source)."""
    matrix = select_head(weights, None, 0)
    T, S = matrix.shape
    check_tokens("source_tokens", source_tokens, S, "columns")
    check_tokens("target_tokens", target_tokens, T, "rows")
    size = inches(T, 1.6, 9), inches(S, 1.6, 9)
    with panels(size[1] + 2.2, size[0] + 1.4) as (figure, [axes]):
        image = draw_weights(axes, matrix)
        axes.xaxis.set_label_position("top")
        axes.xaxis.tick_top()
        label_tokens(axes, target_tokens, source_tokens, size)
        write_numbers(axes, matrix, size)
        axes.set(xlabel="source (read)", ylabel="target (written)")
        axes.set_title(title or "", parse_math=False)
        colour_bar(figure, image, [axes], "attention weight")
    return Picture(figure, f"Alignment of {T} target tokens with {S} source tokens")


def class_token_overlay(image: Any, heat: Any, *, title: str | None = None) -> Picture:
    """An image (3, height, width) from 0 to 1, and beside it the map heat (rows, columns).

    With a batch axis on both there is a row for each image. The map was once laid over the image;
    then dark parts looked unattended whatever the map said. map_picture draws several maps.
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
    maps = {"attention by patch": torch.from_numpy(heats)}
    return map_picture(torch.from_numpy(images), maps, title)


def mask_picture(
    mask: Mask | Tensor, T: int, S: int | None = None, *, tokens: Sequence[str] | None = None
) -> Picture:
    """Which query may attend to which key: dark = may.

    One panel for all batch elements and heads, or one for each if they differ.
    """
    S = T if S is None else S
    check_positive(T=T, S=S)
    mask = Mask.of(mask)
    allowed = mask.dense(T, S)
    heads = allowed.size(1) if allowed.ndim == 4 else 1
    matrices = array(allowed.reshape(-1, T, S))
    queries, keys = token_names(T, S, tokens, None)
    size = inches(T, 1.2, 4), inches(S, 1.2, 4)
    panel = size[1] + 0.7, size[0] + 0.7
    with panel_grid(len(matrices), panel, (0.4, 0.7), most_columns=4) as (figure, grid):
        for number, (axes, matrix) in enumerate(zip(grid, matrices, strict=True)):
            draw_weights(axes, matrix, top=1.3)
            label_tokens(axes, queries, keys, size)
            draw_cell_lines(axes, T, S)
            axes.set(xlabel="key", ylabel="query")
            if len(matrices) > 1:
                element, head = divmod(number, heads)
                axes.set_title(f"element {element}" + (f", head {head}" if heads > 1 else ""))
        keep_outer_labels(grid, most_columns=4)
        figure.suptitle(f"{mask}\ndark = may attend", fontsize=9, parse_math=False)
    return Picture(figure, f"{mask} for {T} queries and {S} keys")


def select_head(weights: Any, head: int | str | None, batch: int) -> Array:
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
    index = 0 if head is None else head
    if not isinstance(index, int) or not -n_heads <= index < n_heads:
        raise IndexError(f"head={head!r} does not exist: weights {shape} have {n_heads} heads")
    return array(weights[index])
