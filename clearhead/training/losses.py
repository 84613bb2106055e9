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

from clearhead.shapes import check_float_tensor, check_int_tensor, shape_text, values_at_hand

__all__ = [
    "IGNORED",
    "class_loss",
    "class_token_loss",
    "mean_cross_entropy",
    "next_token_loss",
    "next_token_targets",
    "vocabulary_loss",
]

# A target that asks for nothing; the number is PyTorch's.
IGNORED = -100


def next_token_targets(
    tokens: Tensor, token_mask: Tensor | None = None, segments: Tensor | None = None
) -> Tensor:
    """tokens (B, T) → what each is to predict, (B, T): its successor, or IGNORED.

    token_mask (B, T): True = real; segments (B, T): the document of each token, negative = padding.
    Only a real token predicts, only a real one is predicted, and both are of one document.
    """
    check_int_tensor("tokens", tokens)
    pair = torch.ones_like(tokens[:, 1:], dtype=torch.bool)
    if token_mask is not None:
        _check_beside("token_mask", token_mask, tokens)
        pair = pair & token_mask[:, 1:] & token_mask[:, :-1]
    if segments is not None:
        _check_beside("segments", segments, tokens)
        pair = pair & (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] >= 0)
    targets = torch.full_like(tokens, IGNORED, dtype=torch.long)
    targets[:, :-1] = torch.where(pair, tokens[:, 1:], IGNORED)
    return targets


def next_token_loss(
    logits: Tensor,
    tokens: Tensor,
    token_mask: Tensor | None = None,
    segments: Tensor | None = None,
) -> Tensor:
    """logits (B, T, V) of tokens (B, T) → the mean cost of a prediction, a number."""
    return mean_cross_entropy(logits, next_token_targets(tokens, token_mask, segments))


def vocabulary_loss(
    x: Tensor, weight: Tensor, targets: Tensor, *, soft_cap: float | None = None
) -> Tensor:
    """x (..., D), a head's weight (V, D), targets (...) → the mean cost of a prediction."""
    logits = linear(x, weight)  # (..., V)
    if soft_cap is not None:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    return mean_cross_entropy(logits, targets)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """logits (..., V), targets (...) → the mean over the targets that are not IGNORED."""
    check_float_tensor("logits", logits)
    check_targets(targets, logits.shape[:-1], logits.size(-1))
    wide = logits.flatten(0, -2).float() if logits.dtype in HALVES else logits.flatten(0, -2)
    total = cross_entropy(wide, targets.flatten().long(), ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (B, C), labels (B,) from 0 to C − 1 → the mean cost, a number."""
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (B, C), got {shape_text(logits)}")
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


def check_targets(targets: Tensor, shape: torch.Size, n_classes: int) -> None:
    """Whole numbers of this shape, each IGNORED or from 0 to n_classes − 1."""
    check_int_tensor("targets", targets)
    if targets.shape != shape:
        raise ValueError(
            f"targets must have the shape of the predictions, {tuple(shape)}, "
            f"got {shape_text(targets)}"
        )
    if not values_at_hand(targets):
        return
    wrong = ((targets < 0) & (targets != IGNORED)) | (targets >= n_classes)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"targets{place} is {int(targets[tuple(place)])}, but there are classes from 0 to "
            f"{n_classes - 1} and {IGNORED} for none"
        )


def _check_beside(name: str, x: Tensor, tokens: Tensor) -> None:
    if x.shape != tokens.shape:
        raise ValueError(
            f"{name} must have the shape of tokens, {shape_text(tokens)}, got {shape_text(x)}"
        )
