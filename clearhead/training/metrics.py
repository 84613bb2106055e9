"""How often a prediction is right.

class token    (logit > 0) == label, of the first token's logit alone, as in class_token_loss
class          argmax(logits) == label, as in class_loss
"""

from torch import Tensor

from clearhead.training.loss_inputs import check_class_logits, check_targets, take_class_token


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of right predictions, a scalar; shapes as in is_right. An empty batch gives 0."""
    right = is_right(logits, labels)
    return right.float().sum() / max(len(right), 1)


def is_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each prediction equals its label, (B,).

    logits (B, T, 1), of which the first of T counts, with labels (B,) of 0 and 1; or logits (B, C)
    with labels (B,) from 0 to C − 1.
    """
    if isinstance(logits, Tensor) and logits.ndim == 3:
        return (take_class_token(logits, labels) > 0) == (labels == 1)
    check_class_logits(logits)
    check_targets("labels", labels, logits.shape[:-1], logits.size(-1), none=False)
    return logits.argmax(dim=-1) == labels
