"""An encoder that classifies: embedding, positions, layers, a head that reads the first token."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.encoder import (
    N_LAYERS,
    Encoder,
    Layers,
    list_conventions,
)
from clearhead.exercises.contracts.shared.layer import layer_roles
from clearhead.exercises.contracts.sinusoidal_positions import SinusoidalPositions
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.stacks import assign_model
from clearhead.exercises.weights import Linear, Norm, Role


class Classifier(Encoder):
    """Free: one-hot rows or ids in, pre- or post-norm, ReLU or GELU, a norm before the head, logits
    of all tokens or of the first one, learned or sinusoidal positions. d_ff is 4 d_model.
    """

    name = "classifier"
    title = "An encoder that classifies"
    formula = "head(layers(embedding(tokens) + positions))[0]"
    signature = "Classifier(d_input, d_model, n_heads, n_layers, d_output, max_len)(tokens)"
    page = "models.md"
    names = (
        "TransformerClassifier",
        "SequenceClassifier",
        "EncoderClassifier",
        "TransformerEncoderClassifier",
        "SubstringTransformer",
        "SubstringClassifier",
        "TransformerModel",
        "EncoderModel",
        "Classifier",
    )
    terms = {
        "embed": "the embedding of the tokens",
        "locate": "the positions, added to the embedded tokens",
        "layer": "one layer: attention and feed-forward layer",
        "stack": "the layers, one after the other",
        "choose": "the token that the head reads: the first one",
        "finish": "the logits of the head",
    }
    parameters = {"tokens": "tokens x X input inputs input_ids ids one_hot src"}
    constructor = {
        "d_input": "d_input input_dim d_in vocab_size n_vocab vocab in_dim dim_in num_tokens",
        "d": "d_model dim d n_embd embed_dim emb_dim hidden_dim num_hiddens hidden_size model_dim",
        "n_heads": "n_heads num_heads heads h nhead n_head",
        "n_layers": "n_layers num_layers depth layers n_layer num_blocks n_blocks",
        "d_output": "d_output output_dim d_out n_classes num_classes out_dim classes n_out",
        "max_len": "max_len seq_len block_size context_length max_seq_len n_positions length",
        "d_ff": "d_ff mlp_dim dim_feedforward ffn_dim ff_dim d_hidden ffn_num_hiddens d_mlp",
        "dropout": "dropout p dropout_p dropout_rate drop",
    }
    optional = ("d_ff", "dropout", "max_len", "n_layers")

    def roles(self, d: int, d_ff: int, d_output: int, max_len: int, **_: Any) -> dict[str, Role]:
        """The roles outside the layers, except the embedding."""
        return {
            "positions": Role("table", (max_len, d), "pos position positions pe", optional=True),
            "final": Role("norm", (d,), "norm ln final", optional=True),
            "head": Role("linear", (d_output, d), "head decoder classifier out fc output"),
        }

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Any]:
        words, d, n = "embed embedding encoder emb token input", sizes["d"], sizes["d_input"]
        embeddings = (Role("linear", (d, n), words), Role("table", (n, d), words))
        outer = [{"embedding": each, **self.roles(**sizes)} for each in embeddings]
        return assign_model(parameters, N_LAYERS, layer_roles(d, sizes["d_ff"]), outer)

    # The formula: tokens (B, T) → logits (B, T, d_output), or (B, d_output) of the first token

    def answer(
        self,
        tokens: Tensor,
        embedding: Linear | Tensor,
        layers: Layers,
        head: Linear,
        how: dict[str, Any],
        positions: Tensor | None = None,
        final: Norm | None = None,
        reads_first: bool = True,
    ) -> Tensor:
        x = self.locate(self.embed(tokens, embedding), positions)
        x = self.stack(x, layers, how)
        x = x if final is None else final(x)
        return self.finish(head(self.choose(x, reads_first)))

    def embed(self, tokens: Tensor, embedding: Linear | Tensor) -> Tensor:
        if isinstance(embedding, Tensor):
            return embedding[tokens]
        rows = embedding.weight.mT[tokens]
        return rows if embedding.bias is None else rows + embedding.bias

    def locate(self, x: Tensor, positions: Tensor | None) -> Tensor:
        if positions is None:
            positions = SinusoidalPositions().answer(x.size(1), x.size(2))
        return x + positions[: x.size(1)]

    def choose(self, x: Tensor, reads_first: bool) -> Tensor:
        return x[:, 0] if reads_first else x

    # Mistakes

    @mistake(
        "locate",
        "there are no positions: the layers cannot tell the order of the tokens",
        line=("embed", "pos"),
    )
    def no_positions(self, x: Tensor, positions: Tensor | None) -> Tensor:
        return x

    @mistake(
        "locate",
        "every token gets the first position",
        line=("[0]", "[:1]", "zeros", "pos"),
    )
    def first_position_for_all(self, x: Tensor, positions: Tensor | None) -> Tensor:
        return x if positions is None else x + positions[:1]

    @mistake("choose", "the last token is read instead of the first one", line=("-1]", "-1,"))
    def last_token(self, x: Tensor, reads_first: bool) -> Tensor:
        return x[:, -1]

    @mistake(
        "choose", "the mean of all tokens is read instead of the first one", line=("mean", "sum")
    )
    def mean_of_tokens(self, x: Tensor, reads_first: bool) -> Tensor:
        return x.mean(1)

    # Cases

    def forms(self, case: Case) -> Iterable[Case]:
        tokens = case.inputs["tokens"]
        rows = torch.nn.functional.one_hot(tokens, case.sizes["d_input"]).float()
        yield replace(case, given={"tokens": rows})
        yield case

    def ask(self, student: Any, case: Case) -> Answer | None:
        answer: Answer | None = student.ask(self, case)
        if answer is not None:
            answer.choices = [
                {**choice, "reads_first": first, "how": how}
                for choice in answer.choices
                for first, how in product((True, False), list_conventions(case.sizes["n_heads"]))
            ]
        return answer

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, **more: Any) -> Case:
            sizes = _sizes(6, 2, more.pop("d_output", 3))
            return Case(says, term, {"tokens": draw.whole(0, 4, B, T)}, sizes, **more)

        yield case("a single token goes through all layers", "stack", 1, 1)
        yield case("tokens have positions and attend to each other", "locate", 1, 4)
        yield case("the rows of a batch do not affect each other", "choose", 3, 5, d_output=1)
        yield case("the head reads the first token", "choose", 4, 7)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T in (1, 2, 3):
            inputs = {"tokens": draw.whole(0, 4, 1, T)}
            yield Case("a small example", "locate", inputs, _sizes(4, 1, 1))
        yield from self.cases(draw)


def _sizes(d: int, n_heads: int, d_output: int) -> dict[str, Any]:
    return {
        "d_input": 5,
        "d": d,
        "n_heads": n_heads,
        "n_layers": N_LAYERS,
        "d_output": d_output,
        "max_len": 9,
        "d_ff": 4 * d,
        "dropout": 0.5,
    }
