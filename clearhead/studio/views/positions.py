"""What each position scheme adds to attention, in numbers.

sinusoidal, learned    a table (n, d), and the similarity p·p′ of every two positions
rotary                 the angles (n, d/2), and q·k with q at position i and k at position j
toeplitz, alibi        the bias of the scores, and the attention from the bias alone: q = k = 0
"""

from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.attention import Mask, dot_product
from clearhead.lab.positions.schemes import spread
from clearhead.positions import (
    AlibiBias,
    LearnedPositions,
    RotaryPositions,
    ToeplitzBias,
    sinusoid_table,
)
from clearhead.positions.tables import angles, frequencies
from clearhead.shapes import check_number, check_whole
from clearhead.studio.sources import Sources

Scheme = Literal["sinusoidal", "learned", "rotary", "toeplitz", "alibi"]
Part = tuple[dict[str, Any], list[str]]  # the numbers, and the Python lines that compute them

MAX_SIZE = 128  # of n and of d
CPU = torch.device("cpu")


def show_positions(
    sources: Sources,
    scheme: Scheme,
    n: int = 24,
    d: int = 16,
    base: float = 10000.0,
    seed: int = 0,
    n_heads: int = 4,
    weights: list[float] | None = None,
    causal: bool = False,
) -> dict[str, Any]:
    """The numbers of a scheme for n positions; d: the width of x, or of a head.

    base: for sinusoidal and rotary. seed: for numbers drawn at random. n_heads: for alibi. weights:
    the numbers of toeplitz by distance, from −(n − 1) to n − 1; drawn at random unless given.
    causal: no attention to later positions, for toeplitz and alibi.
    """
    check_whole("n", n, least=2, most=MAX_SIZE)
    check_whole("d", d, least=2, most=MAX_SIZE)
    check_whole("seed", seed, least=0, most=2**31 - 1)
    check_whole("n_heads", n_heads, least=1, most=16)
    check_number("base", base, low=1.0, high=1e9)
    match scheme:
        case "sinusoidal":
            answer, lines = _show_sinusoidal(n, d, base)
        case "learned":
            answer, lines = _show_learned(n, d, seed)
        case "rotary":
            answer, lines = _show_rotary(n, d, base, seed)
        case "toeplitz":
            answer, lines = _show_toeplitz(n, d, seed, weights, causal)
        case _:
            answer, lines = _show_alibi(n, n_heads, causal)
    return {**answer, "python": "\n".join(["import torch", *lines])}


# Added to x


def _show_sinusoidal(n: int, d: int, base: float) -> Part:
    table = sinusoid_table(n, d, torch.float64, base=base)
    lines = [
        "from clearhead.positions import sinusoid_table",
        f"table = sinusoid_table({n}, {d}, torch.float64, base={base!r})",
    ]
    found, more = _compare_rows(table)
    waves = {"frequencies": frequencies(d, base, CPU), "angles": angles(torch.arange(n), d, base)}
    return {"table": table, **waves, **found}, lines + more


def _show_learned(n: int, d: int, seed: int) -> Part:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = LearnedPositions(n, d).weight.detach().double()
    lines = [
        "from clearhead.positions import LearnedPositions",
        f"torch.manual_seed({seed})",
        f"table = LearnedPositions({n}, {d}).weight.detach().double()",
    ]
    found, more = _compare_rows(table)
    return {"table": table, **found}, lines + more


def _compare_rows(table: Tensor) -> Part:
    """The products of every two rows, and how much they vary between pairs of equal distance."""
    similarity = table @ table.mT
    return {"similarity": similarity, "spread": spread(similarity)}, [
        "similarity = table @ table.mT  # p·p′ of every two positions",
    ]


# Turns q and k


def _show_rotary(n: int, d: int, base: float, seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, d, generator=generator, dtype=torch.float64)
    scheme = RotaryPositions(d, base=base)
    rotated_q, rotated_k = scheme(q.expand(n, d)), scheme(k.expand(n, d))
    scores = rotated_q @ rotated_k.mT
    answer = {
        "q": q,
        "k": k,
        "frequencies": frequencies(d, base, CPU),
        "angles": angles(torch.arange(n), d, base),
        "rotated_q": rotated_q,
        "rotated_k": rotated_k,
        "scores": scores,
        "spread": max(spread(scores), spread(scores.mT)),
    }
    return answer, [
        "from clearhead.positions import RotaryPositions",
        "from clearhead.positions.tables import angles as compute_angles",
        f"generator = torch.Generator().manual_seed({seed})",
        f"q, k = torch.randn(2, {d}, generator=generator, dtype=torch.float64)",
        f"scheme = RotaryPositions({d}, base={base!r})",
        f"rotated_q, rotated_k = scheme(q.expand({n}, {d})), scheme(k.expand({n}, {d}))",
        "scores = rotated_q @ rotated_k.mT  # q at position i, k at position j",
        f"angles = compute_angles(torch.arange({n}), {d}, {base!r})  # by position and pair",
    ]


# A bias of the scores


def _show_toeplitz(n: int, d: int, seed: int, weights: list[float] | None, causal: bool) -> Part:
    scheme = ToeplitzBias(n_heads=1, max_len=n).double()
    with torch.no_grad():
        scheme.weight[0, 1:-1] = given = _read_weights(n, seed, weights)
        bias = scheme(n)
    lines = [
        "from clearhead.positions import ToeplitzBias",
        f"weights = torch.tensor({given.tolist()!r}, dtype=torch.float64)",
        f"scheme = ToeplitzBias(n_heads=1, max_len={n}).double()",
        "with torch.no_grad():",
        "    scheme.weight[0, 1:-1] = weights  # by distance j − i, from −(n − 1) to n − 1",
        f"    bias = scheme({n})",
    ]
    found, more = _attend_by_bias(bias, causal, d**-0.5)
    return {"weights": given, "bias": bias, **found}, lines + more


def _read_weights(n: int, seed: int, weights: list[float] | None) -> Tensor:
    """A number for each distance."""
    if weights is None:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(2 * n - 1, generator=generator, dtype=torch.float64)
    if len(weights) != 2 * n - 1:
        raise ValueError(
            f"weights must have 2n − 1 = {2 * n - 1} numbers, one for each distance of {n} "
            f"positions, got {len(weights)}"
        )
    for i, weight in enumerate(weights):
        check_number(f"weights[{i}]", weight, low=-1e6, high=1e6)
    return torch.tensor(weights, dtype=torch.float64)


def _show_alibi(n: int, n_heads: int, causal: bool) -> Part:
    scheme = AlibiBias(n_heads).double()
    bias = scheme(n)
    lines = [
        "from clearhead.positions import AlibiBias",
        f"scheme = AlibiBias({n_heads}).double()",
        f"bias = scheme({n})",
    ]
    found, more = _attend_by_bias(bias, causal, 1.0)  # added after the division by √d
    return {"slopes": scheme.slopes, "bias": bias, **found}, lines + more


def _attend_by_bias(bias: Tensor, causal: bool, scale: float) -> Part:
    """The attention (H, n, n) from the bias alone: all queries and keys are 0."""
    nothing = torch.zeros(*bias.shape[:2], 1, dtype=torch.float64)
    mask = Mask.causal() if causal else None
    attention = dot_product.weights(nothing, nothing, bias=bias, scale=scale, mask=mask)
    return {"attention": attention}, [
        "from clearhead.attention import Mask, dot_product",
        "nothing = torch.zeros(*bias.shape[:2], 1, dtype=torch.float64)  # q = k = 0",
        f"mask = {'Mask.causal()' if causal else 'None'}",
        f"attention = dot_product.weights(nothing, nothing, bias=bias, scale={scale!r}, mask=mask)",
    ]
