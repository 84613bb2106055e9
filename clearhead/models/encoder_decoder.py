"""A GRU encoder and a GRU decoder with attention, the two halves of seq2seq_gru.py.

    encoded = encoder(source)                           outputs (B, S, D), hidden (n_layers, B, D)
    state = decoder.init_state(encoded, valid_lens)
    logits, state = decoder(tokens, state)              a new state; the one given does not change
    decoder.attention_weights                           of each step of this call

The names are those of Zhang et al., Dive into Deep Learning, section 11.4.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearhead.attention import AdditiveAttention, DotProductAttention, masked_softmax
from clearhead.attention.mask_parts import read_lengths
from clearhead.attention.masks import MaskLike
from clearhead.models.checks import check_tokens
from clearhead.shapes import check_last_axis, format_shape

if TYPE_CHECKING:
    from clearhead.models.seq2seq_gru import Seq2SeqGRUConfig

Lengths = Tensor | Sequence[int]


class DecoderState(NamedTuple):
    """The encoded source, and the hidden state after the words so far."""

    outputs: Tensor  # (B, S, D), of the encoder
    hidden: Tensor  # (n_layers, B, D)
    valid_lens: Tensor | None  # (B,); None = all tokens are real


class GRUEncoder(nn.Module):
    """Reads from left to right and returns the output after each token."""

    def __init__(self, config: "Seq2SeqGRUConfig") -> None:
        super().__init__()
        self.vocab_size = config.source_vocab_size
        self.embedding = nn.Embedding(config.source_vocab_size, config.d_embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = _build_gru(config.d_embedding, config)

    def forward(self, source: Tensor, valid_lens: Lengths | None = None) -> tuple[Tensor, Tensor]:
        """source (B, S) → outputs (B, S, D) of the last layer, last hidden states (n_layers, B, D).

        With valid_lens (B,) `hidden` is the state after the last real token of each row, and later
        outputs are 0. Without, all tokens are read.
        """
        check_tokens("source", source, self.vocab_size)
        lens = None if valid_lens is None else _read_lengths(valid_lens, source)
        return self.read(source, lens)

    def read(self, source: Tensor, valid_lens: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same, for arguments that are checked already."""
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
    """Writes word by word, attending to the source before each.

    attention_weights: of each step of the last call, (B, 1, S), without a gradient.
    """

    def __init__(self, config: "Seq2SeqGRUConfig") -> None:
        super().__init__()
        D, self.vocab_size = config.d_hidden, config.target_vocab_size
        self.attention_weights: list[Tensor] = []  # d2l's name: the weights of the last call
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.attention: ProjectedKeysAttention | DotProductAttention
        if config.attention == "additive":
            self.attention = ProjectedKeysAttention(D, D, D, config.dropout)
        else:
            self.attention = DotProductAttention(config.dropout)
        self.gru = _build_gru(D + config.d_embedding, config)
        self.head = nn.Linear(D, config.target_vocab_size)

    def init_state(
        self, encoded: tuple[Tensor, Tensor], valid_lens: Lengths | None = None
    ) -> DecoderState:
        """encoded: outputs (B, S, D) and hidden (n_layers, B, D), as GRUEncoder returns them.

        valid_lens (B,): how many tokens of each source may be attended to; None = all.
        """
        if not isinstance(encoded, tuple) or len(encoded) != 2:
            raise TypeError(
                f"encoded must be what GRUEncoder returns, (outputs, hidden), "
                f"got {type(encoded).__name__}"
            )
        (outputs, hidden), D = encoded, self.gru.hidden_size
        check_last_axis("encoder outputs", outputs, "d_hidden", D, 3, like=self.head.weight)
        check_last_axis("hidden state", hidden, "d_hidden", D, 3, like=self.head.weight)
        shape = (self.gru.num_layers, outputs.size(0), D)
        if hidden.shape != shape:
            raise ValueError(
                f"the encoder's hidden state must have shape (n_layers, B, d_hidden) = {shape}, "
                f"got {format_shape(hidden)}; build both from one config"
            )
        lens = None if valid_lens is None else _read_lengths(valid_lens, outputs)
        return DecoderState(outputs, hidden, lens)

    def forward(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """tokens (B, T) → logits (B, T, V) and the state after them; `state` does not change."""
        if not isinstance(state, DecoderState):
            raise TypeError(
                f"state must come from init_state or from the last call, got "
                f"{type(state).__name__}; that of Seq2SeqGRU.encode is for its decode_step"
            )
        outputs, hidden, lens = state
        check_tokens("tokens", tokens, self.vocab_size)
        if tokens.size(0) != outputs.size(0):
            raise ValueError(
                f"tokens must have a row for each source, {outputs.size(0)}, "
                f"got shape {format_shape(tokens)}"
            )
        mask = None if lens is None else _find_real(lens, outputs.size(1))
        if mask is not None:  # the encoder may have read the padding, which may hold NaN
            outputs = outputs.masked_fill(~mask.mT, 0.0)
        weights: list[Tensor] = []
        logits, hidden = self.write(tokens, hidden, outputs, self.keys(outputs), mask, weights)
        self.attention_weights = weights
        return logits, state._replace(hidden=hidden)

    def write(
        self,
        tokens: Tensor,
        hidden: Tensor,
        outputs: Tensor,
        keys: Tensor,
        mask: Tensor | None,
        weights: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """tokens (B, T), checked already → logits (B, T, V) and the hidden state after them.

        outputs and keys (B, S, D), mask (B, 1, S): of the source. The attention weights of each
        step are appended to `weights`, if that is given.
        """
        x, written = self.embed(tokens), [outputs[:, :0]]
        for t in range(x.size(1)):
            if weights is not None:
                weights.append(self._find_weights(hidden, keys, mask))
            output, hidden = self.step(x[:, t : t + 1], hidden, outputs, keys, mask)
            written.append(output)
        return self.head(torch.cat(written, dim=1)), hidden

    def step(
        self, x: Tensor, hidden: Tensor, outputs: Tensor, keys: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """One embedded word (B, 1, E) → output (B, 1, D) of the last layer, hidden of all."""
        query = hidden[-1].unsqueeze(1)  # (B, 1, D)
        context = self.attention(query, keys, outputs, mask=mask)  # (B, 1, D)
        output, hidden = self.gru(torch.cat((context, x), dim=-1), hidden)
        return output, hidden

    @torch.no_grad()
    def _find_weights(self, hidden: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """The weights of the next step, (B, 1, S), before dropout."""
        return self.attention.weights(hidden[-1].unsqueeze(1), keys, mask=mask)

    def embed(self, tokens: Tensor) -> Tensor:
        """tokens (B, T) → (B, T, E)."""
        return self.dropout(self.embedding(tokens.long()))

    def keys(self, outputs: Tensor) -> Tensor:
        """The keys for every step, computed once: (B, S, D) → (B, S, D)."""
        if isinstance(self.attention, ProjectedKeysAttention):
            return self.attention.proj_k(outputs)
        return outputs


class ProjectedKeysAttention(AdditiveAttention):
    """Additive attention whose keys are already projected, W_k k, once for all steps.

    It needs no protection from padding, because the outputs it is given are 0 there. A training
    step of the whole model then takes 0.5 to 0.7 of the time (S = T = 12 to 30).
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


def _build_gru(d_input: int, config: "Seq2SeqGRUConfig") -> nn.GRU:
    between = config.dropout if config.n_layers > 1 else 0.0  # one layer: PyTorch would warn
    return nn.GRU(d_input, config.d_hidden, config.n_layers, batch_first=True, dropout=between)


def _read_lengths(valid_lens: Lengths, x: Tensor) -> Tensor:
    """One length for each row of x (B, S, …), from 0 to S."""
    lens, (B, S) = read_lengths(valid_lens).to(x.device), x.shape[:2]
    if lens.shape != (B,):
        raise ValueError(
            f"valid_lens must have a length for each source, shape ({B},), got {format_shape(lens)}"
        )
    if B and int(lens.max()) > S:
        raise ValueError(f"valid_lens has {int(lens.max())} but the sources have {S} tokens")
    return lens


def _find_real(lens: Tensor, S: int) -> Tensor:
    """(B,) → (B, 1, S), True = real."""
    return (torch.arange(S, device=lens.device) < lens.unsqueeze(1)).unsqueeze(1)
