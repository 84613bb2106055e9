"""Scaled dot-product attention by PyTorch's fused kernels: the functions of dot_product.py, faster.

The kernels never hold the T × S weights. Three things are ours:

- the structure of the mask picks the kernel: purely causal, or a boolean tensor as small as it
  broadcasts;
- a value that is NaN or infinite reaches only the queries that may see it, as in the reference;
- a bias that learns. PyTorch gives up the fused kernel for it; `_FusedWithBias` keeps the fused
  forward pass and forms the score gradient one batch element at a time, in buffers that stay in
  the cache.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from clearhead.attention import dot_product
from clearhead.attention.masks import Mask, MaskLike, dense_mask
from clearhead.attention.softmax import without_dead_keys
from clearhead.shapes import check_qkv

__all__ = ["attend"]


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

    q (..., T, Dh), k (..., S, Dh), v (..., S, Dv) → (..., T, Dv). Weights and dropout need the T ×
    S matrix, so when they are asked for the reference computes it.
    """
    check_qkv(q, k, v)
    T, S = q.size(-2), k.size(-2)
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
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    causal = isinstance(mask, Mask) and mask.only_causal
    if causal and T == 1:
        causal, mask = False, None  # the last query sees every key
    fused_causal = causal and T == S and bias is None  # the kernel's causal is aligned at the start
    allowed = None if fused_causal else dense_mask(mask, (*q.shape[:-1], S), q.device)
    if bias is not None:
        dot_product.check_bias(bias, (*q.shape[:-1], S), q)
    looking = q.device.type == "cpu" and not torch.compiler.is_compiling()
    if not looking:  # to look at values would wait for the device: shield from them in any case
        k, v = without_dead_keys(allowed, k, v)
    output = _fused(q, k, v, allowed, bias, scale, fused_causal)
    # The last query of a causal mask sees every key, so its row alone shows a broken one.
    telling = output[..., -1, :] if fused_causal else output
    if looking and mask is not None and not _all_finite(telling):
        return dot_product.attend(q, k, v, mask=mask, bias=bias, scale=scale)
    return output


def _all_finite(x: Tensor) -> bool:
    """A sum is the cheapest look at every number: one that is not finite makes the sum so."""
    return math.isfinite(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)).item())


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    causal: bool,
) -> Tensor:
    """Lift everything to the (B, H, T, ·) that the kernels know, and choose one."""
    q4, k4, v4 = (_with_heads(x, q.ndim) for x in (q, k, v))
    added = None if allowed is None else _with_heads(allowed, q.ndim)
    if bias is None:
        output = scaled_dot_product_attention(
            q4, k4, v4, attn_mask=added, is_causal=causal, scale=scale
        )
    else:
        # The kernels add after the division by √Dh; this library's bias stands before it.
        bias4 = _with_heads(bias, q.ndim) * scale
        if added is not None:
            bias4 = bias4.masked_fill(~added, -torch.inf)
        bias4 = bias4.to(q.dtype)
        own = bias.requires_grad and torch.is_grad_enabled() and q.size(-1) == v.size(-1)
        if own and q.device.type == "cpu" and not torch.compiler.is_compiling():
            output = _FusedWithBias.apply(q4, k4, v4, bias4, scale)
        else:
            output = scaled_dot_product_attention(q4, k4, v4, attn_mask=bias4, scale=scale)
    return output.reshape(*q.shape[:-1], v.size(-1))


def _with_heads(x: Tensor, axes: int) -> Tensor:
    """(T, ·) and (B, T, ·) as (1 or B, 1, T, ·), by the number of axes that q has."""
    if axes == 3 and x.ndim == 3:
        return x.unsqueeze(1)
    return x.reshape(*[1] * (4 - x.ndim), *x.shape)


class _FusedWithBias(torch.autograd.Function):
    """softmax(scale · q kᵀ + bias) v with a gradient for the bias, all (B, H, T, ·).

    With P the weights, O the output and G its gradient:

        dv = Pᵀ G,   dS = P ∘ (G vᵀ − rowsum(G ∘ O)),   dbias = dS,   dq = scale · dS k,   dk =
        scale · dSᵀ q
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        seen = bias.expand(*q.shape[:-1], k.size(-2))
        output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=seen, scale=scale
        )
        ctx.save_for_backward(q, k, v, bias, output, logsumexp)
        ctx.scale = scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dtype = ctx.saved_tensors[0].dtype
        exact = torch.promote_types(dtype, torch.float32)
        q, k, v, bias, output, logsumexp = (x.to(exact) for x in (*ctx.saved_tensors,))
        grad = grad.to(exact)
        B, H, T, _ = q.shape
        S = k.size(-2)
        logsumexp = logsumexp.masked_fill(~logsumexp.isfinite(), 0.0).unsqueeze(-1)  # empty rows
        taken = (grad * output).sum(-1, keepdim=True)  # (B, H, T, 1)
        seen = bias.expand(B, H, T, S)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        per_batch = bias.size(0) > 1
        grad_bias = q.new_zeros(B if per_batch else 1, H, T, S)
        weights, grad_scores = q.new_empty(H, T, S), q.new_empty(H, T, S)
        for b in range(B):
            torch.sub(seen[b], logsumexp[b], out=weights)
            torch.baddbmm(weights, q[b], k[b].mT, alpha=ctx.scale, out=weights).exp_()
            torch.bmm(weights.mT, grad[b], out=grad_v[b])
            torch.baddbmm(taken[b].expand(H, T, S), grad[b], v[b].mT, beta=-1, out=grad_scores)
            grad_scores.mul_(weights)
            grad_bias[b if per_batch else 0].add_(grad_scores)
            torch.bmm(grad_scores, k[b], out=grad_q[b])
            torch.bmm(grad_scores.mT, q[b], out=grad_k[b])
        grads = (
            grad_q.mul_(ctx.scale),
            grad_k.mul_(ctx.scale),
            grad_v,
            grad_bias.sum_to_size(bias.shape),
        )
        return *(x.to(dtype) for x in grads), None
