"""A mask decides who may attend to whom; a masked input does not change one bit of the output.

    influence[i, j] = max |y_i(x with another x_j) − y_i(x)|     measured, one j at a time
    gradient[i, j]  = max |∂y_i / ∂x_j|                          the same question to autograd
    reach           = (mask ∨ I)ᴸ, a boolean power               which inputs L blocks can reach

In one attention layer only the source is changed and the queries stay as they are, so that y_i can
change only through the key and the value of j. In blocks the residual path also carries each
position's own input, hence the I, and a position is reached through those it may attend to.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.attention import Mask, MultiHeadAttention
from clearhead.inspection.picture import (
    Array,
    Picture,
    array,
    colour_bar,
    draw_cell_lines,
    draw_weights,
    new_figure,
    style,
)
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.drawing import Axes
from clearhead.lab.tools.finding import Finding, Table, wrap
from clearhead.layers import Block, Stack
from clearhead.models.gpt import GPT, GPTConfig

T, D, H, V = 8, 10, 2, 12  # positions, width, heads, vocabulary
DEPTHS = {"one": "One attention layer, by the mask", "two": "Two blocks, by the mask's reach"}
PAIRS, WHAT = ("forbidden", "allowed"), ("", "_changed", "_gradient")
COLUMNS = [*(pairs + what for pairs in PAIRS for what in WHAT), "smallest_change"]
LEAST = 1e-3  # the change that is drawn lightest
Layer = Callable[[Tensor], Tensor]


def masks(device: torch.device | str = "cpu") -> dict[str, Mask]:
    """Each kind of mask, and causal joined with three of them; for T positions."""
    causal, window = Mask.causal(), Mask.window(2)
    padding = Mask.padding(torch.tensor([5], device=device))
    segments = Mask.segments(torch.tensor([[0, 0, 0, 1, 1, 1, -1, -1]], device=device))
    position = torch.arange(T, device=device)
    return {
        "causal": causal,
        "padding": padding,
        "window": window,
        "segments": segments,
        "dense": Mask.of((position[:, None] - position) % 3 == 0),
        "causal & padding": causal & padding,
        "causal & window": causal & window,
        "causal & segments": causal & segments,
    }


def reach(allowed: Tensor, n_blocks: int) -> Tensor:
    """Which inputs can change which outputs of so many blocks: (T, T) → (T, T), boolean."""
    step = (allowed | torch.eye(T, dtype=torch.bool, device=allowed.device)).float()
    return torch.linalg.matrix_power(step, n_blocks) > 0


def influence(layer: Layer, x: Tensor, other: Tensor) -> Tensor:
    """How far each output i moves when input j is replaced by that of `other`: (T, T).

    x and other (1, T, ...). Each run changes one j, so all runs have one shape, and their numbers
    can be compared bit for bit.
    """
    before = layer(x)
    columns = []
    for j in range(T):
        changed = x.clone()
        changed[:, j] = other[:, j]
        columns.append((layer(changed) - before)[0].abs().amax(-1))  # (T,)
    return torch.stack(columns, dim=1)


def gradient(layer: Layer, x: Tensor) -> Tensor:
    """The largest entry of each ∂y_i/∂x_j: x (1, T, D) → (T, T)."""
    jacobian: Any = torch.autograd.functional.jacobian(layer, x)  # (1, T, D, 1, T, D)
    return jacobian.abs().amax(dim=(0, 2, 3, 5))


# The experiment


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Try every mask in one attention layer and in two blocks, on each pair of positions."""
    tried = masks(device)
    dense = torch.stack([mask.dense(T, T).reshape(T, T) for mask in tried.values()])  # (8, T, T)
    may = {"one": dense, "two": torch.stack([reach(allowed, 2) for allowed in dense])}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rounds = [_measure(tried, device) for _ in range(20 if full else 1)]
        checks = _check_decoder_and_empty_rows(tried["segments"], device)
    found = {depth: torch.stack([one[depth] for one in rounds]) for depth in DEPTHS}
    numbers: dict[str, Any] = {**checks}
    for depth in DEPTHS:
        counts = _count(may[depth], found[depth])
        numbers |= {f"{depth}_{name}": values for name, values in counts.items()}
    pairs = [_tabulate_pairs(numbers, depth, [*tried, "together"]) for depth in DEPTHS]
    return Finding(
        claim=EXPERIMENTS["masks"],
        tables=[*pairs, _tabulate_checks(checks)],
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(list(tried), dense, *(found[depth][0, :, 0] for depth in DEPTHS)),
    )


def build(device: torch.device | str) -> tuple[MultiHeadAttention, Stack, Tensor, Tensor]:
    """An attention layer, two blocks, an input (1, T, D) and another to take replacements from."""
    attention, blocks = MultiHeadAttention(D, H, bias=False), Stack(Block(D, H) for _ in range(2))
    for module in (attention, blocks):
        module.to(device).eval().requires_grad_(False)
    x, other = torch.randn(2, 1, T, D).to(device)
    return attention, blocks, x, other


def _measure(tried: Mapping[str, Mask], device: torch.device | str) -> dict[str, Tensor]:
    """Influence and gradient under every mask, by depth: (8, 2, T, T)."""
    attention, blocks, x, other = build(device)
    found: dict[str, list[Tensor]] = {"one": [], "two": []}
    for mask in tried.values():
        layers: dict[str, Layer] = {
            "one": partial(attention, x, mask=mask),  # as a function of the source alone
            "two": partial(blocks, mask=mask),
        }
        for depth, layer in layers.items():
            found[depth].append(torch.stack([influence(layer, x, other), gradient(layer, x)]))
    return {depth: torch.stack(matrices) for depth, matrices in found.items()}


def _count(may: Tensor, found: Tensor) -> dict[str, list[float]]:
    """Forbidden and allowed pairs, and how many of them changed: for each mask, then for all.

    may (8, T, T), found (rounds, 8, 2, T, T).
    """
    counts: dict[str, list[float]] = {}
    for name, pairs in zip(PAIRS, (~may, may), strict=True):
        tried = pairs.sum((1, 2)) * len(found)
        moved = ((found != 0) & pairs[:, None]).sum((0, 3, 4))  # (8, 2)
        for what, count in zip(WHAT, (tried, *moved.T), strict=True):
            counts[name + what] = [*count.tolist(), int(count.sum())]
    changes = found[:, :, 0].masked_fill(~may, torch.inf).amin((0, 2, 3)).tolist()
    return counts | {"smallest_change": [*changes, min(changes)]}


@torch.no_grad()
def _check_decoder_and_empty_rows(
    with_empty_rows: Mask, device: torch.device | str
) -> dict[str, float]:
    """A whole decoder, the check where it must fail, queries that may attend to nothing."""
    attention, blocks, x, other = build(device)
    gpt = GPT(GPTConfig(vocab_size=V, max_len=T, d_model=D, n_layers=2, n_heads=H))
    tokens = torch.randint(V, (1, T)).to(device)
    decoder = influence(gpt.to(device).eval(), tokens, (tokens + 1) % V) != 0
    unmasked = influence(blocks, x, other) != 0
    ahead = ~Mask.causal().dense(T, T, device=device)
    allowed = with_empty_rows.dense(T, T).reshape(T, T)
    empty = ~allowed.any(-1)
    outputs = attention(x, mask=with_empty_rows)[0, empty]
    plain = torch.zeros(T, T, device=device).masked_fill(~allowed, -torch.inf).softmax(-1)[empty]
    return {
        "gpt_ahead": int(ahead.sum()),
        "gpt_ahead_changed": int((decoder & ahead).sum()),
        "gpt_behind": int((~ahead).sum()),
        "gpt_behind_changed": int((decoder & ~ahead).sum()),
        "unmasked_ahead": int(ahead.sum()),
        "unmasked_ahead_changed": int((unmasked & ahead).sum()),
        "empty_outputs": outputs.numel(),
        "empty_not_zero": int((outputs != 0).sum()),
        "plain_weights": plain.numel(),
        "plain_nan": int(plain.isnan().sum()),
    }


# Tables and sentences


def _tabulate_pairs(numbers: Mapping[str, Any], depth: str, names: list[str]) -> Table:
    headings = ("forbidden", "changed", "gradient", "allowed", "changed", "gradient", "by at least")
    columns = (numbers[f"{depth}_{column}"] for column in COLUMNS)
    return Table.from_columns(
        f"{DEPTHS[depth]}: pairs of output i and input j, and how many changed.",
        ("", names),
        *zip(headings, columns, strict=True),
    )


def _tabulate_checks(checks: Mapping[str, float]) -> Table:
    what = (
        "a GPT of two blocks: pairs in which a later token changes the logits",
        "the same: pairs in which the token itself or an earlier one changes them",
        "two blocks without a mask: pairs in which a later input changes an output",
        "a query that may attend to nothing: numbers of its output that are not 0",
        "the same by a plain softmax: weights that are NaN",
    )
    values = list(checks.values())  # in twos: of how many, and how many were found
    columns = (("", what), ("of", values[::2]), ("found", values[1::2]))
    return Table.from_columns("Searched for, and found.", *columns)


def _describe(n: Mapping[str, Any]) -> str:
    def describe_depth(depth: str) -> str:
        no, moved, sloped, yes, did_move, did_slope, _ = (n[f"{depth}_{c}"][-1] for c in COLUMNS)
        return (
            f"{moved:,} of {no:,} forbidden pairs changed an output and {did_move:,} of {yes:,} "
            f"allowed ones did (by gradient {sloped:,} and {did_slope:,})"
        )

    return wrap(
        f"In one attention layer {describe_depth('one')}; in two blocks {describe_depth('two')}.",
        f"Of {n['gpt_ahead']} pairs that look ahead {n['gpt_ahead_changed']} changed the logits of "
        f"a GPT and {n['unmasked_ahead_changed']} the output of blocks without a mask; for queries "
        f"that may attend to nothing, {n['empty_not_zero']} of {n['empty_outputs']} outputs differ "
        f"from 0, and a plain softmax gives {n['plain_nan']} weights that are NaN.",
    )


# The picture


def _draw(names: list[str], dense: Tensor, one: Tensor, two: Tensor) -> Picture:
    """A column for each mask: the mask, the influence in one layer, the influence in two blocks."""
    from matplotlib.colors import LogNorm

    measured = [array(one), array(two)]
    scale = LogNorm(LEAST, max(matrices.max() for matrices in measured))
    rows = ("dark: may attend\nquery i", "one attention layer\noutput i", "two blocks\noutput i")
    with style():
        figure = new_figure(11.6, 5.1)
        grid = figure.subplots(3, len(names))
        for column, name in enumerate(names):
            draw_weights(grid[0, column], array(dense[column]), top=1.3)
            for row, matrices in enumerate(measured, start=1):
                image = _draw_influence(grid[row, column], matrices[column], scale)
            grid[0, column].set_title(name.replace(" &", "\n&"))
        for panel, axes in enumerate(grid.flat):
            axes.set(xlabel="input j", ylabel=rows[panel // len(names)])
            axes.set(xticks=[0, T - 1], yticks=[0, T - 1])
            draw_cell_lines(axes, T, T)
            axes.label_outer()
        colour_bar(figure, image, list(grid[1:].flat), "largest change of output i")
        figure.suptitle("Masked: not one bit changes (0); two blocks also reach through others")
    return Picture(
        figure, f"{len(names)} masks, and under each how far every output moves with every input"
    )


def _draw_influence(axes: Axes, matrix: Array, scale: Any) -> Any:
    """Darker where more; a 0 where not one bit has changed."""
    image = draw_weights(axes, matrix.clip(min=LEAST))
    image.set_norm(scale)
    i, j = (matrix == 0).nonzero()
    axes.scatter(j, i, s=30, marker="$0$", color="#777777", linewidths=0)
    return image
