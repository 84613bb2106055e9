"""What softmax and linear attention cost over the length T: products, time and memory.

    softmax    T · T · (D + M)     each query with each key (width D) and each value (width M)
    linear     T · C · 2M          C features of each key with its value; of each query with the sum

In orders of growth, O(T² max(D, M)) and O(T C M). The products are equally many at
T = 2CM / (D + M), which is C, the number of features, where M = D. Softmax also takes T²
exponentials; linear attention also computes its features and the denominator.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from clearhead.attention import (
    DotProductAttention,
    EluFeatures,
    FourierFeatures,
    LinearAttention,
    QuadraticFeatures,
    dot_product,
)
from clearhead.lab.tools.measuring import best_milliseconds, count_costs

WIDTH = 64  # of a head and of its values, D = M
FEATURES = {"elu": 64, "fourier": 256, "quadratic": 65 * 66 // 2}  # C of each feature map
SECONDS = 4.0  # for all measurements of time together; at least five rounds

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Costs:
    """Costs at each length, by the name of the form of attention.

    products: multiplications in matrix products, which a fused kernel hides. bytes: the most that
    new tensors held at one time.
    """

    lengths: Sequence[int]
    milliseconds: dict[str, list[float]]
    products: dict[str, list[float]]
    bytes: dict[str, list[float]]


def build_ways(device: torch.device | str) -> dict[str, Attend]:
    """Softmax attention, written out and fused; linear attention with three feature maps."""
    fourier = FourierFeatures(WIDTH, FEATURES["fourier"]).to(device)
    return {
        "written": lambda q, k, v: dot_product.weights(q, k) @ v,
        "fused": DotProductAttention(),
        "quadratic": LinearAttention(QuadraticFeatures()),
        "fourier": LinearAttention(fourier),
        "elu": LinearAttention(EluFeatures()),
    }


def measure(
    lengths: Sequence[int], generator: torch.Generator, device: torch.device | str
) -> Costs:
    """Measure every form at every length: one head, no mask."""
    ways = build_ways(device)
    inputs = {T: torch.randn(3, T, WIDTH, generator=generator).to(device) for T in lengths}
    works = {(name, T): partial(way, *inputs[T]) for name, way in ways.items() for T in lengths}
    with torch.no_grad():
        times = best_milliseconds(works, device, seconds=SECONDS)
        counts = {key: count_costs(work) for key, work in works.items()}
    return Costs(
        lengths,
        {name: [times[name, T] for T in lengths] for name in ways},
        {name: [float(counts[name, T].products) for T in lengths] for name in ways},
        {name: [float(counts[name, T].bytes) for T in lengths] for name in ways},
    )


def find_crossover(lengths: Sequence[int], ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The length from which on ours is lower, interpolated on logarithmic axes.

    Infinity if ours is not lower at the longest length, the first length if it is lower at all.
    """
    gaps = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    if gaps[-1] >= 0:
        return math.inf
    last = max((i for i, gap in enumerate(gaps) if gap >= 0), default=None)
    if last is None:
        return float(lengths[0])
    part = gaps[last] / (gaps[last] - gaps[last + 1])
    return float(lengths[last] * (lengths[last + 1] / lengths[last]) ** part)
