"""The mixture of values: a broken one reaches exactly the queries that may see it."""

import torch

from clearhead.attention.mixture import mix


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
