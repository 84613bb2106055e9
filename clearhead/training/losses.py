"""What is predicted, and what a wrong prediction costs.

    next token    −log softmax(logits[t])[tokens[t + 1]], the mean over all t that have a successor:
                  T − 1 classifications; never the start token, never the last logit, no padding
    class         −log softmax(logits)[label], or −Σ p log softmax(logits) for a label that is a
                  mixture p of classes, as mixup makes it
    class token   binary cross-entropy of the first token's logit, [CLS], alone

A mean over nothing is 0 with gradient 0. The vocabulary loss in few rows at a time is in
losses_fast.py.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from clearhead.data.batch import IGNORE, next_tokens
from clearhead.layers.soft_cap import apply_soft_cap, check_soft_cap
from clearhead.runtime import widest_float
from clearhead.shapes import (
    check_float_tensor,
    check_int_tensor,
    is_autocast,
    shape_text,
    values_at_hand,
)


def next_token_loss(
    logits: Tensor,
    tokens: Tensor,
    token_mask: Tensor | None = None,
    segments: Tensor | None = None,
) -> Tensor:
    """logits (B, T, V) of tokens (B, T) → the mean cost of a prediction, a number."""
    return mean_cross_entropy(logits, next_tokens(tokens, token_mask, segments))


def vocabulary_loss(
    x: Tensor, weight: Tensor, targets: Tensor, *, soft_cap: float | None = None
) -> Tensor:
    """x (..., D), a head's weight (V, D), targets (...) → the mean cost of a prediction."""
    check_prediction(x, weight, targets, soft_cap)
    return mean_cross_entropy(apply_soft_cap(linear(x, weight), soft_cap), targets)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (..., V), targets (...) → the mean over the targets that are not IGNORE."""
    check_float_tensor("logits", logits)
    check_targets("targets", targets, logits.shape[:-1], logits.size(-1))
    rows = logits.reshape(-1, logits.size(-1))
    wide = rows.float() if logits.dtype in HALVES else rows
    costs = cross_entropy(wide, targets.flatten().long(), ignore_index=IGNORE, reduction="none")
    # Summed in float64, so that more padding, which costs 0, changes not even the last digit.
    total = costs.sum(dtype=widest_float(costs.device))
    return (total / (targets != IGNORE).sum().clamp(min=1)).to(wide.dtype)


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, C), labels (B,) from 0 to C − 1 → the mean cost, a number.

    Labels may also be probabilities (B, C), a mixture of classes in each row.
    """
    check_float_tensor("logits", logits)
    if logits.ndim != 2 or logits.size(1) == 0:
        raise ValueError(f"logits must have shape (B, C), got {shape_text(logits)}")
    if isinstance(labels, Tensor) and labels.is_floating_point() and labels.ndim == 2:
        return _mixture_loss(logits, labels)
    check_targets("labels", labels, logits.shape[:-1], logits.size(-1), none=False)
    return mean_cross_entropy(logits, labels)


def _mixture_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits and labels (B, C) → the mean over rows of −Σ p log q."""
    check_mixtures("labels", labels, logits.shape)
    wide = logits.float() if logits.dtype in HALVES else logits
    # A class that the label does not name costs nothing, even if its probability is 0.
    log_probs = wide.log_softmax(dim=-1).masked_fill(labels == 0, 0.0)
    costs = -(labels.to(wide.dtype) * log_probs).sum(dim=-1)
    total = costs.sum(dtype=widest_float(costs.device))
    return (total / max(len(labels), 1)).to(wide.dtype)


def class_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, T, 1) or (B, T), labels (B,) of 0 and 1 → the mean cost of the first token's."""
    check_float_tensor("logits", logits, min_axes=2)
    if logits.ndim == 3 and logits.size(-1) == 1:
        logits = logits[..., 0]
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a torch.Tensor of 0 and 1, got {type(labels).__name__}")
    if logits.ndim != 2 or logits.size(1) == 0 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must have shape (B, T, 1) or (B, T) with a [CLS] in front, labels (B,), got "
            f"{shape_text(logits)} and {shape_text(labels)}"
        )
    if values_at_hand(labels) and not bool(((labels == 0) | (labels == 1)).all()):
        raise ValueError("labels must be 0 or 1")
    first = logits[:, 0].float() if logits.dtype in HALVES else logits[:, 0]
    total = binary_cross_entropy_with_logits(first, labels.to(first.dtype), reduction="sum")
    return total / max(len(labels), 1)


HALVES = (torch.float16, torch.bfloat16)


def check_prediction(x: Tensor, weight: Tensor, targets: Tensor, soft_cap: float | None) -> None:
    """x (..., D) and weight (V, D) of one width and dtype, a target for each x, a cap above 0."""
    check_float_tensor("x", x)
    check_float_tensor("weight", weight, min_axes=2)
    if weight.ndim != 2 or x.size(-1) != weight.size(1):
        raise ValueError(
            f"x (..., D) and weight (V, D) must have one width, "
            f"got {shape_text(x)} and {shape_text(weight)}"
        )
    if x.dtype != weight.dtype and not is_autocast(x):
        raise TypeError(
            f"x and weight must have one dtype, got {x.dtype} and {weight.dtype}; "
            f"use x.to({weight.dtype})"
        )
    check_soft_cap(soft_cap)
    check_targets("targets", targets, x.shape[:-1], weight.size(0))


def check_mixtures(name: str, mixtures: Tensor, shape: torch.Size) -> None:
    """Probabilities of this shape: none negative, and those of a row sum to 1."""
    if mixtures.shape != shape:
        raise ValueError(
            f"{name} as probabilities must have the shape of the logits, {tuple(shape)}, "
            f"got {shape_text(mixtures)}"
        )
    if not values_at_hand(mixtures):
        return
    sums = mixtures.sum(dim=-1, dtype=widest_float(mixtures.device))
    nearly = 1e-2 if mixtures.dtype in HALVES else 1e-4
    wrong = ~((sums - 1).abs() <= nearly) | (mixtures < 0).any(dim=-1)  # NaN is wrong, too
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name}[{row}] must be probabilities, none negative and their sum 1, "
            f"but the lowest is {float(mixtures[row].min()):g} and the sum {float(sums[row]):g}"
        )


def check_targets(
    name: str, targets: Tensor, shape: torch.Size, n_classes: int, *, none: bool = True
) -> None:
    """Whole numbers of this shape from 0 to n_classes − 1; with none=True also IGNORE."""
    check_int_tensor(name, targets)
    if targets.shape != shape:
        raise ValueError(
            f"{name} must have the shape of the predictions, {tuple(shape)}, "
            f"got {shape_text(targets)}"
        )
    if not values_at_hand(targets):
        return
    wrong = (targets < 0) | (targets >= n_classes)
    if none:
        wrong = wrong & (targets != IGNORE)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{name}{place} is {int(targets[tuple(place)])}, but there are classes from 0 to "
            f"{n_classes - 1}" + (f" and {IGNORE} for none" if none else "")
        )
