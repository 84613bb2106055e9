"""TextEncoder: a text in, a vector for each token out (Devlin et al. 2019, BERT).

    x        = norm(embedding[tokens] + positions + types)
    x        = blocks(x)                                    post-norm; each token attends to all
    sentence = mean of x over the real tokens, scaled to length 1

A type says which of two texts a token belongs to. The dot product of two sentences is their
similarity, from −1 to 1 (Reimers & Gurevych 2019).
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import normalize

from clearhead.attention import Mask
from clearhead.layers import LayerNorm, StackConfig
from clearhead.models.checks import check_tokens
from clearhead.models.model import Model
from clearhead.positions import LearnedPositions
from clearhead.shapes import check_positive, format_shape, read_token_mask


@dataclass(frozen=True)
class TextEncoderConfig(StackConfig):
    """The settings of a TextEncoder, and those of its stack."""

    vocab_size: int
    max_len: int
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int | None = None
    n_types: int = 2
    norm_eps: float = 1e-12
    activation: str = "gelu"
    dropout: float = 0.0
    pre_norm = False  # not a field: the same for every TextEncoder

    def check(self) -> None:
        super().check()
        check_positive(n_types=self.n_types, max_len=self.max_len, vocab_size=self.vocab_size)


class TextEncoder(Model):
    """Tokens (B, T) → a vector for each (B, T, D), which depends on all tokens of its row."""

    config_type = TextEncoderConfig
    config: TextEncoderConfig

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__(config)
        c = config
        self.embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = LearnedPositions(c.max_len, c.d_model)
        self.types = nn.Embedding(c.n_types, c.d_model)
        self.norm = LayerNorm(c.d_model, eps=c.norm_eps)
        self.dropout = nn.Dropout(c.dropout)
        self.stack = c.build_stack()
        self._init_weights()

    def forward(
        self, tokens: Tensor, *, token_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """tokens (B, T) → (B, T, D).

        token_mask (B, T): True = real. A token's position is the number of real tokens before it,
        so padding on either side changes nothing. types (B, T): 0, 1, … ; None = all 0.
        """
        c = self.config
        check_tokens("tokens", tokens, c.vocab_size, c.max_len)
        mask, positions = None, None
        if token_mask is not None:
            mask = Mask.tokens(read_token_mask(token_mask, tokens.shape))
            positions = mask.positions(tokens.size(1), device=tokens.device)
        x = self.positions(self.embedding(tokens.long()), positions=positions)
        x = x + self._embed_types(types, tokens)
        return self.stack(self.dropout(self.norm(x)), mask=mask)

    def sentence(self, tokens: Tensor, token_mask: Tensor | None = None) -> Tensor:
        """tokens (B, T) → (B, D) of length 1: the mean over the real tokens, 0 if there is none."""
        x = self(tokens, token_mask=token_mask)
        if token_mask is not None:
            real = read_token_mask(token_mask, tokens.shape)
            x = x.masked_fill(~real.unsqueeze(-1), 0)
        return normalize(x.sum(dim=1), dim=-1)  # the sum has the direction of the mean

    def _embed_types(self, types: Tensor | None, tokens: Tensor) -> Tensor:
        if types is None:
            return self.types.weight[0]
        check_tokens("types", types, self.config.n_types)
        if types.shape != tokens.shape:
            raise ValueError(
                f"types must have the shape of tokens, {format_shape(tokens)}, "
                f"got {format_shape(types)}"
            )
        return self.types(types.long())

    def _init_weights(self) -> None:
        """N(0, 0.02²) as in BERT, biases 0."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
