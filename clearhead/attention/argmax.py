"""Argmax attention: each query takes the value of the one key that matches best, and nothing else.

    output[t] = v[argmax_s (q_t · k_s + bias[t, s])]           of equal matches, the first

It shows what softmax is for. A small change of a query or key does not change which key is best,
so the gradient to both is zero everywhere: such attention can be computed, and designed by hand,
but not learned.
"""

from typing import Any

import torch
from torch import Tensor

from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.attention.softmax import widened, without_dead_keys
from clearhead.shapes import check_bias, check_qk


class _OneHotOfLargest(torch.autograd.Function):
    """1 at the largest entry of each row: piecewise constant, so its gradient is zero."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        if scores.size(-1) == 0:
            return torch.zeros_like(scores)
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Tensor | None:
        return None if grad is None else torch.zeros_like(grad)


def weights(q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None) -> Tensor:
    """q (..., T, Dh), k (..., S, Dh) → one-hot rows (..., T, S); an empty row is all zeros."""
    check_qk(q, k)
    allowed = dense_mask(mask, (*q.shape[:-1], k.size(-2)), q.device)
    (k,) = without_dead_keys(allowed, k)
    scores = widened(q) @ widened(k).mT
    if bias is not None:
        check_bias(bias, scores.shape, q)
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    chosen = _OneHotOfLargest.apply(scores)
    chosen = chosen.masked_fill(scores.isnan().any(dim=-1, keepdim=True), torch.nan)
    return (chosen if allowed is None else chosen.masked_fill(~allowed, 0.0)).to(q.dtype)
