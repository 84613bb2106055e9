"""Prepare the arguments of attention, so that the lines after this call are the plain equation.

    x = prepare(q, k, v, mask=mask, bias=bias)

checks every argument, writes the mask out as a boolean matrix and widens half precision to float32.
Padding may hold anything, even NaN: queries that see nothing, and keys and values that no query may
see, are set to zero, because in floating point 0 · NaN is NaN.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead.attention.masks import Mask, MaskLike
from clearhead.runtime import widen
from clearhead.shapes import broadcasts_to, check_qkv, format_shape


class Inputs(NamedTuple):
    """The arguments of an equation of attention, checked and safe to compute with."""

    q: Tensor  # (..., T, Dh)
    k: Tensor  # (..., S, Dh)
    v: Tensor  # (..., S, Dv); Dv = 0 if no values were given
    allowed: Tensor | None  # broadcasts to (..., T, S), True = may attend; None = all
    bias: Tensor | float  # broadcasts to (..., T, S); 0 without a bias
    scale: float  # 1/√Dh unless given


def prepare(
    q: Tensor,
    k: Tensor,
    *values: Tensor,
    mask: MaskLike = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    for_dot_product: bool = True,
) -> Inputs:
    """Check the arguments of `attend`, or of `weights` if no values are given; make them safe.

    for_dot_product=True: q and k will be multiplied, so they must have one width, and half
    precision is widened. False: a network compares them, in its own precision.
    """
    check_qkv(q, k, *values, same_width=for_dot_product)
    v = values[0] if values else k[..., :0]
    shape = (*q.shape[:-1], k.size(-2))  # of the scores, (..., T, S)
    allowed = dense_mask(mask, shape, q.device)
    if bias is not None:
        check_bias(bias, shape, q)
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    q, k, v = shield(q, k, v, allowed)
    if for_dot_product:
        q, k = widen(q), widen(k)
    return Inputs(q, k, v, allowed, 0.0 if bias is None else bias, scale)


def check_bias(bias: Any, scores_shape: tuple[int, ...], q: Tensor) -> None:
    """A floating-point bias that broadcasts to the scores, on their device."""
    if not isinstance(bias, Tensor):
        raise TypeError(f"bias must be a torch.Tensor, got {type(bias).__name__}")
    if not bias.is_floating_point():
        raise TypeError(
            f"bias must hold floating-point numbers to add to the scores, got {bias.dtype}; "
            f"to forbid keys use mask="
        )
    if bias.device != q.device:
        raise ValueError(
            f"bias must be on the device of q, {q.device}, got {bias.device}; use bias.to(q.device)"
        )
    if not broadcasts_to(bias, scores_shape):
        raise ValueError(
            f"bias must broadcast to the scores {tuple(scores_shape)}, got {format_shape(bias)}; "
            f"its last axes are (heads, queries, keys)"
        )


def dense_mask(
    mask: MaskLike, shape: torch.Size | tuple[int, ...], device: torch.device
) -> Tensor | None:
    """The mask as a boolean tensor that broadcasts to scores (..., T, S); None = all."""
    if mask is None:
        return None
    axes = len(shape)
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.ndim in (2, axes):
        mask = mask.to(device)
        if broadcasts_to(mask, shape):  # dense already
            return mask
    mask = mask if isinstance(mask, Mask) else Mask.of(mask)
    dense = mask.broadcastable(*shape[-2:], axes=axes, device=device)
    given = (1,) * (axes - dense.ndim) + tuple(dense.shape)
    for axis, (have, want) in enumerate(zip(given, shape, strict=True)):
        if have not in (1, want):
            raise ValueError(
                f"mask has {have} entries in axis {axis} (shape {format_shape(dense)}) but the "
                f"scores have shape {tuple(shape)}; the mask's batch and heads must be those of q"
            )
    return dense


def shield(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Zero the queries that see nothing, and the keys and values that no query may see."""
    if allowed is None:
        return q, k, v
    sees_nothing = ~allowed.any(dim=-1, keepdim=True)  # (..., T, 1)
    unseen = ~allowed.any(dim=-2).unsqueeze(-1)  # (..., S, 1)
    v, k = v.masked_fill(unseen, 0.0), k.masked_fill(unseen, 0.0)
    return q.masked_fill(sees_nothing, 0.0), k, v


def fill_forbidden(x: Tensor, allowed: Tensor | None, value: float) -> Tensor:
    """x (..., T, S) with this value for every pair of query and key that is not allowed."""
    return x if allowed is None else x.masked_fill(~allowed, value)
