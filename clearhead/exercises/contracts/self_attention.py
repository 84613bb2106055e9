"""A self-attention module: queries, keys and values are linear in the same input."""

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, Exercise, mistake
from clearhead.exercises.weights import Linear, Role


class SelfAttention(Exercise):
    name = "self_attention"
    title = "A self-attention module"
    formula = "softmax((x W_q) (x W_k)ᵀ / √d_key) (x W_v)"
    signature = "SelfAttention(input_dim, key_dim, output_dim)(x)"
    page = "attention.md"
    names = ("SelfAttention", "SelfAttn", "Attention", "SelfAttentionHead")
    terms = {
        "project": "the three linear layers for queries, keys and values",
        "scale": "the division of the scores by √key_dim",
        "weigh": "the softmax over the keys",
        "mix": "the mixture of the values, weights v",
    }
    parameters = {"x": "x inputs input hidden hidden_states X"}
    constructor = {
        "d_input": "input_dim d_input d_in d_model dim in_dim embed_dim dim_in n_embd",
        "d_key": "key_dim d_key d_k dim_k dk d_qk qk_dim head_dim head_size",
        "d_output": "output_dim d_output d_v d_out value_dim dim_v dv out_dim",
    }
    forbidden = ("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention")

    def roles(self, d_input: int, d_key: int, d_output: int) -> dict[str, Role]:
        return {
            "query": Role("linear", (d_key, d_input), "q query queries w_q wq to_q q_proj"),
            "key": Role("linear", (d_key, d_input), "k key keys w_k wk to_k k_proj"),
            "value": Role("linear", (d_output, d_input), "v value values w_v wv to_v v_proj"),
        }

    # The formula: x (B, T, d_input) → (B, T, d_output)

    def answer(self, x: Tensor, query: Linear, key: Linear, value: Linear) -> dict[str, Tensor]:
        q, k, v = self.project(x, query, key, value)
        weights = self.weigh(self.scale(q @ k.mT, q, x, v))
        return {"output": self.mix(weights, v), "weights": weights}

    def project(
        self, x: Tensor, query: Linear, key: Linear, value: Linear
    ) -> tuple[Tensor, Tensor, Tensor]:
        return query(x), key(x), value(x)

    def scale(self, scores: Tensor, q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-1))

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return weights @ v

    # Mistakes

    @mistake("scale", "the scores are not divided by √key_dim", line=("@", "matmul", "bmm"))
    def no_scaling(self, scores: Tensor, q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return scores

    @mistake(
        "scale",
        "the scores are divided by key_dim instead of √key_dim: the square root is missing",
        line=("/",),
    )
    def scaled_by_d(self, scores: Tensor, q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return scores / q.size(-1)

    @mistake(
        "scale",
        "the scores are divided by √input_dim, the width of the model, instead of √key_dim",
        line=("sqrt", "** 0.5", "**0.5", "**-0.5"),
    )
    def scaled_by_model(self, scores: Tensor, q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return scores / math.sqrt(x.size(-1))

    @mistake(
        "scale",
        "the scores are divided by √output_dim, the width of the values, instead of √key_dim",
        line=("sqrt", "** 0.5", "**0.5", "**-0.5"),
    )
    def scaled_by_values(self, scores: Tensor, q: Tensor, x: Tensor, v: Tensor) -> Tensor:
        return scores / math.sqrt(v.size(-1))

    @mistake(
        "weigh",
        "the softmax runs over the queries (dim=1) instead of the keys (dim=-1)",
        line=("softmax",),
    )
    def softmax_over_queries(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)

    @mistake("weigh", "the softmax runs over the batch (dim=0)", line=("softmax",))
    def softmax_over_batch(self, scores: Tensor) -> Tensor:
        return scores.softmax(0)

    @mistake("weigh", "there is no softmax: the scores themselves weigh the values", line=("@",))
    def no_softmax(self, scores: Tensor) -> Tensor:
        return scores

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, B: int, T: int, *sizes: int, **more: Any) -> Case:
            names = ("d_input", "d_key", "d_output")
            inputs = {"x": draw.normal(B, T, sizes[0])}
            return Case(says, term, inputs, dict(zip(names, sizes, strict=True)), **more)

        yield case("a single token keeps its own value", "project", 3, 1, 5, 4, 7)
        yield case("with key_dim = 1 nothing is to be scaled", "scale", 3, 4, 6, 1, 5)
        yield case("the scores are divided by √key_dim", "scale", 2, 5, 7, 9, 4)
        yield case("the gradient reaches the input", "weigh", 3, 4, 6, 8, 5, gradient=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, d_input, d_key, d_output in ((1, 1, 2, 3), (2, 1, 2, 3), (2, 2, 3, 1), (3, 2, 4, 1)):
            for _ in range(3):
                sizes = {"d_input": d_input, "d_key": d_key, "d_output": d_output}
                yield Case("a small example", "project", {"x": draw.small(1, T, d_input)}, sizes)
