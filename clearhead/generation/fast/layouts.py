"""x Wᵀ + b for few rows x: reading W takes most of the time, so its layout in memory matters.

    OutputMajor     W as a Linear has it, one row per output; nothing is copied
    InputMajor      a copy with one row per input
    Int8Product     a copy in whole numbers from −127 to 127, a quarter of the bytes:
                    W[o, i] ≈ scale[o] · whole[o, i], and x likewise, with one scale per row

Which of the first two is faster depends on the shape and the machine: `choose_layout` measures it.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from clearhead.timing import Timer

SMALLEST = 16  # the 8-bit kernel takes matrices of at least 16 rows and columns


class OutputMajor:
    """The product with W itself, (out, in)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) → (N, out)."""
        return linear(x, self.weight, self.bias)


class InputMajor:
    """The product with a copy of W stored as (in, out)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.mT.contiguous(), bias

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) → (N, out)."""
        if self.bias is None:
            return x @ self.weight
        return torch.addmm(self.bias, x, self.weight)


class Int8Product:
    """The product in whole numbers; every row of x and of W is rounded with its own scale."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.whole, scale = round_to_int8(weight, find_levels())
        self.scale, self.bias = scale.mT, bias  # (1, out)

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) → (N, out). A row's result does not depend on the other rows."""
        whole, scale = round_to_int8(x)
        y = matmul_int8(whole, self.whole) * (scale * self.scale)
        return y if self.bias is None else y + self.bias


Product = OutputMajor | InputMajor | Int8Product


def round_to_int8(x: Tensor, levels: int = 127) -> tuple[Tensor, Tensor]:
    """x (N, width) → whole numbers (N, width) and scales (N, 1), x ≈ scale · whole."""
    scale = x.abs().amax(-1, keepdim=True).div_(levels).clamp_(min=torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


def matmul_int8(x: Tensor, weight: Tensor) -> Tensor:
    """x (N, in) and weight (out, in), both int8 → x weightᵀ (N, out) in int32, exactly."""
    if min(weight.shape) < SMALLEST:
        return (x.double() @ weight.double().mT).int()
    return torch._int_mm(x, weight.mT)  # the fastest measured; PyTorch has no public name for it


@cache
def find_levels() -> int:
    """The largest whole number a weight may be so that sums are exact here: 127 or 63.

    A processor without 8-bit instructions adds pairs of products in 16 bits, and 2 · 255 · 127 does
    not fit.
    """
    x, weight = torch.full((1, 64), 127).char(), torch.full((SMALLEST, 64), 127).char()
    is_exact = all(
        bool((torch._int_mm(rows, weight.mT) == 64 * 127 * 127).all())
        for rows in (x, x.expand(4, -1).contiguous())
    )
    return 127 if is_exact else 63


def choose_layout(pairs: Sequence[tuple[Tensor, Tensor | None]], n_rows: int) -> Sequence[Product]:
    """The faster layout for weights and biases of one shape: the same layer of every block.

    All of them are read in turn, as in a decoding step, so that no processor cache holds them.
    """
    candidates: list[Sequence[Product]] = [
        [kind(*pair) for pair in pairs] for kind in (OutputMajor, InputMajor)
    ]
    weight = pairs[0][0]
    x = torch.ones(n_rows, weight.size(1), dtype=weight.dtype)
    return min(candidates, key=lambda products: _measure_seconds(products, x))


def _measure_seconds(products: Sequence[Product], x: Tensor, repeats: int = 3) -> float:
    """The best time of a few passes over all products."""
    best = float("inf")
    for _ in range(repeats):
        timer = Timer()
        for product in products:
            product(x)
        best = min(best, timer.seconds)
    return best
