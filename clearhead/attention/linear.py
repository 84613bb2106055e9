"""Kernel attention (Katharopoulos et al. 2020), as the O(T·S) sum.

    weights[t, s] = sim(q_t, k_s) / Σ_{s' allowed} sim(q_t, k_s')        sim(q, k) = φ(q)·φ(k)
    output        = weights v

Softmax attention is the case sim(q, k) = exp(q·k/√Dh). If the similarity is a product of features φ
(features.py), the sum can be taken in another order, φ(q_t)·(Σ_s φ(k_s) v_sᵀ), and no tensor
grows with T·S. linear_fast.py does that.
"""

import torch
from torch import Tensor

from clearhead.attention.features import FeatureMap
from clearhead.attention.inputs import Inputs, fill_forbidden, prepare
from clearhead.attention.masks import MaskLike
from clearhead.attention.softmax import mix
from clearhead.runtime import widen


def weights(
    q: Tensor,
    k: Tensor,
    feature_map: FeatureMap,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
) -> Tensor:
    """How much each query takes from each key: q (..., T, D), k (..., S, D) → (..., T, S).

    Accepts every mask. Rows sum to 1, or to 0 where the similarities do. A bias is refused.
    """
    refuse_bias(bias)
    x = prepare(q, k, mask=mask)
    return _weigh(x, feature_map).to(q.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature_map: FeatureMap,
    *,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mix the values by the similarity of query and key.

    q (..., T, D), k (..., S, D), v (..., S, Dv) → output (..., T, Dv), and with return_weights the
    weights (..., T, S). Accepts every mask; a bias is refused.
    """
    refuse_bias(bias)
    x = prepare(q, k, v, mask=mask)
    weights = _weigh(x, feature_map)
    output = mix(weights, widen(x.v), x.allowed).to(q.dtype)  # (..., T, Dv)
    return (output, weights.to(q.dtype)) if return_weights else output


def _weigh(x: Inputs, feature_map: FeatureMap) -> Tensor:
    """sim(q_t, k_s) / Σ_s' sim(q_t, k_s'): (..., T, S), in at least float32."""
    similarity = fill_forbidden(feature_map.similarity(x.q, x.k), x.allowed, 0.0)  # (..., T, S)
    weights = divide(similarity, similarity.sum(dim=-1, keepdim=True))
    return fill_forbidden(weights, x.allowed, 0.0)  # 0 also in a row that holds a NaN


def divide(sums: Tensor, total: Tensor) -> Tensor:
    """sums / total, or 0 where the total is 0."""
    # A division by infinity gives 0, with a gradient of 0.
    return sums / total.masked_fill(total == 0.0, torch.inf)


def refuse_bias(bias: Tensor | None) -> None:
    """Raise a ValueError if a bias is given."""
    if bias is not None:
        raise ValueError(
            "linear attention has no scores to which bias= could be added: a similarity is "
            "φ(q)·φ(k); leave it out, put positions into q and k, or use DotProductAttention"
        )
