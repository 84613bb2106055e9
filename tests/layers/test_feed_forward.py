"""FeedForward: each token alone, through every activation, with and without biases."""

import math

import pytest
import torch

from clearhead.layers import FeedForward

B, T, D, F = 2, 5, 4, 7

FUNCTIONS = {
    "relu": lambda v: max(v, 0.0),
    "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
    "gelu_tanh": lambda v: (
        v * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    ),
    "squared_relu": lambda v: max(v, 0.0) ** 2,
}


def loop(layer, x):
    """The definition for x (B, T, D), one number at a time."""

    def linear(proj, row):
        rows, bias = proj.weight.tolist(), [0.0] * proj.out_features
        if proj.bias is not None:
            bias = proj.bias.tolist()
        return [
            sum(w * v for w, v in zip(ws, row, strict=True)) + b
            for ws, b in zip(rows, bias, strict=True)
        ]

    y = torch.empty_like(x)
    for b in range(x.size(0)):
        for t in range(x.size(1)):
            row = x[b, t].tolist()
            inner = linear(layer.proj_in, row)
            if layer.activation == "swiglu":
                gates = linear(layer.proj_gate, row)
                inner = [g / (1 + math.exp(-g)) * v for g, v in zip(gates, inner, strict=True)]
            else:
                inner = [FUNCTIONS[layer.activation](v) for v in inner]
            y[b, t] = torch.tensor(linear(layer.proj_out, inner), dtype=x.dtype)
    return y


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "squared_relu", "swiglu"])
def test_every_activation_follows_its_equation(activation, bias):
    layer = FeedForward(D, F, activation=activation, bias=bias).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    assert torch.allclose(layer(x), loop(layer, x), rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(layer, x[:1, :2].requires_grad_())


def test_the_bias_free_form_is_relu_of_x_w1_times_w2_exactly():
    layer, x = FeedForward(D, F, bias=False), torch.randn(B, T, D)
    w1, w2 = layer.proj_in.weight.mT, layer.proj_out.weight.mT
    assert torch.equal(layer(x), torch.relu(x @ w1) @ w2)
    assert sorted(layer.state_dict()) == ["proj_in.weight", "proj_out.weight"]


def test_gelu_by_tanh_is_pytorch_s_and_close_to_but_not_gelu():
    exact, approximate = (
        FeedForward(D, F, activation="gelu"),
        FeedForward(D, F, activation="gelu_tanh"),
    )
    approximate.load_state_dict(exact.state_dict())
    x = 3 * torch.randn(B, T, D)
    theirs = torch.nn.GELU(approximate="tanh")
    assert torch.equal(approximate(x), exact.proj_out(theirs(exact.proj_in(x))))
    difference = (approximate(x) - exact(x)).abs().max()
    assert 1e-6 < difference < 2e-3


def test_the_inner_width_is_four_times_the_model_s_unless_given():
    assert FeedForward(D).proj_in.out_features == 4 * D
    assert FeedForward(D, F).proj_in.out_features == F


def test_only_swiglu_has_a_gate():
    assert "proj_gate.weight" in FeedForward(D, activation="swiglu").state_dict()
    assert "proj_gate.weight" not in FeedForward(D).state_dict()


def test_tokens_do_not_see_each_other():
    layer, x = FeedForward(D, F), torch.randn(B, T, D)
    assert torch.allclose(layer(x)[:, 3:4], layer(x[:, 3:4]), atol=1e-6)


def test_dropout_acts_on_the_inner_values_in_training_only():
    layer = FeedForward(D, F, dropout=1.0)
    x = torch.randn(B, T, D)
    assert torch.equal(layer(x), layer.proj_out.bias.expand(B, T, D))
    whole = layer.eval()(x)
    assert torch.equal(whole, layer.proj_out(torch.relu(layer.proj_in(x))))
    assert torch.equal(layer(x), whole)


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match=r"activation must be one of 'relu', .* got 'sigmoid'"):
        FeedForward(D, activation="sigmoid")
    with pytest.raises(ValueError, match="d_ff must be at least 1, got 0"):
        FeedForward(D, 0)
    with pytest.raises(ValueError, match="dropout must be a finite number from 0 to 1, got -1"):
        FeedForward(D, dropout=-1)
    with pytest.raises(ValueError, match=r"x has width 5 .* but d_model is 4"):
        FeedForward(D)(torch.zeros(B, T, 5))


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D), (D,)])
def test_any_leading_axes_and_empty_sizes_keep_their_shape(shape):
    assert FeedForward(D, F)(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_works(dtype):
    layer = FeedForward(D, F, activation="swiglu").to(dtype)
    assert layer(torch.ones(B, T, D, dtype=dtype)).dtype == dtype
