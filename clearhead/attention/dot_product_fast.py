"""Scaled dot-product attention by PyTorch's fused kernels: the functions of dot_product.py, faster.

The kernels never hold the T × S weights. Three things are ours:

- the structure of the mask picks the kernel: purely causal, or a boolean tensor as small as it
  broadcasts;
- a value that is NaN or infinite reaches only the queries that may see it, as in the reference (on
  an accelerator and under torch.compile, where looking would wait, only padding is shielded);
- a bias that learns. PyTorch gives up the fused kernel for it; `_FusedWithBias` keeps the fused
  forward pass and forms the score gradient a few batch elements at a time, in buffers that stay
  in the cache.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from clearhead.attention import dot_product
from clearhead.attention.masks import Mask, MaskLike, dense_mask
from clearhead.attention.softmax import without_dead_keys
from clearhead.shapes import check_bias, check_qkv, values_at_hand

AT_ONCE = 32_768  # scores of which the gradient is formed together, unless one element has more


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

    q (..., T, Dh), k (..., S, Dh), v (..., S, Dv) → (..., T, Dv). Weights and dropout need the
    whole matrix, so when they are asked for the reference computes it.
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
    if bias is not None:
        check_bias(bias, (*q.shape[:-1], S), q)
    only_causal = isinstance(mask, Mask) and mask.only_causal
    if only_causal and T == 1:
        only_causal, mask = False, None  # the last query sees every key
    causal = only_causal and T == S and bias is None  # the kernel aligns it at the start
    allowed = None if causal else dense_mask(mask, (*q.shape[:-1], S), q.device)
    if not values_at_hand(q):  # to look would wait for the device: shield from padding in any case
        k, v = without_dead_keys(allowed, k, v)
        return _fused(q, k, v, allowed, bias, scale, causal)[0]
    output, logsumexp = _fused(q, k, v, allowed, bias, scale, causal)
    if _trusted(q, k, v, allowed, output, logsumexp):
        return output
    return _despite_broken_numbers(q, k, v, mask, allowed, bias, scale, causal)


def _despite_broken_numbers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: MaskLike,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    causal: bool,
) -> Tensor:
    """The output where something is NaN or infinite.

    Broken queries are set aside and dead keys are zeroed: if that was all, the kernel serves, and
    every other number is the same to the bit; if not, the reference does.
    """
    broken = ~q.isfinite().all(dim=-1, keepdim=True)
    q = q.masked_fill(broken, 0.0)
    if allowed is not None:
        k, v = without_dead_keys(allowed, k, v)
        broken = broken & allowed.any(dim=-1, keepdim=True)
    if _all_finite(k, v):
        output = _fused(q, k, v, allowed, bias, scale, causal)[0]
    else:
        output = cast(Tensor, dot_product.attend(q, k, v, mask=mask, bias=bias, scale=scale))
    return output.masked_fill(broken, torch.nan)


def _trusted(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    output: Tensor,
    logsumexp: Tensor | None,
) -> bool:
    """Whether the kernel's output is right, by a look at as few numbers as will do.

    A row whose scores are all NaN it takes for an empty one: zeros, with a logsumexp of exactly 0.
    Any other broken score shows in the row's logsumexp. A broken value reaches every row, even by
    0 · NaN, or in the causal kernel every row after it: the last row shows it.
    """
    spoils_gradient = allowed is not None and output.requires_grad  # a dead key can, by 0 · ∞
    if logsumexp is not None and not spoils_gradient:
        whole = _all_finite(logsumexp, output[..., -1, :])
        if whole and not bool((logsumexp.detach() == 0).any()):
            return True
    return _all_finite(q, k, v)


def _all_finite(*tensors: Tensor) -> bool:
    """A sum is the cheapest look at every number: one that is not finite makes the sum so."""
    return all(
        math.isfinite(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)).item())
        for x in tensors
    )


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """The output, and where the kernel says it the logsumexp of each row's scores.

    Everything is lifted to the (B, H, T, ·) that the kernels know.
    """
    q4, k4, v4 = (_with_heads(x, q.ndim) for x in (q, k, v))
    allowed = None if allowed is None else _with_heads(allowed, q.ndim)
    bias = None if bias is None else _with_heads(bias, q.ndim)
    logsumexp = None
    if not values_at_hand(q) or q.size(-1) != v.size(-1):
        added = allowed if bias is None else _added(bias, allowed, scale, q)
        output = scaled_dot_product_attention(
            q4, k4, v4, attn_mask=added, is_causal=causal, scale=scale
        )
    elif bias is not None and bias.requires_grad and torch.is_grad_enabled():
        output, logsumexp = _FusedWithBias.apply(q4, k4, v4, bias, allowed, scale)
    else:
        if bias is None and allowed is not None:
            bias = q.new_zeros(())
        added = None if bias is None else _added(bias, allowed, scale, q)
        output, logsumexp = _on_cpu(q4, k4, v4, added, scale, causal)
    return output.reshape(*q.shape[:-1], v.size(-1)), logsumexp


def _on_cpu(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The kernel behind scaled_dot_product_attention on a CPU, with its logsumexp (B, H, T)."""
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if added is not None:
        added = added.expand(*q.shape[:-1], k.size(-2))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, logsumexp = kernel(q, k, v, 0.0, causal, attn_mask=added, scale=scale)
    return output, logsumexp


def _added(bias: Tensor, allowed: Tensor | None, scale: float, q: Tensor) -> Tensor:
    """What the kernels add after the division by √Dh; this library's bias stands before it.

    In the precision of q; on the CPU a bias keeps float32 beside queries in half precision.
    """
    added = bias * scale if allowed is None else (bias * scale).masked_fill(~allowed, -torch.inf)
    keeps = q.device.type == "cpu" and q.element_size() == 2
    return added.float() if keeps and added.dtype != q.dtype else added.to(q.dtype)


def _with_heads(x: Tensor, axes: int) -> Tensor:
    """(T, ·) and (B, T, ·) as (1 or B, 1, T, ·), by the number of axes that q has."""
    if axes == 3 and x.ndim == 3:
        return x.unsqueeze(1)
    return x.reshape(*[1] * (4 - x.ndim), *x.shape)


class _FusedWithBias(torch.autograd.Function):
    """softmax(scale · (q kᵀ + bias)) v with a gradient for the bias; differentiable once.

    With P the weights, O the output, G its gradient and dS the gradient of scale · (q kᵀ + bias):

        dS = P ∘ (G vᵀ − rowsum(G ∘ O)),   dq = scale · dS k,   dk = scale · dSᵀ q,   dv = Pᵀ G
        dbias = scale · dS
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        allowed: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        added = _added(bias, allowed, scale, q)
        output, logsumexp = _on_cpu(q, k, v, added, scale)
        ctx.save_for_backward(q, k, v, added, output, logsumexp)
        ctx.scale, ctx.bias = scale, (bias.shape, bias.dtype)
        ctx.mark_non_differentiable(logsumexp)
        return output, logsumexp

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        dtype, scale = grad.dtype, ctx.scale
        exact = torch.promote_types(dtype, torch.float32)
        q, k, v, added, output, logsumexp = (x.to(exact) for x in ctx.saved_tensors)
        grad = grad.to(exact)
        (B, H, T, _), S = q.shape, k.size(-2)
        logsumexp = logsumexp.masked_fill(~logsumexp.isfinite(), 0.0).unsqueeze(-1)  # empty rows
        row_sums = (grad * output).sum(-1, keepdim=True).view(B * H, T, 1)
        shape, bias_dtype = ctx.bias
        grad_bias = q.new_zeros(shape[0], H, T, S)
        added = added.expand(B, H, T, S)
        # The batched products know one axis beside their matrices: (B · H, T, ·).
        q, k, v, grad = (x.reshape(B * H, *x.shape[2:]) for x in (q, k, v, grad))
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        n = min(B, max(1, AT_ONCE // (H * T * S)))
        weights, grad_scores = q.new_empty(2, n, H, T, S)
        for b in range(0, B, n):
            some, maps = slice(b, b + n), slice(b * H, (b + n) * H)
            if B - b < n:
                weights, grad_scores = weights[: B - b], grad_scores[: B - b]
            P, dS = weights.flatten(0, 1), grad_scores.flatten(0, 1)  # views
            torch.sub(added[some], logsumexp[some], out=weights)
            torch.baddbmm(P, q[maps], k[maps].mT, alpha=scale, out=P).exp_()
            torch.bmm(P.mT, grad[maps], out=grad_v[maps])
            torch.baddbmm(row_sums[maps].expand_as(dS), grad[maps], v[maps].mT, beta=-1, out=dS)
            grad_scores.mul_(weights)
            part = grad_bias[some] if len(grad_bias) > 1 else grad_bias
            part.add_(grad_scores.sum_to_size(part.shape))
            torch.bmm(dS, k[maps], out=grad_q[maps])
            torch.bmm(dS.mT, q[maps], out=grad_k[maps])
        grad_bias = grad_bias.mul_(scale).sum_to_size(shape).to(bias_dtype)
        shaped = (x.unflatten(0, (B, H)) for x in (grad_q.mul_(scale), grad_k.mul_(scale), grad_v))
        return *(x.to(dtype) for x in shaped), grad_bias, None, None
