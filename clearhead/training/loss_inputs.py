"""What the losses accept: predictions and targets that fit together, in at least 32 bits."""

import torch
from torch import Tensor

from clearhead.data.batch import IGNORE
from clearhead.layers.soft_cap import check_soft_cap
from clearhead.runtime import HALVES, widen, widest_float
from clearhead.shapes import (
    can_read_values,
    check_float_tensor,
    check_int_tensor,
    format_shape,
    is_autocast,
)


def check_head(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, soft_cap: float | None
) -> None:
    """x (..., D), weight (V, D) and bias (V,) that fit, a target for each x, a cap above 0."""
    check_float_tensor("x", x)
    check_float_tensor("weight", weight, min_axes=2)
    if weight.ndim != 2 or x.size(-1) != weight.size(1):
        raise ValueError(
            f"x (..., D) and weight (V, D) must have one width, "
            f"got {format_shape(x)} and {format_shape(weight)}"
        )
    if x.dtype != weight.dtype and not is_autocast(x):
        raise TypeError(
            f"x and weight must have one dtype, got {x.dtype} and {weight.dtype}; "
            f"use x.to({weight.dtype})"
        )
    if bias is not None:
        check_float_tensor("bias", bias)
        if bias.shape != weight.shape[:1] or bias.dtype != weight.dtype:
            raise ValueError(
                f"bias must be the head's, {weight.dtype} of shape ({weight.size(0)},), "
                f"got {bias.dtype} of shape {format_shape(bias)}"
            )
    check_soft_cap(soft_cap)
    check_targets("targets", targets, x.shape[:-1], weight.size(0))


def check_class_logits(logits: Tensor) -> None:
    """Logits (B, C) of at least one class."""
    check_float_tensor("logits", logits)
    if logits.ndim != 2 or logits.size(1) == 0:
        raise ValueError(f"logits must have shape (B, C), got {format_shape(logits)}")


def take_class_token(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits (B,) of the first token of (B, T, 1) or (B, T), if labels (B,) are 0 and 1."""
    check_float_tensor("logits", logits, min_axes=2)
    if logits.ndim == 3 and logits.size(-1) == 1:
        logits = logits[..., 0]
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a torch.Tensor of 0 and 1, got {type(labels).__name__}")
    if logits.ndim != 2 or logits.size(1) == 0 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must have shape (B, T, 1) or (B, T) with a [CLS] in front, labels (B,), got "
            f"{format_shape(logits)} and {format_shape(labels)}"
        )
    if can_read_values(labels) and not bool(((labels == 0) | (labels == 1)).all()):
        raise ValueError("labels must be 0 or 1")
    return widen(logits[:, 0])


def check_mixtures(name: str, mixtures: Tensor, shape: torch.Size) -> None:
    """Probabilities of this shape: none negative, and each row sums to 1."""
    if mixtures.shape != shape:
        raise ValueError(
            f"{name} as probabilities must have the shape of the logits, {tuple(shape)}, "
            f"got {format_shape(mixtures)}"
        )
    if not can_read_values(mixtures):
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
    """Whole numbers of this shape from 0 to n_classes − 1; none=True allows IGNORE as well."""
    check_int_tensor(name, targets)
    if targets.shape != shape:
        raise ValueError(
            f"{name} must have the shape of the predictions, {tuple(shape)}, "
            f"got {format_shape(targets)}"
        )
    if not can_read_values(targets):
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
