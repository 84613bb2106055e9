"""Additive attention: by hand, against the loops, its laws and its errors."""

import math

import oracle
import pytest
import torch

from clearhead.attention import additive
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import AdditiveAttention

B, H, T, S, D_QUERY, D_KEY, D_HIDDEN, DV = 2, 3, 4, 5, 2, 6, 7, 3


def inputs(*leading, dtype=torch.float64):
    torch.manual_seed(3)
    sizes = ((T, D_QUERY), (S, D_KEY), (S, DV))
    return [torch.randn(*leading, *size, dtype=dtype).requires_grad_() for size in sizes]


def module(**options):
    torch.manual_seed(4)
    return AdditiveAttention(D_QUERY, D_KEY, D_HIDDEN, **options).double()


def parameters(attention):
    return attention.proj_q.weight, attention.proj_k.weight, attention.proj_score.weight[0]


MASKS = {
    "none": None,
    "causal": Mask.causal(),
    "padding": Mask.padding(torch.tensor([3, 0])),
    "each query": Mask.causal() & Mask.padding(torch.tensor([[1, 5, 0, 2], [0, 1, 4, 5]])),
}


def test_weights_by_hand():
    q, k = torch.tensor([[0.5]]), torch.tensor([[0.0], [1.0]])
    w_q, w_k, w = (
        torch.tensor([[2.0], [0.0]]),
        torch.tensor([[0.0], [3.0]]),
        torch.tensor([1.0, 2.0]),
    )
    scores = [math.tanh(1), math.tanh(1) + 2 * math.tanh(3)]
    first = math.exp(scores[0]) / (math.exp(scores[0]) + math.exp(scores[1]))
    expected = torch.tensor([[first, 1 - first]])
    torch.testing.assert_close(additive.weights(q, k, w_q, w_k, w), expected)


@pytest.mark.parametrize("leading", [(B,), (B, H)])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_output_weights_and_gradients_are_those_of_the_loops(mask, with_bias, leading):
    q, k, v = inputs(*leading)
    attention = module()
    bias = torch.randn(T, S, dtype=torch.float64) if with_bias else None
    mask = MASKS[mask]
    allowed = None if mask is None else mask.broadcastable(T, S, axes=len(leading) + 2)
    output = attention(q, k, v, mask=mask, bias=bias)
    weights = attention.weights(q, k, mask=mask, bias=bias)
    expected = oracle.additive(q, k, v, *parameters(attention), allowed, bias)
    torch.testing.assert_close(output, expected[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(weights, expected[1], atol=1e-10, rtol=0)
    grad = torch.randn_like(output)
    output.backward(grad)
    grads = oracle.additive_gradients(q, k, v, *parameters(attention), grad, allowed, bias)
    got = [q.grad, k.grad, v.grad, attention.proj_q.weight.grad, attention.proj_k.weight.grad]
    for ours, theirs in zip(got, (*grads[:3], *grads.parameters[:2]), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)
    torch.testing.assert_close(
        attention.proj_score.weight.grad[0], grads.parameters[2], atol=1e-10, rtol=0
    )


def test_the_score_is_not_divided_and_the_bias_is_added_to_it():
    q, k, _ = inputs(B)
    w_q, w_k, w = parameters(module())
    scores = torch.tanh((q @ w_q.mT)[:, :, None] + (k @ w_k.mT)[:, None]) @ w
    bias = torch.randn(B, T, S).double()
    torch.testing.assert_close(
        additive.weights(q, k, w_q, w_k, w, bias=bias), (scores + bias).softmax(-1)
    )


def test_parameters_are_made_in_the_order_query_key_score_and_have_no_bias():
    attention = AdditiveAttention(D_QUERY, D_KEY, D_HIDDEN)
    shapes = {name: tuple(p.shape) for name, p in attention.named_parameters()}
    assert shapes == {
        "proj_q.weight": (D_HIDDEN, D_QUERY),
        "proj_k.weight": (D_HIDDEN, D_KEY),
        "proj_score.weight": (1, D_HIDDEN),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype_gives_its_own_dtype(dtype):
    q, k, v = inputs(B, dtype=dtype)
    attention = module().to(dtype)
    output = attention(q, k, v, mask=Mask.causal())
    assert output.dtype == attention.weights(q, k).dtype == dtype
    exact = oracle.additive(q, k, v, *parameters(attention), Mask.causal().dense(T, S))[0]
    assert (output.double() - exact).abs().max() < 20 * torch.finfo(dtype).eps


def test_dropout_acts_in_training_only_and_scales_up():
    q, k, v = inputs(B)
    attention = module(dropout=0.5)
    plain = module()(q, k, v)
    assert not torch.equal(attention(q, k, v), plain)
    assert torch.equal(attention.eval()(q, k, v), plain)
    assert module(dropout=1.0)(q, k, v).eq(0).all()


def test_wrong_inputs_are_refused_by_name():
    q, k, v = inputs(B)
    attention = module()
    with pytest.raises(ValueError, match=r"q has width 6 .* but d_query is 2"):
        attention.weights(k, k)
    with pytest.raises(ValueError, match=r"k has width 2 .* but d_key is 6"):
        attention(q, q[:, :5], v[:, :4])
    with pytest.raises(TypeError, match="bias must hold floating-point numbers"):
        attention(q, k, v, bias=torch.ones(T, S, dtype=torch.bool))
    with pytest.raises(ValueError, match="v must have one row per key, 5, got 4"):
        attention(q, k, v[:, :4])
    with pytest.raises(ValueError, match=r"d_hidden must be at least 1, got 0"):
        AdditiveAttention(2, 3, 0)
    with pytest.raises(ValueError, match="dropout must be a finite number"):
        AdditiveAttention(2, 3, 4, dropout=1.5)


def test_weights_refuse_what_forward_refuses():
    q, k, v = inputs(B)
    for ask in (
        lambda q, k, v: module()(q, k, v),
        lambda q, k, v: module().weights(q, k),
    ):
        with pytest.raises(ValueError, match="k must have the leading axes of q"):
            ask(q, k[:1], v[:1])
        with pytest.raises(TypeError, match="k must have the dtype of q"):
            ask(q, k.float(), v.float())
