"""Norms: the kernels compute the equations, token by token."""

import math

import pytest
import torch

from clearhead.layers import LayerNorm, RMSNorm, layer_norm, make_norm, rms_norm

B, T, D = 2, 5, 6


def layer_loop(x, gain, shift, eps):
    y = torch.empty_like(x)
    for b in range(x.size(0)):
        for t in range(x.size(1)):
            row = x[b, t].tolist()
            mean = sum(row) / len(row)
            variance = sum((value - mean) ** 2 for value in row) / len(row)
            for d, value in enumerate(row):
                y[b, t, d] = (value - mean) / math.sqrt(variance + eps) * gain[d] + shift[d]
    return y


def rms_loop(x, gain, eps):
    y = torch.empty_like(x)
    for b in range(x.size(0)):
        for t in range(x.size(1)):
            row = x[b, t].tolist()
            square = sum(value**2 for value in row) / len(row)
            for d, value in enumerate(row):
                y[b, t, d] = value / math.sqrt(square + eps) * gain[d]
    return y


def drawn(dtype=torch.float64):
    x = 3 * torch.randn(B, T, D, dtype=dtype) + 2
    return x, torch.randn(D, dtype=dtype), torch.randn(D, dtype=dtype)


def filled(norm):
    """A module with other parameters than those at the start."""
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    return norm.double()


def test_two_numbers_by_hand():
    ones, zeros = torch.ones(2), torch.zeros(2)
    assert layer_norm(torch.tensor([1.0, 5.0]), ones, zeros, 0.0).tolist() == [-1.0, 1.0]
    assert layer_norm(torch.tensor([1.0, 5.0]), ones, zeros, 12.0).tolist() == [-0.5, 0.5]
    assert rms_norm(torch.tensor([1.0, 7.0]), ones, 0.0).tolist() == pytest.approx([0.2, 1.4])
    assert rms_norm(torch.tensor([1.0, 7.0]), ones, 75.0).tolist() == pytest.approx([0.1, 0.7])


@pytest.mark.parametrize("eps", [1e-5, 0.7])
def test_the_references_follow_the_equations(eps):
    x, gain, shift = drawn()
    assert torch.allclose(layer_norm(x, gain, shift, eps), layer_loop(x, gain, shift, eps))
    assert torch.allclose(rms_norm(x, gain, eps), rms_loop(x, gain, eps))


@pytest.mark.parametrize("eps", [1e-5, 0.7])
def test_the_modules_compute_the_references_and_their_gradients(eps):
    for norm, reference in [
        (LayerNorm(D, eps=eps), lambda x, n: layer_norm(x, n.gain, n.shift, eps)),
        (LayerNorm(D, bias=False, eps=eps), lambda x, n: layer_norm(x, n.gain, None, eps)),
        (RMSNorm(D, eps=eps), lambda x, n: rms_norm(x, n.gain, eps)),
    ]:
        norm, x = filled(norm), drawn()[0].requires_grad_()
        inputs, seen = (x, *norm.parameters()), torch.randn(B, T, D, dtype=torch.float64)
        assert torch.allclose(norm(x), reference(x, norm))
        ours = torch.autograd.grad(norm(x), inputs, seen)
        theirs = torch.autograd.grad(reference(x, norm), inputs, seen)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a, b)
        assert torch.autograd.gradcheck(norm, x)


def test_a_layer_norm_forgets_shift_and_scale_and_an_rms_norm_only_scale():
    x, _, _ = drawn()
    layer, rms = LayerNorm(D, eps=0.0).double(), RMSNorm(D, eps=0.0).double()
    assert torch.allclose(layer(3 * x + 5), layer(x))
    assert torch.allclose(rms(3 * x), rms(x))
    assert not torch.allclose(rms(x + 5), rms(x))


def test_tokens_do_not_see_each_other():
    x, _, _ = drawn()
    for norm in (LayerNorm(D).double(), RMSNorm(D).double()):
        assert torch.equal(norm(x)[:, 2:3], norm(x[:, 2:3]))


def test_make_norm_knows_its_names():
    assert isinstance(make_norm("rms", D), RMSNorm)
    assert isinstance(make_norm("layer", D), LayerNorm)
    assert make_norm("layer", D).shift.tolist() == [0.0] * D
    assert make_norm("layer", D, bias=False).shift is None
    assert make_norm("rms", D, eps=0.5).eps == 0.5
    assert make_norm("layer", D, eps=0.5).eps == 0.5
    with pytest.raises(ValueError, match="norm must be one of 'layer', 'rms', 'none', got 'batch'"):
        make_norm("batch", D)


def test_no_norm_hands_on_what_it_gets_and_has_no_parameters():
    norm = make_norm("none", D, bias=True, eps=0.5)
    x, _, _ = drawn()
    assert norm(x) is x
    assert list(norm.parameters()) == []
    assert norm.state_dict() == {}


def test_a_wrong_width_is_refused():
    for norm in (LayerNorm(D), RMSNorm(D)):
        with pytest.raises(ValueError, match=r"x has width 5 .* but d_model is 6"):
            norm(torch.zeros(B, T, 5))
    with pytest.raises(ValueError, match="d_model must be at least 1, got 0"):
        RMSNorm(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_works_and_large_half_values_do_not_overflow(dtype):
    x = torch.tensor([[300.0, -300.0, 300.0, 300.0, -300.0, -300.0]], dtype=dtype)
    for norm in (LayerNorm(D), RMSNorm(D)):
        y = norm.to(dtype)(x)
        assert y.dtype == dtype
        assert torch.allclose(y.float(), x.float() / 300, atol=1e-2)


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D)])
def test_empty_sizes_keep_their_shape(shape):
    for norm in (LayerNorm(D), RMSNorm(D)):
        assert norm(torch.zeros(shape)).shape == shape
