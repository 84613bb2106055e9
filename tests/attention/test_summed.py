import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.attention.summed import summed_attention

METHODS = ("pairwise", "rearranged")
B, T, D, Dk, Dv = 2, 5, 4, 3, 6


def matrices(*, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = ((B, T, D), (Dk, D), (Dk, D), (Dv, D))
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes
    ]


@pytest.mark.parametrize("method", METHODS)
def test_two_tokens_worked_by_hand(method: str) -> None:
    # x_1 = 1, x_2 = 2, Q = 3, K = 1: α = (3·1·(1+2), 3·2·(1+2)) / √2 = (9, 18)/√2; V = (1, −1)ᵀ
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    w = [torch.tensor(rows, dtype=torch.float64) for rows in ([[3.0]], [[1.0]], [[1.0], [-1.0]])]
    first = math.exp(9 / math.sqrt(2)) / (math.exp(9 / math.sqrt(2)) + math.exp(18 / math.sqrt(2)))
    expected = first * 1.0 + (1 - first) * 2.0
    assert summed_attention(x, *w, method=method).tolist() == pytest.approx([expected, -expected])


@pytest.mark.parametrize("method", METHODS)
def test_it_equals_the_formula_written_as_loops(method: str) -> None:
    xs, w_q, w_k, w_v = matrices()
    for x, y in zip(xs, summed_attention(xs, w_q, w_k, w_v, method), strict=True):
        alphas = [
            sum((w_q @ x[t]) @ (w_k @ x[j]) for j in range(T)) / math.sqrt(T) for t in range(T)
        ]
        total = sum(torch.exp(alpha) for alpha in alphas)
        expected = sum(torch.exp(alphas[j]) * (w_v @ x[j]) for j in range(T)) / total
        torch.testing.assert_close(y, expected)


def test_both_methods_agree_in_value_and_gradient() -> None:
    leaves = [x.requires_grad_() for x in matrices()]
    outputs = [summed_attention(*leaves, method=method) for method in METHODS]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(y.square().sum(), leaves) for y in outputs]
    for pairwise, rearranged in zip(*gradients, strict=True):
        torch.testing.assert_close(pairwise, rearranged, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_the_formula(method: str) -> None:
    leaves = [x.requires_grad_() for x in matrices()]
    assert torch.autograd.gradcheck(lambda *args: summed_attention(*args, method=method), leaves)


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that an operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.elements = max(
            [self.elements, *(x.numel() for x in tree_leaves(made) if torch.is_tensor(x))]
        )
        return made


def test_the_default_is_rearranged_and_makes_no_square_tensor() -> None:
    n = 300
    x = torch.randn(n, D)
    w = [torch.randn(rows, D) for rows in (Dk, Dk, Dv)]
    with LargestTensor() as made:
        summed_attention(x, *w)
    assert made.elements < n * n / 4
    with LargestTensor() as made:
        summed_attention(x, *w, method="pairwise")
    assert made.elements == n * n


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_sequences_alone(method: str) -> None:
    x, *w = matrices()
    alone = torch.stack([summed_attention(row, *w, method=method) for row in x])
    torch.testing.assert_close(summed_attention(x, *w, method=method), alone)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_the_tokens_does_not_matter(method: str) -> None:
    x, *w = matrices()
    shuffled = x[:, torch.tensor([3, 0, 4, 1, 2])]
    torch.testing.assert_close(
        summed_attention(shuffled, *w, method=method), summed_attention(x, *w, method=method)
    )


@pytest.mark.parametrize("method", METHODS)
def test_large_scores_give_the_value_of_the_best_token(method: str) -> None:
    x = torch.tensor([[1.0], [100.0]])
    one = torch.ones(1, 1)
    assert summed_attention(x, one * 100, one, one, method=method).tolist() == [100.0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(method: str, dtype: torch.dtype) -> None:
    halves = matrices(dtype=dtype)
    y = summed_attention(*halves, method=method)
    assert y.dtype == dtype
    exact = summed_attention(*(x.double() for x in halves), method=method)
    torch.testing.assert_close(y.double(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_empty_sizes_keep_their_shapes(method: str) -> None:
    w = [torch.randn(rows, D) for rows in (Dk, Dk, Dv)]
    assert summed_attention(torch.randn(0, T, D), *w, method=method).shape == (0, Dv)
    assert summed_attention(torch.randn(B, 0, D), *w, method=method).tolist() == [[0.0] * Dv] * B


def test_mistakes_are_named() -> None:
    x, w_q, w_k, w_v = matrices()
    with pytest.raises(
        ValueError, match="method must be one of 'pairwise', 'rearranged', got 'fast'"
    ):
        summed_attention(x, w_q, w_k, w_v, method="fast")
    with pytest.raises(ValueError, match=r"w_k must be a matrix with 4 columns.*got \(3, 2\)"):
        summed_attention(x, w_q, w_k[:, :2], w_v)
    with pytest.raises(ValueError, match="one width, got 3 and 2 rows"):
        summed_attention(x, w_q, w_k[:2], w_v)
    with pytest.raises(ValueError, match=r"\(T, D\) or \(B, T, D\), got \(1, 2, 5, 4\)"):
        summed_attention(x[None], w_q, w_k, w_v)
    with pytest.raises(TypeError, match="w_v must have the dtype of x"):
        summed_attention(x, w_q, w_k, w_v.float())
