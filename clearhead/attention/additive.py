"""Additive attention (Bahdanau et al. 2015): the match of query and key is learned by a small
network.

    scores[t, s] = wᵀ tanh(W_q q_t + W_k k_s)
    weights      = softmax(scores + bias)

Unlike the dot product, queries and keys may have different widths, and nothing is divided by √Dh.
"""

from torch import Tensor

from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.attention.softmax import masked_softmax, without_dead_keys
from clearhead.shapes import check_bias


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
    allowed = dense_mask(mask, (*q.shape[:-1], k.size(-2)), q.device)
    (k,) = without_dead_keys(allowed, k)
    hidden = ((q @ w_q.mT).unsqueeze(-2) + (k @ w_k.mT).unsqueeze(-3)).tanh()  # (..., T, S, F)
    scores = hidden @ w  # (..., T, S)
    if bias is not None:
        check_bias(bias, scores.shape, q)
        scores = scores + bias
    return masked_softmax(scores, allowed).to(q.dtype)
