"""GPT: a decoder-only language model (Radford et al. 2019).

    x      = embedding[tokens] + positions
    x      = blocks(x)                       each token attends to itself and those before it
    logits = norm(x) W_headᵀ                 one score for each token that may come next

With the right config it is GPT-2 (learned positions, layer norm, GELU), Llama (rotary positions,
RMS norm, SwiGLU, grouped heads) or a modern small model (QK-norm, squared ReLU, capped logits).
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from torch import Tensor, nn

from clearhead.attention import KVCache, Mask
from clearhead.attention.masks import MaskLike
from clearhead.layers import StackConfig, apply_soft_cap
from clearhead.models.checks import check_distances, check_tokens
from clearhead.models.model import Model
from clearhead.positions.rotary import Scaling
from clearhead.shapes import check_above_zero, check_positive, read_token_mask


@dataclass(frozen=True)
class GPTConfig(StackConfig):
    """The settings of a GPT, and those of its stack.

    max_len: the context length; tied: the head is the embedding table; soft_cap: logits become
    c·tanh(logits/c); zero_start: the output layers of all blocks start at 0, so that no block adds
    anything at first; head_bias: the head adds a bias, whatever `bias` says of the blocks;
    rotary_scaling: as in RotaryPositions.
    """

    vocab_size: int
    max_len: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int | None = None
    d_ff: int | None = None
    positions: str = "learned"
    rotary_base: float = 10000.0
    norm: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "gelu"
    bias: bool = True
    tied: bool = True
    qk_norm: bool = False
    soft_cap: float | None = None
    zero_start: bool = False
    dropout: float = 0.0
    _: KW_ONLY
    head_bias: bool = False
    rotary_scaling: Scaling = None

    def check(self) -> None:
        super().check()
        check_above_zero(soft_cap=self.soft_cap)
        check_positive(max_len=self.max_len, vocab_size=self.vocab_size)


class GPT(Model):
    """Tokens → logits of the next token; no token attends to later ones."""

    config_type = GPTConfig
    config: GPTConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        c = config
        self.embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = c.build_input_positions()
        self.dropout = nn.Dropout(c.dropout)
        self.stack = c.build_stack()
        self.head = nn.Linear(c.d_model, c.vocab_size, bias=c.head_bias)
        self._init_weights()
        if c.tied:
            self.head.weight = self.embedding.weight

    def forward(
        self,
        tokens: Tensor,
        *,
        token_mask: Tensor | None = None,
        mask: MaskLike = None,
        positions: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """tokens (B, T) → logits (B, T, V); arguments as in `hidden`."""
        x = self.hidden(
            tokens, token_mask=token_mask, mask=mask, positions=positions, caches=caches
        )
        return self.logits(x)

    def hidden(
        self,
        tokens: Tensor,
        *,
        token_mask: Tensor | None = None,
        mask: MaskLike = None,
        positions: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """tokens (B, T) → (B, T, D), the input of the head.

        token_mask (B, S): True = real, S counting cached tokens. mask: joined to the causal one,
        such as Mask.segments for packed documents. positions (T,) or (B, T): by default the number
        of real tokens before a token in its document, so that padding on either side changes
        nothing. Biases by distance use no positions, and need real tokens without padding between
        them. caches: from make_caches.
        """
        past = len(caches[0]) if caches else 0
        self._check_tokens(tokens, past)
        allowed = self._make_mask(tokens, token_mask, mask, past)
        if positions is None and (past or not allowed.is_only_causal):
            T = tokens.size(1)
            positions = allowed.positions(T, past + T, device=tokens.device)
        x = self.embedding(tokens.long())
        if self.positions is not None:
            x = self.positions(x, positions=positions)
        return self.stack(self.dropout(x), mask=allowed, positions=positions, caches=caches)

    def logits(self, x: Tensor) -> Tensor:
        """The output of `hidden`, (..., D) → (..., V)."""
        return apply_soft_cap(self.head(x), self.config.soft_cap)

    def make_caches(self) -> list[KVCache]:
        """Empty caches, one for each block, for generating token by token."""
        return [KVCache() for _ in self.stack.blocks]

    def _make_mask(
        self, tokens: Tensor, token_mask: Tensor | None, mask: MaskLike, past: int
    ) -> Mask:
        """Causal, without padding, and as `mask` says."""
        allowed, (B, T) = Mask.causal(), tokens.shape
        if token_mask is not None:
            allowed = allowed & Mask.tokens(read_token_mask(token_mask, (B, past + T)))
        if mask is not None:
            allowed = allowed & (mask if isinstance(mask, Mask) else Mask.of(mask))
        if self.config.scheme.acts_on == "scores":
            check_distances(allowed, past + T)
        return allowed

    def _check_tokens(self, tokens: Tensor, past: int) -> None:
        check_tokens("tokens", tokens, self.config.vocab_size)
        length, max_len = tokens.size(1), self.config.max_len
        if past + length > max_len:
            kept = f" after {past} kept in the caches" if past else ""
            raise ValueError(
                f"tokens has length {length}{kept} but max_len is {max_len}; "
                f"shorten it or build the model with max_len={past + length}"
            )

    def _init_weights(self) -> None:
        """As in GPT-2: std 0.02, and 0.02/√(2 n_layers) in layers that add to the residual sum."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "positions" not in name:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            if name.endswith("proj_out.weight"):
                small = 0.0 if self.config.zero_start else (2 * self.config.n_layers) ** -0.5
                nn.init.normal_(parameter, std=0.02 * small)
