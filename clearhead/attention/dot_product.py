"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), written out.

    weights = softmax((q kᵀ + bias) / √Dh)      how much each query takes from each key
    output  = weights v                         the mixture it receives

The fused form of the same functions is in dot_product_fast.py.
"""

from torch import Tensor, nn

from clearhead.attention.inputs import prepare
from clearhead.attention.masks import MaskLike
from clearhead.attention.softmax import masked_softmax, mix


def weights(
    q: Tensor,
    k: Tensor,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """How much each query takes from each key: q (..., T, Dh), k (..., S, Dh) → (..., T, S).

    mask and bias broadcast to (..., T, S); scale is 1/√Dh unless given. Each row sums to 1, or to 0
    if it allows nothing.
    """
    x = prepare(q, k, mask=mask, bias=bias, scale=scale)
    scores = (x.q @ x.k.mT + x.bias) * x.scale  # (..., T, S)
    return masked_softmax(scores, x.allowed).to(q.dtype)


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

    q (..., T, Dh), k (..., S, Dh), v (..., S, Dv) → output (..., T, Dv), and with return_weights
    the weights (..., T, S). dropout: the share of the weights that is set to 0, at random, before
    the values are mixed, while the others are scaled up; the returned weights are those before.
    """
    x = prepare(q, k, v, mask=mask, bias=bias, scale=scale)
    scores = (x.q @ x.k.mT + x.bias) * x.scale  # (..., T, S)
    weights = masked_softmax(scores, x.allowed).to(q.dtype)
    output = mix(nn.functional.dropout(weights, dropout), x.v, x.allowed)  # weights v: (..., T, Dv)
    return (output, weights) if return_weights else output
