"""The tables, the summary and the picture of the comparison."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearhead.inspection.matrices import array, colour_bar, draw_weights, label_tokens, write_cells
from clearhead.inspection.picture import Axes, Picture, open_axes, panels
from clearhead.lab.algorithm.programs import CANDIDATES, SIDES
from clearhead.lab.algorithm.subjects import GROUPS, Subject
from clearhead.lab.algorithm.texts import NEEDLES
from clearhead.lab.tools.drawing import line_style
from clearhead.lab.tools.finding import Table
from clearhead.programs import Part

SHOWN = "abcabbca|cab"  # the text whose attention is drawn
EXPLAINED = 0.9  # the accuracy at which a program counts as an explanation

KINDS = ("needle", "haystack")  # what differs between two texts
WHO = {"haystack": "the haystack", "needle": "the needle", "answer": "[CLS]"}
WHAT = {
    "haystack": "each letter of the haystack fetches the needle and compares",
    "needle": "each letter of the needle looks for a match in the haystack",
    "answer": "[CLS] fetches the needle and looks for it in the haystack",
}

Numbers = dict[str, Any]


# Tables


def tabulate(numbers: Numbers, program: Subject) -> list[Table]:
    return [
        _tabulate_exchange(numbers),
        _tabulate_translation(numbers),
        _tabulate_heads(numbers, program),
    ]


def _tabulate_exchange(numbers: Numbers) -> Table:
    names = [*(f"{WHO[each.name]} compares" for each in CANDIDATES), "trained model"]
    rows = [f"another {kind}: {WHO[group]}" for kind in KINDS for group in GROUPS]
    shares = 100 * _collect_exchange(numbers)
    return Table.from_columns(
        "Two texts differ in the needle, or in the haystack. After layer 1 one group of tokens is\n"
        "patched from the other text: percent of answers that become those of the other text.\n"
        "(The programs answer at the separator in place of [CLS].)",
        ("", rows),
        *((name, [f"{x:.0f}" for x in row]) for name, row in zip(names, shares, strict=True)),
    )


def _collect_exchange(numbers: Numbers) -> Any:
    """Shares of changed answers, (4, 6): three programs and the model, by kind and group."""
    names = [*(each.name for each in CANDIDATES), "trained"]
    return np.array(
        [[x for kind in KINDS for x in numbers[f"{name}_follows_{kind}_layer_1"]] for name in names]
    )


def _tabulate_translation(numbers: Numbers) -> Table:
    rows = {
        "trained model as it is": "accuracy",
        "layer 0: a letter and the two after it": "right_after",
        "layer 0: a letter and the two before it": "right_before",
        "layer 0: a letter alone": "right_alone_0",
        **{f"layer 1: {WHO[c.name]} compares": f"right_{c.name}" for c in CANDIDATES},
        "layer 1: all three programs": "right_together",
        "layer 1: a letter alone": "right_alone_1",
    }
    return Table(
        "Percent right if the residual stream of the trained model after this layer is replaced\n"
        "by a linear function of the program's stream; chance is 50.",
        ["", *(f"needle of {n}" for n in NEEDLES)],
        [[row, *(f"{100 * x:.1f}" for x in numbers[name])] for row, name in rows.items()],
    )


def _tabulate_heads(numbers: Numbers, program: Subject) -> Table:
    cells = zip(numbers["aligned_layer"], numbers["aligned_head"], strict=True)
    return Table.from_columns(
        "For each head of the closest program, the trained head with most weight on the keys that\n"
        "it selects, this weight for uniform attention, and the percent of texts with needles of\n"
        f"{NEEDLES[-1]} letters that are answered right without the trained head.",
        ("the program's head", [_name_part(part) for part in program.heads]),
        ("trained head", [f"{layer:.0f}.{head:.0f}" for layer, head in cells]),
        ("weight", numbers["aligned_weight"]),
        ("uniform", numbers["alike_weight"]),
        ("right without", [f"{100 * x:.1f}" for x in numbers["right_without"]]),
    )


def _name_part(part: Part) -> str:
    """A name for the head of a program: layer, number and what it writes: "0.1: token +1"."""
    return f"{part.layer}.{part.head}: {', '.join(part.writes)}"


# Summary


def describe(numbers: Numbers) -> str:
    """The result in two sentences."""
    side = SIDES[int(numbers["step"])]
    closest = CANDIDATES[int(numbers["closest"])].name
    first, second = numbers[f"right_{side}"], numbers[f"right_{closest}"]
    return (
        f"As in the programs, each letter first reads the letters {side} it: with this information "
        f"alone after layer 0, {_list_shares(first)} are right with needles of "
        f"{_join(NEEDLES)} letters.\n"
        f"Of three programs, the model is closest to the one in which {WHAT[closest]}. With the "
        f"stream of that program after layer 1, {_list_shares(second)} are right; {_judge(second)}"
    )


def _judge(right: Sequence[float]) -> str:
    """Whether the program explains the model, by the accuracy for each needle length."""
    explained = [n for n, x in zip(NEEDLES, right, strict=True) if x >= EXPLAINED]
    if len(explained) == len(NEEDLES):
        return "so this is what the model does."
    if explained:
        letters = "letter" if explained == [1] else "letters"
        return (
            f"so this is what the model does with needles of {_join(explained)} {letters}, "
            f"and with others it does something else as well."
        )
    return "so the model does something else, or several things at once."


def _list_shares(shares: Sequence[float]) -> str:
    return _join([f"{x:.0%}" for x in shares])


def _join(items: Sequence[Any]) -> str:
    """Join items as a list in English: "1, 2 and 3"."""
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


# Picture


def draw(numbers: Numbers, trained: Subject, program: Subject) -> Picture:
    closest = CANDIDATES[int(numbers["closest"])].name
    order = next(i for i, part in enumerate(program.heads) if part.layer == 1)
    part = program.heads[order]
    layer, head = (int(numbers[f"aligned_{name}"][order]) for name in ("layer", "head"))
    maps = {
        f"Program, {part.name}": _find_weights(program, part.layer, part.head or 0),
        f"Trained, layer {layer}, head {head}": _find_weights(trained, layer, head),
    }
    with panels(13.2, 3.6, 4, width_ratios=(1.5, 1.1, 1, 1)) as (figure, (table, curves, *grid)):
        _draw_exchange(table, _collect_exchange(numbers))
        _draw_translation(curves, numbers)
        for axes, (title, weights) in zip(grid, maps.items(), strict=True):
            image = draw_weights(axes, weights)
            names = ["start" if title.startswith("Program") else "[CLS]", *SHOWN]
            label_tokens(axes, names, names, (2.4, 2.4))
            axes.tick_params(axis="x", labelrotation=0)
            axes.get_xticklabels()[0].set_rotation(90)
            axes.set(title=title, xlabel="key (attended to)", ylabel="query (attends)")
        colour_bar(figure, image, grid, "attention weight")
    return Picture(figure, f"A trained model beside programs: {WHO[closest]} compares")


def _find_weights(subject: Subject, layer: int, head: int) -> Any:
    trace = subject.trace(subject.encode([SHOWN]))
    return array(trace.weights()[layer][0, head])


def _draw_exchange(axes: Axes, shares: Any) -> None:
    draw_weights(axes, shares)
    write_cells(axes, 100 * shares, "{:.0f}".format, is_dark=shares > 0.55, size=9)
    axes.axvline(len(GROUPS) - 0.5, color="#333333", linewidth=0.8)
    axes.axhline(len(CANDIDATES) - 0.5, color="#333333", linewidth=0.8)
    axes.set_xticks(range(2 * len(GROUPS)), 2 * ["haystack", "needle", "[CLS]"], rotation=45)
    names = [f"{WHO[each.name]} compares" for each in CANDIDATES]
    axes.set_yticks(range(len(names) + 1), [*names, "trained model"])
    axes.set(title="Other needle      Other haystack", xlabel="tokens exchanged after layer 1")


def _draw_translation(axes: Axes, numbers: Numbers) -> None:
    open_axes(axes)
    for order, each in enumerate(CANDIDATES):
        shares = [100 * x for x in numbers[f"right_{each.name}"]]
        axes.plot(NEEDLES, shares, **line_style(order, label=f"{WHO[each.name]} compares"))
    axes.axhline(50, color="#999999", linewidth=0.8)
    axes.set(xlabel="letters of the needle", ylabel="percent right", xticks=NEEDLES)
    axes.set(ylim=(40, 136), yticks=range(40, 101, 10))  # room for the legend
    axes.set_title("With a program's values after layer 1")
    axes.legend(loc="upper center", frameon=False)
