"""From examples to weights.

losses.py          what is predicted, and what a wrong prediction costs
losses_fast.py     the vocabulary loss a few rows at a time
"""

from clearhead.training.losses import (
    class_loss,
    class_token_loss,
    mean_cross_entropy,
    next_token_loss,
)
from clearhead.training.losses_fast import vocabulary_loss

__all__ = [
    "class_loss",
    "class_token_loss",
    "mean_cross_entropy",
    "next_token_loss",
    "vocabulary_loss",
]
