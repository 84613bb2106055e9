"""x Wᵀ + b for few rows x: the time goes into reading W, so how W lies in memory decides.

    OutputMajor     W as a Linear has it, a row for each output: nothing is copied
    InputMajor      a copy with a row for each input
    Int8Product     a copy in whole numbers from −127 to 127, a quarter of the bytes:
                    W[o, i] ≈ scale[o] · whole[o, i], and x likewise with one scale for each row

Which of the first two is faster depends on the shape and the machine: `lay_out` measures it.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from clearhead.timing import Timer

SMALLEST = 16  # numbers in a row or column


class OutputMajor:
    """The product by W itself, (out, in)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) → (N, out)."""
        return linear(x, self.weight, self.bias)


class InputMajor:
    """The product by a copy of W that lies as (in, out)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.mT.contiguous(), bias

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) → (N, out)."""
        if self.bias is None:
            return x @ self.weight
        return torch.addmm(self.bias, x, self.weight)


class Int8Product:
    """The product in whole numbers; each row of x and of W is rounded to 255 levels of its own."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.whole, scale = to_int8(weight, safe_levels())
        self.scale, self.bias = scale.mT, bias  # (1, out)

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) → (N, out). A row's result does not depend on the other rows."""
        whole, scale = to_int8(x)
        y = whole_product(whole, self.whole) * (scale * self.scale)
        return y if self.bias is None else y + self.bias


Product = OutputMajor | InputMajor | Int8Product


def to_int8(x: Tensor, levels: int = 127) -> tuple[Tensor, Tensor]:
    """x (N, width) → whole numbers (N, width) and scales (N, 1), x ≈ scale · whole."""
    scale = x.abs().amax(-1, keepdim=True).div_(levels).clamp_(min=torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


def whole_product(x: Tensor, weight: Tensor) -> Tensor:
    """x (N, in) and weight (out, in), both int8 → x weightᵀ (N, out) in int32, without error."""
    if min(weight.shape) < SMALLEST:  # too narrow for the kernel
        return (x.double() @ weight.double().mT).int()
    return torch._int_mm(x, weight.mT)


@cache
def safe_levels() -> int:
    """How far weights may go from 0 so that sums are exact on this processor: 127 or 63.

    Without instructions for 8 bits, pairs of products are added in 16 bits, and 2 · 255 · 127 does
    not fit.
    """
    x, weight = torch.full((1, 64), 127).char(), torch.full((SMALLEST, 64), 127).char()
    exact = all(
        bool((torch._int_mm(rows, weight.mT) == 64 * 127 * 127).all())
        for rows in (x, x.expand(4, -1).contiguous())
    )
    return 127 if exact else 63


def lay_out(pairs: Sequence[tuple[Tensor, Tensor | None]], n_rows: int) -> Sequence[Product]:
    """The faster layout for weights and biases of one shape, the same layer of each block.

    All of them are read in turn, as a decoding step does, so that no cache hides the memory.
    """
    candidates: list[Sequence[Product]] = [
        [kind(*pair) for pair in pairs] for kind in (OutputMajor, InputMajor)
    ]
    weight = pairs[0][0]
    x = torch.ones(n_rows, weight.size(1), dtype=weight.dtype)
    return min(candidates, key=lambda products: _seconds(products, x))


def _seconds(products: Sequence[Product], x: Tensor, repeats: int = 3) -> float:
    """The best time of a few passes over all products."""
    best = float("inf")
    for _ in range(repeats):
        timer = Timer()
        for product in products:
            product(x)
        best = min(best, timer.seconds)
    return best
