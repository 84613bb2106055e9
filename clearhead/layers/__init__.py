"""What stands around attention: a block is attention, a feed-forward layer, norms and sums.

norm.py            layer norm and RMS norm
feed_forward.py    the layer in which each token thinks alone
block.py           both put together, pre- or post-norm, and a stack of blocks
patches.py         a picture as a sequence of patches
stem.py            the same by whitened patches and convolutions
recurrent.py       the linear RNN, step by step and in closed form
soft_cap.py        large logits brought below a cap
"""

from clearhead.layers.block import Block, Stack
from clearhead.layers.feed_forward import FeedForward
from clearhead.layers.norm import LayerNorm, RMSNorm, layer_norm, make_norm, rms_norm
from clearhead.layers.patches import PatchEmbedding, cut_patches
from clearhead.layers.recurrent import LinearRNN
from clearhead.layers.soft_cap import capped
from clearhead.layers.stem import ConvolutionStem, whitening_filters

__all__ = [
    "Block",
    "ConvolutionStem",
    "FeedForward",
    "LayerNorm",
    "LinearRNN",
    "PatchEmbedding",
    "RMSNorm",
    "Stack",
    "capped",
    "cut_patches",
    "layer_norm",
    "make_norm",
    "rms_norm",
    "whitening_filters",
]
