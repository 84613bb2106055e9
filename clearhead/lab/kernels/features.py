"""Kernel attention: how exact feature maps are, where they fail, from which length they are faster.

    output_t = Σ_s sim(q_t, k_s) v_s / Σ_s sim(q_t, k_s)                  T² similarities
             = φ(q_t)·(Σ_s φ(k_s) v_sᵀ) / φ(q_t)·Σ_s φ(k_s)               two sums for all queries

Tested are: (q·k + 1)² has exact features, if none is left out. Both sums give the same output.
Random features estimate exp(q·k/√D); with m frequencies the relative error has the variance

    Fourier     ((1 + e^{−2δ})/2 − e^{−δ}) / (m e^{−δ})       δ = ‖q − k‖² / √D
    positive    (e^{σ} − 1) / m                               σ = ‖q + k‖² / √D

so the error falls as 1/√m. The denominator cannot be negative where no similarity is: with an even
power, or with positive features. cost.py measures the costs, report.py writes tables and picture.
"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import torch
from torch import Tensor

from clearhead.attention import (
    EluFeatures,
    FeatureMap,
    FourierFeatures,
    Mask,
    PositiveFeatures,
    QuadraticFeatures,
    dot_product,
    linear,
    linear_fast,
)
from clearhead.lab import EXPERIMENTS
from clearhead.lab.kernels.cost import FEATURES, WIDTH, Costs, find_crossover, measure
from clearhead.lab.kernels.report import LENGTHS, RANDOM, D, Numbers, describe, draw, tabulate
from clearhead.lab.tools.finding import Finding
from clearhead.lab.tools.measuring import fit_slope

T = 64  # queries, and as many keys
FREQUENCIES = (16, 64, 256, 1024, 4096)  # m
DRAWS = 20  # random feature maps for each m
SHORT = 2.0  # ‖q‖ and ‖k‖ where random features are compared with the softmax kernel


class WithoutCrossTerms(FeatureMap):
    """The common mistake: 1, √2 x_i and x_i², but no √2 x_i x_j."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.ones_like(x[..., :1]), math.sqrt(2.0) * x, x.square()], dim=-1)


def experiment(*, seed: int = 0, full: bool = False, device: torch.device | str = "cpu") -> Finding:
    """A kernel that is a product of features makes attention linear in T."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, T, D, generator=generator, dtype=torch.float64)
    frequencies = (*FREQUENCIES, 16384) if full else FREQUENCIES
    draws = [10_000 * seed + draw for draw in range(5 * DRAWS if full else DRAWS)]
    costs = measure([2**i for i in range(7, 14 if full else 13)], generator, device)
    short_q, short_k = scale_rows(q, SHORT), scale_rows(k, SHORT)
    numbers: Numbers = {
        **exactness(q, k),
        **agreement(short_q, short_k, v),
        **convergence(short_q, short_k, v, frequencies, draws),
        **denominators(q, k, frequencies, draws),
        **summarize_costs(costs),
    }
    return Finding(
        claim=EXPERIMENTS["kernels"],
        tables=tabulate(numbers, frequencies, costs),
        seen=describe(numbers, frequencies),
        numbers=numbers,
        picture=draw(numbers, frequencies, costs),
    )


def scale_rows(x: Tensor, length: float) -> Tensor:
    """Scale each row to this norm."""
    return length * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def softmax_kernel(q: Tensor, k: Tensor) -> Tensor:
    """exp(q·k/√D) of every query and key, which softmax attention divides by its sum."""
    return (q @ k.mT / math.sqrt(q.size(-1))).exp()


def build_map(name: str, m: int, seed: int, d_head: int = D) -> FeatureMap:
    """Random features of m frequencies, "fourier" or "positive"."""
    if name == "fourier":
        return FourierFeatures(d_head, 2 * m, seed)
    return PositiveFeatures(d_head, m, seed)


def _build_maps(
    name: str, frequencies: Sequence[int], draws: Sequence[int], d_head: int
) -> list[list[FeatureMap]]:
    """A row for each m, with one independent map for each draw."""
    return [
        [build_map(name, m, 1000 * row + draw, d_head) for draw in draws]
        for row, m in enumerate(frequencies)
    ]


# The tests


def exactness(q: Tensor, k: Tensor) -> Numbers:
    """φ(q)·φ(k) against (q·k + 1)², with all features and without the cross terms."""
    numbers: Numbers = {}
    wanted = (q @ k.mT + 1.0).square()
    for name, phi in {"quadratic": QuadraticFeatures(), "uncrossed": WithoutCrossTerms()}.items():
        got = phi(q) @ phi(k).mT
        numbers |= {
            f"{name}_features": float(phi(q).size(-1)),
            f"{name}_error": (got - wanted).abs().max().item(),
            f"{name}_share": ((got - wanted).abs().mean() / wanted.mean()).item(),
            f"{name}_negative": (got < 0).double().mean().item(),
        }
    return numbers


def agreement(q: Tensor, k: Tensor, v: Tensor) -> Numbers:
    """The largest difference of the O(T²) and the O(T) sum, with and without a causal mask."""
    maps = {"quadratic": QuadraticFeatures(), "elu": EluFeatures()}
    maps |= {name: build_map(name, 256, 0) for name in RANDOM}
    numbers: Numbers = {}
    for name, phi in maps.items():
        differences = []
        for mask in (None, Mask.causal()):
            pairs = linear.weights(q, k, phi, mask=mask) @ v
            # Chunks much shorter than T, because one chunk is summed pair by pair.
            sums = linear_fast.attend(q, k, v, phi, mask=mask, chunk=8)
            differences.append((pairs - sums).abs().max().item())
        numbers[f"{name}_agrees"] = max(differences)
    return numbers


def convergence(
    q: Tensor, k: Tensor, v: Tensor, frequencies: Sequence[int], draws: Sequence[int]
) -> Numbers:
    """Random features against the softmax kernel, by m: the mean over draws, and their spread.

    error: relative, of the similarity (RMS). output: the error of the output (RMS).
    """
    kernel, output = softmax_kernel(q, k), dot_product.weights(q, k) @ v
    numbers: Numbers = {}
    for name in RANDOM:
        errors, outputs = [], []  # a row for each m, a column for each draw
        for maps in _build_maps(name, frequencies, draws, q.size(-1)):
            errors.append([rms(phi(q) @ phi(k).mT / kernel - 1.0) for phi in maps])
            outputs.append([rms(linear.weights(q, k, phi) @ v - output) for phi in maps])
        slopes = [_fit_power(frequencies, column) for column in zip(*errors, strict=True)]
        variance = relative_variance(name, q, k)
        numbers |= {
            f"{name}_predicted": [math.sqrt(variance / m) for m in frequencies],
            f"{name}_error": [fmean(row) for row in errors],
            f"{name}_spread": [stdev(row) for row in errors],
            f"{name}_output": [fmean(row) for row in outputs],
            f"{name}_slope": fmean(slopes),
            f"{name}_slope_spread": math.nan if math.isnan(sum(slopes)) else stdev(slopes),
            f"{name}_output_slope": _fit_power(frequencies, [fmean(row) for row in outputs]),
        }
    return numbers


def relative_variance(name: str, q: Tensor, k: Tensor) -> float:
    """The variance of one frequency's estimate by the equations above, the mean over all pairs."""
    sign = -1.0 if name == "fourier" else 1.0
    distance = (q[:, None] + sign * k).square().sum(dim=-1) / math.sqrt(q.size(-1))
    if name == "positive":
        return distance.expm1().mean().item()
    gauss = (-distance).exp()
    return (((1.0 + gauss.square()) / 2.0 - gauss) / gauss).mean().item()


def denominators(q: Tensor, k: Tensor, frequencies: Sequence[int], draws: Sequence[int]) -> Numbers:
    """The share of queries whose denominator is not above 0, by length and by m."""
    numbers: Numbers = {"positive_bad": [], "elu_bad": [], "quadratic_bad": []}
    for length in LENGTHS:
        rows = scale_rows(q, length), scale_rows(k, length)
        numbers["quadratic_bad"].append(_bad_share(QuadraticFeatures(), *rows))
        numbers["elu_bad"].append(_bad_share(EluFeatures(), *rows))
        by_m = {
            name: [
                fmean(_bad_share(phi, *rows) for phi in maps)
                for maps in _build_maps(name, frequencies, draws, q.size(-1))
            ]
            for name in RANDOM
        }
        numbers[f"fourier_bad_{length:g}"] = by_m["fourier"]
        numbers["positive_bad"].append(max(by_m["positive"]))
    return numbers


def _bad_share(phi: FeatureMap, q: Tensor, k: Tensor) -> float:
    """The share of queries whose similarities add up to 0 or less."""
    return (phi.similarity(q, k).sum(dim=-1) <= 0).double().mean().item()


def summarize_costs(costs: Costs) -> Numbers:
    """Times and bytes, how time grows, and from which length on linear attention costs less."""
    numbers: Numbers = {}
    for name, times in costs.milliseconds.items():
        numbers[f"{name}_milliseconds"], numbers[f"{name}_bytes"] = times, costs.bytes[name]
        late = dict(zip(costs.lengths[-3:], times[-3:], strict=True))
        numbers[f"{name}_power"] = fit_slope(late)[0]
    fused, written = costs.milliseconds["fused"], costs.bytes["written"]
    for name in FEATURES:
        faster = find_crossover(costs.lengths, costs.milliseconds[name], fused)
        if math.isfinite(faster):
            numbers[f"{name}_faster_from"] = faster
        numbers[f"{name}_lighter_from"] = find_crossover(costs.lengths, costs.bytes[name], written)
        # Linear attention needs the same products for every token, softmax T times 2·WIDTH.
        for_a_token = costs.products[name][-1] / costs.lengths[-1]
        numbers[f"{name}_fewer_from"] = for_a_token / (2 * WIDTH)
    return numbers


def rms(x: Tensor) -> float:
    """The root of the mean square."""
    return x.square().mean().sqrt().item()


def _fit_power(frequencies: Sequence[int], errors: Sequence[float]) -> float:
    """p of an error c·m^p; NaN if an estimate is exact, as for equal queries and keys."""
    if min(errors) <= 0.0:
        return math.nan
    return fit_slope(dict(zip(frequencies, errors, strict=True)))[0]
