"""The one door of attention: what must hold before an equation can be written as it stands.

    x = prepare(q, k, v, mask=mask, bias=bias)

checks every argument, writes the mask as a boolean matrix, widens half precision to float32, and
shields the result from padding: a query that sees nothing and a key or value that no query may see
are set to zero, because in floating point 0 · NaN is NaN. So padding may hold anything.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.attention.masks import MaskLike, dense_mask
from clearhead.shapes import check_bias, check_qkv


class Inputs(NamedTuple):
    """What an equation is computed from."""

    q: Tensor  # (..., T, Dh)
    k: Tensor  # (..., S, Dh)
    v: Tensor  # (..., S, Dv), with Dv = 0 where only the weights are wanted
    allowed: Tensor | None  # broadcasts to (..., T, S), True = may attend; None = all
    bias: Tensor | None  # broadcasts to (..., T, S)


def prepare(
    q: Tensor,
    k: Tensor,
    *values: Tensor,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    dot_product: bool = True,
) -> Inputs:
    """Check the arguments of `attend` or, without values, of `weights`, and make them safe to use.

    With dot_product, q and k are to be multiplied with each other: they must have one width, and
    are widened. Without it a network compares them, in its own precision.
    """
    check_qkv(q, k, *values, same_width=dot_product)
    v = values[0] if values else k[..., :0]
    shape = (*q.shape[:-1], k.size(-2))  # of the scores, (..., T, S)
    allowed = dense_mask(mask, shape, q.device)
    if bias is not None:
        check_bias(bias, shape, q)
    q, k, v = shield(q, k, v, allowed)
    return Inputs(*((widen(q), widen(k)) if dot_product else (q, k)), v, allowed, bias)


def shield(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Zero the queries that see nothing, and the keys and values that no query may see."""
    if allowed is None:
        return q, k, v
    (q,) = zero_unseen(allowed.mT, q)  # from the keys' side, a query that sees nothing is unseen
    k, v = zero_unseen(allowed, k, v)
    return q, k, v


def zero_unseen(allowed: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Keys or values (..., S, D), zero in every row that no query may see."""
    if allowed is None:
        return tensors
    unseen = ~allowed.any(dim=-2).unsqueeze(-1)  # (..., S, 1)
    return tuple(x.masked_fill(unseen, 0.0) for x in tensors)


def widen(x: Tensor) -> Tensor:
    """Half precision as float32: scores and sums need more range and digits than it has."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def add_bias(scores: Tensor, bias: Tensor | None) -> Tensor:
    """scores + bias; without a bias, the scores."""
    return scores if bias is None else scores + bias


def fill_forbidden(x: Tensor, allowed: Tensor | None, value: float) -> Tensor:
    """x (..., T, S) with this value for every pair of query and key that is not allowed."""
    return x if allowed is None else x.masked_fill(~allowed, value)
