"""The transformer layer in terms, and its weights: for the layer itself and for whole models."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.feed_forward import activate
from clearhead.exercises.contracts.shared.dropout import WithDropout
from clearhead.exercises.contracts.shared.names import KEY, OUT, QUERY, VALUE
from clearhead.exercises.readings import read_fused_heads
from clearhead.exercises.weights import Assignment, Linear, Norm, Role

Branch = Callable[[Tensor], Tensor]
NormOrNone = Norm | None


def layer_roles(d: int, d_ff: int) -> dict[str, Role]:
    """The weights of a layer. Output projection and norms are optional: a mistake omits them."""
    return {
        "query": Role("linear", (d, d), QUERY),
        "key": Role("linear", (d, d), KEY),
        "value": Role("linear", (d, d), VALUE),
        "out": Role("linear", (d, d), OUT, True),
        "first": Role("linear", (d_ff, d), "w1 fc1 linear1 up dense1 c_fc first lin1 ff1"),
        "second": Role("linear", (d, d_ff), "w2 fc2 linear2 down dense2 c_proj second lin2 ff2"),
        "norm1": Role("norm", (d,), "norm1 ln1 layernorm1 attention_norm addnorm1 n1", True),
        "norm2": Role("norm", (d,), "norm2 ln2 layernorm2 ffn_norm ff_norm addnorm2 n2", True),
    }


def layer_sizes(d: int, n_heads: int, is_pre: bool = True) -> dict[str, Any]:
    """The arguments of a layer's constructor."""
    return {
        "d": d,
        "n_heads": n_heads,
        "d_ff": 4 * d,
        "d_head": d // n_heads,
        "max_len": 16,
        "dropout": 0.5,
        "pre_norm": is_pre,
        "post_norm": not is_pre,
    }


def hide_future(scores: Tensor) -> Tensor:
    """Scores (..., T, T) in which no token attends to a later one."""
    past = torch.ones(scores.shape[-2:]).tril().bool()
    return scores.masked_fill(~past, -math.inf)


class Layer(WithDropout):
    """Attention, then the feed-forward layer, each with residual and norm."""

    unnamed = {"tanh_inside": "feed", "sigmoid_inside": "feed", "norms_over_tokens": "norms"}

    def roles(self, d: int, d_ff: int, **_: Any) -> dict[str, Role]:
        return layer_roles(d, d_ff)

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """A fused layer may hold query, key and value one after the other, or head by head."""
        found = super().assign(parameters, sizes)
        return [*found, *read_fused_heads(found, sizes.get("n_heads", 1))[:1]]

    # The formula: x (B, T, d) → (B, T, d)

    def answer(
        self,
        x: Tensor,
        n_heads: int,
        is_pre: bool = True,
        phi: str = "relu",
        is_causal: bool = False,
        **parts: Any,
    ) -> Tensor:
        first, second = self.norms(parts.get("norm1"), parts.get("norm2"))
        is_pre = self.place(is_pre)
        x = self.join_attention(
            x, first, lambda y: self._attend(y, n_heads, is_causal, parts), is_pre
        )
        return self.join_feed_forward(
            x, second, lambda y: self.feed(y, parts["first"], parts["second"], phi), is_pre
        )

    def _attend(self, x: Tensor, n_heads: int, is_causal: bool, parts: dict[str, Any]) -> Tensor:
        q, k, v = (self.split(parts[name](x), n_heads) for name in ("query", "key", "value"))
        scores = self.scale(q @ k.mT, q, x)  # (B, heads, T, T)
        weights = self.weigh(self.hide(scores, is_causal))
        return self.project(self.merge(weights @ v), parts.get("out"))

    def split(self, x: Tensor, n_heads: int) -> Tensor:
        return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)

    def scale(self, scores: Tensor, q: Tensor, x: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-1))

    def hide(self, scores: Tensor, is_causal: bool) -> Tensor:
        return hide_future(scores) if is_causal else scores

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def project(self, x: Tensor, out: Linear | None) -> Tensor:
        if out is None:
            raise ValueError("the output projection is missing")
        return out(x)

    def feed(self, x: Tensor, first: Linear, second: Linear, phi: str) -> Tensor:
        return second(activate(first(x), phi))

    def norms(self, norm1: NormOrNone, norm2: NormOrNone) -> tuple[NormOrNone, NormOrNone]:
        if norm1 is None and norm2 is None:
            raise ValueError("the layer norms are missing")
        return (None, norm1 or norm2) if norm1 is None or norm2 is None else (norm1, norm2)

    def place(self, is_pre: bool) -> bool:
        return is_pre

    def join_attention(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return self.join(x, norm, f, is_pre)

    def join_feed_forward(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        return self.join(x, norm, f, is_pre)

    def join(self, x: Tensor, norm: NormOrNone, f: Branch, is_pre: bool) -> Tensor:
        if norm is None:
            return x + f(x)
        return x + f(norm(x)) if is_pre else norm(x + f(x))

    # Wrong forms without a name, by which a term is identified

    def tanh_inside(self, x: Tensor, first: Linear, second: Linear, phi: str) -> Tensor:
        return second(first(x).tanh())

    def sigmoid_inside(self, x: Tensor, first: Linear, second: Linear, phi: str) -> Tensor:
        return second(first(x).sigmoid())

    def norms_over_tokens(
        self, norm1: NormOrNone, norm2: NormOrNone
    ) -> tuple[NormOrNone, NormOrNone]:
        first, second = Layer.norms(self, norm1, norm2)
        return _norm_over_tokens(first), _norm_over_tokens(second)


def _norm_over_tokens(norm: NormOrNone) -> NormOrNone:
    return None if norm is None else replace(norm, axes=(-2, -1))
