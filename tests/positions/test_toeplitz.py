"""ToeplitzBias: constant along diagonals, aligned with the last key; gradients sum diagonals."""

import pytest
import torch

from clearhead.positions import ToeplitzBias
from clearhead.positions.toeplitz import sum_diagonals

H, MAX_LEN = 3, 7


def numbered(max_len=MAX_LEN):
    """A bias whose every weight is different."""
    toeplitz = ToeplitzBias(H, max_len).double()
    torch.nn.init.normal_(toeplitz.weight, generator=torch.Generator().manual_seed(0))
    return toeplitz


def loop(weight, T, S, max_len=MAX_LEN):
    """The definition: query t stands at t + S − T."""
    bias = torch.empty(weight.size(0), T, S, dtype=weight.dtype)
    for h in range(weight.size(0)):
        for t in range(T):
            for j in range(S):
                bias[h, t, j] = weight[h, max_len + j - (t + S - T)]
    return bias


def test_a_small_matrix_written_out_by_hand():
    toeplitz = ToeplitzBias(1, 2)
    toeplitz.weight.data = torch.tensor([[-20.0, -10.0, 0.0, 10.0, 20.0]])
    assert toeplitz(2).tolist() == [[[0.0, 10.0], [-10.0, 0.0]]]
    assert toeplitz(1, 2).tolist() == [[[-10.0, 0.0]]]


@pytest.mark.parametrize(("T", "S"), [(T, S) for T in range(1, 8) for S in range(1, 8)])
def test_every_entry_depends_on_the_distance_only(T, S):
    toeplitz = numbered()
    assert torch.equal(toeplitz(T, S), loop(toeplitz.weight.detach(), T, S))


def test_without_s_there_are_as_many_keys_as_queries():
    toeplitz = numbered()
    assert torch.equal(toeplitz(5), toeplitz(5, 5))


def test_the_last_queries_have_the_last_rows_of_the_whole():
    toeplitz = numbered()
    for T in range(1, 7):
        assert torch.equal(toeplitz(T, 6), toeplitz(6)[:, -T:])


def test_left_padding_changes_no_distance():
    toeplitz = numbered()
    assert torch.equal(toeplitz(7)[:, 2:, 2:], toeplitz(5))


@pytest.mark.parametrize(("T", "S"), [(5, 5), (1, 6), (4, 7), (6, 2), (1, 1)])
def test_the_gradient_is_the_reference_s(T, S):
    toeplitz = numbered()
    grad = torch.randn(H, T, S, dtype=torch.float64)
    (ours,) = torch.autograd.grad(toeplitz(T, S), toeplitz.weight, grad)
    weight = toeplitz.weight.detach().clone().requires_grad_()
    (reference,) = torch.autograd.grad(loop(weight, T, S), weight, grad)
    assert torch.allclose(ours, reference, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda w: torch.func.functional_call(toeplitz, {"weight": w}, (T, S)), weight
    )


def test_the_gradient_can_be_differentiated_again():
    toeplitz = numbered(4)
    weight = toeplitz.weight.detach().clone().requires_grad_()

    def squares(w):
        return torch.func.functional_call(toeplitz, {"weight": w}, (3, 4)).square()

    assert torch.autograd.gradgradcheck(squares, weight)


def test_an_expanded_gradient_is_summed_too():
    toeplitz = numbered()
    toeplitz(4).sum().backward()
    counts = [0] * 4 + [1, 2, 3, 4, 3, 2, 1] + [0] * 4
    assert toeplitz.weight.grad.tolist() == [counts] * H


@pytest.mark.parametrize(("T", "S"), [(4, 6), (6, 4), (1, 5), (5, 1)])
def test_sum_diagonals_is_the_sum_of_each_diagonal(T, S):
    matrix = torch.randn(T, H, S, dtype=torch.float64).transpose(0, 1)
    expected = [matrix.diagonal(o, -2, -1).sum(-1) for o in range(-T + 1, S)]
    assert torch.allclose(sum_diagonals(matrix), torch.stack(expected, -1))


def test_it_starts_as_no_bias_with_a_weight_for_each_distance():
    toeplitz = ToeplitzBias(H, MAX_LEN)
    assert toeplitz.weight.shape == (H, 2 * MAX_LEN + 1)
    assert not toeplitz(MAX_LEN).any()


def test_longer_than_max_len_is_refused():
    toeplitz = numbered()
    with pytest.raises(ValueError, match="query sequence has length 8 but max_len is 7"):
        toeplitz(8)
    with pytest.raises(
        ValueError, match=r"key sequence has length 8 but max_len is 7; .* max_len=8"
    ):
        toeplitz(1, 8)
    with pytest.raises(ValueError, match="n_heads must be at least 1, got 0"):
        ToeplitzBias(0, 7)


def test_its_numbers_are_added_before_the_division():
    assert ToeplitzBias.has_unscaled_bias is False


def test_writing_into_the_bias_leaves_the_weight_alone():
    toeplitz = numbered()
    before = toeplitz.weight.detach().clone()
    with torch.no_grad():
        toeplitz(5).zero_()
    assert torch.equal(toeplitz.weight, before)


@pytest.mark.parametrize(("T", "S"), [(0, 0), (0, 3), (3, 0)])
def test_empty_sizes_keep_their_shape_and_a_gradient(T, S):
    toeplitz = numbered()
    toeplitz(T, S).sum().backward()
    assert toeplitz(T, S).shape == (H, T, S)
    assert not toeplitz.weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_works_forward_and_backward(dtype):
    toeplitz = numbered().to(dtype)
    bias = toeplitz(4, 6)
    bias.sum().backward()
    assert bias.dtype == toeplitz.weight.grad.dtype == dtype
    assert torch.equal(bias, loop(toeplitz.weight.detach(), 4, 6))
    assert toeplitz.weight.grad.sum() == H * 4 * 6
