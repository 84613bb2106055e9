"""Random Fourier features: φ(q)·φ(k) is the mean of cos(w·(q − k)) over the frequencies w."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.products import ask_products, take_products
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.student import Student

# Functions of these names must have the norms: φ(q)·φ(k) is then near exp(q·k/s²).
WITH_NORMS = ("softmax_features", "softmax_feature_map", "fourier_softmax_features")


class FourierFeatures(Exercise):
    name = "fourier_features"
    title = "Random Fourier features"
    formula = "φ(x) = [sin(W x), cos(W x)] / √m, for m frequencies, the rows of W"
    signature = (
        "phi(x, W): (..., D), (m, D) → (..., 2m), features in any order; "
        "softmax_features(x, W), if it also has the factor exp(‖x‖²/2s²), s² = √D"
    )
    page = "attention.md#when-kernel-attention-is-safe-and-when-it-is-faster"
    names = (
        "fourier_features",
        "phi(x, W)",
        "random_fourier_features",
        "phi_fourier",
        "fourier_feature_map",
        "rff",
        "random_features",
        *WITH_NORMS,
    )
    terms = {
        "factor": "the factor 1/√m, for m frequencies",
        "waves": "a sine and a cosine for each frequency",
        "angles": "the angles W x",
        "norms": "the factor exp(‖x‖²/2s²), s² = √D, of softmax_features; phi may leave it out",
    }
    parameters = {"x": "x X q u inputs", "W": "w W omega omegas freqs frequencies weights"}

    # The formula: q (T, D), k (S, D), W (m, D) → φ(q)·φ(k) (T, S)

    def answer(self, q: Tensor, k: Tensor, W: Tensor, has_norms: bool) -> Tensor:
        def phi(x: Tensor) -> Tensor:
            features = self.factor(W) * self.waves(self.angles(x, W))
            return self.norms(x) * features if has_norms else features

        return take_products(phi, q, k)

    def factor(self, W: Tensor) -> float:
        return 1 / math.sqrt(W.size(0))

    def waves(self, angles: Tensor) -> Tensor:
        return torch.cat((angles.sin(), angles.cos()), dim=-1)

    def angles(self, x: Tensor, W: Tensor) -> Tensor:
        return x @ W.mT

    def norms(self, x: Tensor) -> Tensor:
        return (x.square().sum(-1, keepdim=True) / (2 * math.sqrt(x.size(-1)))).exp()

    # Mistakes

    @mistake(
        "factor",
        "the factor 1/√m is missing, so the products are sums over the frequencies, not means",
        line=("cat", "concat", "hstack", "stack", "return"),
    )
    def no_normalisation(self, W: Tensor) -> float:
        return 1.0

    @mistake(
        "factor",
        "the features are divided by m instead of √m, so φ(q)·φ(k) is divided by m² instead of m",
        line=("/ m", "/m", "/", "len(W)", "shape[0]"),
    )
    def divided_by_m(self, W: Tensor) -> float:
        return 1 / W.size(0)

    @mistake(
        "factor",
        "the features are divided by √(2m), the number of features, instead of √m, the number of "
        "frequencies: sin² + cos² is 1 already",
        line=("sqrt", "** 0.5", "**0.5", "** -0.5"),
    )
    def divided_by_features(self, W: Tensor) -> float:
        return 1 / math.sqrt(2 * W.size(0))

    @mistake(
        "factor",
        "the features are divided by √D, the width of x, instead of √m",
        line=("sqrt", "** 0.5", "**0.5", "shape[1]", "shape[-1]"),
    )
    def divided_by_width(self, W: Tensor) -> float:
        return 1 / math.sqrt(W.size(1))

    @mistake(
        "factor",
        "the factor is √(2/m) instead of 1/√m; the 2 belongs to cosines with a random phase",
        line=("sqrt", "2 /", "2/", "** 0.5"),
    )
    def random_phase_factor(self, W: Tensor) -> float:
        return math.sqrt(2 / W.size(0))

    @mistake(
        "waves",
        "there are cosines only: cos(a) cos(b) is not cos(a − b) without sin(a) sin(b)",
        line=("cos(",),
    )
    def only_cosines(self, angles: Tensor) -> Tensor:
        return angles.cos()

    @mistake(
        "waves",
        "there are sines only: sin(a) sin(b) is not cos(a − b) without cos(a) cos(b)",
        line=("sin(",),
    )
    def only_sines(self, angles: Tensor) -> Tensor:
        return angles.sin()

    @mistake(
        "waves",
        "sine and cosine are added instead of kept as two features",
        line=("sin(", "cos("),
    )
    def added_waves(self, angles: Tensor) -> Tensor:
        return angles.sin() + angles.cos()

    @mistake(
        "angles",
        "the angles are multiplied by 2π; the frequencies in W are already angular",
        line=("pi", "tau", "6.28"),
    )
    def two_pi(self, x: Tensor, W: Tensor) -> Tensor:
        return 2 * math.pi * x @ W.mT

    @mistake(
        "angles",
        "the angles are x W instead of x Wᵀ: the rows of W are the frequencies",
        line=("@", "matmul", "mm(", "dot", "einsum"),
    )
    def transposed_frequencies(self, x: Tensor, W: Tensor) -> Tensor:
        return x @ W

    @mistake(
        "angles",
        "the angles are divided by s = D^(1/4) once more: the rows of W are drawn from N(0, "
        "I/s²), so they already have this scale",
        line=("sigma", "0.25", "sqrt", "** 0.5", "/"),
    )
    def frequencies_scaled_twice(self, x: Tensor, W: Tensor) -> Tensor:
        return x @ W.mT / x.size(-1) ** 0.25

    @mistake(
        "angles",
        "the angles are multiplied by s = D^(1/4), but the frequencies scale with 1/s: a wide "
        "kernel has low frequencies",
        line=("sigma", "0.25", "sqrt", "** 0.5"),
    )
    def scale_for_its_inverse(self, x: Tensor, W: Tensor) -> Tensor:
        return x @ W.mT * x.size(-1) ** 0.25

    @mistake(
        "norms",
        "the norms are missing: φ(q)·φ(k) is near exp(−‖q − k‖²/2s²), and only the factors "
        "exp(‖q‖²/2s²) and exp(‖k‖²/2s²) make it exp(q·k/s²)",
        line=("cat", "concat", "hstack", "stack", "return"),
    )
    def no_norms(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[..., :1])

    @mistake(
        "norms",
        "the norms have the wrong sign: the factor is exp(‖x‖²/2s²), not exp(−‖x‖²/2s²)",
        line=("exp(",),
    )
    def negative_norms(self, x: Tensor) -> Tensor:
        return 1 / FourierFeatures.norms(self, x)

    @mistake(
        "norms",
        "the norms are exp(‖x‖²/2), without the division by s² = √D",
        line=("exp(",),
    )
    def norms_without_scale(self, x: Tensor) -> Tensor:
        return (x.square().sum(-1, keepdim=True) / 2).exp()

    @mistake(
        "norms",
        "the norms are exp(‖x‖²/s²) instead of exp(‖x‖²/2s²)",
        line=("exp(",),
    )
    def norms_not_halved(self, x: Tensor) -> Tensor:
        return FourierFeatures.norms(self, x).square()

    # Cases

    def ask(self, student: Student, case: Case) -> Answer | None:
        forms = (True,) if student.name in WITH_NORMS else (False, True)
        choices = [{**case.inputs, "has_norms": has_norms} for has_norms in forms]
        return ask_products(self, student, case, choices)

    def cases(self, draw: Draw) -> Iterable[Case]:
        def case(says: str, term: str, T: int, S: int, D: int, m: int) -> Case:
            inputs = {"q": 0.6 * draw.normal(T, D), "k": 0.6 * draw.normal(S, D)}
            return Case(says, term, {**inputs, "W": draw.normal(m, D)})

        origin = {"q": torch.zeros(2, 3), "k": torch.zeros(4, 3), "W": draw.normal(5, 3)}
        yield Case("φ(0)·φ(0) = 1", "factor", origin)
        own = case("φ(x)·φ(x) = 1, by sin² + cos² = 1", "waves", 1, 1, 4, 7)
        yield Case(own.says, "waves", {**own.inputs, "k": own.inputs["q"]})
        yield case("two frequencies give the mean of two cosines", "angles", 3, 4, 5, 2)
        yield case("φ(q)·φ(k) is the mean of cos(w·(q − k))", "angles", 3, 2, 5, 8)
        yield case("there may be as many frequencies as numbers in x", "angles", 2, 4, 6, 6)

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        for D, m in ((1, 1), (1, 2), (2, 2), (2, 3)):
            for _ in range(3):
                inputs = {"q": draw.small(1, D), "k": draw.small(1, D), "W": draw.small(m, D)}
                yield Case("a small example", "angles", inputs)
        yield from self.cases(draw)
