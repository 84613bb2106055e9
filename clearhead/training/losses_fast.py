"""The vocabulary loss a few rows at a time: the logits (rows, V) never exist as a whole.

    logits = x Wᵀ + b,   p = softmax(logits),   loss = mean of −log p[target]
    d loss / d logits = g / n,   g = p − one-hot of target

The gradient is known as soon as p is, so each chunk of rows goes forward and backward while its
logits are still in the cache: dx = g W, dW = Σ gᵀ x, db = Σ g, with p written over the logits and g
over p. The backward pass only scales by 1/n. Rows without a target are left out from the start.
"""

from typing import Any

import torch
from torch import Tensor

from clearhead.data.batch import IGNORE
from clearhead.layers.soft_cap import cap_in_place
from clearhead.runtime import HALVES
from clearhead.training import losses
from clearhead.training.loss_inputs import check_head

# Numbers in a chunk of logits: few enough for the cache, enough for an efficient product.
CHUNK = 2**21


def vocabulary_loss(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """x (..., D), weight (V, D) and bias (V,) of a head, targets (...) → the mean loss."""
    check_head(x, weight, targets, bias, soft_cap)
    if x.dtype in HALVES or x.dtype != weight.dtype:  # 16 bits would lose small terms of the sums
        return losses.vocabulary_loss(x, weight, targets, bias=bias, soft_cap=soft_cap)
    live = targets != IGNORE
    rows, wanted = x[live], targets[live].long()  # (N, D), (N,)
    if len(rows) == 0:
        return rows.sum() + weight[:0].sum() + (0 if bias is None else bias[:0].sum())
    if not torch.is_grad_enabled():  # a Function cannot see this, and would compute the gradient
        weight, bias = weight.detach(), None if bias is None else bias.detach()
    return _VocabularyLoss.apply(rows, weight, bias, wanted, soft_cap)


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        soft_cap: float | None,
    ) -> Tensor:
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_x = torch.empty_like(x) if needs_x else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        grad_bias = torch.zeros_like(bias) if needs_bias and bias is not None else None
        n_rows = max(64, CHUNK // weight.size(0))
        buffer = x.new_empty(min(n_rows, len(x)), weight.size(0))
        total = x.new_zeros(())
        for part, wanted, grad_part in zip(
            x.split(n_rows),
            targets[:, None].split(n_rows),
            x.split(n_rows) if grad_x is None else grad_x.split(n_rows),
            strict=True,
        ):
            logits = torch.mm(part, weight.mT, out=buffer[: len(part)])
            if bias is not None:
                logits += bias
            total += _differentiate(logits, wanted, soft_cap).sum()  # logits now hold g
            if grad_x is not None:
                torch.mm(logits, weight, out=grad_part)
            if grad_weight is not None:
                grad_weight.addmm_(logits.mT, part)
            if grad_bias is not None:
                grad_bias += logits.sum(0)
        ctx.save_for_backward(*(g for g in (grad_x, grad_weight, grad_bias) if g is not None))
        ctx.n = len(x)
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "this loss has no second derivative; use losses.vocabulary_loss for one"
            )
        kept = list(ctx.saved_tensors)
        scale = grad / ctx.n
        grads = [kept.pop(0) * scale if needed else None for needed in ctx.needs_input_grad[:3]]
        return *grads, None, None


def _differentiate(logits: Tensor, targets: Tensor, soft_cap: float | None) -> Tensor:
    """logits (n, V), targets (n, 1) → the loss of each row, (n, 1); writes g over the logits.

    The loss is log Σ eˡ − l[target]. log Σ eˡ is computed as the largest logit minus the log of its
    probability, which is at least 1/V; the target's own probability may round to 0.
    """
    slope = None if soft_cap is None else cap_in_place(logits, soft_cap)
    largest, wanted = logits.amax(-1, keepdim=True), logits.gather(1, targets)
    probs = torch.softmax(logits, dim=-1, out=logits)
    losses = largest - probs.amax(-1, keepdim=True).log() - wanted
    probs.scatter_add_(1, targets, torch.full_like(wanted, -1.0))
    if slope is not None:
        probs.mul_(slope)
    return losses
