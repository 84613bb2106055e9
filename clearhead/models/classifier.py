"""A classifier that answers at every token: one-hot rows in, logits out.

    x      = rows W_embedding + b + positions
    x      = blocks(x), each token attending to all
    logits = x W_head + b

A row is a one-hot vector, so its product with W_embedding is one row of that matrix. Looking
it up by the token's id gives the same number without the product. The answer about a whole sequence
is read at one token, such as the first.
"""

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.functional import embedding

from clearhead.attention import Mask
from clearhead.layers import StackConfig
from clearhead.models.checks import check_distances, check_tokens
from clearhead.models.model import Model
from clearhead.positions import PositionScheme, ToeplitzBias
from clearhead.shapes import (
    check_last_axis,
    check_length,
    check_positive,
    format_shape,
    read_token_mask,
)


@dataclass(frozen=True)
class ClassifierConfig(StackConfig):
    """The settings of a SequenceClassifier, and those of its stack.

    d_input: the size of the vocabulary; max_len: the limit of learned and Toeplitz positions, the
    others serve any length; rotary_base: as in RotaryPositions.
    """

    d_input: int
    d_output: int
    d_model: int = 64
    n_layers: int = 2
    n_heads: int = 4
    d_ff: int | None = None
    max_len: int = 64
    positions: str = "learned"
    pre_norm: bool = True
    norm: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "relu"
    bias: bool = True
    dropout: float = 0.0
    _: KW_ONLY
    rotary_base: float = 10000.0

    def __post_init__(self) -> None:
        if self.positions == "absolute":
            words = 'positions="absolute" is now positions="learned"; the old name will be removed'
            warnings.warn(words, DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "positions", "learned")
        super().__post_init__()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        if isinstance(values, Mapping) and values.get("positions") == "absolute":  # an older file
            values = {**values, "positions": "learned"}
        return super().from_dict(values)

    def check(self) -> None:
        super().check()
        check_positive(max_len=self.max_len, d_input=self.d_input, d_output=self.d_output)

    def build_positions(self, *, scale_input: bool = False) -> PositionScheme:
        scheme = super().build_positions(scale_input=scale_input)
        if isinstance(scheme, ToeplitzBias):
            # From zeros all heads start alike: after 800 steps of the substring task 60 % of the
            # answers were right, from N(0, 1) 72 %.
            nn.init.normal_(scheme.weight)
        return scheme


class SequenceClassifier(Model):
    """Embedding → positions → blocks → head: (B, T, d_input) → (B, T, d_output)."""

    config_type = ClassifierConfig
    config: ClassifierConfig
    renamed_layers = {"encoder": "embedding", "decoder": "head"}  # noqa: RUF012

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        c = config
        self.embedding = nn.Linear(c.d_input, c.d_model, bias=c.bias)
        self.positions = c.build_input_positions()
        self.dropout = nn.Dropout(c.dropout)
        self.stack = c.build_stack()
        self.head = nn.Linear(c.d_model, c.d_output, bias=c.bias)

    def forward(self, tokens: Tensor, *, token_mask: Tensor | None = None) -> Tensor:
        """Rows (B, T, d_input) or ids (B, T) → logits (B, T, d_output).

        token_mask (B, T): True = real. Padding is not attended to, a token's position is the number
        of real tokens before it, and the logits of padding mean nothing. A bias by distance counts
        all tokens, so with it there must be no padding between real ones.
        """
        is_rows = isinstance(tokens, Tensor) and tokens.is_floating_point()
        x = self._embed_rows(tokens) if is_rows else self._embed_ids(tokens)
        mask = None if token_mask is None else self._make_mask(token_mask, x)
        positions = None if mask is None else mask.positions(x.size(1), device=x.device)
        if self.positions is not None:
            x = self.positions(x, positions=positions)
        return self.head(self.stack(self.dropout(x), mask=mask, positions=positions))

    def _embed_rows(self, rows: Tensor) -> Tensor:
        """(B, T, d_input) → (B, T, D)."""
        check_last_axis("tokens", rows, "d_input", self.config.d_input, like=self.embedding.weight)
        if rows.ndim != 3:
            raise ValueError(
                f"tokens must have shape (B, T, d_input) as rows or (B, T) as whole-number ids, "
                f"got {format_shape(rows)}; one sequence is tokens[None]"
            )
        if self.config.scheme.has_limit:
            check_length("tokens", rows.size(1), self.config.max_len)
        return self.embedding(rows)

    def _embed_ids(self, ids: Tensor) -> Tensor:
        """(B, T) → (B, T, D): the columns of the embedding, looked up."""
        limit = self.config.max_len if self.config.scheme.has_limit else None
        check_tokens("tokens", ids, self.config.d_input, limit)
        x = embedding(ids.long(), self.embedding.weight.mT)
        return x if self.embedding.bias is None else x + self.embedding.bias

    def _make_mask(self, token_mask: Tensor, x: Tensor) -> Mask:
        mask = Mask.tokens(read_token_mask(token_mask, x.shape[:2]))
        if self.config.scheme.acts_on == "scores":
            check_distances(mask, x.size(1))
        return mask
