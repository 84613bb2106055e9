"""Argmax attention: each query takes the value of the one key that matches best, and nothing else.

    weights[t, s] = 1 for s = argmax_s (q_t · k_s + bias[t, s]), else 0      the first of equals

It shows why attention is trained with softmax. A small change of a query or key does not change
which key is best, so the gradient to both is zero everywhere: such attention can be computed, and
designed by hand, but not learned.
"""

from typing import Any

import torch
from torch import Tensor

from clearhead.attention.inputs import fill_forbidden, prepare
from clearhead.attention.masks import MaskLike


def weights(q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None) -> Tensor:
    """q (..., T, Dh), k (..., S, Dh) → one-hot rows (..., T, S); an empty row is all zeros."""
    x = prepare(q, k, mask=mask, bias=bias)
    scores = fill_forbidden(x.q @ x.k.mT + x.bias, x.allowed, -torch.inf)  # (..., T, S)
    best = _OneHotOfLargest.apply(scores)
    # A NaN score makes the whole row NaN.
    best = best.masked_fill(scores.isnan().any(dim=-1, keepdim=True), torch.nan)
    return fill_forbidden(best, x.allowed, 0.0).to(q.dtype)


class _OneHotOfLargest(torch.autograd.Function):
    """1 at the largest entry of each row: piecewise constant, so its gradient is zero."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        if scores.size(-1) == 0:
            return torch.zeros_like(scores)
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.zeros_like(grad)
