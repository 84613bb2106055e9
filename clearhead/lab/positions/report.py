"""The results of schemes.py as tables, two sentences and a picture."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.inspection.matrices import array, colour_bar, draw_bias, draw_signed
from clearhead.inspection.picture import (
    LINES,
    Axes,
    Figure,
    Picture,
    new_figure,
    open_axes,
    style,
)
from clearhead.lab.positions.rule import DIGITS, KINDS, TRAINED
from clearhead.lab.tools.drawing import NOTE, SMALL
from clearhead.lab.tools.finding import Table, wrap

NAMES = {kind: kind for kind in KINDS} | {"toeplitz": "Toeplitz", "alibi": "ALiBi"}
SIMILARITIES, BIASES = ("sinusoidal", "learned", "rotary"), ("toeplitz", "alibi")
ACTS = {"sinusoidal": "added", "learned": "added", "rotary": "rotates q and k"}
ACTS |= {"toeplitz": "a learned bias", "alibi": "a fixed bias"}
SHOWN = (0, 1, 2, 4, 8, 16, 31)  # distances
LINE_STYLES: dict[str, dict[str, Any]] = {
    kind: {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 4.5}
    for kind, (colour, dashes), marker in (
        ("sinusoidal", LINES[0], "o"),
        ("rotary", LINES[1], "s"),
        ("alibi", LINES[2], "^"),
        ("toeplitz", LINES[3], "D"),
        ("learned", ("#000000", (0, (4, 1))), "*"),
        ("none", ("#777777", (0, (1, 1))), "x"),
    )
}

Numbers = dict[str, Any]  # floats, and lists of floats


def tabulate(n: Numbers, lengths: Sequence[int], answers: Mapping[str, str]) -> list[Table]:
    """All numbers, in five tables."""
    return [
        Table(
            "The largest change in the output of attention when the tokens are permuted (and the\n"
            "outputs put back in order), and when all tokens are shifted by 8 positions",
            ["positions", "permuted", "shifted"],
            [[NAMES[kind], n[f"{kind}_permuted"], n[f"{kind}_moved"]] for kind in KINDS],
        ),
        _tabulate_distances(n),
        Table(
            "Why pairs: the spread, and the error of the best linear map from PE[p] to PE[p+8] "
            "(RMS)",
            ["columns", "spread", "error"],
            [
                ["sine and cosine", n["sinusoidal_spread"], f"{n['pairs_missed']:.1%}"],
                ["sine only", n["sines_spread"], f"{n['sines_missed']:.1%}"],
            ],
        ),
        _tabulate_scores(n, lengths),
        Table(
            f"Trained on {TRAINED} tokens, given {TRAINED + 1}",
            ["positions", "answer"],
            [[NAMES[kind], answer] for kind, answer in answers.items()],
        ),
    ]


def _tabulate_distances(n: Numbers) -> Table:
    rows = []
    for kind in (*SIMILARITIES, *BIASES):
        means = (n[f"{kind}_by_distance"][d] for d in SHOWN)
        rows.append([NAMES[kind], *(f"{x:.2f}" for x in means), n[f"{kind}_spread"]])
    return Table(
        "By distance d: cosine of two positions (first three), bias of the score (last two);\n"
        "spread: the largest difference between two pairs of equal distance",
        ["positions", *(f"d={d}" for d in SHOWN), "spread"],
        rows,
    )


def _tabulate_scores(n: Numbers, lengths: Sequence[int]) -> Table:
    rows = []
    for kind in KINDS:
        losses = [f"{x:.2f}" for x in n[f"{kind}_loss"]]
        rights = [f"{x:.0%}" for x in n[f"{kind}_right"]]
        refused = ["refused"] * (len(lengths) - len(losses))
        rows.append([NAMES[kind], *losses, *refused, *rights, *refused])
    return Table(
        f"The latest digit, learned on {TRAINED} tokens: loss and right answers by length "
        f"(guessing: {math.log(DIGITS):.2f}, {1 / DIGITS:.0%})",
        ["positions", *(f"loss {T}" for T in lengths), *(f"right {T}" for T in lengths)],
        rows,
    )


def describe(n: Numbers, lengths: Sequence[int]) -> str:
    """Two sentences."""
    right = {kind: n[f"{kind}_right"] for kind in ("sinusoidal", "rotary", "alibi")}
    first, second, third = (
        f"from {shares[0]:.0%} to {shares[-1]:.0%} ({NAMES[kind]})"
        for kind, shares in right.items()
    )
    least = min(n[f"{kind}_permuted"] for kind in KINDS[1:])
    return wrap(
        f"Without positions, permuted tokens give the same outputs in another order, to "
        f"{n['none_permuted']:.0e}, with any of the five at least one output changes by "
        f"{math.floor(100 * least) / 100:g} or more; with sine and cosine the similarity of two "
        f"positions depends on their distance alone, to {n['sinusoidal_spread']:.0e}, with sines "
        f"only it differs by up to {n['sines_spread']:.2f}.",
        f"Learned and Toeplitz tables refuse one token more than they hold and the others accept "
        f"it, but from {lengths[0]} to {lengths[-1]} tokens the share of right answers changes "
        f"{first}, {second} and {third}.",
    )


def draw(
    n: Numbers, lengths: Sequence[int], matrices: Mapping[str, Tensor], table: Tensor
) -> Picture:
    """Above: the five schemes as matrices. Below: the sinusoids, curves by distance, the loss."""
    with style():
        figure = new_figure(13.0, 6.0)
        figure.set_layout_engine("constrained")  # with "compressed", colour bars would overlap
        halves: Any = figure.subfigures(2, 1, height_ratios=(1, 1.05))
        above, below = halves
        _draw_matrices(figure, list(above.subplots(1, 5)), matrices)
        panels = below.subplots(1, 5, width_ratios=(1.15, 1, 1, 1, 1.3))
        _draw_waves(panels[0], table)
        _draw_table(panels[1], table)
        _draw_curves(panels[2], n, SIMILARITIES, "cosine", "similarity by distance")
        _draw_curves(panels[3], n, BIASES, "bias of the score", "added to the score")
        _draw_losses(panels[4], n, lengths)
    return Picture(
        figure,
        "Similarity of positions or bias of the score for five schemes, the sinusoids as waves and "
        "as a table, similarity and bias by distance, and the loss beyond the trained length",
    )


def _draw_matrices(figure: Figure, row: list[Axes], matrices: Mapping[str, Tensor]) -> None:
    """The cosines share one scale; each bias has its own."""
    for axes, kind in zip(row, (*SIMILARITIES, *BIASES), strict=True):
        matrix = array(matrices[kind])
        is_bias = kind in BIASES
        image = draw_bias(axes, matrix, matrix) if is_bias else draw_signed(axes, matrix, 1.0)
        axes.set(title=f"{NAMES[kind]}, {ACTS[kind]}", xlabel="key position")
        axes.tick_params(labelleft=kind == SIMILARITIES[0])
        if is_bias:
            colour_bar(figure, image, [axes], "bias of the score")
        elif kind == SIMILARITIES[-1]:
            colour_bar(figure, image, row[:3], "cosine")
    row[0].set_ylabel("query position")
    n = len(matrices[BIASES[0]])
    future = np.triu(np.ones((n, n)), 1)
    row[3].imshow(np.repeat(future[..., None], 4, axis=2))  # white, and clear elsewhere
    row[3].text(30, 2, "future: not used", ha="right", va="center", **SMALL)


def _draw_waves(axes: Axes, table: Tensor) -> None:
    for (colour, dashes), column in zip(LINES, (4, 5, 8, 9), strict=False):
        label = f"{'cos' if column % 2 else 'sin'} {column}"
        wave = array(table[: 2 * TRAINED, column])
        axes.plot(wave, color=colour, linestyle=dashes, label=label)
    axes.set(xlabel="position", ylabel="value", ylim=(-1.1, 1.75), yticks=(-1, 0, 1))
    axes.set_title("sinusoids: waves by column")
    open_axes(axes)
    axes.legend(frameon=False, ncols=2, loc="upper center", columnspacing=1, **SMALL)


def _draw_table(axes: Axes, table: Tensor) -> None:
    draw_signed(axes, array(table), 1.0)
    axes.axhline(TRAINED - 0.5, color="black", linestyle="--", linewidth=1.2)
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(30, TRAINED + 3, "training ends", ha="right", va="top", bbox=paper, **SMALL)
    axes.set(xlabel="column", ylabel="position", aspect="auto", title="sinusoids: any length")


def _draw_curves(axes: Axes, n: Numbers, kinds: Sequence[str], label: str, title: str) -> None:
    for kind in kinds:
        look = LINE_STYLES[kind] | {"marker": "", "label": NAMES[kind]}
        axes.plot(n[f"{kind}_by_distance"], **look)
    axes.set(xlabel="distance (tokens)", ylabel=label, title=title)
    open_axes(axes)
    axes.legend(frameon=False, **SMALL)


def _draw_losses(axes: Axes, n: Numbers, lengths: Sequence[int]) -> None:
    for kind in KINDS:
        loss, low, high = (n[f"{kind}_loss{end}"] for end in ("", "_low", "_high"))
        bars = array([loss, high]) - array([low, loss])  # (2, lengths): down, up
        look = LINE_STYLES[kind] | {"capsize": 2, "label": NAMES[kind]}
        axes.errorbar(lengths[: len(loss)], loss, bars, **look)
    note = f"learned and Toeplitz refuse\nmore than {TRAINED} tokens"
    axes.text(0.04, 0.62, note, transform=axes.transAxes, **NOTE)
    guess = math.log(DIGITS)
    axes.axhline(guess, color="#999999", linewidth=0.8)
    axes.text(lengths[-1], guess, "guessing", ha="right", va="bottom", **NOTE)
    top = 1.8 * max(max(n[f"{kind}_loss_high"]) for kind in KINDS)  # room for words
    axes.set(xlabel="length (tokens)", ylabel="loss (nats)", ylim=(-0.04 * top, top))
    axes.set_title(f"trained on {TRAINED}, tested on more")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(lengths), [str(T) for T in lengths])
    open_axes(axes)
    axes.legend(frameon=False, ncols=2, loc="upper left", columnspacing=1, **SMALL)
