"""PyTorch's fused attention kernels behind one call, with a gradient for the bias.

    output, logsumexp = run_kernel(call)

A fused kernel never holds the T × S weights. Two things are added here. On a CPU the kernel behind
scaled_dot_product_attention is called directly, because it also returns the logsumexp of each row's
scores, which shows cheaply whether the inputs were finite. And a bias may be learned: then
PyTorch does not use the fused kernel, so `_FusedWithBias` calls it and computes the gradient.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from clearhead.shapes import can_read_values

SCORES_AT_ONCE = 32_768  # in the gradient of a bias: two buffers of this size fit into the cache

MAX_WRITTEN_OUT = 512  # keys


class Call(NamedTuple):
    """What a kernel is called with."""

    q: Tensor  # (B, H, T, Dh)
    k: Tensor  # (B, H, S, Dh)
    v: Tensor  # (B, H, S, Dv)
    allowed: Tensor | None  # broadcasts to (B, H, T, S); None = all
    bias: Tensor | None  # broadcasts to (B, H, T, S)
    scale: float
    causal: bool  # use the kernel's own causal mask, which needs T = S, in place of `allowed`


def run_kernel(call: Call, added: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """softmax(scale · (q kᵀ + bias)) v: (B, H, T, Dv).

    Also returns the logsumexp of each row's scores (B, H, T), or None if the kernel has none.
    `added` is the result of _join_bias_and_mask, where the caller has it already.
    """
    q, k, v, allowed, bias, scale, causal = call
    if not can_read_values(q) or q.size(-1) != v.size(-1):  # the CPU kernel needs Dv = Dh
        added = allowed if bias is None else _join_bias_and_mask(bias, allowed, scale, q)
        output = scaled_dot_product_attention(
            q, k, v, attn_mask=added, is_causal=causal, scale=scale
        )
        return output, None
    if _is_faster_written_out(call):
        return _attend_written_out(call), None
    if bias is not None and bias.requires_grad and torch.is_grad_enabled():
        return _FusedWithBias.apply(q, k, v, bias, allowed, scale)
    if bias is None and allowed is not None:
        bias = q.new_zeros(())
    if bias is not None:
        added = _join_bias_and_mask(bias, allowed, scale, q) if added is None else added
        added = added.expand(*q.shape[:-1], k.size(-2))
    if not q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:  # the kernel reads whole rows
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(q, k, v, 0.0, causal, attn_mask=added, scale=scale)


def _is_faster_written_out(call: Call) -> bool:
    """Whether matrix products and a softmax beat the kernel: in training, in half precision.

    The kernel's gradient in half precision is slow on a CPU: at T = 65 it takes seven times as long
    as the written-out form, and about as long at T = 1,024, where the weights fill the memory.
    """
    q, k, v, allowed, bias, _, causal = call
    return (
        q.element_size() == 2
        and any(x.requires_grad for x in (q, k, v))
        and torch.is_grad_enabled()
        and allowed is bias is None
        and not causal
        and k.size(-2) <= MAX_WRITTEN_OUT
    )


def _attend_written_out(call: Call) -> Tensor:
    """softmax(scale · q kᵀ) v, every query with every key."""
    weights = ((call.q * call.scale) @ call.k.mT).softmax(dim=-1)
    return weights.to(call.v.dtype) @ call.v


def _join_bias_and_mask(bias: Tensor, allowed: Tensor | None, scale: float, q: Tensor) -> Tensor:
    """What the kernels add to scale · q kᵀ: scale · bias, and −∞ where nothing is allowed.

    In the dtype of q; but on a CPU a float32 bias beside queries in half precision stays float32.
    """
    added = bias * scale if allowed is None else (bias * scale).masked_fill(~allowed, -torch.inf)
    stays = q.device.type == "cpu" and q.element_size() == 2 and added.dtype != q.dtype
    return added.float() if stays else added.to(q.dtype)


class _FusedWithBias(torch.autograd.Function):
    """softmax(scale · (q kᵀ + bias)) v with a gradient for the bias; differentiable once.

    With P the weights, O the output, G its gradient and dS the gradient of scale · (q kᵀ + bias):

        dS = P ∘ (G vᵀ − rowsum(G ∘ O)),   dq = scale · dS k,   dk = scale · dSᵀ q,   dv = Pᵀ G
        dbias = scale · dS

    P is computed again from the logsumexp, for a few batch elements at a time.
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
    ) -> tuple[Tensor, Tensor | None]:
        added = _join_bias_and_mask(bias, allowed, scale, q)
        call = Call(q, k, v, allowed, bias, scale, causal=False)
        output, logsumexp = run_kernel(call, added)
        ctx.save_for_backward(q, k, v, output, logsumexp, added)
        ctx.scale, ctx.bias_shape, ctx.bias_dtype = scale, bias.shape, bias.dtype
        ctx.mark_non_differentiable(logsumexp)
        return output, logsumexp

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # the caller asked for create_graph=True
            raise RuntimeError(
                "the fused attention with a learned bias has no second derivative; for "
                "create_graph=True compute it by clearhead.attention.dot_product.attend"
            )
        dtype, scale = grad.dtype, ctx.scale
        wide = torch.promote_types(dtype, torch.float32)
        q, k, v, output, logsumexp, added, G = (x.to(wide) for x in (*ctx.saved_tensors, grad))
        (B, H, T, _), S = q.shape, k.size(-2)
        logsumexp = logsumexp.masked_fill(~logsumexp.isfinite(), 0.0).unsqueeze(-1)  # empty rows
        row_sums = (G * output).sum(-1, keepdim=True).view(B * H, T, 1)
        grad_bias = q.new_zeros(ctx.bias_shape[0], H, T, S)
        added = added.expand(B, H, T, S)
        # Batched products take one axis beside their matrices: (B · H, T, ·).
        q, k, v, G = (x.reshape(B * H, *x.shape[2:]) for x in (q, k, v, G))
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        n = min(B, max(1, SCORES_AT_ONCE // (H * T * S)))  # batch elements at a time
        weights, grad_scores = q.new_empty(2, n, H, T, S)
        for b in range(0, B, n):
            elements, matrices = slice(b, b + n), slice(b * H, (b + n) * H)
            if B - b < n:
                weights, grad_scores = weights[: B - b], grad_scores[: B - b]
            P, dS = weights.flatten(0, 1), grad_scores.flatten(0, 1)  # views of the buffers
            torch.sub(added[elements], logsumexp[elements], out=weights)
            torch.baddbmm(P, q[matrices], k[matrices].mT, alpha=scale, out=P).exp_()
            torch.bmm(P.mT, G[matrices], out=grad_v[matrices])
            torch.baddbmm(
                row_sums[matrices].expand_as(dS), G[matrices], v[matrices].mT, beta=-1, out=dS
            )
            grad_scores.mul_(weights)
            part = grad_bias[elements] if len(grad_bias) > 1 else grad_bias
            part.add_(grad_scores.sum_to_size(part.shape))
            torch.bmm(dS, k[matrices], out=grad_q[matrices])
            torch.bmm(dS.mT, q[matrices], out=grad_k[matrices])
        grad_bias = grad_bias.mul_(scale).sum_to_size(ctx.bias_shape).to(ctx.bias_dtype)
        grads = (x.unflatten(0, (B, H)) for x in (grad_q.mul_(scale), grad_k.mul_(scale), grad_v))
        return *(x.to(dtype) for x in grads), grad_bias, None, None
