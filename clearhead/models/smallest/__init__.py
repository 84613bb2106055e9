"""The smallest transformer: one layer, one head, small enough to be set by hand.

Read in this order:

numpy_form.py    every step a loop, a narration of each step, and a picture of them
panels.py        that picture: the eight matrices of a pass
torch_form.py    the same for batches, and trainable
designs.py       identity, first, unique: weights set by hand, with their error bounds
matcher.py       a substring matcher of three ordinary blocks, set by hand
"""

from clearhead.models.smallest import designs
from clearhead.models.smallest.matcher import substring_matcher
from clearhead.models.smallest.numpy_form import NumpyTransformer, Steps
from clearhead.models.smallest.torch_form import TorchTransformer

__all__ = ["NumpyTransformer", "Steps", "TorchTransformer", "designs", "substring_matcher"]
