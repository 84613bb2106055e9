"""Summed-score attention, computed pair by pair or rearranged: both give the same."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from clearhead.exercises.comparison import differs
from clearhead.exercises.contracts.shared.twins import ask_twin, find_twin
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import ask_in_forms, change, drop_axes, find_growth, with_arrays
from clearhead.exercises.student import Student

FAST = (
    "summed_attention_rearranged",
    "summed_attention_fast",
    "summed_attention_linear",
    "summed_attention_efficient",
    "rearranged",
    "rearranged_attention",
    "fast_summed_attention",
    "summed_rearranged",
)


class SummedAttention(Exercise):
    name = "summed_attention"
    title = "Summed-score attention, in both ways"
    formula = "y = Σ_j e^{α_j} V x_j / Σ_j e^{α_j}, α_t = 1/√T Σ_j (Q x_t)·(K x_j)"
    signature = (
        "summed_attention(x, Q, K, V[, method]): (T, D) → (D_v,), method pairwise or rearranged; "
        "or summed_attention_rearranged beside it"
    )
    page = "attention.md"
    names = (
        "summed_attention",
        "summed_score_attention",
        "summed_attention_pairwise",
        "summed_attention_slow",
        "summed_attention_quadratic",
        "summed_attention_naive",
        "summed_attention_rearranged",
        "summed_attention_fast",
        "summed_attention_linear",
    )
    terms = {
        "score": "the scores α_t = 1/√T Σ_j (Q x_t)·(K x_j)",
        "scale": "the factor 1/√T, T the number of tokens",
        "weigh": "the softmax of α over the tokens",
        "mix": "the mixture Σ_j weight_j V x_j",
        "order": "the order of the sums: Σ_j K x_j first, so that it is O(T)",
    }
    parameters = {
        "x": "x xs inputs seq X",
        "Q": "q w_q wq w_query Q",
        "K": "k w_k wk w_key K",
        "V": "v w_v wv w_value V",
        "method": "method mode how way",
    }
    optional = ("method",)

    # The formula: x (T, D), Q and K (D_k, D), V (D_v, D) → (D_v,)

    def answer(
        self,
        x: Tensor,
        Q: Tensor,
        K: Tensor,
        V: Tensor,
        method: str = "",
        asks_growth: bool = False,
    ) -> dict[str, Any]:
        if asks_growth:
            return {"growth": self.order()}
        alpha = self.score(x @ Q.mT, x @ K.mT) * self.scale(x, Q)
        y = self.mix(self.weigh(alpha), x, V)
        return {"output": y, "rearranged": y}

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT).sum(-1)  # (T,)

    def scale(self, x: Tensor, Q: Tensor) -> float:
        return 1 / math.sqrt(x.size(-2))

    def weigh(self, alpha: Tensor) -> Tensor:
        return alpha.softmax(-1)

    def mix(self, weights: Tensor, x: Tensor, V: Tensor) -> Tensor:
        return weights @ (x @ V.mT)

    def order(self) -> str:
        return "linear"

    # Mistakes

    @mistake("scale", "the factor 1/√T is missing", line=("exp", "softmax", "sum("))
    def no_scaling(self, x: Tensor, Q: Tensor) -> float:
        return 1.0

    @mistake("scale", "the factor is 1/T instead of 1/√T", line=("/ T", "/T", "mean(", "/"))
    def scaled_by_length(self, x: Tensor, Q: Tensor) -> float:
        return 1 / x.size(-2)

    @mistake(
        "scale",
        "the factor is 1/√d_k, as in dot-product attention; here it is 1/√T",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_width(self, x: Tensor, Q: Tensor) -> float:
        return 1 / math.sqrt(len(Q))

    @mistake(
        "scale",
        "the factor is 1/√D, with the width of x, instead of 1/√T",
        line=("sqrt", "** 0.5", "**0.5"),
    )
    def scaled_by_model(self, x: Tensor, Q: Tensor) -> float:
        return 1 / math.sqrt(x.size(-1))

    @mistake(
        "score",
        "the scores are summed over the queries instead of the keys: α_j = Σ_t (Q x_t)·(K x_j)",
        line=("sum(",),
    )
    def summed_over_queries(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT).sum(-2)

    @mistake(
        "score",
        "each token is compared with itself only: (Q x_t)·(K x_t), without the sum over j",
        line=("sum(", "einsum", "*"),
    )
    def own_score_only(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * k).sum(-1)

    @mistake(
        "score",
        "a token is not compared with itself: the sum over j leaves out j = t",
        line=("!=", "fill_diagonal", "eye", "if "),
    )
    def own_score_missing(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT).sum(-1) - (q * k).sum(-1)

    @mistake(
        "score",
        "the sum over j runs only up to t; it must take every token",
        line=("cumsum", "range(t", "tril", "[:t"),
    )
    def causal_sum(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT).tril().sum(-1)

    @mistake(
        "score",
        "the exponential is taken of each pair before the sum over j; here the sum comes first",
        line=("exp",),
    )
    def exponential_before_sum(self, q: Tensor, k: Tensor) -> Tensor:
        root = math.sqrt(q.size(-2))
        return root * (q @ k.mT / root).logsumexp(-1)

    @mistake(
        "weigh",
        "the scores themselves weigh the values: e^α and the division by its sum are missing",
        line=("@", "einsum", "sum("),
    )
    def no_softmax(self, alpha: Tensor) -> Tensor:
        return alpha

    @mistake("weigh", "the denominator Σ_j e^{α_j} is missing", line=("exp(", "einsum", "return"))
    def no_denominator(self, alpha: Tensor) -> Tensor:
        return alpha.exp()

    @mistake("mix", "the tokens x_j are mixed instead of the values V x_j", line=("@", "einsum"))
    def values_missing(self, weights: Tensor, x: Tensor, V: Tensor) -> Tensor:
        return weights @ x

    @mistake(
        "mix",
        "the weighted values of each token are returned, without the sum over them",
        line=("*", "unsqueeze", "None]"),
    )
    def not_summed(self, weights: Tensor, x: Tensor, V: Tensor) -> Tensor:
        each: Tensor = drop_axes(weights.unsqueeze(-1) * (x @ V.mT), 1)
        return each

    @mistake(
        "order",
        "the rearranged form still does T² work: sum the keys first, Σ_j (Q x_t)·(K x_j) = "
        "(Q x_t)·(K Σ_j x_j)",
        line=("@", "matmul", "einsum"),
    )
    def quadratic_cost(self) -> str:
        return "quadratic"

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Ask with Q x or x Q, one sequence or a batch of one; then the second function, if any."""
        if "asks_growth" in case.inputs:
            return self._ask_growth(student, case)
        if "method" in case.inputs and not _has_method(student):
            return None
        forms = with_arrays(student, *_find_forms(case))
        answer = ask_in_forms(self, student, forms)
        if answer is None or answer.results is None or "method" in case.inputs:
            return answer
        answer.results = {**answer.results, **self._ask_fast(student, case)}
        return answer

    def _ask_fast(self, student: Student, case: Case) -> Mapping[str, Any]:
        def read(output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"rearranged": self.read(output, inputs)["output"]}

        return ask_twin(self, student, case, FAST, read, *_find_forms(case))

    def _ask_growth(self, student: Student, case: Case) -> Answer | None:
        """Ask whether the rearranged function is linear in the length; None if it is wrong."""
        fast = student if student.name in FAST else find_twin(student, FAST)
        inputs = {name: case.inputs[name] for name in "xQKV"}
        if fast is None and _has_method(student):
            fast, inputs = student, {**inputs, "method": "rearranged"}
        if fast is None:
            return None
        plain = Case(case.says, case.term, inputs)
        answer = ask_in_forms(self, fast, with_arrays(fast, *_find_forms(plain)))
        if answer is None or differs(self, plain, answer):
            return None
        growth = find_growth(self, fast, lambda n: _find_forms(_lengthen(plain, n)))
        return None if growth is None else Answer([dict(case.inputs)], {"growth": growth})

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        first = output[0] if isinstance(output, tuple) else output
        return {"output": drop_axes(first, 1)}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, T: int, D: int, D_k: int, D_v: int, **more: Any) -> Case:
            inputs = {"x": draw.normal(T, D), **_draw_matrices(draw, D, D_k, D_v)}
            return Case(says, term, {**inputs, **more})

        yield case("a single token gives its value", "mix", 1, 4, 3, 2)
        even = case("equal scores give the mean of the values", "weigh", 4, 3, 2, 5)
        yield Case(even.says, "weigh", {**even.inputs, "Q": 0 * even.inputs["Q"]})
        yield case("α_t sums over all j and is divided by √T", "score", 3, 5, 4, 2)
        yield case("α_t sums over all j and is divided by √T", "score", 7, 2, 3, 4)
        yield case("both methods give the same output", "order", 5, 4, 2, 3, method="pairwise")
        yield case("both methods give the same output", "order", 5, 4, 2, 3, method="rearranged")
        yield case("the rearranged form takes O(T) work", "order", 4, 3, 2, 1, asks_growth=True)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, D in ((1, 1), (2, 1), (3, 1), (2, 2), (3, 2)):
            for _ in range(3):
                matrices = {
                    name: draw.small(n, D) for name, n in zip("QKV", (1, 1, 1), strict=True)
                }
                yield Case("a small example", "score", {"x": draw.small(T, D), **matrices})
        yield from list(self.cases(draw))[:4]


def _draw_matrices(draw: Draw, D: int, D_k: int, D_v: int) -> dict[str, Tensor]:
    Q, K = 0.5 * draw.normal(D_k, D), 0.5 * draw.normal(D_k, D)
    return {"Q": Q, "K": K, "V": draw.normal(D_v, D)}


def _has_method(student: Student) -> bool:
    return any(name == "method" for name, _ in student.signature(student.name))


def _find_forms(case: Case) -> list[Case]:
    """With matrices for Q x or for x Q, as one sequence or as a batch of one."""
    forms = [case, change(case, lambda W: W.mT, "Q", "K", "V")]
    return forms + [change(form, lambda x: x.unsqueeze(0), "x") for form in forms]


def _lengthen(case: Case, length: int) -> Case:
    x = case.inputs["x"][:1].expand(length, -1).contiguous()
    return replace(case, inputs={**case.inputs, "x": x})
