"""The soft cap: its two forms, its slope, its bounds, and what is refused."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.layers.soft_cap import apply_soft_cap, cap_in_place, check_soft_cap


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_by_hand():
    y = apply_soft_cap(torch.tensor([0.0, 2.0, -2.0], dtype=torch.float64), 2.0)
    one = 2 * math.tanh(1)
    assert torch.allclose(y, torch.tensor([0.0, one, -one], dtype=torch.float64), rtol=1e-15)


def test_no_cap_is_the_tensor_itself():
    x = numbers(3, 4)
    assert apply_soft_cap(x, None) is x


@given(st.floats(0.01, 1e4), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_nothing_passes_the_cap_and_the_order_stays(cap, a, b):
    low, high = apply_soft_cap(torch.tensor(sorted((a, b)), dtype=torch.float64), cap).tolist()
    assert -cap <= low <= high <= cap


@pytest.mark.parametrize("cap", [0.5, 3.0, 30])
def test_in_place_it_is_the_same_and_the_slope_is_the_gradient(cap):
    x = (4 * numbers(3, 5)).requires_grad_()
    y = apply_soft_cap(x, cap)
    y.sum().backward()
    over = x.detach().clone()
    slope = cap_in_place(over, cap)
    assert torch.allclose(over, y, rtol=0, atol=1e-14)
    assert torch.allclose(slope, x.grad, rtol=0, atol=1e-14)


@pytest.mark.parametrize("cap", [None, 1, 0.5, 1e30])
def test_a_positive_number_or_none_is_a_cap(cap):
    check_soft_cap(cap)


@pytest.mark.parametrize(
    ("cap", "kind", "words"),
    [
        (0.0, ValueError, "soft_cap must be a finite number above 0, got 0.0; None = no cap"),
        (-3, ValueError, "above 0, got -3"),
        (math.nan, ValueError, "above 0, got nan"),
        (math.inf, ValueError, "finite number above 0, got inf"),
        (True, TypeError, "soft_cap must be a number, got True; None = no cap"),
        ("30", TypeError, "soft_cap must be a number, got '30'; None = no cap"),
    ],
)
def test_any_other_cap_is_refused(cap, kind, words):
    with pytest.raises(kind, match=words):
        check_soft_cap(cap)
