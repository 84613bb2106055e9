"""Additive attention (Bahdanau et al. 2015): a small network learns how well query and key match.

    scores[t, s] = wᵀ tanh(W_q q_t + W_k k_s)
    weights      = softmax(scores + bias)

Unlike the dot product, queries and keys may have different widths, and nothing is divided by √Dh.
"""

from torch import Tensor

from clearhead.attention.inputs import prepare
from clearhead.attention.masks import MaskLike
from clearhead.attention.softmax import masked_softmax


def weights(
    q: Tensor,
    k: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w: Tensor,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Weights (..., T, S) from q (..., T, d_query) and k (..., S, d_key).

    w_q (F, d_query), w_k (F, d_key) and w (F,) with F the hidden width.
    """
    x = prepare(q, k, mask=mask, bias=bias, for_dot_product=False)
    from_q, from_k = (x.q @ w_q.mT).unsqueeze(-2), (x.k @ w_k.mT).unsqueeze(-3)
    scores = (from_q + from_k).tanh() @ w  # (..., T, S, F) → (..., T, S)
    return masked_softmax(scores + x.bias, x.allowed).to(q.dtype)
