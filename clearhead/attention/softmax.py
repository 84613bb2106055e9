"""Softmax over the allowed keys, and the mixture it weighs.

    weights[t, s] = exp(scores[t, s]) / Σ_{s' allowed} exp(scores[t, s'])     0 where not allowed
    output[t]     = Σ_{s allowed} weights[t, s] v[s]

This is the only place that decides what softmax gives a query that may attend to nothing: zeros,
with zero gradient.
"""

import torch
from torch import Tensor

from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.shapes import check_float_tensor


def masked_softmax(scores: Tensor, mask: MaskLike = None) -> Tensor:
    """Weights (..., T, S) from scores (..., T, S): masked ones exactly 0, each row sums to 1 – or
    0.

    Half precision is computed in float32 inside.
    """
    check_float_tensor("scores", scores, min_axes=2)
    allowed = dense_mask(mask, scores.shape, scores.device)
    exact = widened(scores)
    if allowed is not None:
        exact = exact.masked_fill(~allowed, -torch.inf)
    # An empty row would be 0/0: it gets finite scores first and zero weights after, so that neither
    # the value nor the gradient ever sees a NaN.
    empty = (exact == -torch.inf).all(dim=-1, keepdim=True)
    weights = exact.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
    if allowed is not None:  # beside a NaN score, too, a forbidden key has the weight 0
        weights = weights.masked_fill(~allowed, 0.0)
    return weights.to(scores.dtype)


def widened(x: Tensor) -> Tensor:
    """Half precision as float32: scores and sums need more range and digits than it has."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def mix(weights: Tensor, v: Tensor, mask: MaskLike = None) -> Tensor:
    """The mixture weights v: (..., T, S), (..., S, Dv) → (..., T, Dv).

    In floating point 0 · NaN is NaN, so a plain product would let a broken value reach queries
    that may not see it. Here it reaches exactly those that may.
    """
    allowed = dense_mask(mask, weights.shape, weights.device)
    if allowed is None:
        return weights @ v
    broken = ~v.isfinite()
    reached = allowed.expand_as(weights).to(v.dtype) @ broken.to(v.dtype) > 0
    # Detached: a NaN is shown, but does not travel back.
    return torch.where(reached, (weights @ v).detach(), weights @ v.masked_fill(broken, 0.0))


def without_dead_keys(allowed: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Keys and values (..., S, D), zero where no query may look, so that padding may hold NaN."""
    if allowed is None:
        return tensors
    dead = ~allowed.any(dim=-2).unsqueeze(-1)  # (..., S, 1)
    return tuple(x.masked_fill(dead, 0.0) for x in tensors)
