"""The feed-forward layer: two linear layers, applied to each token separately."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import gelu, relu

from clearhead.exercises.contracts.shared.dropout import SAYS, TERM, WithDropout
from clearhead.exercises.contracts.shared.names import DROPOUT
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, mistake
from clearhead.exercises.weights import Linear, Norm, Role

ACTIVATIONS = ("relu", "gelu", "gelu_tanh")  # each is accepted


def activate(x: Tensor, name: str) -> Tensor:
    """ReLU, GELU, or GELU by its approximation with tanh."""
    if name == "relu":
        return relu(x)
    return gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")


class FeedForward(WithDropout):
    """Two linear layers with ReLU or GELU between them; biases are free.

    d_ff is 4 d in all cases, for code that does not ask for it. A layer norm in front of the first
    layer is accepted if the module has one.
    """

    name = "feed_forward"
    title = "The feed-forward layer"
    formula = "φ(x W₁ + b₁) W₂ + b₂, with φ ReLU or GELU"
    signature = "FeedForward(d_model, d_ff)(x)"
    page = "layers.md"
    names = (
        "FeedForward",
        "PositionwiseFeedForward",
        "PositionWiseFeedForward",
        "PositionWiseFFN",
        "FFN",
        "FeedForwardNetwork",
        "FeedForwardLayer",
        "FeedFoward",
        "MLP",
        "Mlp",
    )
    terms = {
        "enter": "the first linear layer, to the width d_ff",
        "activate": "the activation between the two layers",
        "leave": "the second linear layer, back to the width d_model",
        **TERM,
    }
    parameters = {"x": "x X input inputs hidden hidden_states"}
    constructor = {
        "d": "d d_model dim n_embd embed_dim emb_dim hidden_size ffn_num_input model_dim"
        " in_features num_hiddens width input_dim",
        "d_ff": "d_ff n_hidden hidden hidden_dim ffn_num_hiddens mlp_dim d_hidden dim_feedforward"
        " hidden_features intermediate_size ffn_dim inner_dim ff_dim",
        "d_out": "ffn_num_outputs d_out out_features output_dim dim_out out_dim",
        "dropout": DROPOUT,
    }
    optional = ("d_ff", "d_out", "dropout")

    def roles(self, d_ff: int, d_out: int, **_: Any) -> dict[str, Role]:
        d = d_out
        return {
            "first": Role("linear", (d_ff, d), "w1 fc1 linear1 up dense1 c_fc first l1 lin1 in"),
            "second": Role("linear", (d, d_ff), "w2 fc2 linear2 down dense2 c_proj second out"),
            "norm": Role("norm", (d,), "norm ln", optional=True),
        }

    # The formula: x (B, T, d) → (B, T, d)

    def answer(
        self, x: Tensor, first: Linear, second: Linear, norm: Norm | None = None, phi: str = "relu"
    ) -> Tensor:
        x = x if norm is None else norm(x)
        return self.leave(self.activate(self.enter(x, first), phi), second, x, phi)

    def enter(self, x: Tensor, first: Linear) -> Tensor:
        return first(x)

    def activate(self, hidden: Tensor, phi: str) -> Tensor:
        return activate(hidden, phi)

    def leave(self, hidden: Tensor, second: Linear, x: Tensor, phi: str) -> Tensor:
        return second(hidden)

    # Mistakes

    @mistake(
        "activate",
        "there is no activation between the two layers, so together they are one linear layer",
        line=("w1", "fc1", "linear1", "Linear", "forward"),
    )
    def no_activation(self, hidden: Tensor, phi: str) -> Tensor:
        return hidden

    @mistake(
        "activate",
        "the activation is a sigmoid instead of ReLU or GELU: all hidden units lie in (0, 1)",
        line=("igmoid",),
    )
    def sigmoid_activation(self, hidden: Tensor, phi: str) -> Tensor:
        return hidden.sigmoid()

    @mistake("activate", "the activation is tanh instead of ReLU or GELU", line=("anh",))
    def tanh_activation(self, hidden: Tensor, phi: str) -> Tensor:
        return hidden.tanh()

    @mistake(
        "activate",
        "the activation is a softmax instead of ReLU or GELU: it makes the hidden units compete",
        line=("oftmax",),
    )
    def softmax_activation(self, hidden: Tensor, phi: str) -> Tensor:
        return hidden.softmax(-1)

    @mistake(
        "activate",
        "the activation keeps the negative part of each hidden unit instead of the positive part",
        line=("-", "clamp", "min"),
    )
    def keeps_negative_part(self, hidden: Tensor, phi: str) -> Tensor:
        return hidden.clamp(max=0)

    @mistake(
        "leave",
        "a second activation follows the second layer, so the output cannot be negative",
        line=("elu",),
    )
    def activation_at_the_end(self, hidden: Tensor, second: Linear, x: Tensor, phi: str) -> Tensor:
        return activate(second(hidden), phi)

    @mistake(
        "leave",
        "the input is added to the output; the residual belongs to the layer around this one",
        line=("x +", "+ x", "+= x"),
    )
    def residual_inside(self, hidden: Tensor, second: Linear, x: Tensor, phi: str) -> Tensor:
        return x + second(hidden)

    @mistake(
        "enter",
        "the activation is also applied before the first layer, so it cuts off part of the input",
        line=("elu",),
    )
    def activation_first(self, x: Tensor, first: Linear) -> Tensor:
        return first(relu(x))

    # Cases

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Try every activation; leave out d if the constructor takes the output's width alone."""
        names = {name.lower() for name, _ in student.signature(student.name)}
        words = {name: set(self.constructor[name].split()) for name in ("d", "d_out")}
        if names & words["d_out"] and not names & words["d"]:
            case = replace(case, sizes={n: v for n, v in case.sizes.items() if n != "d"})
        answer = super().ask(student, case)
        if answer is not None:
            answer.choices = [{**c, "phi": phi} for c in answer.choices for phi in ACTIVATIONS]
        return answer

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, d: int, **more: Any) -> Case:
            return Case(says, term, {"x": draw.normal(B, T, d)}, _sizes(d, 0.5), **more)

        yield case("one token goes through both layers", "activate", 1, 1, 3)
        yield case("tokens do not affect each other", "enter", 3, 5, 4)
        yield case("the gradient reaches the input", "activate", 2, 3, 6, gradient=True)
        large = 300 * draw.normal(2, 4, 5)
        yield Case("large inputs stay finite", "activate", {"x": large}, _sizes(5, 0.5))
        yield case(SAYS, "drop", 2, 4, 5)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for B, T, d in ((1, 1, 1), (1, 1, 2), (1, 2, 3)):
            for _ in range(3):
                yield Case("a small example", "activate", {"x": draw.small(B, T, d)}, _sizes(d, 0))
        yield from self.cases(draw)


def _sizes(d: int, dropout: float) -> dict[str, Any]:
    return {"d": d, "d_ff": 4 * d, "d_out": d, "dropout": float(dropout)}
