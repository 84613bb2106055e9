"""A stack of blocks, and the settings from which every model of blocks builds it.

x = block_n(… block_1(x))                 then a norm, if the blocks are pre-norm

config = GPTConfig(vocab_size=65, max_len=64, d_model=128, n_layers=2, n_heads=4)
config.build_stack()                      two blocks and a norm
config.build_input_positions()            what is added to x before them
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.attention.cache import KVCache
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import Mechanism
from clearhead.attention.multi_head import find_head_width
from clearhead.config import Config
from clearhead.layers.block import Block
from clearhead.layers.feed_forward import ACTIVATIONS
from clearhead.layers.norm import NORMS, check_norm_bias, make_norm
from clearhead.positions import SCHEMES, PositionScheme, RotaryPositions, build_positions
from clearhead.positions.rotary import Scaling
from clearhead.shapes import (
    check_above_zero,
    check_at_most,
    check_choice,
    check_divides,
    check_dropout,
    check_positive,
)

# More than anyone trains. A config may come from a file, and building takes time for each layer.
MAX_LAYERS, MAX_WIDTH = 1000, 2**20


@dataclass(frozen=True, kw_only=True)
class SharedSettings(Config):
    """The settings that every model of blocks has as fields; they mean the same as in Block.

    They are given by name only, so that they stand before no argument of a model's own.
    final_norm: whether a norm follows the last block, as pre_norm unless given.
    """

    d_head: int | None = None
    attention_bias: bool | None = None
    norm_bias: bool | None = None
    norm_attention: bool = True
    final_norm: bool | None = None


class StackConfig(SharedSettings):
    """The settings of a stack of blocks, common to all models of blocks.

    A model's config is a dataclass derived from this class. Of the settings below it declares as
    fields, in an order and with defaults of its own, those that its user can choose; all others
    keep the values given here. They mean the same as in Block, but positions is a name of
    positions.SCHEMES, limited to max_len where the scheme has a limit.
    """

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int | None = None
    d_ff: int | None = None
    max_len: int
    positions: str = "none"
    rotary_base: float = 10000.0
    rotary_scaling: Scaling = None
    pre_norm: bool = True
    norm: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "gelu"
    bias: bool = True
    qk_norm: bool = False
    dropout: float = 0.0

    def check(self) -> None:
        check_positive(n_layers=self.n_layers)
        check_at_most(MAX_LAYERS, n_layers=self.n_layers)
        check_at_most(MAX_WIDTH, d_model=self.d_model)
        check_at_most(MAX_WIDTH, **{"n_heads · d_head": self.n_heads * self.head_width})
        if self.n_kv_heads is not None:
            check_divides("n_kv_heads", self.n_kv_heads, "n_heads", self.n_heads)
        if self.d_ff is not None:
            check_positive(d_ff=self.d_ff)
        check_choice("positions", self.positions, tuple(SCHEMES))
        check_above_zero(rotary_base=self.rotary_base, norm_eps=self.norm_eps)
        if self.positions == "rotary":
            # Refuses an odd width and a scaling that cannot be.
            RotaryPositions(self.head_width, scaling=self.rotary_scaling)
        elif self.rotary_scaling is not None:
            raise ValueError(
                f"rotary_scaling={self.rotary_scaling} slows rotary positions down, but positions "
                f"is {self.positions!r}; take positions='rotary' or leave rotary_scaling out"
            )
        check_choice("norm", self.norm, NORMS)
        check_norm_bias(self.norm, self.norm_bias)
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_dropout(self.dropout)

    @property
    def head_width(self) -> int:
        """The width of a head: d_head, or d_model / n_heads, which must then be whole."""
        return find_head_width(self.d_model, self.n_heads, self.d_head)

    @property
    def scheme(self) -> type[PositionScheme]:
        """The class of the position scheme."""
        return SCHEMES[self.positions]

    def build_stack(self, *, cross: bool = False) -> "Stack":
        """New blocks; with cross=True they also attend to a source."""
        blocks = (self.build_block(cross=cross) for _ in range(self.n_layers))
        if not (self.pre_norm if self.final_norm is None else self.final_norm):
            return Stack(blocks)
        shift = self.bias if self.norm_bias is None else self.norm_bias
        return Stack(blocks, make_norm(self.norm, self.d_model, bias=shift, eps=self.norm_eps))

    def build_block(self, *, cross: bool = False) -> Block:
        """One new block, with a position scheme of its own if that acts inside attention."""
        inside = self.scheme.acts_on in ("q and k", "scores")
        return Block(
            self.d_model,
            self.n_heads,
            self.d_ff,
            pre_norm=self.pre_norm,
            norm=self.norm,
            norm_eps=self.norm_eps,
            activation=self.activation,
            bias=self.bias,
            dropout=self.dropout,
            cross=cross,
            n_kv_heads=self.n_kv_heads,
            qk_norm=self.qk_norm,
            mechanism=self.build_mechanism(),
            positions=self.build_positions() if inside else None,
            d_head=self.d_head,
            attention_bias=self.attention_bias,
            norm_bias=self.norm_bias,
            norm_attention=self.norm_attention,
        )

    def build_mechanism(self) -> Mechanism | None:
        """A new mechanism for the self-attention of a block; None is dot-product attention.

        The config of a model with another attention overrides this method.
        """
        return None

    def build_input_positions(self) -> PositionScheme | None:
        """A new scheme that is added to x before the first block, None if it acts elsewhere."""
        return self.build_positions() if self.scheme.acts_on == "x" else None

    def build_positions(self, *, scale_input: bool = False) -> PositionScheme:
        """A new position scheme, wherever it acts; scale_input: see SinusoidalPositions."""
        return build_positions(
            self.positions,
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_head=self.d_head,
            max_len=self.max_len,
            rotary_base=self.rotary_base,
            rotary_scaling=self.rotary_scaling,
            scale_input=scale_input,
        )


class Stack(nn.Module):
    """Blocks one after the other, then a norm if there is one."""

    def __init__(self, blocks: Iterable[nn.Module], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        mask: MaskLike = None,
        source_mask: MaskLike = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        source_caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """x (B, T, D) → (B, T, D): each block gets the same arguments and a cache of its own."""
        own = self._check_caches("caches", caches)
        of_source = self._check_caches("source_caches", source_caches)
        for block, cache, source_cache in zip(self.blocks, own, of_source, strict=True):
            x = block(
                x,
                source,
                mask=mask,
                source_mask=source_mask,
                bias=bias,
                positions=positions,
                cache=cache,
                source_cache=source_cache,
            )
        return x if self.norm is None else self.norm(x)

    def _check_caches(
        self, name: str, caches: Sequence[KVCache] | None
    ) -> Sequence[KVCache] | Sequence[None]:
        if caches is None:
            return [None] * len(self.blocks)
        if len(caches) != len(self.blocks):
            raise ValueError(
                f"{name} must hold one KVCache for each block, {len(self.blocks)}, "
                f"got {len(caches)}"
            )
        return caches
