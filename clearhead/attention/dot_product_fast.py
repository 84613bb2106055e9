"""Scaled dot-product attention by PyTorch's fused kernels: the functions of dot_product.py, faster.

The structure of the mask chooses the kernel: the causal one for a purely causal mask, else the one
that takes a boolean tensor. A kernel would spread NaN and infinity by 0 · NaN, so its output is
checked: as in the reference, a broken value reaches only the queries that may see it. On an
accelerator and under torch.compile the output cannot be checked without waiting for the device;
there only padding is protected.
"""

import math
from typing import cast

import torch
from torch import Tensor

from clearhead.attention import dot_product
from clearhead.attention.fused_kernels import Call, run_kernel
from clearhead.attention.inputs import check_bias, dense_mask, shield
from clearhead.attention.masks import Mask, MaskLike
from clearhead.shapes import can_read_values, check_qkv

SMALLEST_SCALE = 1e-30  # of the causal kernel; a smaller one may be 0 in float32


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
    """Mix the values by how well each query matches each key; as dot_product.attend.

    q (..., T, Dh), k (..., S, Dh), v (..., S, Dv) → (..., T, Dv). Falls back on the reference for
    return_weights and dropout, which need all weights, and for shapes that no kernel takes.
    """
    check_qkv(q, k, v)
    if return_weights or dropout or q.ndim > 4 or 0 in (q.numel(), k.numel(), v.numel()):
        return dot_product.attend(
            q,
            k,
            v,
            mask=mask,
            bias=bias,
            scale=scale,
            dropout=dropout,
            return_weights=return_weights,
        )
    shape = (*q.shape[:-1], v.size(-1))
    call = _choose_kernel(q, k, v, mask, bias, scale)
    if can_read_values(q):
        output, logsumexp = run_kernel(call)
        output = output if _were_inputs_finite(output, logsumexp, call) else _attend_broken(call)
    else:
        q, k, v = shield(call.q, call.k, call.v, call.allowed)
        output, _ = run_kernel(call._replace(q=q, k=k, v=v))
    return output.reshape(shape)


def _choose_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: MaskLike, bias: Tensor | None, scale: float | None
) -> Call:
    """The causal kernel for a purely causal mask and T = S; any other mask is written out."""
    axes, (*_, T, d_head), S = q.ndim, q.shape, k.size(-2)
    causal = isinstance(mask, Mask) and mask.is_only_causal
    if causal and T == 1:
        causal, mask = False, None  # the last query sees every key
    scale = 1 / math.sqrt(d_head) if scale is None else scale
    # The causal kernel aligns its mask at the first key, and multiplies the mask's −∞ by the scale.
    causal = causal and T == S and bias is None and scale > SMALLEST_SCALE
    allowed = None if causal else dense_mask(mask, (*q.shape[:-1], S), q.device)
    if bias is not None:
        check_bias(bias, (*q.shape[:-1], S), q)
        bias = _add_axes(bias, axes)
    if axes < 4:
        q, k, v = (_add_axes(x, axes) for x in (q, k, v))
        allowed = None if allowed is None else _add_axes(allowed, axes)
    return Call(q, k, v, allowed, bias, scale, causal)


def _add_axes(x: Tensor, axes: int) -> Tensor:
    """x with the four axes that kernels take; `axes` is q.ndim: 3 means no heads."""
    if axes == 3 and x.ndim == 3:
        return x.unsqueeze(1)
    return x.reshape(*[1] * (4 - x.ndim), *x.shape)


def _were_inputs_finite(output: Tensor, logsumexp: Tensor | None, call: Call) -> bool:
    """Whether the inputs were finite, found by looking at as few numbers as possible.

    For a row whose scores are all NaN the kernel returns zeros and a logsumexp of exactly 0. Any
    other broken score shows in the row's logsumexp. A broken value reaches every row by 0 · NaN, or
    in the causal kernel every later row: the last row shows it.
    """
    # A broken key that no query sees does not show, but can spoil a gradient by 0 · ∞.
    may_spoil_gradient = call.allowed is not None and output.requires_grad
    if logsumexp is not None and not may_spoil_gradient:
        finite = _all_finite(logsumexp, output[..., -1, :])
        if finite and not bool((logsumexp.detach() == 0).any()):
            return True
    return _all_finite(call.q, call.k, call.v)


def _all_finite(*tensors: Tensor) -> bool:
    """Whether all numbers are finite: one that is not makes their sum NaN or infinite."""
    return all(
        math.isfinite(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)).item())
        for x in tensors
    )


def _attend_broken(call: Call) -> Tensor:
    """The output for inputs that hold NaN or infinity.

    Keys and values that no query sees are zeroed, and a broken query gives a row of NaN. If nothing
    else is broken, the kernel computes the other rows, bit for bit as without the broken ones;
    otherwise the reference does.
    """
    q, k, v = shield(call.q, call.k, call.v, call.allowed)
    broken = ~q.isfinite().all(dim=-1, keepdim=True)  # (B, H, T, 1)
    q = q.masked_fill(broken, 0.0)
    if _all_finite(k, v):
        output, _ = run_kernel(call._replace(q=q, k=k, v=v))
    else:
        mask = Mask.causal() if call.causal else call.allowed
        reference = dot_product.attend(q, k, v, mask=mask, bias=call.bias, scale=call.scale)
        output = cast(Tensor, reference)
    return output.masked_fill(broken, torch.nan)
