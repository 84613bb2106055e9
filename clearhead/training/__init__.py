"""From examples to weights.

losses.py          what is predicted, and what a wrong prediction costs
losses_fast.py     the vocabulary loss a few rows at a time
"""

from clearhead.training.losses import (
    IGNORED,
    class_loss,
    class_token_loss,
    mean_cross_entropy,
    next_token_loss,
    next_token_targets,
)
from clearhead.training.losses_fast import vocabulary_loss

__all__ = [
    "IGNORED",
    "class_loss",
    "class_token_loss",
    "mean_cross_entropy",
    "next_token_loss",
    "next_token_targets",
    "vocabulary_loss",
]
