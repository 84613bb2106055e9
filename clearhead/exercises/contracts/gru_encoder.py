"""A GRU encoder: its output after each token, and the last state of every layer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.decoder_calls import fit_sizes
from clearhead.exercises.contracts.shared.gru import GRU
from clearhead.exercises.contracts.shared.gru_weights import assign_with_gru, describe_unreadable
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import CannotCall, Student
from clearhead.exercises.weights import Assignment, Role

Results = dict[str, Tensor]
Sizes = tuple[tuple[Any, ...], ...]

# B, T, then the arguments of the constructor
CASES: Sizes = (
    ("after one token the output is the state", "embed", 3, 1, 9, 5, 4, 2, 0.0),
    ("each step starts from the state of the previous one", "walk", 3, 5, 9, 6, 4, 1, 0.0),
    ("outputs are those of the last layer", "emit", 4, 6, 11, 5, 7, 2, 0.0),
    ("the state holds every layer", "keep", 5, 3, 8, 6, 4, 2, 0.0),
    ("dropout is off in evaluation", "walk", 4, 3, 8, 6, 5, 2, 0.4),
)
SMALL: Sizes = ((2, 1, 3, 2, 1, 2, 0.0), (2, 3, 3, 2, 1, 1, 0.0), (2, 3, 3, 2, 1, 2, 0.0))


class GRUEncoder(Exercise):
    name = "gru_encoder"
    title = "A GRU encoder"
    formula = "h_t = GRU(embedding of x_t, h_{t−1}); outputs (B, T, D), state (layers, B, D)"
    signature = (
        "Seq2SeqEncoder(vocab_size, embed_size, num_hiddens, num_layers)(X): (B, T) ids → "
        "outputs (B, T, D) or (T, B, D), state (num_layers, B, D); nn.GRU, nn.GRUCell or own cells"
    )
    page = "models.md#translators"
    names = (
        "Seq2SeqEncoder",
        "GRUEncoder",
        "EncoderGRU",
        "EncoderRNN",
        "RNNEncoder",
        "Encoder without num_heads n_heads heads h nhead n_head d_ff ffn_num_hiddens n layer",
    )
    terms = {
        "embed": "the embedding of each token",
        "cell": "one step: the gates r and z, the candidate n, the new state (1 − z) n + z h",
        "walk": "the steps, along time and from the first token to the last",
        "emit": "the outputs of the last layer, one for each token",
        "keep": "the state of every layer after the last token",
    }
    parameters = {"X": "x inputs src source tokens input_ids ids input seq"}
    constructor = {
        "vocab_size": "vocab_size n_vocab vocab input_size input_dim num_embeddings src_vocab_size",
        "d_embedding": "embed_size d_embedding embedding_dim emb_dim embed_dim embedding_size",
        "d_hidden": "num_hiddens d_hidden hidden_size hidden_dim hid_dim hidden n_hidden",
        "n_layers": "num_layers n_layers layers",
        "dropout": "dropout p dropout_p",
    }
    optional = ("dropout",)

    def roles(
        self, vocab_size: int, d_embedding: int, d_hidden: int, n_layers: int, dropout: float
    ) -> dict[str, Role]:
        return {"embedding": Role("table", (vocab_size, d_embedding), "embedding embed emb")}

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        widths = sizes["d_embedding"], sizes["d_hidden"], sizes["n_layers"]
        found = assign_with_gru(parameters, self.roles(**sizes), *widths)
        if not found:
            raise CannotCall(describe_unreadable(parameters))
        return found

    # The formula: X (B, T) → outputs (B, T, D), state (L, B, D)

    def answer(self, X: Tensor, embedding: Tensor, gru: GRU) -> Results:
        states, last = self.walk(self.embed(X, embedding), gru)
        return self.emit(states, self.keep(states, last))

    def embed(self, X: Tensor, embedding: Tensor) -> Tensor:
        return embedding[X]

    def walk(self, x: Tensor, gru: GRU) -> tuple[Tensor, Tensor]:
        """(B, T, E) → the states of all layers after each token, (B, T, L, D), and the last."""
        hidden, states = gru.start(x), []
        for token in x.unbind(1):
            hidden = self.cell(gru)(token, hidden)
            states.append(hidden)
        return torch.stack(states).permute(2, 0, 1, 3), hidden

    def cell(self, gru: GRU) -> GRU:
        return gru

    def keep(self, states: Tensor, last: Tensor) -> Tensor:
        return last

    def emit(self, states: Tensor, state: Tensor) -> Results:
        return {"outputs": states[:, :, -1], "state": state}

    # Mistakes

    @mistake(
        "walk",
        "the GRU reads along the batch instead of time: it needs batch_first=True, or inputs "
        "(T, B, E)",
        line=("GRU(", "permute", "transpose"),
    )
    def time_and_batch_swapped(self, x: Tensor, gru: GRU) -> tuple[Tensor, Tensor]:
        states, last = GRUEncoder.walk(self, x.transpose(0, 1), gru)
        return states.transpose(0, 1), last

    @mistake(
        "walk",
        "the tokens are read from the last to the first",
        line=("flip", "reversed", "::-1"),
    )
    def reversed_sequence(self, x: Tensor, gru: GRU) -> tuple[Tensor, Tensor]:
        return GRUEncoder.walk(self, x.flip(1), gru)

    @mistake(
        "walk",
        "the state is forgotten after each token: every token is read as if it were the first",
        line=("for ", "zeros", "None"),
    )
    def state_forgotten(self, x: Tensor, gru: GRU) -> tuple[Tensor, Tensor]:
        steps = [GRUEncoder.walk(self, x[:, t : t + 1], gru) for t in range(x.size(1))]
        return torch.cat([states for states, _ in steps], dim=1), steps[-1][1]

    @mistake(
        "cell",
        "the reset gate r is not used: the candidate must use r h, not the whole old state",
        line=("tanh",),
    )
    def no_reset_gate(self, gru: GRU) -> GRU:
        return gru.set_gates(r=1)

    @mistake(
        "cell",
        "the update gate z is not used: the new state must keep part of the old one",
        line=("return", "tanh"),
    )
    def no_update_gate(self, gru: GRU) -> GRU:
        return gru.set_gates(z=0)

    @mistake(
        "embed",
        "the embeddings are multiplied by √embed_size, as in a transformer",
        line=("sqrt", "** 0.5"),
    )
    def scaled_embedding(self, X: Tensor, embedding: Tensor) -> Tensor:
        return embedding[X] * embedding.size(1) ** 0.5

    @mistake(
        "emit",
        "only the output after the last token is returned; attention needs one for each token",
        line=("[-1]", "[:, -1]", "return"),
    )
    def last_output_only(self, states: Tensor, state: Tensor) -> Results:
        return {"outputs": states[:, -1, -1], "state": state}

    @mistake(
        "emit",
        "outputs and state are returned in the wrong order; return (outputs, state)",
        line=("return",),
    )
    def results_swapped(self, states: Tensor, state: Tensor) -> Results:
        return {"outputs": state, "state": states[:, :, -1]}

    @mistake(
        "emit",
        "the outputs are those of the first layer, not of the last",
        line=("[0]", "append"),
    )
    def first_layer_outputs(self, states: Tensor, state: Tensor) -> Results:
        return {"outputs": states[:, :, 0], "state": state}

    @mistake(
        "keep",
        "only the state of the last layer is returned; the decoder starts each of its layers from "
        "the state of the same layer",
        line=("[-1]", "return"),
    )
    def last_layer_only(self, states: Tensor, last: Tensor) -> Tensor:
        return last[-1:]

    @mistake(
        "keep",
        "the state after the first token is returned instead of the state after the last",
        line=("[0]",),
    )
    def first_state(self, states: Tensor, last: Tensor) -> Tensor:
        return states[:, 0].transpose(0, 1)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        exercise, case = fit_sizes(self, student, case)
        return student.ask(exercise, case)

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read outputs (B, T, D), or (T, B, D), and state (L, B, D)."""
        if not isinstance(output, tuple | list) or len(output) < 2:
            return {"outputs": output, "state": None}
        outputs, state = output[0], output[1]
        if isinstance(state, list | tuple) and all(isinstance(each, Tensor) for each in state):
            state = torch.stack(list(state)) if state else None
        B, T = inputs["X"].shape
        if isinstance(outputs, Tensor) and outputs.dim() == 3 and outputs.shape[:2] == (T, B):
            outputs = outputs.transpose(0, 1)
        if T == 1:  # with T = 1 the time axis of the state cannot be recognised
            return {"outputs": outputs}
        if isinstance(state, Tensor) and state.dim() == 2:
            state = state.unsqueeze(0)
        if isinstance(state, Tensor) and state.dim() == 3 and state.shape[:2] == (T, B):
            state = state.transpose(0, 1)
        return {"outputs": outputs, "state": state}

    def cases(self, draw: Draw) -> Iterable[Case]:
        names = ("vocab_size", "d_embedding", "d_hidden", "n_layers", "dropout")
        for says, term, B, T, *sizes in CASES:
            X = draw.whole(0, sizes[0] - 1, B, T)
            yield Case(says, term, {"X": X}, dict(zip(names, sizes, strict=True)))

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        names = ("vocab_size", "d_embedding", "d_hidden", "n_layers", "dropout")
        for B, T, *sizes in SMALL:
            X = draw.whole(0, 2, B, T)
            yield Case("a small example", "walk", {"X": X}, dict(zip(names, sizes, strict=True)))
