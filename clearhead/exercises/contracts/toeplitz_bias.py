"""A bias for each distance: M[i, j] = m[j − i], a Toeplitz matrix.

A function of the same file that attends with it is checked, too: softmax((q kᵀ + M) / √d_k) v.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.conventions import to_array_form
from clearhead.exercises.contracts.shared.twins import ask_twin
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import Student
from clearhead.exercises.weights import Role

ATTENTION = (
    "relative_attention",
    "toeplitz_attention",
    "attention_with_bias",
    "attention_with_toeplitz_bias",
    "biased_attention",
)
INDEX = ("arange", "range(", "gather", "[")


class ToeplitzBias(Exercise):
    name = "toeplitz_bias"
    title = "Relative positions as a Toeplitz matrix"
    formula = "M[i, j] = m[L + j − i]"
    signature = "toeplitz_bias(m, n) with m (…, 2L+1), weights of the distances −L … L → (…, n, n)"
    page = "positions.md"
    names = ("toeplitz_bias", "ToeplitzBias", "toeplitz", "relative_bias", "RelativeBias")
    terms = {
        "distance": "the distance j − i of key j from query i",
        "place": "the index of a distance among the 2L+1 weights: distance 0 is in the middle",
        "pick": "the entries of the matrix, taken from the weights",
        "divide": "the bias inside the division: (q kᵀ + M) / √d_k",
    }
    parameters = {
        "q": "q query queries",
        "k": "k key keys",
        "v": "v value values",
        "m": "m weights w bias table params rel vector",
        "n": "n length seq_len n_tokens size T N seq_length",
    }
    constructor = {
        "n_heads": "n_heads num_heads heads h nheads n_head",
        "max_len": "max_len max_length max_seq_len L length max_n",
    }
    optional = ("n_heads", "n")

    def roles(self, max_len: int, n_heads: int, **_: Any) -> dict[str, Role]:
        n = 2 * max_len + 1
        hints = "m weight bias table"
        return {
            "m": Role("vector", (n_heads, n), hints, optional=True),
            "single": Role("vector", (n,), hints, optional=True),  # one bias for all heads
            "table": Role("table", (n, n_heads), hints, optional=True),  # an nn.Embedding
        }

    # The formula: m (…, 2L+1) → (…, n, n); with q, k and v (…, n, d) also the attention

    def answer(
        self,
        n: int,
        m: Tensor | None = None,
        single: Tensor | None = None,
        table: Tensor | None = None,
        **given: Tensor,
    ) -> dict[str, Tensor]:
        m = table.mT if table is not None else m if m is not None else single
        assert m is not None
        i, j = torch.arange(n).unsqueeze(1), torch.arange(n)
        matrix = self.pick(m, self.place(self.distance(i, j, m.size(-1) // 2), m.size(-1), n))
        if not given:
            return {"output": matrix}
        q, k, v = (given[name] for name in "qkv")
        weights = self.divide(q @ k.mT, matrix, q.size(-1)).softmax(-1)
        return {"output": matrix, "attention": weights @ v}

    def distance(self, i: Tensor, j: Tensor, half: int) -> Tensor:
        return j - i  # (n, n)

    def place(self, distances: Tensor, n_weights: int, n: int) -> Tensor:
        return distances + n_weights // 2

    def pick(self, m: Tensor, places: Tensor) -> Tensor:
        return m[..., places]

    def divide(self, scores: Tensor, matrix: Tensor, d: int) -> Tensor:
        return (scores + matrix) / math.sqrt(d)

    def forms(self, case: Case) -> Iterable[Case]:
        """A function gets m, for each head or for one; a class has its own weights."""
        m, n = case.inputs["m"], case.inputs["n"]
        both = {"m": m, "n": n}
        yield replace(case, inputs=both if case.gradient else case.inputs, given=both)
        own = Case(case.says, case.term, {"n": n}, case.sizes)
        alone = replace(own, inputs={"m": m[0], "n": n})
        yield own
        yield replace(alone, gradient=case.gradient)
        yield to_array_form(replace(own, inputs=both))
        yield to_array_form(alone)

    def ask(self, student: Student, case: Case) -> Answer | None:
        """Ask for the matrix, and for attention with it if the file has such a function."""
        answer = student.ask(self, case)
        if answer is None or answer.results is None or answer.form is None:
            return answer
        if "q" not in answer.form.inputs:  # a class, or a gradient
            return answer
        matrix = {**case.inputs, "m": self.answer(**case.inputs)["output"]}
        found = ask_twin(
            self, student, case, ATTENTION, _read_attention, replace(case, given=matrix)
        )
        answer.results = {**answer.results, **found}
        return answer

    # Mistakes

    @mistake(
        "distance",
        "the matrix is transposed: it holds m[i − j] instead of m[j − i], which exchanges "
        "earlier and later tokens",
        line=INDEX,
    )
    def matrix_transposed(self, i: Tensor, j: Tensor, half: int) -> Tensor:
        return i - j

    @mistake(
        "distance",
        "the sign of the distance is lost: with |j − i|, tokens before and after the query "
        "get the same bias",
        line=("abs",),
    )
    def without_sign(self, i: Tensor, j: Tensor, half: int) -> Tensor:
        return (j - i).abs()

    @mistake(
        "distance",
        "the entries follow i + j, so that anti-diagonals are constant (a Hankel matrix) instead "
        "of diagonals",
        line=INDEX,
        variants=("hankel_centred",),
    )
    def hankel(self, i: Tensor, j: Tensor, half: int) -> Tensor:
        return i + j - half

    def hankel_centred(self, i: Tensor, j: Tensor, half: int) -> Tensor:
        return i + j - i.max()

    @mistake(
        "place",
        "distance 0 is taken from index 0 instead of the middle: negative distances count from "
        "the end of the weights",
        line=INDEX,
    )
    def not_centred(self, distances: Tensor, n_weights: int, n: int) -> Tensor:
        return distances % n_weights

    @mistake(
        "place",
        "the middle is n − 1 instead of L: the bias of a distance then changes with the length of "
        "the text",
        line=("n - 1", "n-1", "T - 1", *INDEX),
    )
    def centred_at_length(self, distances: Tensor, n_weights: int, n: int) -> Tensor:
        return distances + n - 1

    @mistake(
        "place",
        "all distances are off by one: index L + j − i + 1; the middle of 2L+1 weights is L",
        line=("+ 1", *INDEX),
        variants=("off_by_one_below",),
    )
    def off_by_one(self, distances: Tensor, n_weights: int, n: int) -> Tensor:
        return distances + n_weights // 2 + 1

    def off_by_one_below(self, distances: Tensor, n_weights: int, n: int) -> Tensor:
        return distances + n_weights // 2 - 1

    @mistake(
        "pick",
        "only tokens before the query get a bias: the entries above the diagonal are 0",
        line=("tril", "range("),
    )
    def lower_triangle_only(self, m: Tensor, places: Tensor) -> Tensor:
        return m[..., places].tril()

    @mistake(
        "pick",
        "each row of the matrix is the same: the weights are not shifted from row to row",
        line=("expand", "repeat", *INDEX),
    )
    def rows_not_shifted(self, m: Tensor, places: Tensor) -> Tensor:
        return m[..., places[:1]].expand(*m.shape[:-1], *places.shape)

    @mistake(
        "divide",
        "the bias is outside the division: it is added after the scores are divided by √d_k, so "
        "it counts √d_k times as much",
        line=("sqrt", "** 0.5", "**0.5", "+"),
    )
    def bias_outside_division(self, scores: Tensor, matrix: Tensor, d: int) -> Tensor:
        return scores / math.sqrt(d) + matrix

    @mistake("divide", "the bias is not added to the scores", line=("@", "matmul", "einsum"))
    def bias_ignored(self, scores: Tensor, matrix: Tensor, d: int) -> Tensor:
        return scores / math.sqrt(d)

    # Cases

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, H: int, L: int, n: int, **more: Any) -> Case:
            inputs = {"m": draw.normal(H, 2 * L + 1), "n": n}
            return Case(says, term, inputs, {"n_heads": H, "max_len": L}, **more)

        yield case("a single token has the weight of distance 0", "place", 2, 3, 1)
        yield case("the first row holds the distances 0, 1, …", "distance", 3, 6, 2)
        yield case("diagonals are constant", "pick", 2, 7, 5)
        yield case("the longest text uses all but the outermost weights", "place", 3, 4, 4)
        yield case("the gradient reaches the weights", "pick", 2, 5, 4, gradient=True)
        last = case("attention adds the bias to q kᵀ, then divides by √d_k", "divide", 2, 6, 5)
        three = {name: draw.normal(2, 5, 9) for name in "qkv"}
        yield replace(last, inputs={**three, **last.inputs})

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for d, L, n in ((0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 3), (0, 5, 4), (4, 2, 2)):
            m = torch.arange(-L, L + 1.0).expand(1, -1).contiguous()
            three = {name: draw.small(1, n, d) for name in "qkv" if d}
            inputs = {**three, "m": m, "n": n}
            yield Case("a small example", "pick", inputs, {"n_heads": 1, "max_len": L})
        yield from self.cases(draw)


def _read_attention(output: Any, inputs: Any) -> dict[str, Any]:
    """Read the output, with or without the weights beside it."""
    return {"attention": output[0] if isinstance(output, tuple) else output}
