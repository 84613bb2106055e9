"""Mechanisms: modules that hold the parameters and call the fast form or the reference.

    forward(q, k, v, *, mask=None, bias=None)  → output (..., T, Dv)    by the fastest exact way
    weights(q, k, *, mask=None, bias=None)     → weights (..., T, S)    by the textbook way

with q (..., T, Dh), k (..., S, Dh), v (..., S, Dv). All four are interchangeable inside a head.
`forward` holds no line for inspection: inspection/record.py hooks it from outside and calls
`weights` only when they are asked for.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from clearhead.attention import additive, argmax, dot_product, dot_product_fast, linear, linear_fast
from clearhead.attention.features import FeatureMap
from clearhead.attention.inputs import prepare
from clearhead.attention.masks import MaskLike
from clearhead.attention.softmax import mix
from clearhead.shapes import check_dropout, check_last_axis, check_positive


class Mechanism(nn.Module):
    """The base of all mechanisms: a subclass needs `weights`, and may add a faster `forward`."""

    dropout: float = 0.0
    is_scaled = True  # whether the scores, with the bias, are divided by √Dh

    def weights(
        self, q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """How much each query takes from each key: (..., T, S)."""
        raise NotImplementedError(f"{type(self).__name__} must say how weights come from q and k")

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """The mixture of the values by these weights, with dropout on them while training."""
        # This call is for the values; `weights` checks q and k again, by its own rules.
        x = prepare(q, k, v, mask=mask, for_dot_product=False)
        weights = self.weights(x.q, x.k, mask=x.allowed, bias=bias)
        return mix(nn.functional.dropout(weights, self.dropout, self.training), x.v, x.allowed)


class DotProductAttention(Mechanism):
    """softmax((q kᵀ + bias) / √Dh) v, with dropout on the weights while training."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        self.dropout = dropout

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """The output, by the fused kernel. Shapes as in dot_product.attend."""
        dropout = self.dropout if self.training else 0.0
        return cast(Tensor, dot_product_fast.attend(q, k, v, mask=mask, bias=bias, dropout=dropout))

    def weights(
        self, q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """The weights of the same attention, (..., T, S), written out."""
        return dot_product.weights(q, k, mask=mask, bias=bias)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}" if self.dropout else ""


class AdditiveAttention(Mechanism):
    """softmax(wᵀ tanh(W_q q + W_k k) + bias) v, for queries and keys of any widths."""

    is_scaled = False

    def __init__(self, d_query: int, d_key: int, d_hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive(d_query=d_query, d_key=d_key, d_hidden=d_hidden)
        check_dropout(dropout)
        self.d_query, self.d_key, self.dropout = d_query, d_key, dropout
        self.proj_q = nn.Linear(d_query, d_hidden, bias=False)
        self.proj_k = nn.Linear(d_key, d_hidden, bias=False)
        self.proj_score = nn.Linear(d_hidden, 1, bias=False)

    def weights(
        self, q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """softmax over the scores of the small network: (..., T, S)."""
        check_last_axis("q", q, "d_query", self.d_query, min_axes=2)
        check_last_axis("k", k, "d_key", self.d_key, min_axes=2)
        w_q, w_k, w = self.proj_q.weight, self.proj_k.weight, self.proj_score.weight[0]
        return additive.weights(q, k, w_q, w_k, w, mask=mask, bias=bias)


class ArgmaxAttention(Mechanism):
    """The value of the best-matching key; no gradient reaches queries or keys."""

    def weights(
        self, q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """1 for the best key, 0 for every other: (..., T, S)."""
        return argmax.weights(q, k, mask=mask, bias=bias)


class LinearAttention(Mechanism):
    """Kernel attention sim(q, k) = φ(q)·φ(k), in time and memory linear in the length.

    Serves causal, padding (B,), token and segment masks. Any other mask and a bias are refused:
    running sums cannot treat one pair of query and key differently from another.
    """

    def __init__(self, feature_map: FeatureMap) -> None:
        super().__init__()
        if not isinstance(feature_map, FeatureMap):
            raise TypeError(
                f"feature_map must be a FeatureMap such as EluFeatures(), "
                f"got {type(feature_map).__name__}"
            )
        self.feature_map = feature_map

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """The output, by running sums. Shapes as in linear.attend."""
        with _full_precision(q):  # long sums would lose digits under autocast
            return linear_fast.attend(q, k, v, self.feature_map, mask=mask, bias=bias)

    def weights(
        self, q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """sim(q, k) / Σ sim(q, k'): (..., T, S), by the O(T·S) sum."""
        with _full_precision(q):
            return linear.weights(q, k, self.feature_map, mask=mask, bias=bias)


def _full_precision(q: Tensor) -> AbstractContextManager[object]:
    """No autocast on the device of q, if it has one."""
    device = q.device.type
    return (
        torch.autocast(device, enabled=False)
        if torch.amp.is_autocast_available(device)
        else nullcontext()
    )
