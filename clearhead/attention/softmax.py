"""Softmax over the allowed keys.

    weights[t, s] = exp(scores[t, s]) / Σ_{s' allowed} exp(scores[t, s'])     0 where not allowed

This is the only place that decides what softmax gives a query that may attend to nothing: zeros,
with zero gradient.
"""

import torch
from torch import Tensor

from clearhead.attention.inputs import fill_forbidden, widen
from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.shapes import check_float_tensor


def masked_softmax(scores: Tensor, mask: MaskLike = None) -> Tensor:
    """Weights (..., T, S) from scores (..., T, S).

    A forbidden key has exactly the weight 0, and a row sums to 1, or to 0 if it allows nothing.
    Half precision is computed in float32.
    """
    check_float_tensor("scores", scores, min_axes=2)
    allowed = dense_mask(mask, scores.shape, scores.device)
    exponents = fill_forbidden(widen(scores), allowed, -torch.inf)
    # An empty row would be 0/0: it gets finite scores first and zero weights after, so that neither
    # the value nor the gradient ever sees a NaN.
    empty = (exponents == -torch.inf).all(dim=-1, keepdim=True)
    weights = exponents.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
    # Beside a NaN score the whole row is NaN; a forbidden key has the weight 0 there, too.
    return fill_forbidden(weights, allowed, 0.0).to(scores.dtype)
