"""Scaled dot-product attention: one table of facts for reference and fused form.

The module calls the fused form; where that is not seen at once, it stands in the table too. Broken
numbers have a file of their own.
"""

import itertools
import math

import oracle
import pytest
import torch
from dot_products import DH, DTYPES, FORMS, FUNCTIONS, MASKS, B, H, S, T, inputs, run, tolerance
from torch.nn.functional import scaled_dot_product_attention

from clearhead.attention import dot_product, dot_product_fast
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import DotProductAttention

functions = pytest.mark.parametrize("attend", FUNCTIONS.values(), ids=FUNCTIONS)
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
    for ours, theirs in zip(got, (expected, *grads[:3]), strict=True):
        scale = float(theirs.abs().max()) if theirs.numel() else 1.0
        torch.testing.assert_close(ours.double(), theirs, **tolerance(q.dtype, max(scale, 1.0)))
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
    [*itertools.product(FUNCTIONS, DTYPES), ("module", torch.float32)],
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
        both = [form(q, k, v, mask=mask, bias=bias) for form in FUNCTIONS.values()]
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


# Empty rows


@functions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("Dv", [DH, 6])
def test_N01_N02_an_empty_row_is_exactly_zero_and_gives_no_gradient(attend, dtype, learned, Dv):
    q, k, v = inputs(2, H, dtype=dtype, Dv=Dv)
    bias = torch.randn(H, T, S).to(dtype).requires_grad_() if learned else None
    allowed = torch.ones(2, 1, T, S, dtype=torch.bool)
    allowed[0, 0, 3] = False
    allowed[1] = False
    output = attend(q, k, v, mask=allowed, bias=bias)
    assert output[0, :, 3].eq(0).all()
    assert output[1].eq(0).all()
    output.backward(torch.randn_like(output))
    assert q.grad[0, :, 3].eq(0).all()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert x.grad[1].eq(0).all()
        assert x.grad[0].ne(0).any()
    if learned:
        assert bias.grad.isfinite().all()
        assert bias.grad[:, 3].eq(0).all()


@functions
@pytest.mark.parametrize("learned", [False, True])
def test_N02_an_empty_row_makes_no_nan_on_the_way_either(attend, learned):
    q, k, v = inputs(2, H)
    bias = torch.randn(T, S, dtype=torch.float64, requires_grad=True) if learned else None
    with torch.autograd.set_detect_anomaly(True):
        output = attend(q, k, v, mask=Mask.padding(torch.tensor([0, 4])), bias=bias)
        output.backward(torch.randn_like(output))


@functions
def test_N02_other_rows_are_as_if_the_empty_one_were_not_there(attend):
    q, k, v = inputs(1, H)
    keep = [0, 1, 2, 4]
    allowed = torch.ones(T, S, dtype=torch.bool)
    allowed[3] = False
    grad = torch.randn(1, H, T, DH, dtype=torch.float64)
    output = attend(q, k, v, mask=allowed)
    output.backward(grad)
    alone = [x.detach().requires_grad_() for x in (q[:, :, keep], k, v)]
    without = attend(*alone)
    without.backward(grad[:, :, keep])
    torch.testing.assert_close(output[:, :, keep], without)
    torch.testing.assert_close(q.grad[:, :, keep], alone[0].grad)
    torch.testing.assert_close(k.grad, alone[1].grad)
    torch.testing.assert_close(v.grad, alone[2].grad)


@functions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_N03_a_batch_of_lengths_0_1_and_all_equals_each_element_alone(attend, dtype):
    lens = torch.tensor([0, 1, S])
    q, k, v = inputs(3, H, dtype=dtype)
    together = attend(q, k, v, mask=Mask.padding(lens))
    assert together[0].eq(0).all()
    torch.testing.assert_close(together[1], v[1, :, :1].expand(H, T, DH), **tolerance(dtype))
    for b, length in enumerate(lens.tolist()):
        alone = attend(q[b : b + 1], k[b : b + 1, :, :length], v[b : b + 1, :, :length])
        torch.testing.assert_close(together[b : b + 1], alone, **tolerance(dtype))
        one = slice(b, b + 1)
        same = attend(q[one], k[one], v[one], mask=Mask.padding(lens[one]))
        torch.testing.assert_close(together[one], same, **tolerance(dtype))


def test_N03_the_fused_form_gives_an_element_the_same_bits_in_any_batch():
    q, k, v = inputs(3, H, dtype=torch.float32)
    lens = torch.tensor([0, 1, S])
    together = dot_product_fast.attend(q, k, v, mask=Mask.padding(lens))
    for b in range(3):
        one = slice(b, b + 1)
        alone = dot_product_fast.attend(q[one], k[one], v[one], mask=Mask.padding(lens[one]))
        assert torch.equal(together[one], alone)


@functions
def test_N13_causal_with_more_queries_than_keys_gives_zeros_first(attend):
    for t, s in itertools.product(range(1, 7), repeat=2):
        output = check(attend, *inputs(B, H, T=t, S=s), mask=Mask.causal())
        empty = max(t - s, 0)
        assert output[:, :, :empty].eq(0).all()
        assert output[:, :, empty:].ne(0).all()


# Causality


@functions
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [6, 40])
def test_N10_future_tokens_change_no_bit_of_the_past(attend, dtype, n):
    q, k, v = (x.detach() for x in inputs(B, H, T=n, S=n, dtype=dtype))
    bias = torch.randn(H, n, n).to(dtype)
    for options in ({}, {"bias": bias}):
        for mask in (Mask.causal(), Mask.causal() & Mask.window(3)):
            clean = attend(q, k, v, mask=mask, **options)
            for t in (0, 1, n // 2, n - 2):
                changed = [x.clone() for x in (q, k, v)]
                for x in changed:
                    x[..., t + 1 :, :] += 3
                output = attend(*changed, mask=mask, **options)
                assert torch.equal(output[..., : t + 1, :], clean[..., : t + 1, :])
                assert not torch.equal(output[..., t + 1 :, :], clean[..., t + 1 :, :])


@functions
def test_N10_no_gradient_flows_from_the_past_to_the_future(attend):
    for t in range(5):
        q, k, v = inputs(B, H, T=5, S=5)
        attend(q, k, v, mask=Mask.causal())[..., t, :].sum().backward()
        for x in (k, v):
            assert x.grad[..., t + 1 :, :].eq(0).all()
            assert x.grad[..., t, :].ne(0).any() or (t == 0 and x is k)
        assert q.grad[..., :t, :].eq(0).all()


@functions
def test_N11_causal_and_padding_together_for_all_lengths(attend):
    for n in range(1, 7):
        lens = torch.arange(n + 1)
        q, k, v = inputs(n + 1, 1, T=n, S=n, Dh=2)
        check(attend, q, k, v, mask=Mask.causal() & Mask.padding(lens))


@functions
def test_N12_a_cached_step_equals_the_last_row_of_the_full_pass(attend):
    q, k, v = inputs(B, H, T=8, S=8)
    full = attend(q, k, v, mask=Mask.causal())
    for last in range(1, 8):
        step = attend(q[..., 8 - last :, :], k, v, mask=Mask.causal())
        torch.testing.assert_close(step, full[..., 8 - last :, :])
    one = attend(q[..., 7:, :], k, v, mask=Mask.causal())
    torch.testing.assert_close(one, attend(q[..., 7:, :], k, v))


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


# Empty and smallest sizes


@functions
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("leading", [(0, 3), (2, 3), (0,), (2, 0), ()], ids=str)
def test_N23_empty_sizes_keep_their_shapes_and_have_gradients(attend, leading, with_bias):
    for t, s, Dv in itertools.product((0, 1, 3), (0, 1, 4), (0, 2)):
        if 0 not in (*leading, t, s, Dv):
            continue
        masks = [None, Mask.causal(), Mask.window(2), Mask.of(torch.ones(t, s, dtype=torch.bool))]
        if leading:
            masks += [
                Mask.tokens(torch.ones(leading[0], s, dtype=torch.bool)),
                Mask.padding(torch.zeros(leading[0], dtype=torch.long)),
            ]
        for mask in masks:
            q, k, v = inputs(*leading, T=t, S=s, Dh=2, Dv=Dv)
            bias = torch.zeros(t, s, dtype=torch.float64, requires_grad=True) if with_bias else None
            output = attend(q, k, v, mask=mask, bias=bias)
            assert output.shape == (*leading, t, Dv)
            assert output.eq(0).all() or s
            output.sum().backward()
            for x in (q, k, v, *([bias] if with_bias else [])):
                assert x.grad.shape == x.shape
                assert x.grad.isfinite().all()


@functions
def test_N23_one_token_and_heads_of_width_1(attend):
    bias = torch.randn(1, 1, dtype=torch.float64, requires_grad=True)
    check(attend, *inputs(B, H, T=1, S=1, Dh=1), mask=Mask.causal())
    check(attend, *inputs(B, H, T=1, S=1, Dh=1), bias=bias)
    check(attend, *inputs(B, H, Dh=1), mask=Mask.causal())
    check(attend, *inputs(1, 1, T=1, S=1, Dh=1), mask=Mask.padding(torch.tensor([0])), bias=bias)


@functions
def test_heads_of_width_0_are_refused_with_a_sentence(attend):
    with pytest.raises(ValueError, match=r"q .*width"):
        attend(*inputs(B, H, Dh=0, Dv=2))


# Layout


def turned(x):
    return x.detach().transpose(-1, -2).contiguous().transpose(-1, -2)


def spread(x):
    wide = torch.zeros(*x.shape[:-1], 2 * x.size(-1) + 1, dtype=x.dtype)
    wide[..., 1::2] = x.detach()
    return wide[..., 1::2]


def from_heads_last(x):
    return x.detach().transpose(-2, -3).contiguous().transpose(-2, -3)


@functions
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("layout", [turned, spread, from_heads_last])
def test_N24_any_layout_gives_the_same_result(attend, layout, learned):
    bias = torch.randn(H, T, S, dtype=torch.float64)
    for name in ("none", "causal", "padding", "padding 0"):
        for Dv in (DH, 6):
            q, k, v = inputs(2, H, Dv=Dv)
            mask = MASKS[name](T, S)
            plain = run(attend, q, k, v, mask, bias if learned else None)
            tensors = [layout(x).requires_grad_() for x in (q, k, v)]
            assert not any(x.is_contiguous() for x in tensors)
            placed = layout(bias).requires_grad_() if learned else None
            output = attend(*tensors, mask=mask, bias=placed)
            output.backward(torch.arange(1.0, output.numel() + 1).reshape(output.shape).double())
            got = [output.detach(), *(x.grad for x in tensors), *([placed.grad] if learned else [])]
            for ours, expected in zip(got, plain, strict=True):
                torch.testing.assert_close(ours, expected, atol=1e-9, rtol=1e-10)


@functions
@pytest.mark.parametrize("learned", [False, True])
def test_N24_expanded_inputs_give_the_same_result(attend, learned):
    for axis in range(4):
        small = [x.detach().narrow(axis, 0, 1) for x in inputs(2, H, T=S, S=S)]
        shape = (2, H, S, DH)
        bias = torch.randn(1, 1, 1, 1, dtype=torch.float64).expand(2, H, S, S) if learned else None
        for mask in (None, Mask.causal(), Mask.padding(torch.tensor([0, 3]))):
            plain = run(attend, *(x.expand(shape).clone() for x in small), mask, bias)
            leaves = [x.clone().requires_grad_() for x in small]
            leaf = bias[:1, :1, :1, :1].clone().requires_grad_() if learned else None
            output = attend(
                *(x.expand(shape) for x in leaves),
                mask=mask,
                bias=leaf.expand(2, H, S, S) if learned else None,
            )
            output.backward(torch.arange(1.0, output.numel() + 1).reshape(output.shape).double())
            torch.testing.assert_close(output, plain[0], atol=1e-12, rtol=1e-10)
            for x, expected in zip(leaves, plain[1:4], strict=True):
                total = expected.sum(axis, keepdim=True)
                torch.testing.assert_close(x.grad, total, atol=1e-8, rtol=1e-9)
            if learned:
                torch.testing.assert_close(leaf.grad.sum(), plain[4].sum(), atol=1e-8, rtol=1e-9)


@functions
@pytest.mark.parametrize("spoilt", [False, True])
def test_N24_inputs_are_left_as_they_were(attend, spoilt):
    q, k, v = inputs(2, H)
    if spoilt:
        k, v = k.detach().clone(), v.detach().clone()
        k[0, :, 5:] = torch.nan
        v[0, :, 5:] = torch.inf
        k.requires_grad_()
        v.requires_grad_()
    lens = torch.tensor([3, 5])
    allowed = torch.rand(2, 1, T, S) > 0.5
    bias = torch.randn(H, T, S, dtype=torch.float64, requires_grad=True)
    tensors = [q, k, v, lens, allowed, bias]
    kept, versions = [x.detach().clone() for x in tensors], [x._version for x in tensors]
    for mask, added in itertools.product(
        (Mask.padding(lens) & allowed, Mask.causal()), (None, bias)
    ):
        output = attend(q, k, v, mask=mask, bias=added)
        grad = torch.ones_like(output)
        output.backward(grad)
        assert grad.eq(1).all()
    assert [x._version for x in tensors] == versions
    for x, before in zip(tensors, kept, strict=True):
        torch.testing.assert_close(x.detach(), before, rtol=0, atol=0, equal_nan=True)


@functions
def test_no_graph_is_kept_where_no_gradient_is_wanted(attend):
    q, k, v = inputs(B, H)
    bias = torch.zeros(T, S, dtype=torch.float64, requires_grad=True)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert not attend(q, k, v, mask=Mask.causal(), bias=bias).requires_grad


# Refusals


@functions
def test_N25_inputs_that_do_not_fit_are_refused_by_name(attend):
    q, k, v = (x.detach() for x in inputs(B, H))
    refused = [
        (
            TypeError,
            r"k must have the dtype of q, torch\.float64, got torch\.float32",
            (q, k.float(), v),
        ),
        (
            TypeError,
            r"v must have the dtype of q, torch\.float64, got torch\.float16",
            (q, k, v.half()),
        ),
        (TypeError, r"q must hold floating-point numbers, got torch\.int64", (q.long(), k, v)),
        (TypeError, r"q must be a torch\.Tensor, got list", ([1.0], k, v)),
        (ValueError, r"k must be as wide as q, 4, got 3", (q, k[..., :3], v)),
        (ValueError, r"v must have one row per key, 7, got 6", (q, k, v[..., :6, :])),
        (ValueError, r"k must have the leading axes of q, \(2, 3\), got \(1, 3\)", (q, k[:1], v)),
        (
            ValueError,
            r"v must have the leading axes of q, \(2, 3\), got \(2, 2\)",
            (q, k, v[:, :2]),
        ),
        (ValueError, r"k must have the leading axes of q", (q[0], k, v)),
        (ValueError, r"q must have at least 2 axes, got shape \(4,\)", (q[0, 0, 0], k, v)),
        (ValueError, r"k must be on the device of q, cpu, got meta", (q, k.to("meta"), v)),
    ]
    for error, words, tensors in refused:
        with pytest.raises(error, match=words):
            attend(*tensors)


@functions
def test_masks_and_biases_that_do_not_fit_are_refused_by_name(attend):
    q, k, v = (x.detach() for x in inputs(B, H))
    masks = [
        (ValueError, r"mask has 3 entries in axis 0", Mask.padding(torch.tensor([1, 2, 3]))),
        (ValueError, r"last two axes must be \(T, S\) = \(5, 7\)", torch.ones(7, 5).bool()),
        (ValueError, r"token_mask has 5 columns", Mask.tokens(torch.ones(B, T).bool())),
        (TypeError, r"mask must be boolean with True = may attend", torch.ones(T, S)),
        (TypeError, r"mask must be a Mask or a boolean torch\.Tensor, got str", "causal"),
    ]
    for error, words, mask in masks:
        with pytest.raises(error, match=words):
            attend(q, k, v, mask=mask)
    biases = [
        (TypeError, r"bias must hold floating-point numbers .* use mask=", torch.ones(T, S).bool()),
        (TypeError, r"bias must be a torch\.Tensor, got float", 0.5),
        (
            ValueError,
            r"bias must broadcast to the scores \(2, 3, 5, 7\), got \(7, 5\)",
            torch.ones(S, T),
        ),
        (ValueError, r"bias must broadcast to the scores", torch.ones(4, T, S)),
        (ValueError, r"bias must broadcast to the scores", torch.ones(1, B, H, T, S)),
        (
            ValueError,
            r"bias must be on the device of q, cpu, got meta",
            torch.ones(T, S, device="meta"),
        ),
    ]
    for error, words, bias in biases:
        with pytest.raises(error, match=words):
            attend(q, k, v, bias=bias)


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_a_dropout_that_is_no_probability_is_refused(dropout):
    with pytest.raises(ValueError, match="dropout must be a finite number from 0 to 1"):
        DotProductAttention(dropout)


def test_a_dropout_that_is_no_number_is_refused():
    for dropout in ("0.1", None, True):
        with pytest.raises(TypeError, match="dropout must be a number, got"):
            DotProductAttention(dropout)


# Gradients by differences


@functions
@pytest.mark.parametrize(("t", "s", "Dv"), [(3, 4, 2), (3, 4, 3), (4, 4, 2), (4, 4, 3)])
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_agree_with_finite_differences(attend, mask, t, s, Dv):
    """The first size by every entry of the Jacobian, the others by random directions."""
    q, k, v = inputs(2, 1, T=t, S=s, Dh=2, Dv=Dv)
    given, by_direction = MASKS[mask](t, s), (t, s, Dv) != (3, 4, 2)
    assert torch.autograd.gradcheck(
        lambda *qkv: attend(*qkv, mask=given), (q, k, v), fast_mode=by_direction
    )
    bias = torch.randn(t, s, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: attend(q, k, v, mask=given, bias=b),
        (q, k, v, bias),
        fast_mode=by_direction,
    )


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
