"""What is predicted, and what a wrong prediction costs.

    next token    −log softmax(logits[t])[tokens[t + 1]], the mean over all t that have a successor:
                  T − 1 classifications; never the start token, never the last logit, no padding
    class         −log softmax(logits)[label]
    class token   binary cross-entropy of the first token's logit, [CLS], alone

A mean over nothing is 0 with gradient 0. The vocabulary loss in few rows at a time is in
losses_fast.py.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from clearhead.data.batch import IGNORE, next_tokens
from clearhead.shapes import check_float_tensor, check_int_tensor, shape_text, values_at_hand

__all__ = [
    "class_loss",
    "class_token_loss",
    "mean_cross_entropy",
    "next_token_loss",
    "vocabulary_loss",
]


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
    check_head(x, weight)
    logits = linear(x, weight)  # (..., V)
    if soft_cap is not None:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    return mean_cross_entropy(logits, targets)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (..., V), targets (...) → the mean over the targets that are not IGNORE."""
    check_float_tensor("logits", logits)
    check_targets("targets", targets, logits.shape[:-1], logits.size(-1))
    rows = logits.reshape(-1, logits.size(-1))
    wide = rows.float() if logits.dtype in HALVES else rows
    costs = cross_entropy(wide, targets.flatten().long(), ignore_index=IGNORE, reduction="none")
    # Summed in float64, so that more padding, which costs 0, changes not even the last digit.
    total = costs.sum(dtype=torch.float64)
    return (total / (targets != IGNORE).sum().clamp(min=1)).to(wide.dtype)


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, C), labels (B,) from 0 to C − 1 → the mean cost, a number."""
    check_float_tensor("logits", logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (B, C), got {shape_text(logits)}")
    check_targets("labels", labels, logits.shape[:-1], logits.size(-1), none=False)
    return mean_cross_entropy(logits, labels)


def class_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, T, 1) or (B, T), labels (B,) of 0 and 1 → the mean cost of the first token's."""
    check_float_tensor("logits", logits, min_axes=2)
    if logits.ndim == 3 and logits.size(-1) == 1:
        logits = logits[..., 0]
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


def check_head(x: Tensor, weight: Tensor) -> None:
    """x (..., D) and weight (V, D) of one width."""
    check_float_tensor("x", x)
    check_float_tensor("weight", weight, min_axes=2)
    if weight.ndim != 2 or x.size(-1) != weight.size(1):
        raise ValueError(
            f"x (..., D) and weight (V, D) must have one width, "
            f"got {shape_text(x)} and {shape_text(weight)}"
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
