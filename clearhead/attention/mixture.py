"""The mixture of values that a query receives.

output[t] = Σ_{s allowed} weights[t, s] v[s]
"""

import torch
from torch import Tensor

from clearhead.attention.masks import MaskLike, dense_mask


def mix(weights: Tensor, v: Tensor, mask: MaskLike = None) -> Tensor:
    """weights (..., T, S) times v (..., S, Dv) → (..., T, Dv).

    A value that is NaN or infinite reaches exactly the queries that may see it. A plain product
    would send it to all of them, because 0 · NaN is NaN.
    """
    allowed = dense_mask(mask, weights.shape, weights.device)
    if allowed is None:
        return weights @ v
    broken = ~v.isfinite()
    reached = allowed.expand_as(weights).to(v.dtype) @ broken.to(v.dtype) > 0
    # Where a broken value arrives it is shown as the product gives it, but not differentiated.
    return torch.where(reached, (weights @ v).detach(), weights @ v.masked_fill(broken, 0.0))
