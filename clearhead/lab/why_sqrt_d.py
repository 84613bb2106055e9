"""Why scores are divided by √d: without it they grow with the width and the softmax hardens.

    q = μ + a,  k = μ + b           every entry of a and b independent, of mean 0 and variance 1
    q·k = ‖μ‖² + μ·a + μ·b + a·b    four terms that are not correlated: their variances add

    E[q·k] = ‖μ‖²                   Var[q·k] = 0 + ‖μ‖² + ‖μ‖² + d = d + 2‖μ‖²

At μ = 0 a score has the variance d, and after the division by √d the variance 1 at every width.
What that is good for is seen behind the softmax, w = softmax(s) over the scores s of one query:

    entropy  −Σ w ln w              ln S if all keys count alike, 0 if one takes all
    ∂w/∂s  = diag(w) − w wᵀ = J     0 if one takes all: then no change of a score changes anything
    ∂w/∂q  = J K · scale            what of it reaches the query; K (S, d) are the keys

The size of a matrix of derivatives is its Frobenius norm. (Vaswani et al. 2017, section 3.2.1.)
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.attention import dot_product
from clearhead.inspection.measures import entropy
from clearhead.inspection.picture import LINES, Picture, new_figure, open_axes, style
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.finding import Finding, Table, written
from clearhead.runtime import widest_float

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
MEANS = (0.0, 0.5, 1.0)  # of every entry: ‖μ‖² is d times the square
N_PAIRS = 10_000  # drawn at once
B, T, S = 50, 40, 32  # sets of keys, queries to each, keys in a set
WITH, WITHOUT = (*LINES[0], "^"), (*LINES[1], "o")  # colour, dashes, mark
OTHERS = ((*LINES[2], "s"), (*LINES[3], "D"))

Numbers = dict[str, list[float]]  # one for each width


@dataclass(frozen=True)
class Softness:
    """What a softmax does, for every query (B, T)."""

    entropy: Tensor  # nats
    to_scores: Tensor  # the size of ∂w/∂s
    to_query: Tensor  # the size of ∂w/∂q


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Only scores divided by √d leave the softmax as soft at every width."""
    chance = torch.Generator().manual_seed(seed)
    widths = (*WIDTHS, 2048, 4096) if full else WIDTHS
    scores = {d: draw_pairs(d, chance, device, rounds=20 if full else 1) for d in widths}
    soft = [draw_softmaxes(d, chance, device, rounds=4 if full else 1) for d in widths]
    numbers = {"width": [float(d) for d in widths], **_of_scores(scores), **_of_softmax(soft)}
    return Finding(
        claim=EXPERIMENTS["why-sqrt-d"],
        tables=_tables(numbers),
        seen=_story(numbers),
        numbers=numbers,
        picture=_picture(numbers, {d: x[0.0].cpu() for d, x in scores.items()}),
    )


def draw_pairs(
    d: int, chance: torch.Generator, device: torch.device | str = "cpu", rounds: int = 1
) -> dict[float, Tensor]:
    """Scores q·k of independent pairs of width d, for each mean of the entries: (pairs,)."""
    drawn: dict[float, list[Tensor]] = {mean: [] for mean in MEANS}
    for _ in range(rounds):
        a, b = (torch.randn(N_PAIRS, d, generator=chance).to(device) for _ in range(2))
        for mean, scores in drawn.items():
            scores.append(((a + mean) * (b + mean)).sum(dim=-1))
    return {mean: torch.cat(scores).cpu().double() for mean, scores in drawn.items()}


def draw_softmaxes(
    d: int, chance: torch.Generator, device: torch.device | str = "cpu", rounds: int = 1
) -> dict[str, Softness]:
    """The softmax of the same random queries and keys, "with" the scale and "without"."""
    wide = widest_float(torch.device(device))
    q = torch.randn(rounds * B, T, d, generator=chance, dtype=wide).to(device)
    k = torch.randn(rounds * B, S, d, generator=chance, dtype=wide).to(device)
    return {"with": softness(q, k, 1 / math.sqrt(d)), "without": softness(q, k, 1.0)}


def softness(q: Tensor, k: Tensor, scale: float) -> Softness:
    """q (B, T, d), k (B, S, d) → how soft softmax(q kᵀ · scale) is, and what it passes back."""
    w = dot_product.weights(q, k, scale=scale)  # (B, T, S)
    J = torch.diag_embed(w) - w.unsqueeze(-1) * w.unsqueeze(-2)  # (B, T, S, S)
    # ‖J K‖² is the trace of J K Kᵀ J: (S, S) instead of (S, d) for every query.
    products = (k @ k.mT).unsqueeze(1)  # (B, 1, S, S)
    square = (J @ products * J).sum(dim=(-2, -1)).clamp(min=0)  # rounding may end below 0
    return Softness(entropy(w), torch.linalg.matrix_norm(J), square.sqrt() * scale)


# What is told


def _of_scores(scores: dict[int, dict[float, Tensor]]) -> Numbers:
    """Mean and variance, for each mean of the entries."""
    numbers: Numbers = {}
    for mean in MEANS:
        numbers[f"mean_{mean:g}"] = [x[mean].mean().item() for x in scores.values()]
        numbers[f"variance_{mean:g}"] = [x[mean].var().item() for x in scores.values()]
    divided = (x[0.0] / math.sqrt(d) for d, x in scores.items())
    return numbers | {"variance_scaled": [x.var().item() for x in divided]}


def _of_softmax(soft: list[dict[str, Softness]]) -> Numbers:
    """Entropy and gradient, with the scale and without."""
    numbers: Numbers = {}
    for name in ("with", "without"):
        numbers[f"entropy_{name}"] = [x[name].entropy.mean().item() for x in soft]
        numbers[f"to_scores_{name}"] = [x[name].to_scores.median().item() for x in soft]
        numbers[f"to_query_{name}"] = [x[name].to_query.median().item() for x in soft]
        numbers[f"to_query_mean_{name}"] = [x[name].to_query.mean().item() for x in soft]
    return numbers


def _tables(numbers: Numbers) -> list[Table]:
    of_scores = {"mean_0": "mean, μ=0", "variance_0": "variance", "variance_scaled": "of q·k/√d"}
    for mean in MEANS[1:]:
        of_scores |= {f"mean_{mean:g}": f"mean, μ={mean:g}", f"variance_{mean:g}": "variance"}
    of_softmax = {"entropy_with": "entropy, with", "entropy_without": "without"}
    of_softmax |= {"to_scores_with": "size of ∂w/∂s, with", "to_scores_without": "without"}
    of_query = {"to_query_with": "median, with", "to_query_without": "without"}
    of_query |= {"to_query_mean_with": "mean, with", "to_query_mean_without": "without"}
    captions = (
        "Scores q·k. Every entry of q and k has the variance 1 and the mean that the column says.",
        f"Softmax over {S} keys with the scale 1/√d and without: the mean entropy in nats, at most "
        f"{math.log(S):.2f},\nand the size of ∂w/∂s for the median query.",
        "The size of ∂w/∂q, which is what reaches the query: for the median query, and the mean.",
    )
    columns = (of_scores, of_softmax, of_query)
    return [_table(*each, numbers) for each in zip(captions, columns, strict=True)]


def _table(caption: str, names: dict[str, str], numbers: Numbers) -> Table:
    """A row for each width."""
    rows = zip(map(int, numbers["width"]), *(numbers[name] for name in names), strict=True)
    return Table(caption, ["d", *names.values()], list(rows))


def _story(numbers: Numbers) -> str:
    low, high = (f"{int(numbers['width'][place]):,}" for place in (0, -1))
    first = {name: written(values[0]) for name, values in numbers.items()}
    last = {name: written(values[-1]) for name, values in numbers.items()}
    return (
        f"From d = {low} to {high} the variance of q·k at μ = 0 grows from {first['variance_0']} "
        f"to {last['variance_0']};\ndivided by √d it is {first['variance_scaled']} and "
        f"{last['variance_scaled']}.\n"
        f"Without the scale the entropy falls from {first['entropy_without']} to "
        f"{last['entropy_without']} nats and the median size of ∂w/∂s\n"
        f"from {first['to_scores_without']} to {last['to_scores_without']}; with it they are "
        f"{first['entropy_with']} and {first['to_scores_with']} at d = {low}, "
        f"{last['entropy_with']} and {last['to_scores_with']} at d = {high}."
    )


# What is drawn


def _picture(numbers: Numbers, scores: dict[int, Tensor]) -> Picture:
    with style():
        figure = new_figure(9.0, 6.4)
        grid = figure.subplots(2, 2, gridspec_kw={"wspace": 0.06, "hspace": 0.06})
        for axes in grid.flat:
            open_axes(axes)
            axes.set_xscale("log", base=2)
            axes.set_xticks(numbers["width"], [f"{d:g}" for d in numbers["width"]])
            axes.minorticks_off()
            axes.set_xlabel("width d of query and key")
        _draw_spread(grid[0, 0], scores)
        _draw_variance(grid[0, 1], numbers)
        _draw_entropy(grid[1, 0], numbers)
        _draw_gradient(grid[1, 1], numbers)
    return Picture(
        figure,
        f"Scores over the width d from {min(scores)} to {max(scores)}: their spread and variance, "
        f"entropy and gradient of the softmax with and without the scale 1/√d",
    )


def _draw_spread(axes: "Axes", scores: dict[int, Tensor]) -> None:
    """Where nine of ten scores lie."""
    ends = torch.tensor([0.05, 0.95], dtype=torch.float64)
    for (colour, dashes, _), power, name in ((WITHOUT, 0.0, "q·k"), (WITH, 0.5, "q·k / √d")):
        edges = torch.stack([x.quantile(ends) / d**power for d, x in scores.items()])
        axes.fill_between(list(scores), *edges.T.tolist(), color=colour, alpha=0.25, linewidth=0)
        axes.plot(list(scores), edges[:, 0], color=colour, linestyle=dashes)
        axes.plot(list(scores), edges[:, 1], color=colour, linestyle=dashes, label=name)
    axes.set(title="Scores spread out with the width", ylabel="where 90% of the scores lie (μ = 0)")
    axes.legend(loc="upper left", frameon=False)


def _draw_variance(axes: "Axes", numbers: Numbers) -> None:
    """Measured: marks; the law: lines."""
    widths = numbers["width"]
    laws = [(f"variance_{m:g}", [d + 2 * d * m**2 for d in widths]) for m in reversed(MEANS)]
    laws += [("variance_scaled", [1.0 for _ in widths])]
    names = [f"q·k, every entry of μ is {m:g}" for m in reversed(MEANS)] + ["q·k / √d, μ = 0"]
    for (key, law), name, look in zip(laws, names, (*OTHERS, WITHOUT, WITH), strict=True):
        colour, dashes, mark = look
        axes.plot(widths, law, color=colour, linestyle=dashes, linewidth=1)
        axes.plot(widths, numbers[key], mark, color=colour, markersize=4, label=name)
    axes.set(title="Their variance is d + 2‖μ‖²", yscale="log")
    axes.set_ylabel("variance (lines: d + 2‖μ‖²)")
    axes.legend(loc="upper left", frameon=False)


def _draw_entropy(axes: "Axes", numbers: Numbers) -> None:
    most = math.log(S)
    axes.axhline(most, color="#555555", linewidth=0.8)
    axes.text(numbers["width"][0], most + 0.05, f"ln {S}: all keys count alike", va="bottom")
    _draw_both(axes, numbers, "entropy")
    axes.set(title="Unscaled, one key takes all …", ylabel="mean entropy of the weights (nats)")
    axes.set_ylim(0, most + 0.45)
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.72), frameon=False)


def _draw_gradient(axes: "Axes", numbers: Numbers) -> None:
    _draw_both(axes, numbers, "to_scores")
    axes.set(title="… and the typical gradient vanishes", yscale="log")
    axes.set_ylabel("size of ∂w/∂s for the median query")
    axes.legend(loc="lower left", frameon=False)


def _draw_both(axes: "Axes", numbers: Numbers, what: str) -> None:
    for name, (colour, dashes, mark) in (("with", WITH), ("without", WITHOUT)):
        axes.plot(
            numbers["width"],
            numbers[f"{what}_{name}"],
            color=colour,
            linestyle=dashes,
            marker=mark,
            markersize=4,
            label=f"{name} the scale 1/√d",
        )
