"""A translator of two GRUs with attention between them (Bahdanau et al. 2015; Cho et al. 2014).

    outputs, hidden = encoder(source)                   (B, S, D), (n_layers, B, D)
    context_t = attention(query = last layer's hidden_{t−1}, keys = values = outputs)      (B, 1, D)
    output_t, hidden_t = GRU([context_t; embedding of word t], hidden_{t−1})
    logits_t = W output_t + b                           scores of word t + 1

The decoder starts from the last hidden state of the encoder, in every layer. Each query is the
hidden state of the step before, so the steps must be computed one after the other. Here D is
d_hidden, and E is d_embedding. The two halves are in encoder_decoder.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.attention.masks import MaskLike
from clearhead.layers.stack import MAX_LAYERS
from clearhead.models.encoder_decoder import AttentionDecoder, GRUEncoder
from clearhead.models.seq2seq import Seq2Seq, Seq2SeqConfig, find_real_tokens
from clearhead.shapes import (
    check_at_most,
    check_choice,
    check_dropout,
    check_int_tensor,
    check_positive,
)


@dataclass(frozen=True)
class Seq2SeqGRUConfig(Seq2SeqConfig):
    """The settings of a Seq2SeqGRU.

    attention: "additive" or "dot"; d_hidden: the width of both GRUs and of the additive attention;
    dropout: on the embeddings, between the layers of a GRU and on the attention weights.
    """

    d_embedding: int
    d_hidden: int
    n_layers: int = 1
    attention: str = "additive"
    dropout: float = 0.0

    def check(self) -> None:
        check_positive(d_embedding=self.d_embedding, d_hidden=self.d_hidden, n_layers=self.n_layers)
        check_at_most(MAX_LAYERS, n_layers=self.n_layers)
        check_choice("attention", self.attention, ("additive", "dot"))
        check_dropout(self.dropout)
        super().check()


@dataclass(eq=False)
class GRUState:
    """The state of the decoder; only `hidden` changes from step to step."""

    outputs: Tensor  # (B, S, D), of the encoder; zeros after the end of a source
    hidden: Tensor  # (n_layers, B, D)
    valid_lens: Tensor  # (B,)
    keys: Tensor  # (B, S, D), compared with the queries
    mask: Tensor | None  # (B, 1, S), True = real; None = all

    @property
    def batch_size(self) -> int:
        return self.outputs.size(0)

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows (B′,), in this order and in place; a row may be taken twice."""
        check_int_tensor("rows", rows)
        rows = rows.long()
        self.hidden = self.hidden.index_select(1, rows)
        self.outputs, self.keys = (x.index_select(0, rows) for x in (self.outputs, self.keys))
        self.valid_lens = self.valid_lens.index_select(0, rows)
        self.mask = None if self.mask is None else self.mask.index_select(0, rows)


class Seq2SeqGRU(Seq2Seq):
    """Source ids and words so far → logits of the next word of the target."""

    config_type = Seq2SeqGRUConfig
    config: Seq2SeqGRUConfig

    def __init__(self, config: Seq2SeqGRUConfig) -> None:
        super().__init__(config)
        self.encoder = GRUEncoder(config)
        self.decoder = AttentionDecoder(config)

    @property
    def alignment_name(self) -> str:
        """The only attention of the model."""
        return "decoder.attention"

    def encode(self, source: Tensor, source_mask: MaskLike = None) -> GRUState:
        """source (B, S) → its state. Real tokens come first: padding is on the right.

        Padding changes nothing. A source without any token gives zeros.
        """
        self._check_source(source)
        real = find_real_tokens(source, source_mask)
        if real is None:
            valid_lens = source.new_full((source.size(0),), source.size(1), dtype=torch.long)
            outputs, hidden = self.encoder.read(source)
        else:
            valid_lens = _count_real(real)
            outputs, hidden = self.encoder.read(source, valid_lens)
        mask = None if real is None else real.unsqueeze(1)
        return GRUState(outputs, hidden, valid_lens, self.decoder.keys(outputs), mask)

    def decode_step(self, tokens: Tensor, state: GRUState) -> tuple[Tensor, GRUState]:
        """The next word of each row (B,) → logits (B, V) of the one after it, and the new state."""
        self._check_step(tokens, state)
        encoded = state.outputs, state.keys, state.mask
        x = self.decoder.embed(tokens.unsqueeze(1))
        output, state.hidden = self.decoder.step(x, state.hidden, *encoded)
        return self.decoder.head(output.squeeze(1)), state

    def forward(
        self, source: Tensor, target_inputs: Tensor, source_mask: MaskLike = None
    ) -> Tensor:
        """source (B, S), target_inputs (B, T) → logits (B, T, V): row t scores word t + 1."""
        state = self.encode(source, source_mask)
        self._check_targets(target_inputs, state)
        encoded = state.outputs, state.keys, state.mask
        return self.decoder.write(target_inputs, state.hidden, *encoded)[0]


def _count_real(real: Tensor) -> Tensor:
    """The number of real tokens of each row, (B, S) → (B,); they must come first."""
    lens = real.sum(dim=1)
    if not torch.equal(real, torch.arange(real.size(1), device=real.device) < lens.unsqueeze(1)):
        raise ValueError(
            "source_mask must have its real tokens first, because a GRU reads from left to right; "
            "pad on the right"
        )
    return lens
