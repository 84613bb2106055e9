"""The laws that every form of every mechanism keeps, and what the modules refuse.

Each mechanism has its own numbers in a file of its own; broken numbers have test_broken_numbers.py.
"""

import itertools

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
    S,
    T,
    inputs,
    masks_of,
    run,
    takes_any_mask,
    takes_bias,
    tolerance,
)

from clearhead.attention import ArgmaxAttention, DotProductAttention, Mask, Mechanism, running_sums

every_form = pytest.mark.parametrize("form", FORMS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Small blocks, so that a short sequence crosses every kind of border."""
    monkeypatch.setattr(running_sums, "BLOCK", 12)


def biases(form, *shape, dtype=torch.float64):
    """No bias and, where the form takes one, a learned one."""
    learned = torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()
    return [None, learned] if takes_bias(form) else [None]


# Empty rows


@every_form
@every_dtype
def test_N01_N02_an_empty_row_is_exactly_zero_and_sends_no_gradient(form, dtype):
    """A query without a document and an element without tokens."""
    ids = torch.tensor([[0, 0, -1, 1, -1, 1, 1], [-1] * 7])
    empty = ids < 0
    masks = [Mask.segments(ids), Mask.causal() & Mask.segments(ids)]
    if takes_any_mask(form):
        masks.append(Mask.of((ids[:, :, None] >= 0).expand(2, 7, 7).unsqueeze(1)))
    for mask, Dv in itertools.product(masks, (DH, 6)):
        for bias in biases(form, H, 7, 7, dtype=dtype):
            q, k, v = (0.5 * x.detach() for x in inputs(2, H, T=7, S=7, Dv=Dv, dtype=dtype))
            leaves = [x.requires_grad_() for x in (q, k, v)]
            output = FORMS[form](*leaves, mask=mask, bias=bias)
            assert output.transpose(1, 2)[empty].eq(0).all()
            output.backward(torch.randn_like(output))
            assert q.grad.transpose(1, 2)[empty].eq(0).all()
            for x in leaves:
                assert x.grad.isfinite().all()
                assert x.grad[1].eq(0).all()
            assert v.grad[0].ne(0).any()
            if bias is not None:
                assert bias.grad.isfinite().all()


@every_form
def test_N02_an_empty_row_makes_no_nan_inside_the_backward_pass_either(form):
    for bias in biases(form, T, S):
        q, k, v = inputs(2, H)
        with torch.autograd.set_detect_anomaly(True):
            mask = Mask.padding(torch.tensor([0, 4]))
            output = FORMS[form](q, k, v, mask=mask, bias=bias)
            output.backward(torch.randn_like(output))


@every_form
def test_N02_other_rows_are_as_if_the_empty_one_were_not_there(form):
    q, k, v = inputs(2, H, T=S)
    ids = torch.zeros(2, S, dtype=torch.long)
    ids[:, 3] = -1
    keep = [0, 1, 2, 4, 5, 6]
    whole = run(FORMS[form], q, k, v, Mask.segments(ids))
    alone = [x.detach()[:, :, keep].requires_grad_() for x in (q, k, v)]
    output = FORMS[form](*alone)
    grad = torch.arange(1.0, whole[0].numel() + 1).reshape(whole[0].shape).double()
    output.backward(grad[:, :, keep])
    for x, expected in zip(whole, (output, *(x.grad for x in alone)), strict=True):
        torch.testing.assert_close(x[:, :, keep], expected, atol=1e-8, rtol=1e-8)


@every_form
@every_dtype
def test_N03_a_batch_of_lengths_0_1_and_all_equals_each_element_alone(form, dtype):
    lens = torch.tensor([0, 1, S])
    q, k, v = (0.5 * x for x in inputs(3, H, dtype=dtype))
    together = FORMS[form](q, k, v, mask=Mask.padding(lens))
    assert together[0].eq(0).all()
    torch.testing.assert_close(together[1], v[1, :, :1].expand(H, T, DH), **tolerance(dtype))
    for b, length in enumerate(lens.tolist()):
        one = slice(b, b + 1)
        cut = FORMS[form](q[one], k[one, :, :length], v[one, :, :length])
        torch.testing.assert_close(together[one], cut, **tolerance(dtype, 3))
        padded = FORMS[form](q[one], k[one], v[one], mask=Mask.padding(lens[one]))
        torch.testing.assert_close(together[one], padded, **tolerance(dtype))


# Causality


@every_form
@every_dtype
def test_N10_future_tokens_change_no_bit_of_the_past(form, dtype):
    n = 40 if form in DOT_PRODUCT else 23
    q, k, v = (0.5 * x.detach() for x in inputs(B, H, T=n, S=n, dtype=dtype))
    masks = [Mask.causal(), *([Mask.causal() & Mask.window(3)] if takes_any_mask(form) else [])]
    for mask, bias in itertools.product(masks, biases(form, H, n, n, dtype=dtype)):
        clean = FORMS[form](q, k, v, mask=mask, bias=bias)
        for t in (0, 1, n // 2, n - 2):
            changed = [x.clone() for x in (q, k, v)]
            for x in changed:
                x[..., t + 1 :, :] += 1
            output = FORMS[form](*changed, mask=mask, bias=bias)
            assert torch.equal(output[..., : t + 1, :], clean[..., : t + 1, :])
            assert not torch.equal(output[..., t + 1 :, :], clean[..., t + 1 :, :])


@every_form
def test_N10_no_gradient_flows_from_the_past_to_the_future(form):
    for t in range(5):
        q, k, v = inputs(B, H, T=5, S=5)
        FORMS[form](q, k, v, mask=Mask.causal())[..., t, :].sum().backward()
        for x in (k, v):
            assert x.grad[..., t + 1 :, :].eq(0).all()
        assert v.grad[..., t, :].ne(0).any() or form == "argmax"
        assert q.grad[..., :t, :].eq(0).all()


@every_form
def test_N11_N12_N13_causal_and_padding_are_a_shorter_row_of_keys(form):
    """All sizes: query t sees the first min(t + 1 + S − T, length) keys, none if that is below 1.

    So a cached step (T = 1) sees every key, and the first of more queries than keys see nothing.
    """
    for t, s in itertools.product(range(1, 7), repeat=2):
        lens = torch.arange(s + 1)  # an element for each length
        q, k, v = (0.5 * x.detach() for x in inputs(s + 1, 1, T=t, S=s, Dh=2))
        output = FORMS[form](q, k, v, mask=Mask.causal() & Mask.padding(lens))
        plain = FORMS[form](q, k, v, mask=Mask.causal())
        for i in range(t):
            seen = max(i + 1 + s - t, 0)
            row = FORMS[form](q[:, :, i : i + 1], k[:, :, :seen], v[:, :, :seen])
            torch.testing.assert_close(plain[:, :, i : i + 1], row)
            for b in range(s + 1):
                n = min(seen, b)
                one = FORMS[form](q[b, :, i : i + 1], k[b, :, :n], v[b, :, :n])
                torch.testing.assert_close(output[b, :, i : i + 1], one)


# Sizes


@every_form
@pytest.mark.parametrize("leading", [(0, 3), (2, 3), (0,), (2, 0), ()], ids=str)
def test_N23_empty_sizes_keep_their_shapes_and_have_gradients(form, leading):
    for t, s, Dv in itertools.product((0, 1, 3), (0, 1, 4), (0, 2)):
        if 0 not in (*leading, t, s, Dv):
            continue
        masks = [None, Mask.causal()]
        if takes_any_mask(form):
            masks += [Mask.window(2), Mask.of(torch.ones(t, s, dtype=torch.bool))]
        if leading:
            masks += [
                Mask.tokens(torch.ones(leading[0], s, dtype=torch.bool)),
                Mask.padding(torch.zeros(leading[0], dtype=torch.long)),
                Mask.segments(torch.zeros(leading[0], s, dtype=torch.long)),
            ]
        for mask, bias in itertools.product(masks, biases(form, t, s)):
            q, k, v = inputs(*leading, T=t, S=s, Dh=2, Dv=Dv)
            output = FORMS[form](q, k, v, mask=mask, bias=bias)
            assert output.shape == (*leading, t, Dv)
            assert output.eq(0).all() or s
            output.sum().backward()
            for x in (q, k, v, *([] if bias is None else [bias])):
                assert x.grad.shape == x.shape
                assert x.grad.isfinite().all()
                x.grad = None


@every_form
def test_N23_one_token_gives_its_own_value(form):
    q, k, v = inputs(B, H, T=1, S=1, Dh=1)
    for mask, bias in itertools.product((None, Mask.causal()), biases(form, 1, 1)):
        torch.testing.assert_close(FORMS[form](q, k, v, mask=mask, bias=bias), v)


# Layout


def turned(x):
    return x.detach().mT.contiguous().mT


def spread(x):
    wide = torch.zeros(*x.shape[:-1], 2 * x.size(-1) + 1, dtype=x.dtype)
    wide[..., 1::2] = x.detach()
    return wide[..., 1::2]


def from_heads_last(x):
    return x.detach().transpose(-2, -3).contiguous().transpose(-2, -3)


@every_form
@pytest.mark.parametrize("layout", [turned, spread, from_heads_last])
def test_N24_any_layout_gives_the_same_result(form, layout):
    for name, Dv in itertools.product(("none", "causal", "padding", "padding 0"), (DH, 6)):
        q, k, v = (x.detach() for x in inputs(2, H, Dv=Dv))
        mask = MASKS[name](T, S)
        for bias in biases(form, H, T, S):
            plain = run(FORMS[form], q, k, v, mask, bias)
            tensors = [layout(x).requires_grad_() for x in (q, k, v)]
            assert not any(x.is_contiguous() for x in tensors)
            placed = None if bias is None else layout(bias).requires_grad_()
            output = FORMS[form](*tensors, mask=mask, bias=placed)
            output.backward(torch.arange(1.0, output.numel() + 1).reshape(output.shape).double())
            got = [output.detach(), *(x.grad for x in tensors)]
            got += [] if placed is None else [placed.grad]
            for ours, expected in zip(got, plain, strict=True):
                torch.testing.assert_close(ours, expected, atol=1e-8, rtol=1e-8)


@every_form
def test_N24_expanded_inputs_give_the_same_result(form):
    shape = (2, H, S, DH)
    for axis, name in itertools.product(range(4), ("none", "causal", "padding 0")):
        mask = MASKS[name](S, S)
        small = [x.detach().narrow(axis, 0, 1) for x in inputs(2, H, T=S, S=S)]
        for bias in biases(form, 1, 1, 1, 1):
            whole = None if bias is None else bias.expand(2, H, S, S)
            plain = run(FORMS[form], *(x.expand(shape).clone() for x in small), mask, whole)
            leaves = [x.clone().requires_grad_() for x in small]
            output = FORMS[form](*(x.expand(shape) for x in leaves), mask=mask, bias=whole)
            output.backward(torch.arange(1.0, output.numel() + 1).reshape(output.shape).double())
            torch.testing.assert_close(output, plain[0], atol=1e-9, rtol=1e-9)
            for x, expected in zip(leaves, plain[1:4], strict=True):
                total = expected.sum(axis, keepdim=True)
                torch.testing.assert_close(x.grad, total, atol=1e-7, rtol=1e-8)
            if bias is not None:
                torch.testing.assert_close(bias.grad.sum(), plain[4].sum(), atol=1e-8, rtol=1e-8)


@every_form
@pytest.mark.parametrize("broken", [False, True])
def test_N24_inputs_are_left_as_they_were(form, broken):
    q, k, v = (x.detach() for x in inputs(2, H))
    if broken:
        k[0, :, 5:] = torch.nan
        v[0, :, 5:] = torch.inf
    lens, bias = torch.tensor([3, 5]), biases(form, H, T, S)[-1]
    tensors = [*(x.requires_grad_() for x in (q, k, v)), lens, *([] if bias is None else [bias])]
    masks = [Mask.padding(lens), Mask.causal() & Mask.padding(lens)]
    if takes_any_mask(form):
        allowed = torch.rand(2, 1, T, S) > 0.5
        tensors.append(allowed)
        masks.append(Mask.padding(lens) & allowed)
    kept, versions = [x.detach().clone() for x in tensors], [x._version for x in tensors]
    for mask, added in itertools.product(masks, {None, bias}):
        output = FORMS[form](q, k, v, mask=mask, bias=added)
        grad = torch.ones_like(output)
        output.backward(grad)
        assert grad.eq(1).all()
    assert [x._version for x in tensors] == versions
    for x, before in zip(tensors, kept, strict=True):
        torch.testing.assert_close(x.detach(), before, rtol=0, atol=0, equal_nan=True)


@every_form
def test_N26_no_graph_is_kept_where_no_gradient_is_wanted(form):
    q, k, v = inputs(B, H)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            for bias in biases(form, T, S):
                assert not FORMS[form](q, k, v, mask=Mask.causal(), bias=bias).requires_grad


# Refusals


@every_form
def test_N25_inputs_that_do_not_fit_are_refused_by_name(form):
    q, k, v = (x.detach() for x in inputs(B, H))
    k_like_q, v_like_q = "k must have the leading axes of q", "v must have the leading axes of q"
    double = r"must have the dtype of q, torch\.float64, got torch\."
    for error, words, tensors in [
        (TypeError, f"k {double}float32", (q, k.float(), v)),
        (TypeError, f"v {double}float16", (q, k, v.half())),
        (TypeError, r"q must hold floating-point numbers, got torch\.int64", (q.long(), k, v)),
        (TypeError, r"q must be a torch\.Tensor, got list", ([1.0], k, v)),
        (TypeError, r"v must be a torch\.Tensor, got NoneType", (q, k, None)),
        (ValueError, r"v must have one row per key, 7, got 6", (q, k, v[..., :6, :])),
        (ValueError, rf"{k_like_q}, \(2, 3\), got \(1, 3\)", (q, k[:1], v)),
        (ValueError, rf"{v_like_q}, \(2, 3\), got \(2, 2\)", (q, k, v[:, :2])),
        (ValueError, k_like_q, (q[0], k, v)),
        (ValueError, r"q must have at least 2 axes, got shape \(4,\)", (q[0, 0, 0], k, v)),
        (ValueError, r"k must be on the device of q, cpu, got meta", (q, k.to("meta"), v)),
        (ValueError, r"q .*width", (q[..., :0], k[..., :0], v)),
    ]:
        with pytest.raises(error, match=words):
            FORMS[form](*tensors)
    if form != "additive":
        with pytest.raises(ValueError, match=r"k must be as wide as q, 4, got 3"):
            FORMS[form](q, k[..., :3], v)


@every_form
def test_N08_N25_masks_that_do_not_fit_are_refused_by_name(form):
    q, k, v = (x.detach() for x in inputs(B, H))
    wrong = [
        (ValueError, r"mask has 3 entries in axis 0", Mask.padding(torch.tensor([1, 2, 3]))),
        (ValueError, r"token_mask has 5 columns", Mask.tokens(torch.ones(B, T).bool())),
        (TypeError, r"mask must be boolean with True = may attend", torch.ones(T, S)),
        (TypeError, r"mask must be a Mask or a boolean torch\.Tensor, got str", "causal"),
    ]
    if takes_any_mask(form):
        words = r"last two axes must be \(T, S\) = \(5, 7\)"
        wrong.append((ValueError, words, torch.ones(7, 5).bool()))
    for error, words, mask in wrong:
        with pytest.raises(error, match=words):
            FORMS[form](q, k, v, mask=mask)


@pytest.mark.parametrize("form", SCORES)
def test_N25_biases_that_do_not_fit_are_refused_by_name(form):
    q, k, v = (x.detach() for x in inputs(B, H))
    broadcast = r"bias must broadcast to the scores \(2, 3, 5, 7\)"
    for error, words, bias in [
        (TypeError, r"bias must hold floating-point numbers .* use mask=", torch.ones(T, S).bool()),
        (TypeError, r"bias must be a torch\.Tensor, got float", 0.5),
        (ValueError, rf"{broadcast}, got \(7, 5\)", torch.ones(S, T)),
        (ValueError, broadcast, torch.ones(4, T, S)),
        (ValueError, broadcast, torch.ones(1, B, H, T, S)),
        (ValueError, r"bias must be on the device of q, cpu", torch.ones(T, S, device="meta")),
    ]:
        with pytest.raises(error, match=words):
            FORMS[form](q, k, v, bias=bias)


# Gradients


@every_form
@pytest.mark.parametrize(("t", "s", "Dv"), [(3, 4, 2), (3, 4, 3), (4, 4, 2), (4, 4, 3)])
def test_gradients_agree_with_finite_differences(form, t, s, Dv):
    """By random directions; for the dot product and elu, in the first size, by every entry."""
    each_entry = Dv == 2 and s > t and form in (*DOT_PRODUCT, "linear_fast elu")
    for mask in masks_of(form).values():
        q, k, v = inputs(2, 1, T=t, S=s, Dh=2, Dv=Dv)
        for bias in biases(form, t, s):
            given = mask(t, s)
            leaves = (q, k, v) if bias is None else (q, k, v, bias)

            def attend(q, k, v, bias=None, given=given):
                return FORMS[form](q, k, v, mask=given, bias=bias)

            assert torch.autograd.gradcheck(attend, leaves, fast_mode=not each_entry)


# Modules


def test_a_mechanism_of_ones_own_needs_only_weights():
    class First(Mechanism):
        """Every query takes the first key it may see."""

        def weights(self, q, k, *, mask=None, bias=None):
            seen = mask.expand(*q.shape[:-1], k.size(-2)).to(q.dtype)
            return seen * (seen.cumsum(-1) == 1)

    q, k, v = inputs(B, H)
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, -1]]).expand(B, S)
    output = First()(q, k, v, mask=Mask.segments(ids))
    assert torch.equal(output, v[:, :, [2, 2, 2, 5, 0]] * torch.tensor([1, 1, 1, 1, 0])[:, None])
    with pytest.raises(NotImplementedError, match="Mechanism must say how weights come from"):
        Mechanism()(q, k, v)


def test_weights_of_every_module_are_what_its_output_is_mixed_with():
    q, k, v = inputs(B, H)
    for attention in (DotProductAttention(), ArgmaxAttention()):
        for mask in MASKS.values():
            weights = attention.weights(q, k, mask=mask(T, S))
            torch.testing.assert_close(attention(q, k, v, mask=mask(T, S)), weights @ v)
