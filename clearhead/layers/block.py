"""The transformer block: attention, then the feed-forward layer, each added to its input.

    pre-norm     x + f(norm(x))         no norm inside the residual sum: easier to train
    post-norm    norm(x + f(x))         as in Vaswani et al. 2017

where f is self-attention, then cross-attention if there is a source, then the feed-forward layer.
"""

from collections.abc import Callable

from torch import Tensor, nn

from clearhead.attention.cache import KVCache
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import Mechanism
from clearhead.attention.multi_head import MultiHeadAttention
from clearhead.layers.feed_forward import FeedForward
from clearhead.layers.norm import make_norm
from clearhead.positions import PositionScheme


class Block(nn.Module):
    """A block of an encoder, or with a causal mask of a decoder; cross=True attends to a source."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
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
    ) -> None:
        """norm: "layer", "rms" or "none"; activation: as in FeedForward; bias=False: none anywhere.

        dropout: on the attention weights, inside the feed-forward layer and on each branch.
        qk_norm, mechanism and positions: of the self-attention, as in MultiHeadAttention; a
        mechanism has its own dropout on the weights.
        """
        super().__init__()
        self.pre_norm, self.cross = pre_norm, cross
        self.attention = MultiHeadAttention(
            d_model,
            n_heads,
            n_kv_heads=n_kv_heads,
            mechanism=mechanism,
            bias=bias,
            dropout=dropout if mechanism is None else 0.0,
            positions=positions,
            qk_norm=qk_norm,
        )
        self.norm_attention = make_norm(norm, d_model, bias=bias, eps=norm_eps)
        if cross:
            self.cross_attention = MultiHeadAttention(
                d_model, n_heads, n_kv_heads=n_kv_heads, bias=bias, dropout=dropout
            )
            self.norm_cross = make_norm(norm, d_model, bias=bias, eps=norm_eps)
        self.feed_forward = FeedForward(
            d_model, d_ff, activation=activation, bias=bias, dropout=dropout
        )
        self.norm_feed_forward = make_norm(norm, d_model, bias=bias, eps=norm_eps)
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
