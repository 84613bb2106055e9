"""Softmax over the allowed keys, and the mixture of the values by these weights.

    weights[t, s] = exp(scores[t, s]) / Σ_{s' allowed} exp(scores[t, s'])     0 where not allowed
    output[t]     = Σ_{s allowed} weights[t, s] v[s]

A query that may attend to nothing gets zeros, with zero gradient.
"""

import torch
from torch import Tensor

from clearhead.attention.inputs import dense_mask, fill_forbidden
from clearhead.attention.masks import MaskLike
from clearhead.runtime import widen
from clearhead.shapes import check_float_tensor


def masked_softmax(scores: Tensor, mask: MaskLike = None) -> Tensor:
    """Weights (..., T, S) from scores (..., T, S).

    A forbidden key has exactly the weight 0, and a row sums to 1, or to 0 if it allows nothing.
    Half precision is computed in float32.
    """
    check_float_tensor("scores", scores, min_axes=2)
    allowed = dense_mask(mask, scores.shape, scores.device)
    exponents = fill_forbidden(widen(scores), allowed, -torch.inf)
    # A row without a finite score would be 0/0. It gets finite scores first and zero weights after,
    # so that neither the value nor the gradient is ever NaN.
    empty = (exponents == -torch.inf).all(dim=-1, keepdim=True)
    weights = exponents.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
    # A NaN score makes its whole row NaN, except for forbidden keys: their weight stays 0.
    return fill_forbidden(weights, allowed, 0.0).to(scores.dtype)


def mix(weights: Tensor, v: Tensor, allowed: Tensor | None = None) -> Tensor:
    """weights (..., T, S) times v (..., S, Dv) → (..., T, Dv); allowed broadcasts to the weights.

    A value that is NaN or infinite reaches exactly the queries that may see it. A plain product
    would send it to all of them, because 0 · NaN is NaN.
    """
    if allowed is None:
        return weights @ v
    broken = ~v.isfinite()
    # How many broken values each query may see, counted by a product of zeros and ones.
    n_broken = allowed.expand_as(weights).to(v.dtype) @ broken.to(v.dtype)
    # If there is one, the output is that of the plain product, NaN or infinite, with no gradient.
    return torch.where(n_broken > 0, (weights @ v).detach(), weights @ v.masked_fill(broken, 0.0))
