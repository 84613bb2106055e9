"""A masked input does not change one bit of the output.

    influence[i, j] = max |y_i(x with another x_j) − y_i(x)|     measured, one j at a time
    gradient[i, j]  = max |∂y_i / ∂x_j|                          the same by autograd
    reach           = (mask ∨ I)ᴸ, a boolean power               the inputs that L blocks can reach

In one attention layer only the source is changed and the queries stay as they are, so y_i can
change only through the key and the value of j. Blocks also have a residual path, which carries each
position's own input (hence the I), and each block passes on what the block before let through.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.attention import Mask, MultiHeadAttention
from clearhead.inspection.matrices import array, colour_bar, draw_cell_lines, draw_weights
from clearhead.inspection.picture import Array, Axes, Picture, panels
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table, wrap
from clearhead.layers import Block, Stack
from clearhead.models.gpt import GPT, GPTConfig

T, D, H, V = 8, 10, 2, 12  # positions, width, heads, vocabulary
DEPTHS = {"one": "One attention layer, by the mask", "two": "Two blocks, by the mask's reach"}
COLUMNS = (  # pairs of an output and an input, those that changed, those with a gradient
    *("forbidden", "forbidden_changed", "forbidden_gradient"),
    *("allowed", "allowed_changed", "allowed_gradient", "smallest_change"),
)
LEAST = 1e-3  # a change up to this has the lightest colour
Layer = Callable[[Tensor], Tensor]


def masks(device: torch.device | str = "cpu") -> dict[str, Mask]:
    """Each kind of mask, and causal joined with three of them, for T positions."""
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
    """Which outputs of n blocks can depend on which inputs: boolean, (T, T) → (T, T)."""
    step = (allowed | torch.eye(T, dtype=torch.bool, device=allowed.device)).float()
    return torch.linalg.matrix_power(step, n_blocks) > 0


def influence(layer: Layer, x: Tensor, other: Tensor) -> Tensor:
    """How much each output i changes when input j is replaced by that of `other`: (T, T).

    x and other (1, T, ...). All runs have the same shape, so that their numbers can be compared bit
    for bit.
    """
    before = layer(x)
    columns = []
    for j in range(T):
        changed = x.clone()
        changed[:, j] = other[:, j]
        columns.append((layer(changed) - before)[0].abs().amax(-1))  # (T,)
    return torch.stack(columns, dim=1)


def gradient(layer: Layer, x: Tensor) -> Tensor:
    """The largest entry of ∂y_i/∂x_j for each i and j: x (1, T, D) → (T, T)."""
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
    """The numbers named by COLUMNS: for each mask, then for all masks together.

    may (8, T, T), found (rounds, 8, 2, T, T): influence and gradient.
    """
    counts: list[list[float]] = []
    for pairs in (~may, may):
        tried = pairs.sum((1, 2)) * len(found)
        changed = ((found != 0) & pairs[:, None]).sum((0, 3, 4))  # (8, 2)
        counts += [[*count.tolist(), int(count.sum())] for count in (tried, *changed.T)]
    smallest = found[:, :, 0].masked_fill(~may, torch.inf).amin((0, 2, 3)).tolist()
    return dict(zip(COLUMNS, [*counts, [*smallest, min(smallest)]], strict=True))


@torch.no_grad()
def _check_decoder_and_empty_rows(
    with_empty_rows: Mask, device: torch.device | str
) -> dict[str, float]:
    """In pairs, how many were checked and how many were found: see _tabulate_checks."""
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
    values = list(checks.values())  # in pairs: how many were checked, how many were found
    columns = (("", what), ("of", values[::2]), ("found", values[1::2]))
    return Table.from_columns("Searched for, and found.", *columns)


def _describe(n: Mapping[str, Any]) -> str:
    def describe_depth(depth: str) -> str:
        no, no_changed, no_gradient, yes, changed, gradient, _ = (
            n[f"{depth}_{column}"][-1] for column in COLUMNS
        )
        return (
            f"{no_changed:,} of {no:,} forbidden pairs changed an output and {changed:,} of "
            f"{yes:,} allowed ones did (by gradient {no_gradient:,} and {gradient:,})"
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
    with panels(11.6, 5.1, len(names), len(rows)) as (figure, grid):
        for panel, axes in enumerate(grid):
            row, column = divmod(panel, len(names))
            if row == 0:
                draw_weights(axes, array(dense[column]), top=1.3)
                axes.set_title(names[column].replace(" &", "\n&"))
            else:
                image = _draw_influence(axes, measured[row - 1][column], scale)
            axes.set(xlabel="input j", ylabel=rows[row], xticks=[0, T - 1], yticks=[0, T - 1])
            draw_cell_lines(axes, T, T)
            axes.label_outer()
        colour_bar(figure, image, grid[len(names) :], "largest change of output i")
        figure.suptitle("0: input j changes no bit of output i. Two blocks reach further than one")
    return Picture(
        figure, f"{len(names)} masks, and under each how much every input changes every output"
    )


def _draw_influence(axes: Axes, matrix: Array, scale: Any) -> Any:
    """Darker = more; a 0 where not one bit has changed."""
    image = draw_weights(axes, matrix.clip(min=LEAST))
    image.set_norm(scale)
    i, j = (matrix == 0).nonzero()
    axes.scatter(j, i, s=30, marker="$0$", color="#777777", linewidths=0)
    return image
