"""A GRU decoder with attention: the query of each step is the state of the last layer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.decoder_calls import DECODE, ask_decoder
from clearhead.exercises.contracts.shared.decoder_weights import Scores, assign_decoder
from clearhead.exercises.contracts.shared.gru import GRU
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import Student
from clearhead.exercises.weights import Assignment, Linear


class AttentionDecoder(Exercise):
    name = "attention_decoder"
    title = "A GRU decoder with attention"
    formula = "context = attention(query h_{t−1}, keys = values = outputs); GRU([context; x_t], h)"
    signature = (
        "Seq2SeqAttentionDecoder(vocab_size, embed_size, num_hiddens, num_layers): "
        "init_state((outputs, hidden), valid_lens), then (X, state) → logits (B, T, V), state; "
        "or (word, hidden, encoder_outputs[, valid_lens]) → logits, hidden for one word"
    )
    page = "models.md#translators"
    names = (
        "Seq2SeqAttentionDecoder",
        "AttentionDecoder",
        "AttnDecoderRNN",
        "AttentionDecoderGRU",
        "BahdanauDecoder",
        "Decoder without num_heads n_heads heads h nhead n_head d_ff ffn_num_hiddens n layer",
    )
    terms = {
        "query": "the query: the last layer's hidden state after the previous step",
        "score": "the scores of the query against the source, additive or by dot product",
        "allow": "the valid lengths of the source",
        "weigh": "the softmax over the source",
        "mix": "the context, the mixture of the encoder's outputs",
        "join": "the input of the GRU, context and embedding side by side",
        "carry": "the hidden state, carried from step to step",
        "emit": "the logits (B, T, V): a linear layer of the last layer's output",
    }
    parameters = {"X": "x inputs tokens tgt", "state": "state"}
    constructor = {
        "vocab_size": "vocab_size n_vocab vocab output_dim output_size tgt_vocab_size",
        "d_embedding": "embed_size d_embedding embedding_dim emb_dim embed_dim embedding_size",
        "d_hidden": "num_hiddens d_hidden hidden_size hidden_dim hid_dim hidden n_hidden",
        "n_layers": "num_layers n_layers layers",
        "dropout": "dropout p dropout_p",
    }
    optional = ("dropout",)
    helpers = DECODE

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        return assign_decoder(parameters, sizes)

    # The formula: X (B, T), outputs (B, S, D), hidden (L, B, D), lens (B,) → logits (B, T, V)

    def answer(
        self,
        X: Tensor,
        outputs: Tensor,
        hidden: Tensor,
        lens: Tensor | None,
        embedding: Tensor,
        scores: Scores,
        gru: GRU,
        head: Linear,
        is_context_first: bool,
    ) -> dict[str, Tensor]:
        start, states = hidden, []
        for word in embedding[X].unbind(1):
            found = self.score(self.query(hidden, start), outputs, scores)
            context = self.mix(self.weigh(self.allow(found, lens)), outputs)
            pair = (context, word) if is_context_first else (word, context)
            for x in self.join(pair):
                x = x[..., : gru.d_input]  # less than all only for the GRU of context_on_time
                hidden = gru(x, self.carry(hidden, start))
                states.append(hidden[-1])
        return {"logits": self.emit(torch.stack(states, dim=1), head), "hidden": hidden}

    def query(self, hidden: Tensor, start: Tensor) -> Tensor:
        return hidden[-1]

    def score(self, q: Tensor, outputs: Tensor, scores: Scores) -> Tensor:
        return scores(q, outputs)

    def allow(self, scores: Tensor, lens: Tensor | None) -> Tensor:
        if lens is None:
            return scores
        real = torch.arange(scores.size(1)) < lens.unsqueeze(1)
        return scores.masked_fill(~real, -math.inf)

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def mix(self, weights: Tensor, outputs: Tensor) -> Tensor:
        return (weights.unsqueeze(1) @ outputs).squeeze(1)

    def join(self, pair: tuple[Tensor, Tensor]) -> list[Tensor]:
        """List the inputs of the GRU for one word: a single one, (B, D + E)."""
        return [torch.cat(pair, dim=-1)]

    def carry(self, hidden: Tensor, start: Tensor) -> Tensor:
        return hidden

    def emit(self, states: Tensor, head: Linear) -> Tensor:
        return head(states)

    # Mistakes

    @mistake(
        "query",
        "the query is the hidden state of the first layer, hidden[0], instead of the last, "
        "hidden[-1]",
        line=("[0]", "unsqueeze", "query"),
    )
    def query_from_first_layer(self, hidden: Tensor, start: Tensor) -> Tensor:
        return hidden[0]

    @mistake(
        "query",
        "the query is never updated: every step uses the encoder's last state",
        line=("query", "unsqueeze", "[-1]"),
    )
    def query_not_updated(self, hidden: Tensor, start: Tensor) -> Tensor:
        return start[-1]

    @mistake("score", "the tanh of the scores is missing", line=("W_q", "w_v", "W_k", "score"))
    def no_tanh(self, q: Tensor, outputs: Tensor, scores: Scores) -> Tensor:
        return scores(q, outputs, activation=lambda x: x)

    @mistake(
        "allow",
        "the valid lengths are ignored: padding of the source is attended to",
        line=("attention(", "valid_lens", "softmax"),
    )
    def lengths_ignored(self, scores: Tensor, lens: Tensor | None) -> Tensor:
        return scores

    @mistake(
        "allow",
        "the mask is inverted: only the padding of the source is attended to",
        line=("masked_fill", ">=", "<", "~"),
    )
    def lengths_inverted(self, scores: Tensor, lens: Tensor | None) -> Tensor:
        if lens is None:
            return scores
        real = torch.arange(scores.size(1)) < lens.unsqueeze(1)
        return scores.masked_fill(real, -1e9)

    @mistake(
        "weigh", "there is no softmax: the scores themselves are the weights", line=("bmm", "@")
    )
    def no_softmax(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(scores.isinf(), 0.0)

    @mistake(
        "mix",
        "the context is the encoder's last output: there is no attention",
        line=("[:, -1]", "[-1]"),
    )
    def last_output_as_context(self, weights: Tensor, outputs: Tensor) -> Tensor:
        return outputs[:, -1]

    @mistake(
        "mix",
        "the context is the mean of the encoder's outputs: there is no attention",
        line=("mean(",),
    )
    def mean_as_context(self, weights: Tensor, outputs: Tensor) -> Tensor:
        return outputs.mean(1)

    @mistake(
        "join",
        "context and embedding are concatenated along time (dim=1), so the GRU reads two "
        "words; concatenate them along the features (dim=-1)",
        line=("cat(", "dim=1"),
    )
    def context_on_time(self, pair: tuple[Tensor, Tensor]) -> list[Tensor]:
        if pair[0].size(-1) != pair[1].size(-1):
            raise ValueError("context and embedding differ in width")
        return list(pair)

    @mistake(
        "carry",
        "every step starts the GRU from the encoder's state, so the words written so far are lost",
        line=("rnn(", "gru(", "GRU"),
    )
    def state_not_carried(self, hidden: Tensor, start: Tensor) -> Tensor:
        return start

    @mistake(
        "emit",
        "the logits have time first, (T, B, V), instead of (B, T, V)",
        line=("permute", "cat", "dense", "return"),
    )
    def time_first_logits(self, states: Tensor, head: Linear) -> Tensor:
        return head(states).transpose(0, 1)

    @mistake("emit", "only the logits of the last word are returned", line=("[-1]", "return"))
    def last_logits_only(self, states: Tensor, head: Linear) -> Tensor:
        return head(states[:, -1:])

    @mistake(
        "emit",
        "a softmax is applied to the logits; return the logits, since the loss applies its "
        "own softmax",
        line=("softmax",),
    )
    def probabilities_returned(self, states: Tensor, head: Linear) -> Tensor:
        return head(states).softmax(-1)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        return ask_decoder(self, student, case)

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(output, tuple):
            return {"logits": output}
        logits, hidden = output
        return {"logits": logits, **({"hidden": hidden} if isinstance(hidden, Tensor) else {})}

    def cases(self, draw: Draw) -> Iterable[Case]:
        for says, term, has_lens, *sizes in CASES:
            yield _draw_case(draw, says, term, has_lens, sizes)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for sizes in ((2, 1, 3, 5, 2, 1, 1, 0.0), (2, 3, 4, 8, 3, 2, 2, 0.0)):
            for has_lens in (False, True):
                yield _draw_case(draw, "a small example", "mix", has_lens, sizes)


# B, T, S, then the arguments of the constructor; vocab_size must not be a sum of d_hidden and 1,
# or the head could be read as fused layers of the attention.
CASES: tuple[tuple[Any, ...], ...] = (
    (
        "with a source of one token, its output is the context",
        "emit",
        False,
        3,
        2,
        1,
        11,
        5,
        4,
        1,
        0.0,
    ),
    ("the first step attends to the source", "score", False, 3, 1, 5, 11, 6, 4, 2, 0.0),
    ("padding of the source is not attended to", "allow", True, 4, 1, 6, 8, 3, 5, 2, 0.0),
    (
        "each step starts from the state of the previous one",
        "carry",
        False,
        2,
        5,
        4,
        9,
        6,
        7,
        2,
        0.0,
    ),
    ("the lengths apply at every step", "query", True, 5, 3, 4, 10, 7, 6, 2, 0.3),
    ("the embedding may be as wide as the state", "join", False, 3, 2, 4, 9, 6, 6, 1, 0.0),
)


def _draw_case(draw: Draw, says: str, term: str, has_lens: bool, sizes: Sequence[Any]) -> Case:
    B, T, S, *rest = sizes
    names = ("vocab_size", "d_embedding", "d_hidden", "n_layers", "dropout")
    built = dict(zip(names, rest, strict=True))
    D = built["d_hidden"]
    inputs = {
        "X": draw.whole(0, built["vocab_size"] - 1, B, T),
        "outputs": draw.normal(B, S, D),
        "hidden": draw.normal(built["n_layers"], B, D),
        "lens": draw.whole(1, S - 1, B) if has_lens else None,
    }
    return Case(says, term, inputs, built)
