"""What a wrong prediction costs.

    next token    −log softmax(logits[t])[tokens[t + 1]], the mean over all t that have a successor:
                  T − 1 classifications; the start token and padding are never targets
    class         −log softmax(logits)[label], or −Σ p log softmax(logits) for a label that is a
                  mixture p of classes, as mixup makes it
    class token   binary cross-entropy of the logit of the first token, [CLS], alone

A mean over nothing is 0 with gradient 0. The same vocabulary loss, a few rows at a time, is in
losses_fast.py.
"""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from clearhead.data.batch import IGNORE, next_tokens
from clearhead.layers.soft_cap import apply_soft_cap
from clearhead.runtime import widen, widest_float
from clearhead.shapes import check_float_tensor
from clearhead.training.loss_inputs import (
    check_class_logits,
    check_head,
    check_mixtures,
    check_targets,
    take_class_token,
)


def next_token_loss(
    logits: Tensor,
    tokens: Tensor,
    token_mask: Tensor | None = None,
    segments: Tensor | None = None,
) -> Tensor:
    """logits (B, T, V) of tokens (B, T) → the mean loss of a prediction, a scalar."""
    return mean_cross_entropy(logits, next_tokens(tokens, token_mask, segments))


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
    return mean_cross_entropy(apply_soft_cap(linear(x, weight, bias), soft_cap), targets)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (..., V), targets (...) → the mean over the targets that are not IGNORE, a scalar."""
    check_float_tensor("logits", logits)
    check_targets("targets", targets, logits.shape[:-1], logits.size(-1))
    rows = widen(logits.reshape(-1, logits.size(-1)))  # (N, V)
    losses = cross_entropy(rows, targets.flatten().long(), ignore_index=IGNORE, reduction="none")
    return _mean(losses, (targets != IGNORE).sum().clamp(min=1))


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, C), labels (B,) from 0 to C − 1 → the mean loss, a scalar.

    Labels may also be probabilities (B, C), a mixture of classes in each row.
    """
    check_class_logits(logits)
    if isinstance(labels, Tensor) and labels.is_floating_point() and labels.ndim == 2:
        return _mixture_loss(logits, labels)
    check_targets("labels", labels, logits.shape[:-1], logits.size(-1), none=False)
    return mean_cross_entropy(logits, labels)


def _mixture_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits and labels (B, C) → the mean over rows of −Σ p log q."""
    check_mixtures("labels", labels, logits.shape)
    log_probs = widen(logits).log_softmax(dim=-1)
    # A class with p = 0 costs nothing, even where its log q is −∞.
    log_probs = log_probs.masked_fill(labels == 0, 0.0)
    losses = -(labels.to(log_probs.dtype) * log_probs).sum(dim=-1)  # (B,)
    return _mean(losses, max(len(labels), 1))


def class_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, T, 1) or (B, T), labels (B,) of 0 and 1 → the mean loss of the first token's."""
    first = take_class_token(logits, labels)  # (B,)
    total = binary_cross_entropy_with_logits(first, labels.to(first.dtype), reduction="sum")
    return total / max(len(labels), 1)


def _mean(losses: Tensor, n: Tensor | int) -> Tensor:
    """Σ losses / n, summed in 64 bits: more padding, whose loss is 0, changes no digit."""
    return (losses.sum(dtype=widest_float(losses.device)) / n).to(losses.dtype)
