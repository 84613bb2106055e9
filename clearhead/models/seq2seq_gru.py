"""A translator of two GRUs with attention between them (Bahdanau et al. 2015; Cho et al. 2014).

    outputs, hidden = encoder(source)                   (B, S, D), (n_layers, B, D)
    context_t = attention(query = last layer's hidden_{t−1}, keys = values = outputs)      (B, 1, D)
    output_t, hidden_t = GRU([context_t; embedding of word t], hidden_{t−1})
    logits_t = W output_t + b                           scores of word t + 1

The decoder starts from the last hidden state of the encoder, in every layer. Each query is the
hidden state of the step before, so the steps must be computed one after the other. Here D is
d_hidden, and E is d_embedding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearhead.attention import AdditiveAttention, DotProductAttention, masked_softmax
from clearhead.attention.masks import MaskLike
from clearhead.layers.stack import MAX_LAYERS
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
            outputs, hidden = self.encoder(source)
        else:
            valid_lens = _count_real(real)
            outputs, hidden = self.encoder(source, valid_lens)
        mask = None if real is None else real.unsqueeze(1)
        return GRUState(outputs, hidden, valid_lens, self.decoder.keys(outputs), mask)

    def decode_step(self, tokens: Tensor, state: GRUState) -> tuple[Tensor, GRUState]:
        """The next word of each row (B,) → logits (B, V) of the one after it, and the new state."""
        self._check_step(tokens, state)
        output = self.decoder.step(self.decoder.embed(tokens.unsqueeze(1)), state)
        return self.decoder.head(output.squeeze(1)), state

    def forward(
        self, source: Tensor, target_inputs: Tensor, source_mask: MaskLike = None
    ) -> Tensor:
        """source (B, S), target_inputs (B, T) → logits (B, T, V): row t scores word t + 1."""
        state = self.encode(source, source_mask)
        self._check_targets(target_inputs, state)
        return self.decoder(target_inputs, state)


class GRUEncoder(nn.Module):
    """Reads from left to right and returns the output after each token."""

    def __init__(self, config: Seq2SeqGRUConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.source_vocab_size, config.d_embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = _build_gru(config.d_embedding, config)

    def forward(self, source: Tensor, valid_lens: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """source (B, S) → outputs (B, S, D) of the last layer, hidden (n_layers, B, D) of all.

        `hidden` is the state after the last real token of each row; later outputs are 0.
        """
        x = self.dropout(self.embedding(source.long()))  # (B, S, E)
        if x.size(0) == 0 or x.size(1) == 0:  # PyTorch's GRU needs at least one token
            B, S, D = x.size(0), x.size(1), self.gru.hidden_size
            return x.new_zeros(B, S, D), x.new_zeros(self.gru.num_layers, B, D)
        if valid_lens is None:
            return self.gru(x)
        lens = valid_lens.clamp(min=1).cpu()  # an empty row reads one token, undone below
        packed = pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
        packed, hidden = self.gru(packed)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        empty = (valid_lens == 0).unsqueeze(-1)  # (B, 1)
        return outputs.masked_fill(empty.unsqueeze(-1), 0.0), hidden.masked_fill(empty, 0.0)


class AttentionDecoder(nn.Module):
    """Writes word by word, attending to the source before each."""

    def __init__(self, config: Seq2SeqGRUConfig) -> None:
        super().__init__()
        D = config.d_hidden
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.attention: _ProjectedKeysAttention | DotProductAttention
        if config.attention == "additive":
            self.attention = _ProjectedKeysAttention(D, D, D, config.dropout)
        else:
            self.attention = DotProductAttention(config.dropout)
        self.gru = _build_gru(D + config.d_embedding, config)
        self.head = nn.Linear(D, config.target_vocab_size)

    def forward(self, target_inputs: Tensor, state: GRUState) -> Tensor:
        """target_inputs (B, T) → logits (B, T, V)."""
        x = self.embed(target_inputs)
        outputs = [self.step(x[:, t : t + 1], state) for t in range(x.size(1))]
        return self.head(torch.cat([state.outputs[:, :0], *outputs], dim=1))

    def embed(self, tokens: Tensor) -> Tensor:
        """tokens (B, T) → (B, T, E)."""
        return self.dropout(self.embedding(tokens.long()))

    def keys(self, outputs: Tensor) -> Tensor:
        """The keys for every step, computed once: (B, S, D) → (B, S, D)."""
        if isinstance(self.attention, _ProjectedKeysAttention):
            return self.attention.proj_k(outputs)
        return outputs

    def step(self, x: Tensor, state: GRUState) -> Tensor:
        """One embedded word (B, 1, E) → output (B, 1, D) of the last layer; changes the state."""
        query = state.hidden[-1].unsqueeze(1)  # (B, 1, D)
        context = self.attention(query, state.keys, state.outputs, mask=state.mask)  # (B, 1, D)
        output, state.hidden = self.gru(torch.cat((context, x), dim=-1), state.hidden)
        return output


class _ProjectedKeysAttention(AdditiveAttention):
    """Additive attention whose keys are already projected, W_k k, once for all steps.

    It needs no protection from padding, because the encoder's outputs are 0 there. A training step
    of the whole model then takes 0.5 to 0.7 of the time (S = T = 12 to 30).
    """

    def weights(
        self, q: Tensor, k: Tensor, *, mask: MaskLike = None, bias: Tensor | None = None
    ) -> Tensor:
        """softmax(wᵀ tanh(W_q q + k) + bias), k being projected already: (B, T, S)."""
        hidden = (self.proj_q(q).unsqueeze(-2) + k.unsqueeze(-3)).tanh()  # (B, T, S, D)
        scores = hidden @ self.proj_score.weight[0]
        return masked_softmax(scores if bias is None else scores + bias, mask)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: MaskLike = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The mixture of the values by these weights, with dropout on them while training."""
        weights = self.weights(q, k, mask=mask, bias=bias)
        return nn.functional.dropout(weights, self.dropout, self.training) @ v


def _build_gru(d_input: int, config: Seq2SeqGRUConfig) -> nn.GRU:
    between = config.dropout if config.n_layers > 1 else 0.0  # one layer: PyTorch would warn
    return nn.GRU(d_input, config.d_hidden, config.n_layers, batch_first=True, dropout=between)


def _count_real(real: Tensor) -> Tensor:
    """The number of real tokens of each row, (B, S) → (B,); they must come first."""
    lens = real.sum(dim=1)
    if not torch.equal(real, torch.arange(real.size(1), device=real.device) < lens.unsqueeze(1)):
        raise ValueError(
            "source_mask must have its real tokens first, because a GRU reads from left to right; "
            "pad on the right"
        )
    return lens
