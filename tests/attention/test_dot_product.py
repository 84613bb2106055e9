"""Scaled dot-product attention: one table of facts for reference and fused form.

The module calls the fused form; where that is not obvious, it is in the table too. The laws of all
mechanisms are in test_mechanisms.py, broken numbers in test_broken_numbers.py.
"""

import itertools
import math

import oracle
import pytest
import torch
from attention_forms import (
    DH,
    DOT_PRODUCT,
    DTYPES,
    MASKS,
    MODULE,
    B,
    H,
    S,
    T,
    inputs,
    tolerance,
)
from torch.nn.functional import scaled_dot_product_attention

from clearhead.attention import DotProductAttention, Mask, dot_product, dot_product_fast

FORMS = DOT_PRODUCT | MODULE
functions = pytest.mark.parametrize("attend", DOT_PRODUCT.values(), ids=DOT_PRODUCT)
every_form = pytest.mark.parametrize("attend", FORMS.values(), ids=FORMS)
OTHER_MASKS = [mask for mask in MASKS if mask not in ("none", "causal", "padding")]


def check(attend, q, k, v, mask=None, bias=None, **options):
    """Output and gradients against the loops, within a few units in the last place."""
    tensors = [x.detach().requires_grad_() for x in (q, k, v)]
    learned = None if bias is None else bias.detach().requires_grad_(bias.requires_grad)
    output = attend(*tensors, mask=mask, bias=learned, **options)
    given = Mask.of(mask) if isinstance(mask, torch.Tensor) else mask
    allowed = None if mask is None else given.broadcastable(q.size(-2), k.size(-2), axes=q.ndim)
    expected, _ = oracle.dot_product(q, k, v, allowed, bias, options.get("scale"))
    grad = torch.randn(output.shape, dtype=torch.float64).to(output.dtype)
    output.backward(grad)
    grads = oracle.dot_product_gradients(q, k, v, grad, allowed, bias, options.get("scale"))
    assert output.dtype == q.dtype
    assert output.shape == (*q.shape[:-1], v.size(-1))
    got = [output, *(x.grad for x in tensors)]
    largest = 1.0  # score; the relative error of exp(score) is that of the score times the score
    if options.get("scale"):
        largest = max(1.0, float((q @ k.mT).detach().abs().max()) * abs(options["scale"]))
    for ours, theirs in zip(got, (expected, *grads[:3]), strict=True):
        scale = max(1.0, float(theirs.abs().max()) if theirs.numel() else 1.0) * largest
        torch.testing.assert_close(ours.double(), theirs, **tolerance(q.dtype, scale))
    if learned is not None and learned.requires_grad:
        assert learned.grad.dtype == bias.dtype
        assert learned.grad.shape == bias.shape
        # What is summed over broadcast axes cancels, so its error is that of the terms.
        scale = max(float(grads.bias.abs().max()), 1.0) * expected.numel() / bias.numel()
        torch.testing.assert_close(learned.grad.double(), grads.bias, **tolerance(q.dtype, scale))
    return output.detach()


# Numbers known from elsewhere


@every_form
def test_the_published_digits(attend):
    torch.manual_seed(42)
    q, k, v = torch.randn(2, 5, 512), torch.randn(2, 5, 512), torch.randn(2, 5, 256)
    output = attend(q, k, v)
    first = torch.tensor([-1.3709, -0.6827, 0.3234, 0.8677, -0.1474])
    last = torch.tensor([0.0653, -0.2076, 0.6225, -0.4946, -0.2935])
    torch.testing.assert_close(output[0, 0, :5], first, atol=5.1e-5, rtol=0)
    torch.testing.assert_close(output[-1, -1, -5:], last, atol=5.1e-5, rtol=0)


@every_form
def test_a_case_worked_by_hand(attend):
    # Scores over √4 are 0, log 2 and log 3, so the weights are 1/6, 2/6, 3/6.
    q = torch.tensor([[2.0, 0, 0, 0]])
    k = torch.tensor([[0.0, 5, 5, 5], [math.log(2), 1, 0, 0], [math.log(3), 0, 1, 0]])
    v = torch.tensor([[6.0, 0, 0, 0], [0, 6, 0, 0], [0, 0, 6, 12]])
    torch.testing.assert_close(attend(q, k, v), torch.tensor([[1.0, 2, 3, 6]]))
    without_last = torch.tensor([[True, True, False]])
    torch.testing.assert_close(attend(q, k, v, mask=without_last), torch.tensor([[2.0, 4, 0, 0]]))
    # The bias stands before the division by √4 = 2: 2 log 3 makes the first score log 3.
    bias = torch.tensor([[2 * math.log(3), 0, 0]])
    expected = torch.tensor([[18 / 8, 12 / 8, 18 / 8, 36 / 8]])
    torch.testing.assert_close(attend(q, k, v, bias=bias), expected)


@functions
@pytest.mark.parametrize("leading", [(), (B,), (B, H)])
def test_equal_to_torch(attend, leading):
    q, k, v = inputs(*leading, Dv=6)
    torch.testing.assert_close(attend(q, k, v), scaled_dot_product_attention(q, k, v))
    allowed = Mask.causal().dense(T, S)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    torch.testing.assert_close(attend(q, k, v, mask=allowed), expected)
    torch.testing.assert_close(attend(q, k, v, mask=Mask.causal()), expected)
    square = scaled_dot_product_attention(k, k, v, is_causal=True)
    torch.testing.assert_close(attend(k, k, v, mask=Mask.causal()), square)
    bias = torch.randn(T, S, dtype=torch.float64)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=bias / math.sqrt(DH))
    torch.testing.assert_close(attend(q, k, v, bias=bias), expected)


@functions
def test_scale_multiplies_scores_and_bias(attend):
    bias = torch.randn(T, S, dtype=torch.float64, requires_grad=True)
    for scale in (1.0, 0.3, 0.0, -2.0):
        for mask in (None, Mask.causal()):
            check(attend, *inputs(B, H), mask=mask, bias=bias, scale=scale)
            check(attend, *inputs(B, H), mask=mask, scale=scale)
    q, k, v = inputs(B, H)
    assert torch.equal(attend(q, k, v, scale=0.5), attend(q, k, v))  # 1/√4
    torch.testing.assert_close(
        attend(q, k, v, scale=0.0), v.mean(-2, keepdim=True).expand(B, H, T, DH)
    )


# Every mask, shape and dtype


@pytest.mark.parametrize(
    ("form", "dtype"),
    [*itertools.product(DOT_PRODUCT, DTYPES), ("module", torch.float32)],
    ids=str,
)
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_in_every_dtype(form, mask, dtype):
    for t, s in ((5, 7), (6, 6), (7, 5), (1, 7)):
        check(FORMS[form], *inputs(2, H, T=t, S=s, dtype=dtype), mask=MASKS[mask](t, s))


@functions
@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 1, 3), (2, 3, 1, 2)], ids=str)
def test_any_number_of_axes_and_values_of_another_width(attend, leading):
    for Dv in (4, 1, 6):
        for mask in (None, Mask.causal(), Mask.of(Mask.window(2).dense(T, S))):
            check(attend, *inputs(*leading, Dv=Dv), mask=mask)
            bias = torch.randn(T, S, dtype=torch.float64, requires_grad=True)
            check(attend, *inputs(*leading, Dv=Dv), mask=mask, bias=bias)
        if leading:
            check(attend, *inputs(*leading, Dv=Dv), mask=Mask.padding(torch.tensor([0, 4])))


@functions
@pytest.mark.parametrize(
    ("mask", "dtype"),
    [
        *((mask, torch.float64) for mask in MASKS),
        *((mask, torch.float32) for mask in ("none", "causal", "padding")),
        *(pytest.param(x, torch.float32, marks=pytest.mark.slow) for x in OTHER_MASKS),
    ],
    ids=str,
)
def test_a_bias_of_every_shape_with_its_gradient(attend, mask, dtype):
    shapes = itertools.product((1, 2), (1, H), (1, T), (1, S))
    for shape in [*shapes, (H, T, S), (1, T, S), (T, S), (1, S), (T, 1), (S,), ()]:
        bias = torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()
        check(attend, *inputs(2, H, dtype=dtype), mask=MASKS[mask](T, S), bias=bias)


@functions
@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
@pytest.mark.parametrize("mask", ["none", "causal", "padding 0", "segments"])
def test_a_bias_in_half_precision_with_its_gradient(attend, mask, dtype):
    for shape in ((2, H, T, S), (2, 1, T, S), (H, T, S), (T, S), (1, S), (S,)):
        bias = torch.randn(shape).to(dtype).requires_grad_()
        check(attend, *inputs(2, H, dtype=dtype), mask=MASKS[mask](T, S), bias=bias)


@functions
def test_a_bias_without_heads_belongs_to_batch_elements(attend):
    for shape in ((B, T, S), (1, T, S), (B, 1, S), (T, S), (S,)):
        bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        check(attend, *inputs(B), bias=bias)
        check(attend, *inputs(B), bias=bias.detach(), mask=Mask.padding(torch.tensor([0, 4])))


@functions
def test_a_bias_that_does_not_learn_leaves_the_other_gradients_right(attend):
    bias = torch.randn(H, T, S, dtype=torch.float64)
    for mask in MASKS.values():
        check(attend, *inputs(2, H), mask=mask(T, S), bias=bias)


@functions
def test_only_the_bias_may_learn(attend):
    q, k, v = (x.detach() for x in inputs(B, H))
    bias = torch.randn(H, T, S, dtype=torch.float64, requires_grad=True)
    attend(q, k, v, mask=Mask.causal(), bias=bias).sum().backward()
    grad = torch.ones(B, H, T, DH, dtype=torch.float64)
    expected = oracle.dot_product_gradients(q, k, v, grad, Mask.causal().dense(T, S), bias)
    torch.testing.assert_close(bias.grad, expected.bias, atol=1e-12, rtol=0)


@functions
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_sizes_beyond_one_block_of_a_kernel(attend, dtype):
    q, k, v = inputs(1, 1, T=40, S=40, dtype=dtype)
    for mask in (None, Mask.causal(), Mask.window(9), Mask.padding(torch.tensor([33]))):
        check(attend, q, k, v, mask=mask)
    bias = torch.randn(1, 40, 40, dtype=torch.float64).to(dtype).requires_grad_()
    check(attend, q, k, v, mask=Mask.causal(), bias=bias)
    check(attend, q[..., :35, :], k, v, mask=Mask.causal())


@functions
def test_a_bias_of_higher_precision_keeps_it_in_the_scores(attend):
    q, k, v = inputs(B, H, dtype=torch.float16)
    bias = 1e5 + torch.randn(H, T, S)  # beyond the range of float16, which is 65504
    expected, _ = oracle.dot_product(q, k, v, None, bias)
    output = attend(q, k, v, bias=bias)
    assert output.dtype == torch.float16
    torch.testing.assert_close(output.double(), expected, atol=0.02, rtol=0.02)


@functions
def test_a_forbidden_pair_may_have_any_bias(attend):
    mask = Mask.causal()
    forbidden = ~mask.dense(T, S)
    for value in (torch.nan, torch.inf, -torch.inf):
        bias = torch.randn(H, T, S, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        clean = check(attend, *inputs(B, H), mask=mask, bias=bias.requires_grad_())
        spoilt = bias.detach().masked_fill(forbidden, value).requires_grad_()
        q, k, v = inputs(B, H)
        output = attend(q, k, v, mask=mask, bias=spoilt)
        assert torch.equal(output, clean)
        output.sum().backward()
        assert all(x.grad.isfinite().all() for x in (q, k, v, spoilt))
        assert spoilt.grad[:, forbidden].eq(0).all()


def test_a_row_that_a_bias_forbids_is_the_same_in_both_forms():
    q, k, v = inputs(B, H)
    bias = torch.zeros(T, S, dtype=torch.float64)
    bias[1] = -torch.inf
    for mask in (None, Mask.causal()):
        both = [form(q, k, v, mask=mask, bias=bias) for form in DOT_PRODUCT.values()]
        torch.testing.assert_close(*both, equal_nan=True)


# Weights


def test_weights_are_what_the_output_is_mixed_with():
    q, k, v = inputs(B, H)
    bias = torch.randn(H, T, S, dtype=torch.float64)
    for name, mask in MASKS.items():
        mask = mask(T, S)
        allowed = None if mask is None else mask.broadcastable(T, S, axes=4)
        expected, weights = oracle.dot_product(q, k, v, allowed, bias)
        for form in (dot_product, dot_product_fast):
            output, taken = form.attend(q, k, v, mask=mask, bias=bias, return_weights=True)
            torch.testing.assert_close(output, expected)
            torch.testing.assert_close(taken, weights)
        torch.testing.assert_close(dot_product.weights(q, k, mask=mask, bias=bias), weights)
        visible = DotProductAttention(0.5).weights(q, k, mask=mask, bias=bias)
        torch.testing.assert_close(visible, weights)
        sums = weights.sum(-1)
        assert ((sums - 1).abs() < 1e-12).logical_or(sums == 0).all(), name
        if allowed is not None:
            assert taken.masked_select(~allowed).eq(0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_of_every_query_sum_to_one_in_every_dtype(dtype):
    q, k, _ = inputs(B, H, S=40, dtype=dtype)
    sums = dot_product.weights(q, k, mask=Mask.window(20)).double().sum(-1)
    assert (sums - 1).abs().max() < 4 * torch.finfo(dtype).eps


def test_N03_the_fused_form_gives_an_element_the_same_bits_in_any_batch():
    q, k, v = inputs(3, H, dtype=torch.float32)
    lens = torch.tensor([0, 1, S])
    together = dot_product_fast.attend(q, k, v, mask=Mask.padding(lens))
    for b in range(3):
        one = slice(b, b + 1)
        alone = dot_product_fast.attend(q[one], k[one], v[one], mask=Mask.padding(lens[one]))
        assert torch.equal(together[one], alone)


# Large numbers


@functions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_N05_large_matches_give_the_best_value(attend, dtype):
    q = torch.full((1, 2, 64), 40.0, dtype=dtype)  # q · k is 102400, beyond the range of float16
    k = torch.stack([q[0, 0], -q[0, 0], q[0, 0] / 2])[None].clone()
    v = torch.randn(1, 3, 64).to(dtype)
    output = attend(q, k, v)
    torch.testing.assert_close(output, v[:, :1].expand(1, 2, 64), **tolerance(dtype))
    output = attend(q, k, v, mask=torch.tensor([[False, True, True], [True, True, False]]))
    torch.testing.assert_close(output, v[:, [2, 0]], **tolerance(dtype))


# Dropout


def test_N16_dropout_does_nothing_in_eval_and_comes_back_in_training():
    q, k, v = inputs(B, H)
    attention = DotProductAttention(dropout=0.9)
    plain = DotProductAttention()(q, k, v)
    assert attention.training
    assert not torch.equal(attention(q, k, v), plain)
    attention.eval()
    assert torch.equal(attention(q, k, v), plain)
    assert torch.equal(attention(q, k, v), attention(q, k, v))
    attention.train()
    assert attention.dropout == 0.9
    assert not torch.equal(attention(q, k, v), attention(q, k, v))
    assert repr(attention) == "DotProductAttention(dropout=0.9)"


@functions
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_N17_dropout_keeps_its_share_of_the_weights_and_scales_them_up(attend, p):
    torch.manual_seed(1)
    n = 320  # 102400 weights, all 1/n; the identity as values shows each of them
    q, k, v = torch.zeros(1, n, 4), torch.zeros(1, n, 4), torch.eye(n)[None]
    shown = attend(q, k, v, dropout=p) * n
    kept = shown > 0
    torch.testing.assert_close(shown[kept], torch.full((int(kept.sum()),), 1 / (1 - p)))
    bound = 4.9 * math.sqrt(p * (1 - p) / kept.numel())  # two-sided 1e-6
    assert abs(kept.double().mean().item() - (1 - p)) < bound


@functions
def test_N17_no_and_full_dropout_are_legal(attend):
    q, k, v = inputs(B, H)
    assert torch.equal(attend(q, k, v, dropout=0.0), attend(q, k, v))
    output = attend(q, k, v, dropout=1.0)
    assert output.eq(0).all()
    output.sum().backward()
    assert all(x.grad.eq(0).all() for x in (q, k, v))
    assert DotProductAttention(dropout=1)(q, k, v).eq(0).all()


@functions
def test_weights_are_handed_back_before_dropout(attend):
    q, k, v = inputs(B, H)
    _, taken = attend(q, k, v, dropout=0.5, return_weights=True)
    assert torch.equal(taken, dot_product.weights(q, k))


@functions
def test_dropout_never_lets_a_forbidden_key_through(attend):
    q, k, v = inputs(B, H)
    mask = Mask.padding(torch.tensor([0, 4]))
    v = v.detach().clone()
    v[1, :, 4:] = torch.nan
    output = attend(q, k, v, mask=mask, dropout=0.3)
    assert output.isfinite().all()
    assert output[0].eq(0).all()


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_a_dropout_that_is_no_probability_is_refused(dropout):
    with pytest.raises(ValueError, match="dropout must be a finite number from 0 to 1"):
        DotProductAttention(dropout)


def test_a_dropout_that_is_no_number_is_refused():
    for dropout in ("0.1", None, True):
        with pytest.raises(TypeError, match="dropout must be a number, got"):
            DotProductAttention(dropout)


# Gradients by differences


def test_weights_have_the_right_gradient():
    q, k, _ = inputs(2, 1, T=3, S=4, Dh=2)
    bias = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for mask in [mask(3, 4) for mask in MASKS.values()]:
        assert torch.autograd.gradcheck(
            lambda q, k, b, m=mask: dot_product.weights(q, k, mask=m, bias=b), (q, k, bias)
        )


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("other", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_N25_a_bias_may_have_a_precision_of_its_own(dtype, other, learned):
    q, k, v = (torch.randn(2, 3, n, 4).to(dtype) for n in (5, 7, 7))
    bias = torch.randn(3, 5, 7).to(other).requires_grad_(learned)
    output = dot_product_fast.attend(q, k, v, mask=Mask.causal(), bias=bias)
    expected = dot_product.attend(q, k, v, mask=Mask.causal(), bias=bias)
    assert output.dtype == expected.dtype == dtype
    torch.testing.assert_close(output, expected, rtol=0.02, atol=0.02)
    if learned:
        output.sum().backward()
        assert bias.grad.dtype == other


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("S", [1, 7, 512, 513])
def test_training_in_half_precision_keeps_the_exact_numbers(dtype, S):
    """Up to 512 keys the products are written out; beyond, the kernel computes them."""
    generator = torch.Generator().manual_seed(S)
    T, sizes = 5, ((2, 3, 5, 4), (2, 3, S, 4), (2, 3, S, 4))
    rows = [torch.randn(*size, generator=generator).to(dtype).requires_grad_() for size in sizes]
    wide = [x.detach().double().requires_grad_() for x in rows]
    upstream = torch.randn(2, 3, T, 4, generator=generator).to(dtype)
    output = dot_product_fast.attend(*rows, scale=0.9)
    expected = dot_product.attend(*wide, scale=0.9)
    assert output.dtype == dtype
    assert (output - expected).abs().max() < 0.03
    got = torch.autograd.grad(output, rows, upstream)
    right = torch.autograd.grad(expected, wide, upstream.double())
    for one, other in zip(got, right, strict=True):
        assert (one - other).norm() <= 0.03 * other.norm() + 1e-9


def test_a_broken_value_in_half_precision_training_reaches_only_who_sees_it():
    q, k, v = (torch.ones(2, 1, 3, 4, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    spoiled = v.detach().clone()
    spoiled[0, 0, 1] = torch.nan
    output = dot_product_fast.attend(q, k, spoiled.requires_grad_())
    assert output[0].isnan().all()
    assert (output[1] == 1).all()


@functions
@pytest.mark.parametrize("scale", [0.0, -0.7, 1e-300, 1e-31, 1e-29])
def test_a_causal_mask_works_at_any_scale(attend, scale):
    for dtype in DTYPES:
        check(attend, *inputs(B, H, T=S, dtype=dtype), mask=Mask.causal(), scale=scale)


def test_a_learned_bias_has_no_second_derivative_and_says_so():
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    bias = torch.zeros(1, 2, 3, 3, requires_grad=True)
    output = dot_product_fast.attend(q, q, q, bias=bias)
    with pytest.raises(RuntimeError, match=r"no second derivative; .*dot_product\.attend"):
        torch.autograd.grad(output.sum(), q, create_graph=True)
    torch.autograd.grad(dot_product_fast.attend(q, q, q, bias=bias).sum(), q)


@functions
@pytest.mark.parametrize("mask", [None, Mask.causal()])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_runs_over_examples(attend, mask):
    q, k, v = inputs(B, H, T=S)
    mapped = torch.func.vmap(lambda *row: attend(*row, mask=mask))(q, k, v)
    assert torch.allclose(mapped, attend(q, k, v, mask=mask), atol=1e-14)
