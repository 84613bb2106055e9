"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), written out.

    weights = softmax((q kᵀ + bias) / √Dh)      how much each query takes from each key
    output  = weights v                         the mixture it receives

The fused form of the same functions is in dot_product_fast.py.
"""

import math

import torch
from torch import Tensor

from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.attention.softmax import masked_softmax, mix, widened, without_dead_keys
from clearhead.shapes import check_bias, check_qk, check_qkv


def weights(
    q: Tensor,
    k: Tensor,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """How much each query takes from each key: q (..., T, Dh), k (..., S, Dh) → (..., T, S).

    mask and bias broadcast to (..., T, S); scale is 1/√Dh unless given. Rows sum to 1, or 0 if
    empty.
    """
    check_qk(q, k)
    allowed = dense_mask(mask, (*q.shape[:-1], k.size(-2)), q.device)
    (k,) = without_dead_keys(allowed, k)
    scores = widened(q) @ widened(k).mT  # (..., T, S)
    if bias is not None:
        check_bias(bias, scores.shape, q)
        scores = scores + bias
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    return masked_softmax(scores * scale, allowed).to(q.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mix the values by how well each query matches each key.

    q (..., T, Dh), k (..., S, Dh), v (..., S, Dv) → output (..., T, Dv), and if asked the
    weights (..., T, S) before dropout, which zeroes that share of them and scales up the rest.
    """
    check_qkv(q, k, v)
    allowed = dense_mask(mask, (*q.shape[:-1], k.size(-2)), q.device)
    (v,) = without_dead_keys(allowed, v)
    taken = weights(q, k, mask=allowed, bias=bias, scale=scale)
    kept = torch.nn.functional.dropout(taken, dropout) if dropout else taken
    output = mix(kept, v, allowed)
    return (output, taken) if return_weights else output
