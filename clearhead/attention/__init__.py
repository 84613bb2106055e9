"""Who listens to whom. Read in this order:

mask_parts.py        what a mask can say: causal, padding, segments, window
masks.py             Mask: those parts joined by &
softmax.py           softmax over the allowed keys, and the mixture it weighs
dot_product.py       softmax((q kᵀ + bias) / √Dh) v, written out
dot_product_fast.py  the same by fused kernels
additive.py          wᵀ tanh(W_q q + W_k k)
argmax.py            the best key alone: what softmax is for
linear.py            kernel attention as the O(T²) sum, with every feature map
linear_fast.py       the same sum rearranged: O(T), causal by running sums
summed.py            one score per token, two arrangements of the sum
mechanisms.py        the modules of all these, interchangeable inside a head
single_head.py       self-attention, cross-attention, and heads joined from a list
cache.py             keys and values kept between generation steps
multi_head.py        all heads in one product; shared key/value heads
"""

from clearhead.attention.cache import KVCache
from clearhead.attention.dot_product_fast import attend
from clearhead.attention.linear import (
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
