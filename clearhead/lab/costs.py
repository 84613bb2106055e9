"""What reading T inputs costs: time, memory, work and sequential steps.

    RNN                  O(T) work     T steps, each waits for the one before
    softmax attention    O(T²) work    a fixed number of steps: all pairs at once
    summed attention     O(T²) pair by pair, O(T) with the sum moved inside; the same result
    linear attention     O(T) work     few steps

Time is the best of many rounds on one thread; memory, work and steps are counted as the form runs.
Exponents are fitted where T is far above the width and the fixed cost of a call is small, but a
call still reuses memory instead of asking the system for more. Softmax attention is written out
here, with its T × T weights; a fused kernel does the same work without storing them.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from clearhead.attention import EluFeatures, LinearAttention, dot_product, summed_attention
from clearhead.inspection.picture import Picture, add_legend_above
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.drawing import NOTE, Axes, line_style, panels
from clearhead.lab.tools.finding import Finding, Table, wrap
from clearhead.lab.tools.measuring import best_milliseconds, count_costs, fit_slope
from clearhead.layers import LinearRNN

D = 32  # width of inputs, states, queries, keys, values and outputs
COMMON = (256, 1024)  # lengths T at which all forms are compared
NAMES = {
    "rnn": "RNN",
    "softmax": "softmax attention",
    "pairwise": "summed, pairwise",
    "rearranged": "summed, rearranged",
    "linear": "linear attention",
}
RANGES = {  # of T: where the fit begins, and the longest that is measured
    "rnn": (256, 2048),
    "softmax": (256, 1024),
    "pairwise": (512, 2048),
    "rearranged": (4096, 32768),
    "linear": (4096, 16384),
}
LINEAR = ("rnn", "rearranged", "linear")  # forms that `full` measures up to four times the length

Form = Callable[[Tensor], Tensor]
Curves = dict[str, dict[int, float]]  # form → T → cost
Costs = dict[str, Curves]  # kind of cost → …
Numbers = dict[str, list[float]]
Slopes = dict[str, dict[str, tuple[float, float]]]  # kind of cost → form → slope, ±


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Attention does T² work in a fixed number of steps; an RNN takes T steps in sequence."""
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.randn(3, D, D, generator=generator) / math.sqrt(4 * D)
    ends = {form: end * (4 if full and form in LINEAR else 1) for form, (_, end) in RANGES.items()}
    x = torch.randn(1, max(ends.values()), D, generator=generator)
    with torch.no_grad():
        forms = make_forms(matrices.to(device))
        costs = _count(forms, x.to(device), ends)
        costs["milliseconds"] = _time(forms, x.to(device), ends, 60.0 if full else 6.0)
        difference = _difference(make_forms(matrices.double()), x.double())
    slopes = {
        kind: {form: fit_slope(_select_range(costs[kind][form], form)) for form in forms}
        for kind in ("milliseconds", "megabytes", "products")
    }
    numbers = _collect(costs, slopes, difference)
    return Finding(
        claim=EXPERIMENTS["costs"],
        tables=[_tabulate_exponents(costs, slopes), _tabulate_costs(numbers)],
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(costs, slopes),
    )


def make_forms(matrices: Tensor) -> dict[str, Form]:
    """Each reads x (1, T, D); matrices (3, D, D) are W_x, W_h, W_y or W_q, W_k, W_v."""
    rnn = LinearRNN(D, D, D, bias=False).to(matrices)
    for layer, matrix in zip((rnn.input, rnn.hidden, rnn.output), matrices, strict=True):
        layer.weight.data.copy_(matrix)
    linear, (w_q, w_k, w_v) = LinearAttention(EluFeatures()), matrices

    def project(attend: Callable[..., object]) -> Form:
        return lambda x: cast(Tensor, attend(x @ w_q.mT, x @ w_k.mT, x @ w_v.mT))

    return {
        "rnn": lambda x: rnn(x)[0],
        "softmax": project(dot_product.attend),
        "pairwise": lambda x: summed_attention(x, w_q, w_k, w_v, method="pairwise"),
        "rearranged": lambda x: summed_attention(x, w_q, w_k, w_v, method="rearranged"),
        "linear": project(linear),
    }


# The measures


def _lengths(longest: int) -> list[int]:
    """64, 80, 96, 112, 128, 160 …: four for each doubling."""
    lengths = (quarters * 2**e for e in range(4, 20) for quarters in range(4, 8))
    return [T for T in lengths if longest >= T]


def _count(forms: Mapping[str, Form], x: Tensor, ends: Mapping[str, int]) -> Costs:
    costs: Costs = {
        kind: {form: {} for form in forms} for kind in ("megabytes", "products", "steps")
    }
    for form, read in forms.items():
        for T in _lengths(ends[form]):
            count = count_costs(partial(read, x[:, :T]))
            costs["megabytes"][form][T] = count.bytes / 1e6
            costs["products"][form][T] = float(count.products)
            costs["steps"][form][T] = float(count.steps)
    return costs


def _time(forms: Mapping[str, Form], x: Tensor, ends: Mapping[str, int], seconds: float) -> Curves:
    keys = [(form, T) for form in forms for T in _lengths(ends[form])]
    works = {(form, T): partial(forms[form], x[:, :T]) for form, T in keys}
    best = best_milliseconds(works, x.device, seconds=seconds)
    return {form: {T: best[form, T] for T in _lengths(ends[form])} for form in forms}


def _difference(forms: Mapping[str, Form], x: Tensor) -> float:
    """The largest difference between the two arrangements of summed attention."""
    differences = [
        forms["pairwise"](x[:, :T]) - forms["rearranged"](x[:, :T]) for T in (1, 2, *COMMON)
    ]
    return torch.cat(differences).abs().max().item()


def _select_range(costs: Mapping[int, float], form: str) -> dict[int, float]:
    """The costs at the lengths of the fit."""
    return {T: cost for T, cost in costs.items() if RANGES[form][0] <= T}


# Numbers, tables and sentences


def _collect(costs: Costs, slopes: Slopes, difference: float) -> Numbers:
    rnn, softmax = (costs["milliseconds"][form] for form in ("rnn", "softmax"))
    numbers: Numbers = {
        "pairwise_minus_rearranged": [difference],
        "softmax_over_rnn_milliseconds": [softmax[T] / rnn[T] for T in COMMON],
    }
    for kind, by_form in costs.items():
        for form, by_length in by_form.items():
            numbers[f"{kind}_{form}"] = [by_length[T] for T in COMMON]
    for kind, exponents in slopes.items():
        for form, exponent in exponents.items():
            numbers[f"exponent_{kind}_{form}"] = list(exponent)
    return numbers


def _tabulate_exponents(costs: Costs, slopes: Slopes) -> Table:
    rows = []
    for form, name in NAMES.items():
        lengths = _select_range(costs["steps"][form], form)
        cells = ("{:.2f} ± {:.2f}".format(*slopes[kind][form]) for kind in slopes)
        rows.append([name, f"{min(lengths)}–{max(lengths)}", *cells])
    return Table(
        "The exponent p of a cost c·T^p, ± its 95 % interval. Memory: the most bytes alive at "
        "once. Work:\nmultiplications in products of matrices.",
        ["", "fitted over T", "time", "memory", "work"],
        rows,
    )


def _tabulate_costs(numbers: Numbers) -> Table:
    rows = []
    for form, name in NAMES.items():
        memory = numbers[f"megabytes_{form}"][-1]
        steps = (int(n) for n in numbers[f"steps_{form}"])
        rows.append([name, *numbers[f"milliseconds_{form}"], memory, *steps])
    short, long = (f"T = {T}" for T in COMMON)
    return Table(
        f"Reading T inputs of width {D}. Steps: the longest chain of operations, each of which "
        f"needs the\nresult before it. The two arrangements of summed attention differ by at most "
        f"{numbers['pairwise_minus_rearranged'][0]:.1e} (float64).",
        ["", f"ms, {short}", f"ms, {long}", f"MB, {long}", f"steps, {short}", f"steps, {long}"],
        rows,
    )


def _describe(numbers: Numbers) -> str:
    powers = {form: f"T^{numbers[f'exponent_milliseconds_{form}'][0]:.2f}" for form in NAMES}
    steps = {form: "{:.0f} and {:.0f}".format(*numbers[f"steps_{form}"]) for form in NAMES}
    ratio = "{:.2g} and {:.2g}".format(*numbers["softmax_over_rnn_milliseconds"])
    return wrap(
        f"Time grows like {powers['rnn']} for the RNN, {powers['softmax']} for softmax attention "
        f"and {powers['linear']} for linear attention.",
        f"At T = {COMMON[0]} and {COMMON[1]} the RNN takes {steps['rnn']} steps that wait for each "
        f"other, softmax attention {steps['softmax']}; on one thread its time is {ratio} times "
        f"that of the RNN.",
    )


# The picture


def _draw(costs: Costs, slopes: Slopes) -> Picture:
    kinds = {
        "milliseconds": ("time (ms, one thread)", "Time: all pairs cost T²"),
        "megabytes": ("memory (MB)", "Memory: T² where all pairs are stored"),
        "steps": ("sequential steps", "Steps: T in the RNN, few in attention"),
    }
    with panels(11.0, 3.9, len(kinds)) as (figure, grid):
        for axes, (kind, (label, title)) in zip(grid, kinds.items(), strict=True):
            _draw_costs(axes, costs[kind], slopes.get(kind))
            axes.set(xscale="log", yscale="log", xlabel="T (inputs)", ylabel=label, title=title)
        end = max(costs["steps"]["linear"].items())
        note = "adds up 1024 keys\nat a time"
        grid[-1].annotate(note, end, (0, 8), textcoords="offset points", ha="right", **NOTE)
        add_legend_above(grid[-1])
    return Picture(
        figure,
        "Time, memory and sequential steps of an RNN, softmax, summed and linear attention over "
        "the number of inputs, with fitted exponents",
    )


def _draw_costs(axes: Axes, costs: Curves, slopes: dict[str, tuple[float, float]] | None) -> None:
    """Marks: measured costs, joined by lines, or by the fitted lines where there are slopes."""
    for order, (form, curve) in enumerate(costs.items()):
        look = line_style(order, markersize=4, markevery=2)
        if slopes is None:
            axes.plot(list(curve), list(curve.values()), **look, label=NAMES[form])
            continue
        axes.plot(list(curve), list(curve.values()), **look | {"linestyle": "none"})
        ends, heights = _fitted_line(_select_range(curve, form), slopes[form][0])
        axes.plot(ends, heights, **line_style(order, marker=""))
        axes.plot([], [], **look, label=f"T$^{{{slopes[form][0]:.2f}}}$")
    if slopes is not None:
        axes.legend(loc="upper left", title="fitted", frameon=False, labelspacing=0.2)


def _fitted_line(costs: Mapping[int, float], slope: float) -> tuple[list[int], list[float]]:
    """The ends of the fitted line, which passes through the mean of the logarithms."""
    middle, height = (np.exp(np.log(list(values)).mean()) for values in (costs, costs.values()))
    ends = [min(costs), max(costs)]
    return ends, [height * (T / middle) ** slope for T in ends]
