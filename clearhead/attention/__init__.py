"""Which token attends to which, and what it receives. Read in this order:

The equation
    dot_product.py       softmax((q kᵀ + bias) / √Dh) v, written out: the page to read first
    inputs.py            the first line of `attend`: checks, the mask as a matrix, zeros for padding
    softmax.py           softmax over the allowed keys, and the mixture of the values
    masks.py             Mask: who may attend to whom, joined by &
    mask_parts.py        the rule of each kind of mask: causal, padding, segments, window
    mask_pictures.py     a mask drawn with ■ and ·

Other ways to weigh the keys
    additive.py          wᵀ tanh(W_q q + W_k k): a small network compares query and key
    argmax.py            only the best key: why attention is trained with softmax
    features.py          feature maps φ, with φ(q)·φ(k) in place of exp(q·k/√Dh)
    linear.py            kernel attention as the O(T·S) sum
    summed.py            one score per token instead of one per pair: O(T) by rearranging

The same functions, faster
    dot_product_fast.py  the dot product by fused kernels: `attend`, as this folder exports it
    fused_kernels.py     PyTorch's kernels behind one call, with a gradient for the bias
    linear_fast.py       kernel attention in O(T): the sum rearranged
    running_sums.py      the sums it needs, over all keys or over the keys so far
    packed_sums.py       the same sums within packed documents

Modules
    mechanisms.py        each way to weigh the keys as a module, interchangeable inside a head
    single_head.py       self-attention, cross-attention, and heads joined from a list
    multi_head.py        all heads in one product; shared key/value heads
    cache.py             keys and values kept between generation steps
"""

from clearhead.attention.cache import KVCache
from clearhead.attention.dot_product_fast import attend
from clearhead.attention.features import (
    EluFeatures,
    FeatureMap,
    FourierFeatures,
    PositiveFeatures,
    QuadraticFeatures,
)
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import (
    AdditiveAttention,
    ArgmaxAttention,
    DotProductAttention,
    LinearAttention,
    Mechanism,
)
from clearhead.attention.multi_head import (
    MultiHeadAttention,
    loop_over_heads,
    merge_heads,
    split_heads,
)
from clearhead.attention.single_head import CrossAttention, JoinedHeads, SelfAttention
from clearhead.attention.softmax import masked_softmax
from clearhead.attention.summed import summed_attention

__all__ = [
    "AdditiveAttention",
    "ArgmaxAttention",
    "CrossAttention",
    "DotProductAttention",
    "EluFeatures",
    "FeatureMap",
    "FourierFeatures",
    "JoinedHeads",
    "KVCache",
    "LinearAttention",
    "Mask",
    "Mechanism",
    "MultiHeadAttention",
    "PositiveFeatures",
    "QuadraticFeatures",
    "SelfAttention",
    "attend",
    "loop_over_heads",
    "masked_softmax",
    "merge_heads",
    "split_heads",
    "summed_attention",
]
