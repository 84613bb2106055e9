"""Why scores are divided by √d: else they grow with the width and one key takes all the weight.

    q = μ + a,  k = μ + b           every entry of a and b independent, of mean 0 and variance 1
    q·k = ‖μ‖² + μ·a + μ·b + a·b    four terms that are not correlated: their variances add

    E[q·k] = ‖μ‖²                   Var[q·k] = 0 + ‖μ‖² + ‖μ‖² + d = d + 2‖μ‖²

At μ = 0 a score has the variance d, and after the division by √d the variance 1 at every width.
The effect shows after the softmax, w = softmax(s) over the scores s of one query:

    entropy  −Σ w ln w              ln S if all weights are equal, 0 if one key has all the weight
    ∂w/∂s  = diag(w) − w wᵀ = J     0 if one key has all the weight: no gradient
    ∂w/∂q  = J K · scale            the part that reaches the query; K (S, d) are the keys

The size of a matrix of derivatives is its Frobenius norm. (Vaswani et al. 2017, section 3.2.1.)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.attention import dot_product
from clearhead.inspection.measures import entropy
from clearhead.inspection.picture import Picture
from clearhead.lab import EXPERIMENTS
from clearhead.lab.tools.drawing import NOTE, Axes, finish, line_style, panels
from clearhead.lab.tools.finding import Finding, Table, format_cell
from clearhead.runtime import widest_float

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
MEANS = (0.0, 0.5, 1.0)  # of every entry: ‖μ‖² is d times the square
N_PAIRS = 10_000  # in each round
B, T, S = 50, 40, 32  # sets of keys, queries for each set, keys in a set
WITH, WITHOUT = 0, 1  # line styles of scores with the scale 1/√d, and without

Numbers = dict[str, list[float]]  # a number for each width


@dataclass(frozen=True)
class Softness:
    """How soft a softmax is, for every query (B, T)."""

    entropy: Tensor  # nats
    to_scores: Tensor  # the size of ∂w/∂s
    to_query: Tensor  # the size of ∂w/∂q


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """Only scores divided by √d leave the softmax equally soft at every width."""
    generator = torch.Generator().manual_seed(seed)
    widths = (*WIDTHS, 2048, 4096) if full else WIDTHS
    scores = {d: draw_pairs(d, generator, device, rounds=20 if full else 1) for d in widths}
    soft = [draw_softmaxes(d, generator, device, rounds=4 if full else 1) for d in widths]
    numbers = {"width": [float(d) for d in widths]}
    numbers |= _summarize_scores(scores) | _summarize_softmaxes(soft)
    return Finding(
        claim=EXPERIMENTS["why-sqrt-d"],
        tables=_tabulate(numbers),
        seen=_describe(numbers),
        numbers=numbers,
        picture=_draw(numbers, {d: x[0.0].cpu() for d, x in scores.items()}),
    )


def draw_pairs(
    d: int, generator: torch.Generator, device: torch.device | str = "cpu", rounds: int = 1
) -> dict[float, Tensor]:
    """Scores (pairs,) of independent pairs of width d, for each mean of their entries."""
    drawn: dict[float, list[Tensor]] = {mean: [] for mean in MEANS}
    for _ in range(rounds):
        a, b = (torch.randn(N_PAIRS, d, generator=generator).to(device) for _ in range(2))
        for mean, scores in drawn.items():
            scores.append(((a + mean) * (b + mean)).sum(dim=-1))
    return {mean: torch.cat(scores).cpu().double() for mean, scores in drawn.items()}


def draw_softmaxes(
    d: int, generator: torch.Generator, device: torch.device | str = "cpu", rounds: int = 1
) -> dict[str, Softness]:
    """How soft the softmax of random queries and keys is, "with" the scale and "without"."""
    wide = widest_float(torch.device(device))
    q = torch.randn(rounds * B, T, d, generator=generator, dtype=wide).to(device)
    k = torch.randn(rounds * B, S, d, generator=generator, dtype=wide).to(device)
    return {"with": softness(q, k, 1 / math.sqrt(d)), "without": softness(q, k, 1.0)}


def softness(q: Tensor, k: Tensor, scale: float) -> Softness:
    """q (B, T, d), k (B, S, d) → how soft softmax(q kᵀ · scale) is, and its gradient."""
    w = dot_product.weights(q, k, scale=scale)  # (B, T, S)
    J = torch.diag_embed(w) - w.unsqueeze(-1) * w.unsqueeze(-2)  # (B, T, S, S)
    # ‖J K‖² is the trace of J K Kᵀ J: (S, S) instead of (S, d) for every query.
    products = (k @ k.mT).unsqueeze(1)  # (B, 1, S, S)
    square = (J @ products * J).sum(dim=(-2, -1)).clamp(min=0)  # rounding may end below 0
    return Softness(entropy(w), torch.linalg.matrix_norm(J), square.sqrt() * scale)


# Numbers, tables and sentences


def _summarize_scores(scores: dict[int, dict[float, Tensor]]) -> Numbers:
    """Mean and variance of the scores, for each mean of the entries."""
    numbers: Numbers = {}
    for mean in MEANS:
        numbers[f"mean_{mean:g}"] = [x[mean].mean().item() for x in scores.values()]
        numbers[f"variance_{mean:g}"] = [x[mean].var().item() for x in scores.values()]
    divided = (x[0.0] / math.sqrt(d) for d, x in scores.items())
    return numbers | {"variance_scaled": [x.var().item() for x in divided]}


def _summarize_softmaxes(soft: list[dict[str, Softness]]) -> Numbers:
    """Entropy and gradients, with the scale and without."""
    numbers: Numbers = {}
    for name in ("with", "without"):
        numbers[f"entropy_{name}"] = [x[name].entropy.mean().item() for x in soft]
        numbers[f"to_scores_{name}"] = [x[name].to_scores.median().item() for x in soft]
        numbers[f"to_query_{name}"] = [x[name].to_query.median().item() for x in soft]
        numbers[f"to_query_mean_{name}"] = [x[name].to_query.mean().item() for x in soft]
    return numbers


def _tabulate(numbers: Numbers) -> list[Table]:
    scores = {"mean_0": "mean, μ=0", "variance_0": "variance", "variance_scaled": "of q·k/√d"}
    for mean in MEANS[1:]:
        scores |= {f"mean_{mean:g}": f"mean, μ={mean:g}", f"variance_{mean:g}": "variance"}
    softmax = {"entropy_with": "entropy, with", "entropy_without": "without"}
    softmax |= {"to_scores_with": "size of ∂w/∂s, with", "to_scores_without": "without"}
    query = {"to_query_with": "median, with", "to_query_without": "without"}
    query |= {"to_query_mean_with": "mean, with", "to_query_mean_without": "without"}
    captions = {
        "Scores q·k. The entries of q and k have variance 1 and the mean μ of the column.": scores,
        f"Softmax over {S} keys with the scale 1/√d and without it: the mean entropy in nats, at "
        f"most {math.log(S):.2f},\nand the size of ∂w/∂s for the median query.": softmax,
        "The size of ∂w/∂q, the gradient that reaches the query: median and mean of all "
        "queries.": query,
    }
    widths = ("d", list(map(int, numbers["width"])))
    return [
        Table.from_columns(
            caption, widths, *((heading, numbers[name]) for name, heading in names.items())
        )
        for caption, names in captions.items()
    ]


def _describe(numbers: Numbers) -> str:
    low, high = (f"{int(numbers['width'][end]):,}" for end in (0, -1))
    first = {name: format_cell(values[0]) for name, values in numbers.items()}
    last = {name: format_cell(values[-1]) for name, values in numbers.items()}
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


# The picture


def _draw(numbers: Numbers, scores: dict[int, Tensor]) -> Picture:
    widths = numbers["width"]
    with panels(9.0, 6.4, 2, 2, gridspec_kw={"wspace": 0.06, "hspace": 0.06}) as (figure, grid):
        for axes in grid:
            axes.set_xscale("log", base=2)
            axes.set_xticks(widths, [f"{d:g}" for d in widths])
            axes.minorticks_off()
            axes.set_xlabel("width d of query and key")
        _draw_spread(grid[0], scores)
        _draw_variance(grid[1], numbers)
        _draw_entropy(grid[2], numbers)
        _draw_gradient(grid[3], numbers)
    return Picture(
        figure,
        f"Scores over the width d from {min(scores)} to {max(scores)}: their spread and variance, "
        f"entropy and gradient of the softmax with and without the scale 1/√d",
    )


def _draw_spread(axes: Axes, scores: dict[int, Tensor]) -> None:
    """The range of the middle 90 % of the scores."""
    ends = torch.tensor([0.05, 0.95], dtype=torch.float64)
    for line, power, name in ((WITHOUT, 0.0, "q·k"), (WITH, 0.5, "q·k / √d")):
        edges = torch.stack([x.quantile(ends) / d**power for d, x in scores.items()])
        look = line_style(line, marker="")
        shade = {"color": look["color"], "alpha": 0.25, "linewidth": 0}
        axes.fill_between(list(scores), *edges.T.tolist(), **shade)
        axes.plot(list(scores), edges[:, 0], **look)
        axes.plot(list(scores), edges[:, 1], **look, label=name)
    finish(axes, "upper left", title="Scores spread out with the width")
    axes.set_ylabel("range of 90% of the scores (μ = 0)")


def _draw_variance(axes: Axes, numbers: Numbers) -> None:
    """Marks: measured. Lines: the law d + 2‖μ‖²."""
    widths = numbers["width"]
    laws = [(f"variance_{m:g}", [d + 2 * d * m**2 for d in widths]) for m in reversed(MEANS)]
    laws += [("variance_scaled", [1.0 for _ in widths])]
    names = [f"q·k, every entry of μ is {m:g}" for m in reversed(MEANS)] + ["q·k / √d, μ = 0"]
    for (key, law), name, line in zip(laws, names, (2, 3, WITHOUT, WITH), strict=True):
        axes.plot(widths, law, **line_style(line, marker="", linewidth=1))
        axes.plot(widths, numbers[key], **line_style(line, linestyle="none"), label=name)
    finish(axes, "upper left", title="Their variance is d + 2‖μ‖²", yscale="log")
    axes.set_ylabel("variance (lines: d + 2‖μ‖²)")


def _draw_entropy(axes: Axes, numbers: Numbers) -> None:
    most = math.log(S)
    axes.axhline(most, color=NOTE["color"], linewidth=0.8)
    axes.text(numbers["width"][0], most + 0.05, f"ln {S}: all weights equal", va="bottom")
    _draw_both(axes, numbers, "entropy")
    axes.set(title="Without the scale one key takes all …")
    axes.set(ylabel="mean entropy of the weights (nats)", ylim=(0, most + 0.45))
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.72), frameon=False)


def _draw_gradient(axes: Axes, numbers: Numbers) -> None:
    _draw_both(axes, numbers, "to_scores")
    finish(axes, "lower left", title="… and the typical gradient vanishes", yscale="log")
    axes.set_ylabel("size of ∂w/∂s for the median query")


def _draw_both(axes: Axes, numbers: Numbers, what: str) -> None:
    for line, name in ((WITH, "with"), (WITHOUT, "without")):
        values, label = numbers[f"{what}_{name}"], f"{name} the scale 1/√d"
        axes.plot(numbers["width"], values, **line_style(line), label=label)
