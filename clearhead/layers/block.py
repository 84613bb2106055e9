"""The transformer block: attention, then the feed-forward layer, each added to its input.

    pre-norm     x + f(norm(x))         no norm inside the residual sum: easier to train
    post-norm    norm(x + f(x))         as in Vaswani et al. 2017

where f is self-attention, then cross-attention if there is a source, then the feed-forward layer.
With norm_attention=False only the feed-forward layer has a norm, and attention is x + f(x).
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from clearhead.attention.cache import KVCache
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import Mechanism
from clearhead.attention.multi_head import MultiHeadAttention
from clearhead.attention.single_head import JoinedHeads, SelfAttention
from clearhead.layers.feed_forward import FeedForward
from clearhead.layers.norm import check_norm_bias, make_norm
from clearhead.positions import PositionScheme


class Block(nn.Module):
    """A block of an encoder, or with a causal mask of a decoder; cross=True attends to a source."""

    def __init__(
        self,
        d_model: int,
        n_heads: int | None = None,
        d_ff: int | None = None,
        *,
        pre_norm: bool = True,
        norm: str = "layer",
        norm_eps: float = 1e-5,
        activation: str = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        cross: bool = False,
        n_kv_heads: int | None = None,
        qk_norm: bool = False,
        mechanism: Mechanism | None = None,
        positions: PositionScheme | None = None,
        d_head: int | None = None,
        attention_bias: bool | None = None,
        norm_bias: bool | None = None,
        norm_attention: bool = True,
        attention: JoinedHeads | None = None,
    ) -> None:
        """norm: "layer", "rms" or "none"; d_ff and activation: as in FeedForward; bias=False: none
        anywhere, unless attention_bias, or norm_bias for the shift of the norms, says otherwise.

        dropout: on the attention weights, inside the feed-forward layer and on each branch.
        n_kv_heads, d_head, qk_norm, mechanism and positions: as in MultiHeadAttention; a mechanism
        has its own dropout on the weights. norm_attention=False: no norm at attention. attention:
        separate heads in place of n_heads equal ones; they have their own biases and no dropout.
        """
        super().__init__()
        check_norm_bias(norm, norm_bias)
        self.pre_norm, self.cross = pre_norm, cross
        attention_norm = norm if norm_attention else "none"
        if attention is not None:
            equal = (n_heads, n_kv_heads, d_head, mechanism, positions, attention_bias)
            _check_joined(attention, d_model, cross or qk_norm or equal != (None,) * len(equal))

        def make_heads(**settings: Any) -> MultiHeadAttention:
            settings["bias"] = bias if attention_bias is None else attention_bias
            sizes: dict[str, Any] = {"n_kv_heads": n_kv_heads, "d_head": d_head}
            return MultiHeadAttention(d_model, _check_given(n_heads), **sizes, **settings)

        def build_norm(kind: str) -> nn.Module:
            shift = bias if norm_bias is None else norm_bias
            return make_norm(kind, d_model, bias=shift, eps=norm_eps)

        own: dict[str, Any] = {"mechanism": mechanism, "positions": positions, "qk_norm": qk_norm}
        weights_dropout = dropout if mechanism is None else 0.0
        self.attention: Any = attention or make_heads(dropout=weights_dropout, **own)
        self.norm_attention = build_norm(attention_norm)
        if cross:
            self.cross_attention = make_heads(dropout=dropout)
            self.norm_cross = build_norm(attention_norm)
        self.feed_forward = FeedForward(
            d_model, d_ff, activation=activation, bias=bias, dropout=dropout
        )
        self.norm_feed_forward = build_norm(norm)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: MaskLike = None,
        source_mask: MaskLike = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        source_cache: KVCache | None = None,
    ) -> Tensor:
        """x (B, T, D), source (B, S, D) → (B, T, D).

        mask, bias, positions and cache are for the self-attention, source_mask and source_cache for
        the cross-attention.
        """
        self._check_source(source, source_mask, source_cache)

        def attend(y: Tensor) -> Tensor:
            return self.attention(y, mask=mask, bias=bias, positions=positions, cache=cache)

        def attend_to_source(y: Tensor) -> Tensor:
            return self.cross_attention(y, source, mask=source_mask, cache=source_cache)

        x = self._add(x, attend, self.norm_attention)
        if self.cross:
            x = self._add(x, attend_to_source, self.norm_cross)
        return self._add(x, self.feed_forward, self.norm_feed_forward)

    def _add(self, x: Tensor, branch: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(branch(norm(x)))
        return norm(x + self.dropout(branch(x)))

    def _check_source(
        self, source: Tensor | None, source_mask: MaskLike, source_cache: KVCache | None
    ) -> None:
        if self.cross and source is None:
            raise ValueError(
                "source is missing: this block was built with cross=True and attends to one; "
                "give source (B, S, D) or build it with cross=False"
            )
        given = (source, source_mask, source_cache)
        if not self.cross and any(part is not None for part in given):
            raise ValueError(
                "source, source_mask and source_cache need a block that attends to a source; "
                "build it with cross=True"
            )


def _check_given(n_heads: int | None) -> int:
    if n_heads is None:
        raise TypeError("n_heads is missing; give it, or attention=JoinedHeads(heads, d_model)")
    return n_heads


def _check_joined(attention: JoinedHeads, d_model: int, has_settings: bool) -> None:
    """Refuse heads that do not map d_model to d_model, and settings that only equal heads have."""
    if not isinstance(attention, JoinedHeads):
        raise TypeError(
            f"attention must be JoinedHeads, got {type(attention).__name__}; equal heads are built "
            f"from n_heads and d_head"
        )
    if has_settings:
        raise ValueError(
            "attention=JoinedHeads(...) takes the place of n_heads, n_kv_heads, d_head, qk_norm, "
            "mechanism, positions, attention_bias and cross; leave them out"
        )
    widths = {head.d_x for head in attention.heads if isinstance(head, SelfAttention)}
    is_self = all(isinstance(head, SelfAttention) for head in attention.heads)
    if not is_self or widths != {d_model} or attention.d_output != d_model:
        raise ValueError(
            f"attention must join SelfAttention heads from d_model={d_model} to d_model; build "
            f"JoinedHeads([SelfAttention({d_model}, d_key, d_output), ...], {d_model})"
        )
