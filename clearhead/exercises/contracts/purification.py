"""Linear purification: the minimiser of ‖X − W X‖² + λ ‖W‖²."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.forms import ask_in_forms, with_arrays
from clearhead.exercises.student import Student


class Purification(Exercise):
    name = "purification"
    title = "Linear purification"
    formula = "Ŵ = X Xᵀ (X Xᵀ + λ I)⁻¹, the minimiser of ‖X − W X‖² + λ ‖W‖²"
    signature = "purification(X, lam): (T, D), number → (T, T)"
    page = "attention.md#what-mixing-keeps-and-what-it-drops"
    names = (
        "purification",
        "purify",
        "purification_minimiser",
        "purification_minimizer",
        "minimiser",
        "minimizer",
        "closed_form(X, lam)",
        "optimal_W",
        "best_W",
        "W_hat",
        "linear_purification",
        "solve(X, lam)",
    )
    terms = {
        "combine": "the product of X Xᵀ and the inverse",
        "gram": "the matrix X Xᵀ of the rows, (T, T)",
        "penalty": "the penalty λ I, added to X Xᵀ",
        "invert": "the inverse of X Xᵀ + λ I",
    }
    parameters = {
        "X": "x data inputs a",
        "lam": "lam lambda_ lmbda lambd lmbd l reg strength alpha penalty lam_ ridge",
    }

    # The formula: X (T, D), λ → Ŵ (T, T)

    def answer(self, X: Tensor, lam: float) -> Tensor:
        X = X.double()
        return self.combine(X, self.gram(X), lam)

    def combine(self, X: Tensor, A: Tensor, lam: float) -> Tensor:
        return A @ self.invert(A + self.penalty(A, lam))

    def gram(self, X: Tensor) -> Tensor:
        return X @ X.mT

    def penalty(self, A: Tensor, lam: float) -> Tensor:
        return lam * torch.eye(len(A), dtype=A.dtype)

    def invert(self, A: Tensor) -> Tensor:
        return torch.linalg.inv(A)

    # Mistakes

    @mistake(
        "gram",
        "the Gram matrix is Xᵀ X (D, D), of the columns, instead of X Xᵀ (T, T), of the rows; "
        "W mixes rows",
        line=(".T @", ".mT @", "@", "svd"),
    )
    def gram_of_columns(self, X: Tensor) -> Tensor:
        return X.mT @ X

    @mistake(
        "gram",
        "X Xᵀ is divided by its number of columns, so λ weighs D times as much",
        line=("/", "mean", "cov"),
    )
    def mean_gram(self, X: Tensor) -> Tensor:
        return X @ X.mT / X.size(1)

    @mistake(
        "gram",
        "the means of the rows are subtracted first: that is a covariance, not X Xᵀ",
        line=("mean", "cov"),
    )
    def centred_gram(self, X: Tensor) -> Tensor:
        centred = X - X.mean(1, keepdim=True)
        return centred @ centred.mT

    @mistake(
        "penalty",
        "the penalty λ I is missing: without it Ŵ is the identity, or no inverse exists",
        line=("inv", "solve"),
    )
    def no_penalty(self, A: Tensor, lam: float) -> Tensor:
        return torch.zeros_like(A)

    @mistake(
        "penalty",
        "λ is added to every entry of X Xᵀ: λ I is meant, with λ on the diagonal",
        line=("+ lam", "+ l", "+"),
    )
    def lambda_on_every_entry(self, A: Tensor, lam: float) -> Tensor:
        return torch.full_like(A, lam)

    @mistake("penalty", "the penalty is λ² I instead of λ I", line=("**2", "** 2", "lam * lam"))
    def lambda_squared(self, A: Tensor, lam: float) -> Tensor:
        return lam**2 * torch.eye(len(A), dtype=A.dtype)

    @mistake(
        "penalty",
        "the penalty is 2λ I: the factor 2 of the derivative stands before X Xᵀ, too, and cancels",
        line=("2 *", "* 2"),
    )
    def lambda_doubled(self, A: Tensor, lam: float) -> Tensor:
        return 2 * lam * torch.eye(len(A), dtype=A.dtype)

    @mistake(
        "penalty",
        "the penalty is ½λ I: the factor 2 of the derivative stands before λ W, too, and cancels",
        line=("/ 2", "0.5", "/2"),
    )
    def lambda_halved(self, A: Tensor, lam: float) -> Tensor:
        return lam / 2 * torch.eye(len(A), dtype=A.dtype)

    @mistake("penalty", "λ I is subtracted from X Xᵀ instead of added", line=("- lam", "-"))
    def penalty_subtracted(self, A: Tensor, lam: float) -> Tensor:
        return -lam * torch.eye(len(A), dtype=A.dtype)

    @mistake(
        "invert",
        "each entry is inverted by itself, 1 / a, instead of the matrix",
        line=("1 /", "1/", "** -1", "**-1", "reciprocal"),
    )
    def elementwise_inverse(self, A: Tensor) -> Tensor:
        return 1 / A

    @mistake(
        "invert",
        "X Xᵀ is multiplied by X Xᵀ + λ I itself instead of its inverse",
        line=("@", "matmul", "dot"),
    )
    def no_inverse(self, A: Tensor) -> Tensor:
        return A

    @mistake(
        "combine",
        "the factor X Xᵀ before the inverse is missing",
        line=("inv(", "solve(", "return"),
    )
    def gram_factor_missing(self, X: Tensor, A: Tensor, lam: float) -> Tensor:
        return self.invert(A + self.penalty(A, lam))

    @mistake(
        "combine",
        "the matrices are multiplied entry by entry (*), not as matrices (@)",
        line=(" * ", "mul("),
    )
    def elementwise_product(self, X: Tensor, A: Tensor, lam: float) -> Tensor:
        return A * self.invert(A + self.penalty(A, lam))

    @mistake(
        "combine",
        "the purified data Ŵ X are returned instead of the matrix Ŵ",
        line=("return",),
    )
    def purified_data(self, X: Tensor, A: Tensor, lam: float) -> Tensor:
        return A @ self.invert(A + self.penalty(A, lam)) @ X

    @mistake(
        "combine",
        "the singular values are not squared: the share kept is σ² / (σ² + λ), not σ / (σ + λ)",
        line=("/ (", "/(", "diag"),
    )
    def unsquared_singular_values(self, X: Tensor, A: Tensor, lam: float) -> Tensor:
        U, sigma, _ = torch.linalg.svd(X, full_matrices=False)
        return U * (sigma / (sigma + lam)) @ U.mT

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        return ask_in_forms(self, student, with_arrays(student, case))

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"output": output[0] if isinstance(output, tuple) else output}

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, T: int, D: int, lam: float) -> Case:
            return Case(says, term, {"X": 1.5 * draw.normal(T, D), "lam": lam})

        one = {"X": torch.tensor([[3.0, 0.0]]), "lam": 1.0}
        yield Case("a single row of length 3 keeps 9 / (9 + λ)", "penalty", one)
        yield case("for one row Ŵ is ‖x‖² / (‖x‖² + λ)", "penalty", 1, 4, 0.6)
        yield case("Ŵ = X Xᵀ (X Xᵀ + λ I)⁻¹", "gram", 3, 7, 2.5)
        yield case("Ŵ = X Xᵀ (X Xᵀ + λ I)⁻¹", "gram", 5, 9, 0.7)
        yield case("λ may be a whole number", "penalty", 4, 6, 3)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for T, D in ((1, 1), (1, 2), (2, 1), (2, 3)):
            for lam in (1, 2):
                yield Case("a small example", "gram", {"X": draw.small(T, D), "lam": lam})
        yield from self.cases(draw)
