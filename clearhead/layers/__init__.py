"""What stands around attention: a block is attention, a feed-forward layer, norms and sums.

Read in this order:

    norm.py            layer norm and RMS norm
    feed_forward.py    two linear layers that treat each token by itself
    block.py           attention and feed-forward, each with a norm and a residual sum
    stack.py           blocks one after the other, and the settings all models of blocks share
    patches.py         pictures as sequences of patches
    stem.py            pictures as tokens by whitened patches and convolutions
    recurrent.py       the linear RNN, step by step and in closed form
    soft_cap.py        logits limited by c · tanh(x / c)
"""

from clearhead.layers.block import Block
from clearhead.layers.feed_forward import FeedForward
from clearhead.layers.norm import LayerNorm, RMSNorm, layer_norm, make_norm, rms_norm
from clearhead.layers.patches import PatchEmbedding, cut_patches
from clearhead.layers.recurrent import LinearRNN
from clearhead.layers.soft_cap import apply_soft_cap
from clearhead.layers.stack import Stack, StackConfig
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
    "StackConfig",
    "apply_soft_cap",
    "cut_patches",
    "layer_norm",
    "make_norm",
    "rms_norm",
    "whitening_filters",
]
