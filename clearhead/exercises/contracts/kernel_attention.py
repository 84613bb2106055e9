"""Kernel attention in O(N): the sums over the keys are taken once, before the queries."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.comparison import differs
from clearhead.exercises.contracts.quadratic_features import QuadraticFeatures
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import (
    Choices,
    ask_in_forms,
    change,
    drop_axes,
    find_growth,
    read_parameters,
    with_arrays,
)
from clearhead.exercises.student import Student

MAPS = {
    "elu": lambda x: torch.nn.functional.elu(x) + 1,
    "relu": torch.relu,
    "exp": torch.exp,
    "quadratic": QuadraticFeatures().features,
    "identity": lambda x: x,  # the arguments are features already
}
GIVEN = {"make": "_given_map"}  # a function in `helpers`


class KernelAttention(Exercise):
    name = "kernel_attention"
    title = "Kernel attention in linear time"
    formula = "φ(q_i)ᵀ (Σ_j φ(k_j) v_jᵀ) / φ(q_i)ᵀ Σ_j φ(k_j)"
    signature = "kernel_attention(q, k, v, phi), (q, k, v) with its own φ, or (phi_q, phi_k, v)"
    page = "attention.md#when-kernel-attention-is-safe-and-when-it-is-faster"
    names = (
        "kernel_attention",
        "linear_attention",
        "kernelized_attention",
        "kernelised_attention",
        "linear_kernel_attention",
        "LinearAttention",
        "KernelAttention",
    )
    terms = {
        "similarity": "the similarity φ(q)·φ(k)",
        "map": "the features φ of queries and keys",
        "numerator": "the sum Σ_j φ(k_j) v_jᵀ, multiplied by φ(q_i)",
        "denominator": "the division by φ(q_i)·Σ_j φ(k_j)",
        "order": "the order of the sums, which makes it O(N)",
    }
    parameters = {
        "q": "q query queries Q phi_q q_features fq",
        "k": "k key keys K phi_k k_features fk",
        "v": "v value values V",
        "phi": "phi feature_map feature_fn kernel feature_map_fn feature features f",
    }
    constructor = {"phi": "phi feature_map feature_fn kernel"}
    optional = ("phi",)
    helpers = "def _given_map(x):\n    return (x > 0) * (x + 1) + (x <= 0) * 2.718281828459045**x"

    # The formula: q (..., T, D), k (..., S, D), v (..., S, Dv) → (..., T, Dv)

    def answer(
        self, q: Tensor, k: Tensor, v: Tensor, phi: str, asks_growth: bool = False
    ) -> dict[str, Tensor | str]:
        if asks_growth:
            return {"growth": self.order()}
        return {"output": self.similarity(q, k, v, phi)}

    def similarity(self, q: Tensor, k: Tensor, v: Tensor, phi: str) -> Tensor:
        fq, fk = self.map(q, k, phi)
        return self.numerator(fq, fk, v) / self.denominator(fq, fk)

    def map(self, q: Tensor, k: Tensor, phi: str) -> tuple[Tensor, Tensor]:
        return MAPS[phi](q), MAPS[phi](k)

    def numerator(self, fq: Tensor, fk: Tensor, v: Tensor) -> Tensor:
        return fq @ (fk.mT @ v)

    def denominator(self, fq: Tensor, fk: Tensor) -> Tensor:
        return fq @ fk.sum(-2).unsqueeze(-1)  # (..., T, 1)

    def order(self) -> str:
        return "linear"

    # Mistakes

    @mistake(
        "denominator",
        "the denominator φ(q_i)·Σ_j φ(k_j) is missing, so the weights of a query do not sum to 1",
        line=("@", "einsum", "matmul", "return"),
    )
    def no_denominator(self, fq: Tensor, fk: Tensor) -> Tensor:
        return torch.ones_like(fq[..., :1])

    @mistake(
        "denominator",
        "the denominator sums over the queries: it is φ(k_j)·Σ_i φ(q_i) instead of "
        "φ(q_i)·Σ_j φ(k_j)",
        line=("sum(",),
    )
    def denominator_over_queries(self, fq: Tensor, fk: Tensor) -> Tensor:
        return fk @ fq.sum(-2).unsqueeze(-1)

    @mistake(
        "denominator",
        "the denominator is the number of keys, not the sum of their similarities",
        line=("shape", "size", "len(", "mean("),
    )
    def divided_by_length(self, fq: Tensor, fk: Tensor) -> Tensor:
        return torch.full_like(fq[..., :1], fk.size(-2))

    @mistake(
        "denominator",
        "the denominator is Σ_j φ(k_j) summed over all features, without the query",
        line=("sum(",),
    )
    def denominator_without_query(self, fq: Tensor, fk: Tensor) -> Tensor:
        return fk.sum((-2, -1)).unsqueeze(-1).unsqueeze(-1)

    @mistake(
        "similarity",
        "each feature of the keys is divided by its own sum, instead of the output by "
        "φ(q_i)·Σ_j φ(k_j)",
        line=("sum(",),
    )
    def divided_by_feature(self, q: Tensor, k: Tensor, v: Tensor, phi: str) -> Tensor:
        fq, fk = self.map(q, k, phi)
        return self.numerator(fq, fk / fk.sum(-2, keepdim=True), v)

    @mistake(
        "similarity",
        "the weights are a softmax of φ(q)·φ(k): the similarities are weights already; only "
        "divide them by their sum",
        line=("softmax",),
    )
    def softmax_of_features(self, q: Tensor, k: Tensor, v: Tensor, phi: str) -> Tensor:
        fq, fk = self.map(q, k, phi)
        return (fq @ fk.mT).softmax(-1) @ v

    @mistake(
        "similarity",
        "this is softmax attention, softmax(q kᵀ/√d) v: φ is not used",
        line=("softmax",),
    )
    def softmax_attention(self, q: Tensor, k: Tensor, v: Tensor, phi: str) -> Tensor:
        return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v

    @mistake(
        "numerator",
        "the sums run over the keys up to i (cumsum), as a decoder needs; here each query sees "
        "every key",
        line=("cumsum",),
    )
    def causal_numerator(self, fq: Tensor, fk: Tensor, v: Tensor) -> Tensor:
        sums = (fk.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(-3)
        return (fq.unsqueeze(-2) @ sums).squeeze(-2)

    @mistake("map", "φ is applied to the queries, but not to the keys", line=("phi(q", "elu", "("))
    def keys_not_mapped(self, q: Tensor, k: Tensor, phi: str) -> tuple[Tensor, Tensor]:
        return MAPS[phi](q), k

    @mistake("map", "φ is applied to the keys, but not to the queries", line=("phi(k", "elu", "("))
    def queries_not_mapped(self, q: Tensor, k: Tensor, phi: str) -> tuple[Tensor, Tensor]:
        return q, MAPS[phi](k)

    @mistake(
        "map",
        "φ is not used: q and k themselves are multiplied, and such a similarity can be negative",
        line=("@", "einsum", "matmul"),
    )
    def no_map(self, q: Tensor, k: Tensor, phi: str) -> tuple[Tensor, Tensor]:
        return q, k

    @mistake(
        "order",
        "the numbers are right, but the work grows as N²: all similarities φ(Q) φ(K)ᵀ are "
        "computed; multiply φ(K)ᵀ V first",
        line=("@", "einsum", "matmul", "bmm"),
    )
    def quadratic_cost(self) -> str:
        return "quadratic"

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Pass φ if the function has a parameter for it; otherwise it uses the student's own."""
        names = read_parameters(student)
        is_given = any(name in self.parameters["phi"].split() for name in names)
        if is_given:
            if student.owner:
                case = replace(case, sizes={"phi": GIVEN})
            else:
                case = replace(case, given={**_take_tensors(case), "phi": GIVEN})
        has_features = any("phi_" in name or "feat" in name for name in names)
        own = [each for each in MAPS if each != "identity" or has_features]
        choices = [{**case.inputs, "phi": phi} for phi in (["elu"] if is_given else own)]
        if "asks_growth" in case.inputs:
            if not self._is_right(student, case, choices):
                return None  # the work is measured only if the numbers are right
            growth = find_growth(self, student, lambda n: _add_batch(_lengthen(case, n)))
            return None if growth is None else Answer(choices, {"growth": growth})
        answer = ask_in_forms(self, student, with_arrays(student, *_add_batch(case)), choices)
        if answer is not None and answer.error is not None and case.inputs["q"].dim() > 2:
            return None  # a batch of sequences is free
        return answer

    def _is_right(self, student: Student, case: Case, choices: Choices) -> bool:
        plain = replace(case, inputs=_take_tensors(case))
        choices = [{**plain.inputs, "phi": each["phi"]} for each in choices]
        answer = ask_in_forms(self, student, with_arrays(student, *_add_batch(plain)), choices)
        return answer is not None and any(
            not differs(self, plain, answer, i) for i in range(len(choices))
        )

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        first = output[0] if isinstance(output, tuple) else output
        return {"output": drop_axes(first, inputs["q"].dim())}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, *sizes: int, T: int, S: int, D: int) -> Case:
            return Case(says, term, _draw_inputs(draw, sizes, T, S, D, 3))

        yield case("a single key gives its value", "denominator", T=3, S=1, D=5)
        equal = _draw_inputs(draw, (), 2, 6, 4, 3)
        equal["k"] = equal["k"][:1].repeat(6, 1)
        yield Case("equal keys give the mean of the values", "numerator", equal)
        yield case("the weights are φ(q)·φ(k) over their sum", "map", T=4, S=5, D=2)
        yield case("as many queries as keys", "denominator", T=6, S=6, D=4)
        yield case(
            "the sequences of a batch do not affect each other", "numerator", 2, T=4, S=5, D=3
        )
        inputs = _draw_inputs(draw, (), 4, 4, 2, 1)
        yield Case("the work grows as N", "order", {**inputs, "asks_growth": True})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, S, D in ((1, 1, 1), (1, 2, 1), (2, 3, 2), (3, 3, 2)):
            inputs = {"q": draw.whole(0, 2, T, D), "k": draw.whole(0, 2, S, D)}
            inputs = {name: x.float() for name, x in inputs.items()}
            yield Case("a small example", "map", {**inputs, "v": draw.small(S, 1)})
        yield from list(self.cases(draw))[:-1]


def _draw_inputs(
    draw: Draw, batch: Sequence[int], T: int, S: int, D: int, Dv: int
) -> dict[str, Tensor]:
    """Mostly positive queries and keys, so that the denominator is not near 0 for any φ."""
    q, k = 1 + 0.5 * draw.normal(*batch, T, D), 1 + 0.5 * draw.normal(*batch, S, D)
    if S > 1:
        q[..., 0, 0], k[..., 0, 0] = -0.4, -0.7
    return {"q": q, "k": k, "v": draw.normal(*batch, S, Dv)}


def _take_tensors(case: Case) -> dict[str, Any]:
    return {name: case.inputs[name] for name in ("q", "k", "v")}


def _add_batch(case: Case) -> tuple[Case, Case]:
    """The case, and the same as a batch of one."""
    return case, change(case, lambda x: x.unsqueeze(0), "q", "k", "v")


def _lengthen(case: Case, length: int) -> Case:
    """The case with n queries and n keys."""
    given = _take_tensors(case) if case.given is None else case.given
    longer = {
        name: x[:1].expand(length, -1).contiguous() if isinstance(x, Tensor) else x
        for name, x in given.items()
    }
    return replace(case, inputs={n: longer[n] for n in ("q", "k", "v")}, given=longer)
