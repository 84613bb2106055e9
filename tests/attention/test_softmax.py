"""Softmax over the allowed keys: exact zeros, whole rows, empty rows, large numbers; mixtures."""

import math

import pytest
import torch

from clearhead.attention.masks import Mask
from clearhead.attention.softmax import masked_softmax, mix

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def sums_to_one(weights, allowed):
    expected = allowed.any(-1).to(torch.float64)
    tolerance = 4 * torch.finfo(weights.dtype).eps
    return torch.allclose(weights.double().sum(-1), expected, atol=tolerance, rtol=0)


# By hand


def test_weights_by_hand():
    scores = torch.tensor([[0.0, math.log(2), math.log(3)], [math.log(4), 9.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, False, True]])
    expected = torch.tensor([[1 / 6, 2 / 6, 3 / 6], [4 / 5, 0, 1 / 5]])
    torch.testing.assert_close(masked_softmax(scores, mask), expected)


def test_without_a_mask_it_is_softmax():
    scores = torch.randn(2, 3, 5)
    assert torch.equal(masked_softmax(scores), scores.softmax(-1))
    assert torch.equal(masked_softmax(scores, Mask.of(torch.ones(3, 5).bool())), scores.softmax(-1))


# Valid lengths


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "lens",
    [torch.tensor([2, 5]), torch.tensor([0, 1]), torch.tensor([[1, 5, 0], [2, 3, 4]])],
    ids=["(B,)", "(B,) with 0", "(B, queries)"],
)
def test_valid_lengths_leave_exact_zeros_and_whole_rows(lens, dtype):
    B, T, S = 2, 3, 5
    scores = torch.randn(B, T, S).to(dtype)
    weights = masked_softmax(scores, Mask.padding(lens))
    assert weights.dtype == dtype
    per_query = lens.reshape(B, -1).expand(B, T)
    for b in range(B):
        for t in range(T):
            length = int(per_query[b, t])
            row = weights[b, t]
            assert row[length:].eq(0).all()
            assert row[:length].gt(0).all()
            live = scores[b, t, :length].double().softmax(-1)
            torch.testing.assert_close(
                row[:length].double(), live, atol=2 * torch.finfo(dtype).eps, rtol=0
            )
    assert sums_to_one(weights, Mask.padding(lens).broadcastable(T, S, axes=3).expand(B, T, S))


def test_scores_with_heads_take_the_same_lengths():
    scores, lens = torch.randn(2, 4, 3, 5), torch.tensor([[1, 5, 0], [2, 3, 4]])
    weights = masked_softmax(scores, Mask.padding(lens))
    for h in range(4):
        assert torch.equal(weights[:, h], masked_softmax(scores[:, h], Mask.padding(lens)))


# Laws


def test_adding_a_number_to_a_row_changes_nothing():
    scores = torch.randn(2, 3, 5, dtype=torch.float64)
    mask = Mask.padding(torch.tensor([[1, 5, 0], [2, 3, 4]]))
    shift = torch.tensor([100.0, -1e4, 1e6], dtype=torch.float64)[:, None]
    torch.testing.assert_close(
        masked_softmax(scores + shift, mask), masked_softmax(scores, mask), atol=1e-9, rtol=1e-9
    )


def test_masked_scores_change_nothing_whatever_they_hold():
    scores, mask = torch.randn(2, 3, 5), Mask.padding(torch.tensor([3, 0]))
    clean = masked_softmax(scores, mask)
    for value in (torch.nan, torch.inf, -torch.inf, 3e38):
        spoilt = scores.masked_fill(~mask.broadcastable(3, 5, axes=3), value).requires_grad_()
        weights = masked_softmax(spoilt, mask)
        assert torch.equal(weights, clean)
        (weights * torch.randn(2, 3, 5)).sum().backward()
        assert spoilt.grad.isfinite().all()
        assert spoilt.grad[0, :, 3:].eq(0).all()
        assert spoilt.grad[1].eq(0).all()


# Empty rows


def test_beside_a_nan_score_a_forbidden_key_still_has_the_weight_zero():
    scores, allowed = torch.randn(2, 3), torch.tensor([[True, False, True], [True, True, False]])
    scores[0, 2] = torch.nan
    weights = masked_softmax(scores, allowed)
    assert weights[0, [0, 2]].isnan().all()
    assert weights[0, 1] == 0
    assert weights[1].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_N01_N02_an_empty_row_has_zero_weights_and_zero_gradient(dtype):
    scores = torch.randn(2, 3, 5).to(dtype).requires_grad_()
    allowed = torch.rand(2, 3, 5) > 0.3
    allowed[0, 1] = allowed[1, 2] = False
    weights = masked_softmax(scores, allowed)
    assert weights[0, 1].eq(0).all()
    assert weights[1, 2].eq(0).all()
    weights.backward(torch.randn(2, 3, 5).to(dtype))
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 1].eq(0).all()
    assert scores.grad[1, 2].eq(0).all()
    assert scores.grad[~allowed].eq(0).all()
    assert scores.grad[0, 0].ne(0).any()


def test_N02_an_empty_row_makes_no_nan_on_the_way_either():
    scores = torch.randn(2, 3, 5, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        weights = masked_softmax(scores, Mask.padding(torch.tensor([0, 4])))
        weights.backward(torch.randn(2, 3, 5))


def test_N02_rows_beside_an_empty_one_are_as_if_it_were_not_there():
    scores = torch.randn(1, 3, 5, dtype=torch.float64, requires_grad=True)
    allowed = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]]).bool()
    grad = torch.randn(1, 3, 5, dtype=torch.float64)
    weights = masked_softmax(scores, allowed)
    weights.backward(grad)
    others = scores.detach()[:, [0, 2]].requires_grad_()
    alone = masked_softmax(others, allowed[[0, 2]])
    alone.backward(grad[:, [0, 2]])
    assert torch.equal(weights[:, [0, 2]], alone)
    assert torch.equal(scores.grad[:, [0, 2]], others.grad)


def test_no_keys_at_all_is_an_empty_matrix():
    for mask in (None, Mask.causal(), Mask.padding(torch.tensor([0, 0]))):
        scores = torch.randn(2, 3, 0, requires_grad=True)
        weights = masked_softmax(scores, mask)
        assert weights.shape == (2, 3, 0)
        weights.sum().backward()
    assert masked_softmax(torch.randn(2, 0, 4), Mask.causal()).shape == (2, 0, 4)


# Large numbers


@pytest.mark.parametrize(
    ("dtype", "large"),
    [(torch.float64, 1e300), (torch.float32, 1e4), (torch.float16, 6e4), (torch.bfloat16, 1e38)],
)
def test_N04_N05_large_scores_give_finite_one_hot_rows(dtype, large):
    scores = torch.tensor(
        [[large, -large, 0.0, large], [-large, -large / 2, -large, large]], dtype=dtype
    ).requires_grad_()
    mask = torch.tensor([[True, True, True, False], [True, True, True, False]])
    weights = masked_softmax(scores, mask)
    eps = torch.finfo(dtype).eps
    expected = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], dtype=dtype)
    assert (weights - expected).abs().max() <= eps
    assert weights[:, 3].eq(0).all()
    weights.backward(torch.randn(2, 4).to(dtype))
    assert scores.grad.isfinite().all()


def test_N04_the_most_negative_score_is_no_mask():
    for dtype in DTYPES:
        lowest = torch.finfo(dtype).min
        weights = masked_softmax(
            torch.full((1, 3), lowest, dtype=dtype), torch.tensor([[True, False, True]])
        )
        assert weights.tolist() == [[0.5, 0.0, 0.5]], dtype


def test_half_precision_is_rounded_once():
    for dtype in (torch.float16, torch.bfloat16):
        scores = (torch.randn(4, 300) * 3).to(dtype)
        exact = scores.double().softmax(-1)
        for mask in (None, torch.ones(4, 300, dtype=torch.bool)):
            got = masked_softmax(scores, mask).double()
            half_ulp = torch.finfo(dtype).eps / 2 * exact + torch.finfo(dtype).smallest_normal / 1e3
            assert ((got - exact).abs() <= half_ulp * 1.01).all()


def test_the_gradient_in_half_precision_is_rounded_once():
    for dtype in (torch.float16, torch.bfloat16):
        scores = (torch.randn(4, 30) * 2).to(dtype).requires_grad_()
        grad = torch.randn(4, 30).to(dtype)
        exact = scores.detach().double().requires_grad_()
        exact.softmax(-1).backward(grad.double())
        half_ulp = torch.finfo(dtype).eps / 2 * exact.grad.abs() + torch.finfo(dtype).tiny
        for mask in (None, torch.ones(4, 30, dtype=torch.bool)):
            (got,) = torch.autograd.grad(masked_softmax(scores, mask), scores, grad)
            assert ((got.double() - exact.grad).abs() <= 1.01 * half_ulp + 1e-6).all()


# Doors


def test_it_leaves_its_inputs_alone():
    scores, allowed = torch.randn(2, 3, 5), torch.rand(2, 3, 5) > 0.5
    kept = scores.clone(), allowed.clone()
    versions = scores._version, allowed._version
    masked_softmax(scores, allowed)
    assert torch.equal(scores, kept[0])
    assert torch.equal(allowed, kept[1])
    assert (scores._version, allowed._version) == versions


def test_scores_that_are_no_float_matrix_are_refused():
    with pytest.raises(
        TypeError, match=r"scores must hold floating-point numbers, got torch\.int64"
    ):
        masked_softmax(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match=r"scores must be a torch\.Tensor, got list"):
        masked_softmax([[1.0]])
    with pytest.raises(ValueError, match="scores must have at least 2 axes"):
        masked_softmax(torch.ones(3))
    with pytest.raises(TypeError, match="mask must be boolean with True = may attend"):
        masked_softmax(torch.ones(2, 3), torch.ones(2, 3))


def test_its_gradient_is_right():
    scores = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    allowed = torch.rand(2, 3, 4) > 0.4
    allowed[1, 1] = False
    for mask in (None, allowed, Mask.padding(torch.tensor([0, 3])), Mask.causal()):
        assert torch.autograd.gradcheck(lambda x, mask=mask: masked_softmax(x, mask), (scores,))
        assert torch.autograd.gradgradcheck(lambda x, mask=mask: masked_softmax(x, mask), (scores,))


# The mixture of values


def test_a_broken_value_reaches_exactly_the_queries_that_may_see_it():
    T, S, Dv = 3, 5, 2
    weights, v = torch.rand(T, S), torch.randn(S, Dv)
    allowed = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    weights = weights * allowed
    clean = mix(weights, v, allowed)
    torch.testing.assert_close(clean, weights @ v)
    for value in (torch.nan, torch.inf, -torch.inf):
        broken = v.clone()
        broken[2, 1] = value
        got = mix(weights, broken, allowed)
        assert got.isfinite().tolist() == [[True, True], [True, False], [True, True]]
        assert torch.equal(got[got.isfinite()], clean[got.isfinite()])


def test_an_infinite_value_is_shown_alike_with_and_without_a_mask():
    weights, v = torch.full((1, 2), 0.5), torch.tensor([[torch.inf, -torch.inf], [1.0, 1.0]])
    everything = torch.ones(1, 2, dtype=torch.bool)
    assert torch.equal(mix(weights, v, everything), mix(weights, v))


def test_a_broken_value_is_shown_but_sends_no_gradient_back():
    weights = torch.full((2, 3), 0.5, requires_grad=True)
    v = torch.tensor([[1.0], [torch.nan], [2.0]], requires_grad=True)
    allowed = torch.tensor([[True, True, True], [True, False, True]])
    output = mix(weights, v, allowed)
    assert output.isnan().tolist() == [[True], [False]]
    output.sum().backward()
    assert weights.grad.isfinite().all()
    assert v.grad.tolist() == [[0.5], [0.0], [0.5]]
