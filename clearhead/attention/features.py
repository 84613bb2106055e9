"""Feature maps φ of kernel attention: φ(q)·φ(k) is the similarity of q and k, or estimates it.

    QuadraticFeatures   (q·k + 1)²                              exact
    EluFeatures         Σ_i (elu(q_i) + 1)(elu(k_i) + 1)        exact, D features
    FourierFeatures     exp(q·k/√D), estimated                  Rahimi and Recht 2007
    PositiveFeatures    exp(q·k/√D), estimated, never negative  Choromanski et al. 2021

D is the width of a head here. The random features come from these equations, with s² = √D and E the
mean over random frequencies w ~ N(0, I/s²):

    exp(q·k/s²)      = exp(‖q‖²/2s²) exp(−‖q−k‖²/2s²) exp(‖k‖²/2s²)
    exp(−‖q−k‖²/2s²) = E cos(w·(q−k)) = E [sin(w·q) sin(w·k) + cos(w·q) cos(w·k)]
    exp(q·k/s²)      = E [exp(w·q − ‖q‖²/2s²) exp(w·k − ‖k‖²/2s²)]

E is estimated by the mean over m frequencies, with an error that falls as 1/√m.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from clearhead.shapes import check_last_axis, check_positive

# Exponents are shifted until the largest of a sequence is in this range: then a long sum of their
# exp does not overflow float32, and keys with much smaller exponents still count.
SAFE_EXPONENTS = (-20.0, 70.0)


class FeatureMap(nn.Module):
    """φ: (..., D) → (..., C), such that φ(q)·φ(k) is the similarity of q and k, or estimates it.

    A subclass needs only `forward`. Attention calls `queries` and `keys`. They may leave out a
    positive factor of each query and one factor common to all keys, because both cancel when the
    weights are divided by their sum. This keeps exponentials within the range of floating point;
    keys far below the largest one then count as zero.
    """

    is_wide = False  # many features per input number, so fewer positions are computed at once
    is_sliced = False  # too many features to hold: computed in slices, recomputed for the gradient

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must say what φ(x) is")

    def queries(self, q: Tensor) -> Tensor:
        """Features of queries (..., T, D) → (..., T, C), each up to a factor of its own."""
        return self(q)

    def keys(self, k: Tensor, shift: Tensor | None = None) -> Tensor:
        """Features of keys (..., S, D) → (..., S, C), all up to the factor exp(−shift)."""
        return self(k)

    def shift(self, k: Tensor) -> Tensor | None:
        """What `keys` subtracts from every exponent: (..., 1, 1) for keys (..., S, D), or None."""
        return None

    def similarity(self, q: Tensor, k: Tensor) -> Tensor:
        """sim(q_t, k_s) up to those factors: (..., T, D), (..., S, D) → (..., T, S)."""
        return self.queries(q) @ self.keys(k, self.shift(k)).mT

    def query_slices(self, q: Tensor) -> Iterable[Tensor]:
        """The features of queries, a slice (..., T, ·) of them at a time; here all in one."""
        return [self.queries(q)]

    def key_slices(self, k: Tensor, shift: Tensor | None = None) -> Iterable[Tensor]:
        """The features of keys, sliced as those of queries."""
        return [self.keys(k, shift)]


class EluFeatures(FeatureMap):
    """φ(x) = elu(x) + 1: x + 1 for positive x, exp(x) for the others. D features, all positive."""

    def forward(self, x: Tensor) -> Tensor:
        # Faster than elu itself, and exact far below zero, where elu + 1 has lost its digits.
        return x.clamp(max=0.0).exp_() + x.relu()


class QuadraticFeatures(FeatureMap):
    """φ(q)·φ(k) = (q·k + 1)² exactly, by the features 1, √2 x_i, x_i² and √2 x_i x_j, i < j.

    There are (D+1)(D+2)/2 of them.
    """

    is_sliced = True

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)  # q·k + 1 = q'·k'
        i, j = torch.triu_indices(x.size(-1), x.size(-1), device=x.device)
        products = x[..., i] * x[..., j]
        return torch.where(i == j, products, math.sqrt(2.0) * products)

    def similarity(self, q: Tensor, k: Tensor) -> Tensor:
        """(q·k + 1)², without any features."""
        return (q @ k.mT + 1.0).square()

    def query_slices(self, q: Tensor) -> Iterable[Tensor]:
        return _slice_products(q, q)

    def key_slices(self, k: Tensor, shift: Tensor | None = None) -> Iterable[Tensor]:
        return _slice_products(k, 2.0 * k)


def _slice_products(x: Tensor, others: Tensor, rows: int = 8) -> Iterator[Tensor]:
    """Quadratic features in slices: 1 and x_i, then x_i x_j for a few i at a time.

    (q·k + 1)² = 1 + 2 q·k + Σ_ij q_i q_j k_i k_j. A slice of rows i holds all j from its first row
    on. A pair i ≠ j within these rows occurs twice, as ij and as ji, as in the sum. A pair with j
    after them occurs once, so it needs a factor of 2, as the x_i do: `others` is x for queries and
    2x for keys.
    """
    yield torch.cat([torch.ones_like(x[..., :1]), others], dim=-1)
    for i in range(0, x.size(-1), rows):
        own = x[..., i : i + rows]
        columns = torch.cat([own, others[..., i + rows :]], dim=-1)
        yield (own.unsqueeze(-1) * columns.unsqueeze(-2)).flatten(-2)


class _RandomFeatures(FeatureMap):
    """Frequencies W (m, d_head), rows of N(0, I/s²): made from the seed, saved with the module."""

    frequencies: Tensor
    is_wide = True

    def __init__(self, d_head: int, n_features: int, m: int, seed: int) -> None:
        super().__init__()
        self.d_head, self.n_features, self.seed = d_head, n_features, seed
        self.variance = math.sqrt(d_head)  # s²
        # Drawn in one precision on the CPU, so that the seed means the same on every device.
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randn(m, d_head, generator=generator, dtype=torch.float64)
        frequencies = (draws / math.sqrt(self.variance)).to(torch.get_default_dtype())
        self.register_buffer("frequencies", frequencies)

    def angles(self, x: Tensor) -> Tensor:
        """W x: (..., d_head) → (..., m)."""
        check_last_axis("q and k", x, "d_head", self.d_head)
        return x @ self.frequencies.to(x.dtype).mT

    def half_norms(self, x: Tensor) -> Tensor:
        """‖x‖²/2s²: (..., d_head) → (..., 1)."""
        return x.square().sum(dim=-1, keepdim=True) / (2.0 * self.variance)

    def extra_repr(self) -> str:
        return f"d_head={self.d_head}, n_features={self.n_features}, seed={self.seed}"


class FourierFeatures(_RandomFeatures):
    """φ(x) = exp(‖x‖²/2s²) [sin(Wx), cos(Wx)] / √m with n_features = 2m: estimates exp(q·k/√D).

    The estimate of a small similarity may be negative, and so may the sum that divides: a query
    whose sum comes out near 0 gets a large, meaningless mixture. More features make that rarer, as
    do shorter queries and keys; with PositiveFeatures it cannot happen.
    """

    def __init__(self, d_head: int, n_features: int, seed: int = 0) -> None:
        check_positive(d_head=d_head, n_features=n_features)
        if n_features % 2:
            raise ValueError(
                f"n_features must be even, a sine and a cosine for each frequency, "
                f"got {n_features}; take n_features={n_features + 1}"
            )
        super().__init__(d_head, n_features, n_features // 2, seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.keys(x) / math.sqrt(self.n_features // 2)

    def queries(self, q: Tensor) -> Tensor:
        return torch.cat(self.query_slices(q), dim=-1)

    def keys(self, k: Tensor, shift: Tensor | None = None) -> Tensor:
        return torch.cat(self.key_slices(k, shift), dim=-1)

    def query_slices(self, q: Tensor) -> list[Tensor]:
        angles = self.angles(q)
        return [angles.sin(), angles.cos()]

    def key_slices(self, k: Tensor, shift: Tensor | None = None) -> list[Tensor]:
        factor = _subtract(self.half_norms(k), shift).exp()
        return [waves * factor for waves in self.query_slices(k)]

    def shift(self, k: Tensor) -> Tensor | None:
        norms = torch.linalg.vector_norm(k.detach(), dim=-1, keepdim=True)
        return _find_excess(norms.square() / (2.0 * self.variance))


class PositiveFeatures(_RandomFeatures):
    """φ(x) = exp(Wx − ‖x‖²/2s²) / √m with n_features = m: estimates exp(q·k/√D), never below 0."""

    def __init__(self, d_head: int, n_features: int, seed: int = 0) -> None:
        check_positive(d_head=d_head, n_features=n_features)
        super().__init__(d_head, n_features, n_features, seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.keys(x) / math.sqrt(self.n_features)

    def queries(self, q: Tensor) -> Tensor:
        angles = self.angles(q)
        return (angles - angles.detach().amax(dim=-1, keepdim=True)).exp()

    def keys(self, k: Tensor, shift: Tensor | None = None) -> Tensor:
        return _subtract(self.angles(k) - self.half_norms(k), shift).exp()

    def shift(self, k: Tensor) -> Tensor | None:
        return _find_excess(self.angles(k) - self.half_norms(k))


def _find_excess(exponents: Tensor) -> Tensor:
    """How far the largest exponent of a sequence (..., S, C) exceeds the safe range: (..., 1, 1).

    Mostly 0, so that ordinary exponents are untouched and a later key does not change the last
    digit of an earlier output.
    """
    if exponents.size(-2) == 0:
        return exponents.new_zeros(*exponents.shape[:-2], 1, 1)
    largest = exponents.detach().amax(dim=(-2, -1), keepdim=True)
    largest = largest.nan_to_num(0.0, 0.0, 0.0)  # a broken key must not reach the others
    return largest - largest.clamp(*SAFE_EXPONENTS)


def _subtract(exponents: Tensor, shift: Tensor | None) -> Tensor:
    return exponents if shift is None else exponents - shift
