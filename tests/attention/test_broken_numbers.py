"""NaN and infinity in dot-product attention: without effect in padding, never hidden elsewhere."""

import itertools
import math

import pytest
import torch
from dot_products import DH, DTYPES, FUNCTIONS, MASKS, B, H, inputs, run, tolerance

from clearhead.attention.masks import Mask

functions = pytest.mark.parametrize("attend", FUNCTIONS.values(), ids=FUNCTIONS)

SPOILERS = [torch.nan, torch.inf, -torch.inf]
PADDINGS = {
    "lengths": lambda t, s: Mask.padding(torch.tensor([s - 2, s])),
    "length 0": lambda t, s: Mask.padding(torch.tensor([0, s - 1])),
    "causal": lambda t, s: Mask.causal() & Mask.padding(torch.tensor([s - 2, s - 1])),
    "tokens": lambda t, s: Mask.tokens(torch.arange(2 * s).reshape(2, s) % 3 != 0),
    "segments": lambda t, s: Mask.segments(torch.arange(2 * s).reshape(2, s) % 3 - 1),
    "matrix": lambda t, s: Mask.of((torch.arange(s) % 3 != 0).expand(t, s)),
}


@functions
@pytest.mark.parametrize("mask", PADDINGS)
@pytest.mark.parametrize("value", SPOILERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_N06_padding_may_hold_anything_and_every_bit_stays(attend, value, mask, dtype):
    t, s = 3, 7
    mask = PADDINGS[mask](t, s)
    dead = ~mask.broadcastable(t, s, axes=4).expand(2, 1, t, s).any(-2).unsqueeze(-1)
    for Dv, learned in ((DH, False), (DH, True), (6, False)):
        q, k, v = inputs(2, H, T=t, S=s, Dv=Dv, dtype=dtype)
        bias = torch.randn(t, s).to(dtype) if learned else None
        clean = run(attend, q, k, v, mask, bias)
        for spoil_k, spoil_v in ((True, False), (False, True), (True, True)):
            k_spoilt = k.masked_fill(dead, value) if spoil_k else k
            v_spoilt = v.masked_fill(dead, value) if spoil_v else v
            spoilt = run(attend, q, k_spoilt, v_spoilt, mask, bias)
            for name, a, b in zip(
                ("output", "dq", "dk", "dv", "dbias"), clean, spoilt, strict=False
            ):
                assert torch.equal(a, b), (name, Dv, learned, spoil_k, spoil_v)


@functions
@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
@pytest.mark.parametrize("learned", [False, True])
def test_N06_infinite_padding_that_scores_minus_infinity_gives_finite_gradients(
    attend, value, learned
):
    # Here q · k is −inf for every query: the weight is 0 without any mask, but 0 · inf is not.
    q, k, v = inputs(1, 1, T=2, S=3, Dh=2)
    q, k = -q.abs() * math.copysign(1, value), k.detach().clone()
    k[..., 2, :] = value
    bias = torch.zeros(2, 3, dtype=torch.float64) if learned else None
    results = run(attend, q, k, v, Mask.padding(torch.tensor([2])), bias)
    assert all(x.isfinite().all() for x in results)


@functions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("mask", ["none", "causal", "causal padding", "window", "padding"])
def test_N07_a_broken_live_number_reaches_exactly_the_queries_that_see_it(
    attend, mask, which, dtype
):
    for t, s in ((5, 7), (6, 6), (40, 40)):
        q, k, v = (x.detach() for x in inputs(2, H, T=t, S=s, dtype=dtype))
        given = MASKS[mask](t, s)
        allowed = (
            Mask.from_mha().dense(t, s) if given is None else given.broadcastable(t, s, axes=4)
        )
        allowed = allowed.expand(2, H, t, s)
        clean = attend(q, k, v, mask=given)
        for place in {0, 1, s // 2, s - 1}:
            x = {"q": q, "k": k, "v": v}[which]
            place = min(place, x.size(-2) - 1)
            broken = x.clone()
            broken[1, 2, place, 1] = torch.nan
            tensors = [
                broken if name == which else y for name, y in zip("qkv", (q, k, v), strict=True)
            ]
            output = attend(*tensors, mask=given)
            reached = torch.zeros_like(output, dtype=torch.bool)
            if which == "q":
                reached[1, 2, place] = allowed[1, 2, place].any()
            elif which == "k":
                reached[1, 2] = allowed[1, 2, :, place, None]
            else:
                reached[1, 2, :, 1] = allowed[1, 2, :, place]
            assert torch.equal(output.isnan(), reached), (t, s, place)
            rest = ~reached
            torch.testing.assert_close(output[rest], clean[rest], **tolerance(dtype, 3))


@functions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_N07_numbers_that_are_all_broken_are_never_hidden(attend, which, dtype):
    for t, s in ((3, 3), (1, 4), (2, 1)):
        tensors = dict(
            zip("qkv", (x.detach() for x in inputs(B, H, T=t, S=s, dtype=dtype)), strict=True)
        )
        tensors[which] = torch.full_like(tensors[which], torch.nan)
        bias = torch.zeros(t, s, dtype=dtype, requires_grad=True)
        for mask, added in itertools.product((None, Mask.causal(), Mask.window(9)), (None, bias)):
            output = attend(*tensors.values(), mask=mask, bias=added)
            live = slice(max(t - s, 0) if mask is not None and mask.is_causal else 0, t)
            assert output[..., live, :].isnan().all(), (t, s, mask, added is None)
