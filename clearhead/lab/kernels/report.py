"""The results of features.py as tables, two sentences and a picture."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from clearhead.inspection.picture import Picture
from clearhead.lab.kernels.cost import FEATURES, WIDTH, Costs
from clearhead.lab.tools.drawing import NOTE, SMALL, Axes, finish, line_style, panels
from clearhead.lab.tools.finding import Table, wrap

# Used by features.py too.
D = 16  # width of q and k
LENGTHS = (3.0, 4.0, 5.0)  # ‖q‖ and ‖k‖ where denominators are counted; unit variance gives 4
RANDOM = ("fourier", "positive")  # feature maps with random frequencies
NAMES = {"quadratic": "quadratic", "elu": "elu+1", "fourier": "Fourier", "positive": "positive"}
WAYS = {"written": "softmax, written out", "fused": "softmax, fused"}
# The most features first, as the lines lie in the picture.
WAYS |= {name: f"{NAMES[name]}, {FEATURES[name]} features" for name in reversed(FEATURES)}

Numbers = dict[str, Any]  # floats, and lists of floats


def tabulate(n: Numbers, frequencies: Sequence[int], costs: Costs) -> list[Table]:
    """All numbers, in six tables."""
    times = [[way, *n[f"{name}_milliseconds"], n[f"{name}_power"]] for name, way in WAYS.items()]
    return [
        _tabulate_exactness(n),
        Table(
            "The O(T²) sum minus the O(T) sum, the largest with and without a causal mask",
            ["features", *NAMES.values()],
            [["difference", *(n[f"{name}_agrees"] for name in NAMES)]],
        ),
        _tabulate_errors(n, frequencies),
        _tabulate_denominators(n, frequencies),
        Table(
            f"Best time in ms, one head of width {WIDTH}, no mask; the power of T at the last "
            f"three lengths.\nUp to T=512 the quadratic map is summed pair by pair, because it has "
            f"more features.",
            ["way", *(f"T={T}" for T in costs.lengths), "power"],
            times,
        ),
        _tabulate_crossovers(n, costs),
    ]


def _tabulate_exactness(n: Numbers) -> Table:
    rows = []
    for name, kind in {"quadratic": "all", "uncrossed": "without √2·x_i x_j"}.items():
        shares = (f"{n[f'{name}_{part}']:.1%}" for part in ("share", "negative"))
        rows.append([kind, int(n[f"{name}_features"]), n[f"{name}_error"], *shares])
    columns = ["features", "how many", "largest error", "mean error / mean", "below 0"]
    return Table(f"Features of (q·k + 1)² for D = {D}: the error of φ(q)·φ(k)", columns, rows)


def _tabulate_errors(n: Numbers, frequencies: Sequence[int]) -> Table:
    rows: list[list[Any]] = []
    for name in RANDOM:
        parts = [n[f"{name}_{part}"] for part in ("predicted", "error", "spread", "output")]
        rows += [[NAMES[name], *line] for line in zip(frequencies, *parts, strict=True)]
        powers = [n[f"{name}_{part}"] for part in ("slope", "slope_spread", "output_slope")]
        rows.append([NAMES[name], "power of m", -0.5, *powers])
    return Table(
        "Estimates of exp(q·k/√D) by m frequencies: relative error of a similarity (RMS), as its\n"
        "variance predicts and measured, with the spread over draws; RMS error of the output",
        ["features", "m", "predicted", "measured", "spread", "output"],
        rows,
    )


def _tabulate_denominators(n: Numbers, frequencies: Sequence[int]) -> Table:
    """For three of the maps one row: the largest share at any length."""
    shares = {f"Fourier, {x:g}": n[f"fourier_bad_{x:g}"] for x in LENGTHS}
    for name in ("positive", "elu", "quadratic"):
        range_of_lengths = f"{LENGTHS[0]:g} to {LENGTHS[-1]:g}"
        shares[f"{NAMES[name]}, {range_of_lengths}"] = [max(n[f"{name}_bad"])] * len(frequencies)
    rows = [[name, *(f"{share:.1%}" for share in row)] for name, row in shares.items()]
    columns = ["features, ‖q‖ = ‖k‖", *(f"m={m}" for m in frequencies)]
    return Table("Queries whose denominator φ(q)·Σφ(k) is 0 or less", columns, rows)


def _tabulate_crossovers(n: Numbers, costs: Costs) -> Table:
    shortest, longest = costs.lengths[0], costs.lengths[-1]

    def format_length(length: float | None) -> str:
        if length is None:
            return f"not up to {longest}"
        return f"{shortest} or less" if length <= shortest else f"{length:.0f}"

    rows: list[list[Any]] = []
    for name, way in WAYS.items():
        cells = ["", "", ""]
        if name in FEATURES:
            found = (n.get(f"{name}_{what}") for what in ("faster_from", "lighter_from"))
            cells = [f"{n[f'{name}_fewer_from']:.0f}", *map(format_length, found)]
        rows.append([way, *cells, n[f"{name}_bytes"][-1] / 1e6])
    return Table(
        "From which T on: fewer products than softmax, faster than fused, less than written out;\n"
        f"MB: the most that the tensors made for T={longest} hold at one moment",
        ["way", "products", "faster", "less memory", "MB"],
        rows,
    )


def describe(n: Numbers, frequencies: Sequence[int]) -> str:
    """Two sentences."""
    faster = ", ".join(
        f"{round_length(n[f'{name}_faster_from'])} ({NAMES[name]}, {C} features)"
        for name, C in FEATURES.items()
        if f"{name}_faster_from" in n
    )
    agrees = max(n[f"{name}_agrees"] for name in NAMES)
    return wrap(
        f"The quadratic features are exact to {n['quadratic_error']:.0e} and without the cross "
        f"terms off by {n['uncrossed_share']:.0%}; the error of random features falls as "
        f"m^{n['fourier_slope']:.2f} (Fourier) and m^{n['positive_slope']:.2f} (positive), and "
        f"with ‖q‖ = ‖k‖ = 4 and m = {frequencies[0]} the Fourier denominator of "
        f"{n['fourier_bad_4'][0]:.0%} of the queries is not positive, that of the other maps "
        f"always is.",
        f"The O(T) sum equals the O(T²) sum to {agrees:.0e}, and it is faster than the fused "
        f"softmax from about T = {faster or 'beyond the longest tested'}.",
    )


def round_length(length: float) -> str:
    """Two significant digits: a time on a shared machine is no more exact."""
    return f"{float(f'{length:.1e}'):,.0f}"


def draw(n: Numbers, frequencies: Sequence[int], costs: Costs) -> Picture:
    """Errors by m, bad denominators by m, times by T."""
    with panels(12.6, 3.9, 3) as (figure, (left, middle, right)):
        _draw_errors(left, n, frequencies)
        _draw_denominators(middle, n, frequencies)
        _draw_times(right, n, costs)
        for axes in (left, middle):
            axes.set(xscale="log", xlabel="m (random frequencies)")
            axes.set_xticks(list(frequencies), [f"{m:,}" for m in frequencies])
            axes.minorticks_off()
    return Picture(
        figure,
        "Error of random features over their number m, share of queries with a bad denominator "
        "over m, and time of softmax and linear attention over the length T",
    )


def _draw_errors(axes: Axes, n: Numbers, frequencies: Sequence[int]) -> None:
    for order, name in enumerate(RANDOM):
        label = f"{NAMES[name]}: falls as $m^{{{n[f'{name}_slope']:.2f}}}$"
        line = line_style(order, marker="", linewidth=1)
        axes.plot(frequencies, n[f"{name}_predicted"], **line)
        bars = line_style(order, linestyle="none", capsize=3, label=label)
        axes.errorbar(frequencies, n[f"{name}_error"], n[f"{name}_spread"], **bars)
    finish(axes, "upper right", yscale="log", ylabel="relative error of φ(q)·φ(k)")
    axes.set_title("The error of random features falls as 1/√m")
    note = "lines: predicted by the variance\nbars: spread over draws"
    axes.text(0.04, 0.05, note, transform=axes.transAxes, **NOTE)


def _draw_denominators(axes: Axes, n: Numbers, frequencies: Sequence[int]) -> None:
    safe = [100.0 * max(max(n[f"{name}_bad"]) for name in ("positive", "elu", "quadratic"))]
    label = "positive, elu+1, quadratic"
    axes.plot(frequencies, safe * len(frequencies), color="black", linewidth=2.5, label=label)
    for order, length in enumerate(LENGTHS):
        shares = [100.0 * share for share in n[f"fourier_bad_{length:g}"]]
        look = line_style(len(LENGTHS) - 1 - order, label=f"Fourier, ‖q‖ = ‖k‖ = {length:g}")
        axes.plot(frequencies, shares, **look)
    axes.set(ylim=(-1.5, 52), ylabel="queries with a denominator ≤ 0 (%)")
    axes.set_title("Only Fourier features can divide by a sum ≤ 0")
    lines, labels = axes.get_legend_handles_labels()
    axes.legend(lines[::-1], labels[::-1], frameon=False, loc="upper right")


def _draw_times(axes: Axes, n: Numbers, costs: Costs) -> None:
    for order, (name, way) in enumerate(WAYS.items()):
        axes.plot(costs.lengths, costs.milliseconds[name], **line_style(order - 1, label=way))
    for name in FEATURES:
        if (length := n.get(f"{name}_faster_from")) is not None:
            _mark_crossover(axes, length, costs)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.85 * costs.lengths[0], 1.7 * costs.lengths[-1])
    axes.set(yscale="log", xlabel="length T (tokens)", ylabel="best time (ms)")
    axes.set_xticks(list(costs.lengths), [f"{T:,}" for T in costs.lengths])
    axes.set_title("Linear attention is faster for long inputs")
    note = "rings: faster than the\nfused softmax from here on"
    axes.text(0.98, 0.04, note, ha="right", transform=axes.transAxes, **NOTE)
    axes.legend(frameon=False, loc="upper left", **SMALL)


def _mark_crossover(axes: Axes, length: float, costs: Costs) -> None:
    """A ring where a line crosses that of the fused softmax, with the length T."""
    logs = np.interp(math.log(length), np.log(costs.lengths), np.log(costs.milliseconds["fused"]))
    point = length, math.exp(logs)
    axes.plot(*point, "o", color="black", fillstyle="none", markersize=11)
    text = f"T ≈ {round_length(length)}"
    axes.annotate(text, point, (6, -14), textcoords="offset points")
