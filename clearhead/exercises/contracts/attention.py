"""Scaled dot-product attention: softmax(q kᵀ / √d_k) v."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, Exercise, mistake


class Attention(Exercise):
    name = "attention"
    title = "Scaled dot-product attention"
    formula = "softmax(q kᵀ / √d_k) v"
    signature = "attention(q, k, v)"
    page = "attention.md"
    names = (
        "attention",
        "scaled_dot_product_attention",
        "dot_product_attention",
        "attend",
        "DotProductAttention",
        "ScaledDotProductAttention",
    )
    terms = {
        "weights": "the order of scaling and softmax",
        "score": "the scores q kᵀ",
        "scale": "the division of the scores by √d_k",
        "weigh": "the softmax over the keys",
        "mix": "the mixture of the values, weights v",
    }
    parameters = {
        "q": "q query queries qs",
        "k": "k key keys ks",
        "v": "v value values vs",
    }
    constructor = {"dropout": "dropout p dropout_p attn_dropout"}
    forbidden = ("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention")

    # The formula: q (..., T, d_k), k (..., S, d_k), v (..., S, d_v) → (..., T, d_v)

    def answer(self, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        weights = self.weights(q, k, v)
        return {"output": self.mix(weights, v), "weights": weights}

    def weights(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.weigh(self.scale(self.score(q, k), q, v))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT  # (..., T, S)

    def scale(self, scores: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-1))

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return weights @ v

    # Mistakes

    @mistake(
        "scale",
        "the scores are not divided by √d_k, so the softmax gets sharper with the width",
        line=("matmul", "bmm", "@", "einsum"),
    )
    def no_scaling(self, scores: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return scores

    @mistake(
        "scale",
        "the scores are divided by d_k instead of √d_k: the square root is missing",
        line=("/", "shape", "size"),
    )
    def scaled_by_d(self, scores: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return scores / q.size(-1)

    @mistake(
        "scale",
        "the scores are multiplied by √d_k instead of divided",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_up(self, scores: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return scores * math.sqrt(q.size(-1))

    @mistake(
        "scale",
        "the scores are divided by √d_v, the width of the values, instead of √d_k",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_values(self, scores: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return scores / math.sqrt(v.size(-1))

    @mistake(
        "scale",
        "the scores are divided by the square root of the number of queries instead of √d_k: "
        "q.shape[-2] was taken for q.shape[-1]",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_length(self, scores: Tensor, q: Tensor, v: Tensor) -> Tensor:
        return scores / math.sqrt(q.size(-2))

    @mistake(
        "weights",
        "the weights are divided by √d_k after the softmax, so the rows do not sum to 1; the "
        "scores must be divided before it",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_after_softmax(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.weigh(self.score(q, k)) / math.sqrt(q.size(-1))

    @mistake(
        "weigh",
        "the softmax runs over the queries (dim=-2) instead of the keys (dim=-1), so the weights "
        "of a query do not sum to 1",
        line=("softmax", "sum("),
    )
    def softmax_over_queries(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)

    @mistake(
        "weigh",
        "the softmax runs over the batch (dim=0) instead of the keys (dim=-1)",
        line=("softmax", "sum("),
    )
    def softmax_over_batch(self, scores: Tensor) -> Tensor:
        return scores.softmax(0)

    @mistake(
        "weigh",
        "the softmax overflows: exp of a large score is infinite, and inf / inf is NaN; subtract "
        "the greatest score of each row first",
        line=("exp(", ".exp"),
    )
    def no_max_subtraction(self, scores: Tensor) -> Tensor:
        return scores.exp() / scores.exp().sum(-1, keepdim=True)

    @mistake(
        "weigh",
        "there is no softmax: the scores themselves weigh the values",
        line=("matmul", "bmm", "@", "einsum"),
    )
    def no_softmax(self, scores: Tensor) -> Tensor:
        return scores

    @mistake(
        "weigh",
        "the weights are detached, so nothing is learned through them: queries and keys get no "
        "gradient",
        line=("detach", "no_grad", ".data", "item"),
    )
    def detached_weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1).detach()

    @mistake(
        "score", "queries and keys are swapped: k qᵀ has a row for each key", line=("matmul", "@")
    )
    def swapped_queries_and_keys(self, q: Tensor, k: Tensor) -> Tensor:
        return k @ q.mT

    @mistake(
        "mix",
        "the values are mixed over the wrong axis: the weights are transposed",
        line=("matmul", "bmm", "@", "einsum"),
    )
    def transposed_weights(self, weights: Tensor, v: Tensor) -> Tensor:
        return weights.mT @ v

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(
            says: str, term: str, B: int, T: int, S: int, d: int, d_v: int, **more: Any
        ) -> Case:
            scale = more.pop("scale", 1.0)
            inputs = {
                "q": draw.normal(B, T, d, scale=scale),
                "k": draw.normal(B, S, d),
                "v": draw.normal(B, S, d_v),
            }
            return Case(says, term, inputs, {"dropout": 0.0}, **more)

        yield case("with a single key the output is its value", "mix", 2, 3, 1, 5, 4)
        even = case("equal scores give the mean of the values", "weigh", 3, 4, 5, 7, 2)
        yield Case(even.says, "weigh", {**even.inputs, "q": torch.zeros(3, 4, 7)}, {"dropout": 0.0})
        yield case("with d_k = 1 nothing is to be scaled", "score", 3, 4, 6, 1, 5)
        yield case("the scores are divided by √d_k", "scale", 3, 5, 7, 9, 4)
        yield case("the gradient reaches q, k and v", "weigh", 2, 3, 4, 6, 5, gradient=True)
        yield case("scores as large as 1000 stay finite", "weigh", 2, 3, 5, 4, 6, scale=600.0)
        yield case("as many queries as keys", "score", 4, 6, 6, 5, 3)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, S, d, d_v in ((1, 1, 1, 1), (1, 2, 1, 1), (1, 2, 2, 1), (2, 3, 2, 1), (2, 3, 4, 2)):
            for _ in range(6):
                inputs = {
                    "q": draw.small(1, T, d),
                    "k": draw.small(1, S, d),
                    "v": draw.small(1, S, d_v),
                }
                yield Case("a small example", "score", inputs, {"dropout": 0.0})
        yield next(iter(self.cases(draw)))
