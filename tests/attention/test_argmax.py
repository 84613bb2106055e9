"""Argmax attention: the published case, ties, masks, and which gradients are zero."""

import oracle
import pytest
import torch

from clearhead.attention import argmax
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import ArgmaxAttention

B, H, T, S, DH, DV = 2, 3, 4, 5, 2, 6


def inputs(dtype=torch.float64):
    torch.manual_seed(5)
    sizes = ((T, DH), (S, DH), (S, DV))
    return [torch.randn(B, H, *size, dtype=dtype).requires_grad_() for size in sizes]


MASKS = {
    "none": None,
    "causal": Mask.causal(),
    "padding": Mask.padding(torch.tensor([3, 0])),
    "each query": Mask.causal() & Mask.padding(torch.tensor([[1, 5, 0, 2], [0, 1, 4, 5]])),
    "window": Mask.window(2),
}


def published():
    q = torch.tensor([[1.0, 1, 2]])
    k = torch.tensor([[1.0, 2, 0], [0, 3, 4], [5, 0, 0], [0, 0, 1]])
    v = torch.tensor([[2.0, 0, 1], [1, 4, 3], [0, -1, 4], [1, 0, -1]])
    return q, k, v


def test_the_published_case():
    q, k, v = published()
    assert (q @ k.mT).tolist() == [[3, 11, 5, 2]]
    assert argmax.weights(q, k).tolist() == [[0, 1, 0, 0]]
    assert ArgmaxAttention()(q, k, v).tolist() == [[1, 4, 3]]


def test_the_published_case_when_the_best_key_is_forbidden():
    q, k, v = published()
    forbidden = torch.tensor([[True, False, True, True]])
    assert ArgmaxAttention()(q, k, v, mask=forbidden).tolist() == [[0, -1, 4]]
    bias = torch.tensor([[20.0, 0, 0, 0]])
    assert ArgmaxAttention()(q, k, v, bias=bias).tolist() == [[2, 0, 1]]
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    assert ArgmaxAttention()(q, k, v, mask=nothing).tolist() == [[0, 0, 0]]


def test_of_equal_matches_the_first_allowed_one_is_taken():
    q, k = torch.ones(1, 1), torch.ones(4, 1)
    assert argmax.weights(q, k).tolist() == [[1, 0, 0, 0]]
    mask = torch.tensor([[False, False, True, True]])
    assert argmax.weights(q, k, mask=mask).tolist() == [[0, 0, 1, 0]]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_output_and_weights_are_those_of_the_loops(mask, with_bias):
    q, k, v = inputs()
    mask = MASKS[mask]
    bias = torch.randn(H, T, S, dtype=torch.float64) if with_bias else None
    allowed = None if mask is None else mask.broadcastable(T, S, axes=4)
    output, weights = oracle.argmax(q, k, v, allowed, bias)
    torch.testing.assert_close(ArgmaxAttention()(q, k, v, mask=mask, bias=bias), output)
    assert torch.equal(ArgmaxAttention().weights(q, k, mask=mask, bias=bias), weights)


def test_no_gradient_reaches_queries_and_keys_but_values_get_theirs():
    q, k, v = inputs()
    bias = torch.randn(T, S, dtype=torch.float64, requires_grad=True)
    output = ArgmaxAttention()(q, k, v, mask=MASKS["padding"], bias=bias)
    grad = torch.randn_like(output)
    output.backward(grad)
    for x in (q, k, bias):
        assert x.grad is not None
        assert x.grad.eq(0).all()
    taken = ArgmaxAttention().weights(q, k, mask=MASKS["padding"], bias=bias)
    torch.testing.assert_close(v.grad, taken.mT @ grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_finds_the_largest_match_even_beyond_its_range(dtype):
    q = torch.tensor([[300.0]], dtype=dtype)
    k = torch.tensor([[250.0], [300.0], [-300.0]], dtype=dtype)
    assert argmax.weights(q, k).tolist() == [[0, 1, 0]]
    only_low = torch.tensor([[False, False, True]])
    assert argmax.weights(q, k, mask=only_low).tolist() == [[0, 0, 1]]
    assert argmax.weights(q, k).dtype == dtype
