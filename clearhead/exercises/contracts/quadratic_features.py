"""The features of the quadratic kernel: φ(q)·φ(k) = (q·k + 1)²."""

import math
from collections.abc import Iterable
from itertools import combinations

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.products import ask_products, take_products
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import Student


class QuadraticFeatures(Exercise):
    name = "quadratic_features"
    title = "The features of the quadratic kernel"
    formula = "φ(x) = [1, √2 x_i, x_i², √2 x_i x_j for i < j], so φ(q)·φ(k) = (q·k + 1)²"
    signature = "phi(x): (..., D) → (..., C), features in any order"
    page = "attention.md#when-kernel-attention-is-safe-and-when-it-is-faster"
    names = (
        "quadratic_features",
        "phi(x)",
        "quadratic_feature_map",
        "phi_quadratic",
        "feature_map",
        "QuadraticFeatures",
    )
    terms = {
        "features": "the kernel (q·k + 1)², of which φ is the feature map",
        "factor": "the factor √2 of x_i and x_i x_j",
        "constant": "the feature 1",
        "linear": "the features √2 x_i",
        "squares": "the features x_i²",
        "cross": "the features √2 x_i x_j, one for each pair i < j",
    }
    parameters = {"x": "x X q u v vec vector inputs"}

    # The formula: q (T, D), k (S, D) → φ(q)·φ(k) (T, S)

    def answer(self, q: Tensor, k: Tensor, part: str) -> Tensor:
        return take_products(self.features, q, k, part)

    def features(self, x: Tensor) -> Tensor:
        parts = (self.constant(x), self.linear(x), self.squares(x), self.cross(x))
        return torch.cat(parts, dim=-1)

    def factor(self) -> float:
        return math.sqrt(2)

    def constant(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[..., :1])

    def linear(self, x: Tensor) -> Tensor:
        return self.factor() * x

    def squares(self, x: Tensor) -> Tensor:
        return x.square()

    def cross(self, x: Tensor) -> Tensor:
        return self.factor() * multiply_pairs(x, combinations(range(x.size(-1)), 2))

    # Mistakes

    @mistake(
        "factor",
        "the factor √2 is missing: (q·k + 1)² has 2 q_i k_i and 2 q_i q_j k_i k_j, so each "
        "of the two features needs √2",
        line=("cat", "append", "stack", "return"),
    )
    def no_root_two(self) -> float:
        return 1.0

    @mistake(
        "factor",
        "the factor is 2 instead of √2: it is squared in the product φ(q)·φ(k)",
        line=("2 *", "2*", "* 2", "2.0"),
    )
    def two_for_root_two(self) -> float:
        return 2.0

    @mistake(
        "linear",
        "the features x_i have no factor √2, so 2 q·k becomes q·k",
        line=("cat", "append", "extend", "return"),
    )
    def linear_without_root(self, x: Tensor) -> Tensor:
        return x

    @mistake(
        "linear",
        "the features √2 x_i are missing, so the term 2 q·k of (q·k + 1)² is lost",
        line=("cat", "append", "extend", "return"),
    )
    def no_linear_terms(self, x: Tensor) -> Tensor:
        return x[..., :0]

    @mistake(
        "cross",
        "the cross terms √2 x_i x_j are missing: the square of a sum is more than the sum of "
        "the squares",
        line=("**2", "** 2", "square", "x * x", "pow"),
    )
    def no_cross_terms(self, x: Tensor) -> Tensor:
        return x[..., :0]

    @mistake(
        "cross",
        "the cross terms x_i x_j, i < j, have no factor √2: each stands for the two products "
        "x_i x_j and x_j x_i",
        line=("triu", "combinations", "for j", "[j]"),
    )
    def cross_without_root(self, x: Tensor) -> Tensor:
        return multiply_pairs(x, combinations(range(x.size(-1)), 2))

    @mistake(
        "cross",
        "the cross terms come twice, as x_i x_j and as x_j x_i, and with √2 as well: take only "
        "the pairs i < j",
        line=("for j", "!=", "sqrt(2)", "product("),
    )
    def cross_terms_twice(self, x: Tensor) -> Tensor:
        D = range(x.size(-1))
        return self.factor() * multiply_pairs(x, [(i, j) for i in D for j in D if i != j])

    @mistake(
        "cross",
        "only neighbours are multiplied, x_i x_{i+1}, instead of every pair i < j",
        line=("1:]", ":-1]", "roll", "[i + 1]", "[i+1]"),
    )
    def neighbours_only(self, x: Tensor) -> Tensor:
        return self.factor() * x[..., 1:] * x[..., :-1]

    @mistake(
        "cross",
        "the cross terms also take i = j, so the squares come twice; they begin at j = i + 1",
        line=("range(i", "triu", "combinations_with_replacement", "for j"),
    )
    def squares_in_cross_terms(self, x: Tensor) -> Tensor:
        D = x.size(-1)
        pairs = [(i, j) for i in range(D) for j in range(i, D)]
        return self.factor() * multiply_pairs(x, pairs)

    @mistake(
        "squares",
        "the squares x_i² have a factor √2; only the products of different numbers occur twice",
        line=("triu", "range(i", "sqrt(2)", "combinations_with_replacement"),
    )
    def weighted_squares(self, x: Tensor) -> Tensor:
        return math.sqrt(2) * x.square()

    @mistake("squares", "the squares x_i² are missing", line=("cat", "append", "extend", "return"))
    def no_squares(self, x: Tensor) -> Tensor:
        return x[..., :0]

    @mistake(
        "constant",
        "the feature 1 is missing, so (q·k + 1)² loses its constant",
        line=("cat", "append", "extend", "return"),
    )
    def no_constant(self, x: Tensor) -> Tensor:
        return x[..., :0]

    @mistake(
        "features",
        "these are the features of (q·k)²: the kernel adds 1 before it squares",
        line=("triu", "outer", "einsum", "return"),
    )
    def kernel_without_one(self, x: Tensor) -> Tensor:
        return torch.cat((self.squares(x), self.cross(x)), dim=-1)

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        return ask_products(self, student, case, [dict(case.inputs)])

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, T: int, S: int, D: int, part: str) -> Case:
            q, k = draw.normal(T, D), draw.normal(S, D)
            return Case(says, term, {"q": q, "k": k, "part": part})

        zeros = {"q": torch.zeros(2, 3), "k": torch.zeros(4, 3), "part": "all"}
        yield Case("φ(0)·φ(0) = 1", "constant", zeros)
        yield case("the odd part of φ(q)·φ(k) is 2 q·k", "linear", 3, 2, 4, "odd")
        yield case("for D = 1 the even part is 1 + q² k²", "squares", 4, 3, 1, "even")
        yield case("the even part of φ(q)·φ(k) is 1 + (q·k)²", "cross", 3, 5, 2, "even")
        yield case("φ(q)·φ(k) = (q·k + 1)²", "cross", 4, 3, 5, "all")
        yield case("φ(q)·φ(k) = (q·k + 1)²", "cross", 2, 5, 7, "all")

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for D in (1, 1, 1, 2, 2, 2, 3, 3, 3):
            inputs = {"q": draw.small(1, D), "k": draw.small(1, D), "part": "all"}
            yield Case("a small example", "cross", inputs)
        yield from self.cases(draw)


def multiply_pairs(x: Tensor, pairs: Iterable[tuple[int, int]]) -> Tensor:
    """x_i x_j for each pair: (..., D) → (..., n)."""
    products = [x[..., i] * x[..., j] for i, j in pairs]
    return torch.stack(products, dim=-1) if products else x[..., :0]
