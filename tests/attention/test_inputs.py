"""The door of attention: what an equation may rely on after it."""

import math

import pytest
import torch

from clearhead.attention.inputs import fill_forbidden, prepare, shield
from clearhead.attention.masks import Mask

B, H, T, S, DH, DV = 2, 3, 4, 5, 2, 6
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def inputs(dtype=torch.float32):
    return [torch.randn(B, H, *s).to(dtype) for s in ((T, DH), (S, DH), (S, DV))]


def test_without_a_mask_nothing_is_changed():
    q, k, v = inputs()
    x = prepare(q, k, v)
    assert (x.q, x.k, x.v) == (q, k, v)
    assert x.allowed is None
    assert x.bias == 0
    assert x.scale == 1 / math.sqrt(DH)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_queries_and_keys_of_a_dot_product_are_widened_and_values_are_not(dtype):
    q, k, v = inputs(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    x = prepare(q, k, v, mask=Mask.causal())
    assert (x.q.dtype, x.k.dtype, x.v.dtype) == (wide, wide, dtype)
    x = prepare(q, k, v, mask=Mask.causal(), for_dot_product=False)
    assert x.q.dtype == x.k.dtype == x.v.dtype == dtype


def test_the_mask_becomes_a_matrix_that_broadcasts_to_the_scores():
    q, k, v = inputs()
    mask = Mask.causal() & Mask.padding(torch.tensor([0, 4]))
    allowed = prepare(q, k, v, mask=mask).allowed
    assert torch.equal(allowed.expand(B, H, T, S), mask.dense(T, S).expand(B, H, T, S))


def test_weights_alone_need_no_values():
    q, k, _ = inputs()
    assert prepare(q, k).v.shape == (B, H, S, 0)


def test_what_no_query_sees_is_zero_and_everything_else_stays():
    q, k, v = inputs()
    allowed = torch.rand(B, 1, T, S) > 0.6
    allowed[0, 0, 2] = False
    allowed[1, 0, :, 3] = False
    sees, seen = allowed.any(-1).expand(B, H, T), allowed.any(-2).expand(B, H, S)
    for x, live, before in zip(
        shield(q, k, v, allowed), (sees, seen, seen), (q, k, v), strict=True
    ):
        assert torch.equal(x[live], before[live])
        assert x[~live].eq(0).all()
        assert not live.all()
    assert shield(q, k, v, None) == (q, k, v)


def test_forbidden_pairs_are_filled():
    scores, allowed = torch.randn(T, S), torch.rand(T, S) > 0.5
    filled = fill_forbidden(scores, allowed, -torch.inf)
    assert torch.equal(filled.isinf(), ~allowed)
    assert torch.equal(filled[allowed], scores[allowed])
    assert fill_forbidden(scores, None, 0.0) is scores


def test_wrong_arguments_are_refused_by_name():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="k must be as wide as q, 2, got 6"):
        prepare(q, v, v)
    assert prepare(q, v, v, for_dot_product=False).k is v
    with pytest.raises(TypeError, match=r"v must be a torch\.Tensor, got NoneType"):
        prepare(q, k, None)
    with pytest.raises(ValueError, match="v must have one row per key, 5, got 4"):
        prepare(q, k, v[..., :4, :])
    with pytest.raises(ValueError, match="mask has 3 entries in axis 0"):
        prepare(q, k, mask=Mask.padding(torch.tensor([1, 2, 3])))
    with pytest.raises(ValueError, match="bias must broadcast to the scores"):
        prepare(q, k, bias=torch.zeros(T + 1, S))
