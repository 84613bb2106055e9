"""Softmax attention beside kernel attention: weights, their difference, the error as m grows.

q and k are drawn from N(0, 1) and scaled to one length, as in lab/kernels. Longer vectors make
attention sharper, as a lower temperature does. Random features estimate the kernel of the
softmax, exp(q·k/√D), from m frequencies; quadratic and elu features are exact for other kernels.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.attention import (
    EluFeatures,
    FeatureMap,
    LinearAttention,
    QuadraticFeatures,
    dot_product,
)
from clearhead.lab.kernels.features import (
    build_map,
    convergence,
    relative_variance,
    rms,
    scale_rows,
    softmax_kernel,
)
from clearhead.shapes import check_number, check_whole
from clearhead.studio.sources import Sources

Features = Literal["quadratic", "elu", "fourier", "positive"]

RANDOM = ("fourier", "positive")
FREQUENCIES = (4, 16, 64, 256, 1024)
# The first seed of random features. The seeds of q and k are smaller: equal seeds draw equal
# numbers, and frequencies equal to the queries would estimate another kernel.
MAP_SEED = 1_000_000
DRAWS = range(MAP_SEED, MAP_SEED + 16)  # random feature maps for each m
MAPS = {"quadratic": "QuadraticFeatures()", "elu": "EluFeatures()"}


def compare_kernels(
    sources: Sources,
    features: Features,
    T: int = 24,
    D: int = 8,
    m: int = 64,
    seed: int = 0,
    length: float = 2.0,
) -> dict[str, Any]:
    """The weights of T queries and keys: by the softmax, and by the features.

    m: the number of random frequencies; length: ‖q‖ and ‖k‖. "kernel": exp(q·k/√D);
    "similarity": φ(q)·φ(k). "error": the norm of the difference, divided by the norm of the exact
    weights. For random features, "similarity_error": the relative error of the similarity (RMS);
    "expected_error": the value that theory predicts for it.
    """
    check_whole("m", m, least=1, most=FREQUENCIES[-1])
    q, k, _ = _draw(T, D, seed, length)
    phi = _build(features, D, m, MAP_SEED + seed)
    exact, approximate = dot_product.weights(q, k), LinearAttention(phi).weights(q, k)
    kernel, similarity = softmax_kernel(q, k), phi(q) @ phi(k).mT
    answer = {
        "q": q,
        "k": k,
        "exact": exact,
        "approximate": approximate,
        "difference": approximate - exact,
        "kernel": kernel,
        "similarity": similarity,
        "error": float((approximate - exact).norm() / exact.norm()),
        "n_features": phi(q).size(-1),
        "n_negative": int((approximate < 0).sum()),
    }
    if features in RANDOM:
        answer["similarity_error"] = rms(similarity / kernel - 1.0)
        answer["expected_error"] = (relative_variance(features, q, k) / m) ** 0.5
    return {**answer, "python": _write_comparison(features, T, D, m, seed, length)}


def measure_kernels(
    sources: Sources, T: int = 24, D: int = 8, seed: int = 0, length: float = 2.0
) -> dict[str, Any]:
    """The relative error of random features for several m; it falls as m to the power "slope".

    "error": the error of the similarity; "predicted": what theory expects for it; "output": the
    error of the output of attention. All are RMS, and means over 16 draws.
    """
    q, k, v = _draw(T, D, seed, length)
    found = convergence(q, k, v, FREQUENCIES, DRAWS)
    kinds = ("error", "predicted", "output", "slope")
    lines = [
        *_write_draw(T, D, seed, length),
        "from clearhead.lab.kernels.features import convergence",
        f"found = convergence(q, k, v, {FREQUENCIES}, {DRAWS})",
    ]
    return {
        "frequencies": list(FREQUENCIES),
        **{name: {kind: found[f"{name}_{kind}"] for kind in kinds} for name in RANDOM},
        "python": "\n".join(lines),
    }


def _draw(T: int, D: int, seed: int, length: float) -> list[Tensor]:
    """q, k and v, (T, D)."""
    check_whole("T", T, least=2, most=128)
    check_whole("D", D, least=1, most=64)
    check_whole("seed", seed, least=0, most=MAP_SEED - 1)
    check_number("length", length, low=0.0, high=8.0)
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, T, D, generator=generator, dtype=torch.float64)
    return [scale_rows(q, length), scale_rows(k, length), v]


def _build(features: Features, D: int, m: int, seed: int) -> FeatureMap:
    if features == "quadratic":
        return QuadraticFeatures()
    return EluFeatures() if features == "elu" else build_map(features, m, seed, D)


# The same in a notebook


def _write_draw(T: int, D: int, seed: int, length: float) -> list[str]:
    return [
        "import torch",
        "from clearhead.lab.kernels.features import scale_rows",
        f"generator = torch.Generator().manual_seed({seed})",
        f"q, k, v = torch.randn(3, {T}, {D}, generator=generator, dtype=torch.float64)",
        f"q, k = scale_rows(q, {length!r}), scale_rows(k, {length!r})",
    ]


def _write_comparison(features: Features, T: int, D: int, m: int, seed: int, length: float) -> str:
    random = {"fourier": f"FourierFeatures({D}, {2 * m}, seed={MAP_SEED + seed})"}
    random |= {"positive": f"PositiveFeatures({D}, {m}, seed={MAP_SEED + seed})"}
    call = (MAPS | random)[features]
    lines = [
        *_write_draw(T, D, seed, length),
        f"from clearhead.attention import {call.partition('(')[0]}, LinearAttention, dot_product",
        "exact = dot_product.weights(q, k)",
        f"phi = {call}",
        "approximate = LinearAttention(phi).weights(q, k)",
        "similarity = phi(q) @ phi(k).mT",
        "error = float((approximate - exact).norm() / exact.norm())",
    ]
    return "\n".join(lines)
