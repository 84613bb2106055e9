"""Argmax attention: each query takes the value of its best key alone."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import list_layout_forms, to_array_form
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Case, Exercise, mistake


class ArgmaxAttention(Exercise):
    name = "argmax_attention"
    title = "Argmax attention"
    formula = "v[argmax of q kᵀ over the keys]"
    signature = "argmax_attention(q, k, v)"
    page = "attention.md#why-does-argmax-attention-not-train"
    names = ("argmax_attention", "hard_attention", "attention_argmax", "ArgmaxAttention")
    terms = {
        "score": "the scores q kᵀ",
        "choose": "the choice of the best key",
        "take": "the value of that key",
    }
    parameters = {"q": "q query queries", "k": "k key keys", "v": "v value values"}
    optional = ("dropout",)

    # The formula: q (..., T, d), k (..., S, d), v (..., S, d_v) → (..., T, d_v)

    def answer(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        single = q.dim() == k.dim() - 1  # one query (d,) for keys (S, d)
        q = q.unsqueeze(-2) if single else q
        output = self.take(self.choose(self.score(q, k)), v, k)
        return output[0] if single else output

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT

    def choose(self, scores: Tensor) -> Tensor:
        """Weights (..., T, S): 1 for the best key, 0 for the others."""
        best = scores.argmax(-1, keepdim=True)
        return torch.zeros_like(scores).scatter(-1, best, 1.0)

    def take(self, weights: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return weights @ v

    def forms(self, case: Case) -> Iterable[Case]:
        every = list(list_layout_forms(case))
        q, k, v = every[-1].inputs.values()
        one = {"q": q[0], "k": k, "v": v}
        every.append(Case(case.says, case.term, one, gradient=case.gradient))
        yield from every
        yield from (to_array_form(each) for each in every)

    # Mistakes

    @mistake(
        "choose",
        "the values are mixed by a softmax; the output must be the value of the best key alone",
        line=("softmax",),
    )
    def softmax_instead(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    @mistake(
        "choose",
        "the key with the lowest score is chosen instead of the one with the highest",
        line=("argmin", "min("),
    )
    def argmin_instead(self, scores: Tensor) -> Tensor:
        return ArgmaxAttention.choose(self, -scores)

    @mistake(
        "choose",
        "the argmax runs over the queries instead of the keys",
        line=("argmax", "max("),
        variants=("argmax_over_queries_marked",),
    )
    def argmax_over_queries(self, scores: Tensor) -> Tensor:
        best = scores.argmax(-2)
        square = torch.zeros(*best.shape, best.size(-1))
        return square.scatter(-1, best.unsqueeze(-1), 1.0)

    def argmax_over_queries_marked(self, scores: Tensor) -> Tensor:
        return torch.zeros_like(scores).scatter(-2, scores.argmax(-2, keepdim=True), 1.0)

    @mistake(
        "choose",
        "the argmax runs over the absolute scores, so a key that points the opposite way can win",
        line=("abs",),
    )
    def argmax_of_absolute(self, scores: Tensor) -> Tensor:
        return ArgmaxAttention.choose(self, scores.abs())

    @mistake(
        "choose",
        "the value is multiplied by the highest score; return the value as it is",
        line=("max(", "amax"),
    )
    def weighted_by_score(self, scores: Tensor) -> Tensor:
        return scores * ArgmaxAttention.choose(self, scores)

    @mistake(
        "take",
        "the best key itself is returned instead of its value",
        line=("k[", "keys[", "gather", "@"),
    )
    def returns_key(self, weights: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return weights @ k

    @mistake(
        "take",
        "the index of the best key is returned instead of its value",
        line=("return", "argmax"),
    )
    def returns_index(self, weights: Tensor, v: Tensor, k: Tensor) -> Tensor:
        return weights.argmax(-1)

    @mistake(
        "score",
        "the scores are cosine similarities: they ignore the lengths of the keys, so another "
        "key can win",
        line=("norm", "cosine_similarity", "normalize"),
    )
    def cosine_scores(self, q: Tensor, k: Tensor) -> Tensor:
        return (q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT

    @mistake(
        "score",
        "the key nearest to the query is chosen instead of the one with the greatest dot product",
        line=("cdist", "norm", "**2", "** 2"),
    )
    def nearest_key(self, q: Tensor, k: Tensor) -> Tensor:
        return -torch.cdist(q, k)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, *sizes: int, **more: Any) -> Case:
            B, T, S, d, d_v = sizes
            k = draw.normal(B, S, d) * (1 + draw.whole(0, 4, B, S, 1))  # of different lengths
            inputs = {"q": draw.normal(B, T, d), "k": k, "v": draw.normal(B, S, d_v)}
            return Case(says, term, inputs, **more)

        same = case("if all values are equal, the output equals them", "take", 2, 3, 4, 6, 5)
        values = same.inputs["v"][:, :1].expand(-1, 4, -1).contiguous()
        yield Case(same.says, "take", {**same.inputs, "v": values})
        yield case("the output is the value of the best key", "choose", 3, 4, 6, 5, 2)
        yield case("as many queries as keys", "score", 2, 5, 5, 7, 4)
        yield case("values as wide as keys", "score", 3, 4, 6, 5, 5)
        yield case("q and k get no gradient, and each row of v gets that of its outputs", "choose", 2, 3, 4, 6, 5, gradient=True)  # fmt: skip  # noqa: E501

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, S, d, d_v in ((1, 1, 1, 1), (1, 2, 1, 1), (1, 2, 2, 1), (2, 3, 2, 1), (2, 3, 3, 2)):
            for _ in range(6):
                k = draw.small(1, S, d) + torch.arange(S).view(S, 1) / 8  # no ties
                inputs = {"q": draw.small(1, T, d) + 0.5, "k": k, "v": draw.small(1, S, d_v)}
                yield Case("a small example", "choose", inputs)
        yield from self.cases(draw)
