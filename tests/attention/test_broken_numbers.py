"""NaN and infinity: without effect in padding, shown exactly where they can be seen elsewhere.

One table for every form of every mechanism.
"""

import itertools
import math

import pytest
import torch
from attention_forms import (
    DH,
    DOT_PRODUCT,
    DTYPES,
    FORMS,
    MASKS,
    SCORES,
    B,
    H,
    inputs,
    masks_of,
    pairs,
    run,
    tolerance,
)

from clearhead.attention import Mask, running_sums

BROKEN = [torch.nan, torch.inf, -torch.inf]
NAMES = ("output", "dq", "dk", "dv", "dbias")
dot_product = pytest.mark.parametrize("attend", DOT_PRODUCT.values(), ids=DOT_PRODUCT)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Small blocks, so that a short sequence crosses every kind of border."""
    monkeypatch.setattr(running_sums, "BLOCK", 12)


def padding_cases():
    """NaN for every form; infinities for some; half precision where scores are formed."""
    for form in FORMS:
        yield form, torch.nan, torch.float32
        if form in SCORES or form.endswith(("elu", "positive")):
            yield from ((form, value, torch.float32) for value in (torch.inf, -torch.inf))
        if form in SCORES:
            yield from ((form, value, torch.float16) for value in BROKEN)


@pytest.mark.parametrize(("form", "value", "dtype"), [*padding_cases()], ids=str)
def test_N06_padding_may_hold_anything_and_every_bit_stays(form, value, dtype):
    """Output and gradients are those of clean padding: queries that see nothing, unseen keys."""
    t, s = (3, 7) if form in SCORES else (17, 17)
    for name, make in masks_of(form).items():
        mask = make(t, s)
        allowed = pairs(mask, 2, H, t, s)
        blind, unseen = (~allowed.any(axis).unsqueeze(-1) for axis in (-1, -2))
        for Dv, learned in (
            ((DH, False), (6, False), (DH, True)) if form in SCORES else ((6, False),)
        ):
            q, k, v = (0.5 * x for x in inputs(2, H, T=t, S=s, Dv=Dv, dtype=dtype))
            bias = torch.randn(t, s).to(dtype) if learned else None
            clean = run(FORMS[form], q, k, v, mask, bias)
            dirty = [
                x.masked_fill(dead, value)
                for x, dead in zip((q, k, v), (blind, unseen, unseen), strict=True)
            ]
            some = [(dirty[0], k, v), (q, dirty[1], v), (q, k, dirty[2])] if form in SCORES else []
            for tensors in (dirty, *some):
                results = run(FORMS[form], *tensors, mask, bias)
                for what, a, b in zip(NAMES, clean, results, strict=False):
                    assert torch.equal(a, b), (name, what, Dv, learned)
            assert clean[0].masked_select(blind).eq(0).all()


@dot_product
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


def live_cases():
    """Every form with every mask in float32; the dot product in every dtype."""
    for form in FORMS:
        for mask in masks_of(form):
            dtypes = DTYPES if form in DOT_PRODUCT else [torch.float32]
            yield from ((form, mask, dtype) for dtype in dtypes)


@pytest.mark.parametrize(("form", "mask", "dtype"), [*live_cases()], ids=str)
def test_N07_a_broken_live_number_reaches_exactly_the_queries_that_see_it(form, mask, dtype):
    long = 40 if form in DOT_PRODUCT else 23
    for (t, s), which in itertools.product(((5, 7), (6, 6), (long, long)), range(3)):
        tensors = [0.5 * x.detach() for x in inputs(2, H, T=t, S=s, dtype=dtype)]
        given = MASKS[mask](t, s)
        allowed = pairs(given, 2, H, t, s)
        clean = FORMS[form](*tensors, mask=given)
        rows = tensors[which].size(-2)
        for place in sorted({0, 1, rows // 2, rows - 1}):
            broken = [x.clone() for x in tensors]
            broken[which][1, 2, place, 1] = torch.nan
            output = FORMS[form](*broken, mask=given)
            reached = torch.zeros_like(output, dtype=torch.bool)
            if which == 0:
                reached[1, 2, place] = allowed[1, 2, place].any()
            elif which == 1:
                reached[1, 2] = allowed[1, 2, :, place, None]
            else:
                reached[1, 2, :, 1] = allowed[1, 2, :, place]
            assert torch.equal(output.isnan(), reached), (t, s, which, place)
            if "fourier" not in form:  # whose sum may come near 0, where no digit is left
                rest = ~reached
                torch.testing.assert_close(output[rest], clean[rest], **tolerance(dtype, 3))


@dot_product
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("which", range(3))
def test_N07_numbers_that_are_all_broken_are_never_hidden(attend, which, dtype):
    for t, s in ((3, 3), (1, 4), (2, 1)):
        tensors = [x.detach() for x in inputs(B, H, T=t, S=s, dtype=dtype)]
        tensors[which] = torch.full_like(tensors[which], torch.nan)
        bias = torch.zeros(t, s, dtype=dtype, requires_grad=True)
        for mask, added in itertools.product((None, Mask.causal(), Mask.window(9)), (None, bias)):
            output = attend(*tensors, mask=mask, bias=added)
            live = slice(max(t - s, 0) if mask is not None and mask.is_causal else 0, t)
            assert output[..., live, :].isnan().all(), (t, s, mask, added is None)
