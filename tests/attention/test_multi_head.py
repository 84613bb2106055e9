"""All heads in one product are the heads one by one, for every mechanism, scheme and mask."""

import itertools
import math

import parts
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import BIASES, KERNELS, ONE_OF_EACH, SCHEMES, SCORES, B, D, Dh, H, S, T

from clearhead.attention import (
    ArgmaxAttention,
    KVCache,
    Mask,
    MultiHeadAttention,
    attend,
    loop_over_heads,
    merge_heads,
    split_heads,
)
from clearhead.inspection import record
from clearhead.layers import Block, Stack
from clearhead.positions import AlibiBias, LearnedPositions, RotaryPositions, ToeplitzBias

STRUCTURED = {
    "none": None,
    "causal": Mask.causal(),
    "padding": Mask.padding(torch.tensor([0, 3])),
    "tokens": Mask.tokens(torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 1, 1]]).bool()),
    "causal padding": Mask.causal() & Mask.padding(torch.tensor([4, 2])),
    "segments": Mask.causal() & Mask.segments(torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 2, -1]])),
}
MASKS = STRUCTURED | {
    "window": Mask.window(2),
    "lengths of each query": Mask.padding(torch.tensor([[1, 2, 0, 4, 5], [5, 4, 3, 2, 1]])),
    "matrix": torch.rand(T, T, generator=torch.Generator().manual_seed(1)) > 0.5,
    "by head": torch.rand(B, H, T, T, generator=torch.Generator().manual_seed(2)) > 0.5,
}


def build(mechanism="dot product", scheme="none", **options):
    return parts.build(mechanism, scheme, **options).double()


def tokens(length=T, batch=B, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, D, dtype=torch.float64, generator=generator)


def heads_of(attention, x):
    """q, k and v (B, H, T, Dh) as projected, before any positions."""
    projections = (attention.proj_q, attention.proj_k, attention.proj_v)
    return [split_heads(project(x), H) for project in projections]


def assert_same(attention, compute, other, inputs):
    """Equal outputs, and equal gradients to the inputs and to every parameter."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    leaves = [*inputs, *attention.parameters()]
    outputs = [compute(*inputs), other(*inputs)]
    direction = torch.randn_like(outputs[0])
    grads = [
        torch.autograd.grad(y, leaves, direction, allow_unused=True, materialize_grads=True)
        for y in outputs
    ]
    torch.testing.assert_close(*outputs, rtol=1e-8, atol=1e-10)
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


def assert_same_as_loop(attention, mask, x, source=None):
    inputs = [x] if source is None else [x, source]
    assert_same(
        attention,
        lambda *inputs: attention(*inputs, mask=mask),
        lambda *inputs: loop_over_heads(attention, *inputs, mask=mask),
        inputs,
    )


# The heads one by one


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mechanism", SCORES)
def test_all_heads_at_once_are_the_heads_one_by_one(mechanism, scheme, mask):
    attention = build(mechanism, scheme, n_kv_heads=3)
    assert_same_as_loop(attention, MASKS[mask], tokens())


@pytest.mark.parametrize("mask", STRUCTURED)
@pytest.mark.parametrize("scheme", ["none", "rotary"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_linear_heads_at_once_are_the_heads_one_by_one(kernel, scheme, mask):
    attention = build(kernel, scheme, n_kv_heads=2)
    assert_same_as_loop(attention, STRUCTURED[mask], tokens())


@pytest.mark.parametrize("scheme", BIASES)
def test_linear_heads_refuse_a_bias_by_distance(scheme):
    attention = build("elu", scheme)
    with pytest.raises(ValueError, match="linear attention has no scores to which bias="):
        attention(tokens())


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("mechanism", ONE_OF_EACH)
def test_shared_key_value_heads_are_the_heads_one_by_one(mechanism, n_kv_heads):
    attention = build(mechanism, n_kv_heads=n_kv_heads)
    assert attention.proj_k.out_features == attention.proj_v.out_features == n_kv_heads * Dh
    assert_same_as_loop(attention, Mask.causal(), tokens())


def with_qk_norm(mechanism="dot product", scheme="none", **options):
    """With gains that differ by column and between queries and keys."""
    attention = build(mechanism, scheme, qk_norm=True, **options)
    for norm in (attention.norm_q, attention.norm_k):
        torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    return attention


@pytest.mark.parametrize("n_kv_heads", [1, 3, 6])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mechanism", SCORES)
def test_heads_with_normed_queries_and_keys_are_the_heads_one_by_one(mechanism, scheme, n_kv_heads):
    attention = with_qk_norm(mechanism, scheme, n_kv_heads=n_kv_heads)
    assert_same_as_loop(attention, Mask.causal(), tokens())
    if scheme != "rotary":
        assert_same_as_loop(attention, None, tokens(T), tokens(S, seed=2))


@pytest.mark.parametrize("scheme", ["none", "rotary"])
def test_qk_norm_is_the_equation_before_any_positions(scheme):
    """q · gain_q / rms(q) and k · gain_k / rms(k) in each head; values are left alone."""
    attention, x = with_qk_norm(scheme=scheme, n_kv_heads=2), tokens()

    def normed(y, gain):
        return y / torch.sqrt(y.square().mean(-1, keepdim=True) + 1e-6) * gain

    q = normed(split_heads(attention.proj_q(x), H), attention.norm_q.weight)
    k = normed(split_heads(attention.proj_k(x), 2), attention.norm_k.weight)
    v = split_heads(attention.proj_v(x), 2)
    if scheme == "rotary":
        q, k = attention.positions(q), attention.positions(k)
    k, v = (y.repeat_interleave(3, dim=1) for y in (k, v))
    weights = (q @ k.mT / math.sqrt(Dh)).softmax(-1)
    expected = attention.proj_out(merge_heads(weights @ v))
    torch.testing.assert_close(attention(x), expected)


def test_the_gains_of_qk_norm_are_one_for_each_column_of_a_head_and_are_learned():
    attention = build(qk_norm=True, n_kv_heads=3)
    for norm in (attention.norm_q, attention.norm_k):
        assert norm.weight.tolist() == [1.0] * Dh
    attention(tokens()).square().sum().backward()
    for norm in (attention.norm_q, attention.norm_k):
        assert (norm.weight.grad != 0).all()
    assert build().norm_q is build().norm_k is None
    assert not [name for name in build().state_dict() if "norm" in name]


@pytest.mark.parametrize("mechanism", ONE_OF_EACH)
def test_cross_attention_is_the_heads_one_by_one(mechanism):
    mask = Mask.padding(torch.tensor([4, 7]))
    assert_same_as_loop(build(mechanism, n_kv_heads=2), mask, tokens(T), tokens(S, seed=2))


@pytest.mark.parametrize("n_kv_heads", [None, 2])
@pytest.mark.parametrize("scheme", ["none", "toeplitz", "alibi"])
def test_heads_of_any_width_and_values_of_another_source_are_the_heads_one_by_one(
    scheme, n_kv_heads
):
    mask, options = Mask.padding([4, 7]), {"d_head": 5, "n_kv_heads": n_kv_heads}
    attention = build(scheme=scheme, **options)
    assert attention.proj_q.weight.shape == (H * 5, D)
    assert attention.proj_out.weight.shape == (D, H * 5)
    assert_same_as_loop(attention, MASKS["causal"], tokens())
    assert_same(
        attention,
        lambda x, source, values: attention(x, source, values=values, mask=mask),
        lambda x, source, values: loop_over_heads(attention, x, source, values=values, mask=mask),
        [tokens(T), tokens(S, seed=2), tokens(S, seed=3)],
    )


def test_a_cache_keeps_the_values_of_their_own_source():
    attention, x, source, values = build(d_head=7), tokens(), tokens(S, seed=2), tokens(S, seed=3)
    expected, cache = attention(x, source, values=values), KVCache()
    assert torch.equal(attention(x, source, values=values, cache=cache), expected)
    assert torch.equal(attention(x, source, values=values, cache=cache), expected)
    assert torch.equal(attention(x, source, cache=cache), expected)
    assert not torch.equal(attention(x, source), expected)


@pytest.mark.parametrize("bias_shape", [(T, T), (H, T, T), (1, H, T, T), (B, 1, 1, T)])
@pytest.mark.parametrize("scheme", ["none", "toeplitz", "alibi"])
def test_a_bias_is_added_for_all_heads_as_for_each(scheme, bias_shape):
    attention = build(scheme=scheme, n_kv_heads=3)
    added = torch.randn(bias_shape, dtype=torch.float64)
    assert_same(
        attention,
        lambda x, bias: attention(x, mask=Mask.causal(), bias=bias),
        lambda x, bias: loop_over_heads(attention, x, mask=Mask.causal(), bias=bias),
        [tokens(), added],
    )


def test_by_hand_two_heads_of_one_column_take_what_the_equation_says():
    """Identity projections, x = (ln 2, 0) and (0, ln 3): weights are a softmax of products."""
    attention = MultiHeadAttention(2, 2, bias=False)
    for layer in (attention.proj_q, attention.proj_k, attention.proj_v, attention.proj_out):
        torch.nn.init.eye_(layer.weight)
    a, b = math.log(2), math.log(3)
    output = attention(torch.tensor([[[a, 0.0], [0.0, b]]]))
    first = math.exp(a * a) / (math.exp(a * a) + 1) * a  # head 1, query 1: scores a², 0
    second = math.exp(b * b) / (math.exp(b * b) + 1) * b  # head 2, query 2: scores 0, b²
    expected = torch.tensor([[[first, b / 2], [a / 2, second]]])
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
def test_query_heads_that_share_a_key_head_stand_side_by_side(n_kv_heads):
    """G < H: head h uses key/value head h // (H / G), as if its columns had been copied."""
    shared = build(n_kv_heads=n_kv_heads)
    full = build()
    state = shared.state_dict()
    for name in ("proj_k.weight", "proj_k.bias", "proj_v.weight", "proj_v.bias"):
        by_head = state[name].unflatten(0, (n_kv_heads, Dh))
        state[name] = torch.stack([by_head[h * n_kv_heads // H] for h in range(H)]).flatten(0, 1)
    full.load_state_dict(state)
    x = tokens()
    torch.testing.assert_close(shared(x, mask=Mask.causal()), full(x, mask=Mask.causal()))


# torch.nn.MultiheadAttention


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [T, S])
def test_N09_it_is_pytorchs_multihead_attention_with_the_same_parameters(bias, length):
    """Masks cross over by Mask.to_mha; values and all gradients agree."""
    ours = build(bias=bias)
    theirs = torch.nn.MultiheadAttention(D, H, bias=bias, batch_first=True, dtype=torch.float64)
    layers = (ours.proj_q, ours.proj_k, ours.proj_v)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        theirs.out_proj.weight.copy_(ours.proj_out.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
            theirs.out_proj.bias.copy_(ours.proj_out.bias)
    by_head = torch.rand(B, H, T, length, generator=torch.Generator().manual_seed(3)) > 0.4
    by_head[..., 0] = True  # PyTorch's own gives NaN for an empty row
    real = torch.ones(B, length, dtype=torch.bool)
    real[0, 1] = real[1, 3] = False
    masks = [Mask.causal(), Mask.tokens(real), Mask.causal() & Mask.tokens(real), Mask.of(by_head)]
    masks += [Mask.padding(torch.tensor([2, length])), Mask.window(2) & Mask.of(by_head | True)]
    for mask in masks:
        x, source = (y.requires_grad_() for y in (tokens(), tokens(length, seed=2)))
        with record(ours) as trace:
            output = ours(x, source, mask=mask)
        expected, maps = theirs(
            x,
            source,
            source,
            attn_mask=mask.to_mha(T, length, n_heads=H),
            average_attn_weights=False,
        )
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(trace[""].weights, maps.detach())
        direction = torch.randn_like(output)
        own = [x, source, *(layer.weight for layer in layers), ours.proj_out.weight]
        other = [x, source, theirs.in_proj_weight, theirs.out_proj.weight]
        g = torch.autograd.grad(output, own, direction)
        e = torch.autograd.grad(expected, other, direction)
        for mine, its in zip((g[0], g[1], torch.cat(g[2:5]), g[5]), e, strict=True):
            torch.testing.assert_close(mine, its)


def test_N09_pytorchs_masks_cross_over_and_back():
    """The other way: from_mha reads what nn.MultiheadAttention would have been given."""
    generator = torch.Generator().manual_seed(4)
    forbidden = torch.rand(B * H, T, S, generator=generator) > 0.6
    padding = torch.rand(B, S, generator=generator) > 0.7
    mask = Mask.from_mha(forbidden, padding, n_heads=H)
    attention, x, source = build(), tokens(), tokens(S, seed=2)
    dense = ~forbidden.unflatten(0, (B, H)) & ~padding[:, None, None, :]
    assert torch.equal(attention(x, source, mask=mask), attention(x, source, mask=dense))
    assert torch.equal(mask.to_mha(T, S, n_heads=H), ~dense.flatten(0, 1))


# Splitting and merging


@given(
    leading=st.lists(st.integers(0, 3), max_size=2),
    length=st.integers(0, 5),
    n_heads=st.integers(1, 4),
    d_head=st.integers(1, 4),
)
def test_merge_heads_is_the_exact_inverse_of_split_heads(leading, length, n_heads, d_head):
    """MISSION E5."""
    shape = (*leading, length, n_heads * d_head)
    x = torch.arange(math.prod(shape)).reshape(shape).float()
    split = split_heads(x, n_heads)
    assert split.shape == (*leading, n_heads, length, d_head)
    assert torch.equal(merge_heads(split), x)
    assert torch.equal(split_heads(merge_heads(split), n_heads), split)
    for h in range(n_heads):
        columns = x[..., h * d_head : (h + 1) * d_head]
        assert torch.equal(split.select(-3, h), columns)


def test_split_heads_is_a_view_and_refuses_a_width_that_does_not_divide():
    x = torch.randn(B, T, D)
    assert split_heads(x, H).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    with pytest.raises(ValueError, match="width of x is 24, which n_heads=5 does not divide"):
        split_heads(x, 5)
    with pytest.raises(ValueError, match="n_heads must be at least 1, got 0"):
        split_heads(x, 0)


def test_valid_lengths_serve_every_head_as_if_repeated_for_it():
    """MISSION E5: the parallel form with valid lengths repeated per head."""
    attention, x = build(), tokens()
    q, k, v = (y.flatten(0, 1) for y in heads_of(attention, x))  # (B·H, T, Dh)
    for lens in (torch.tensor([3, 0]), torch.tensor([[1, 2, 3, 4, 5], [5, 0, 2, 2, 1]])):
        repeated = Mask.padding(lens.repeat_interleave(H, dim=0))
        heads = attend(q, k, v, mask=repeated).unflatten(0, (B, H))
        expected = attention.proj_out(merge_heads(heads))
        torch.testing.assert_close(attention(x, mask=Mask.padding(lens)), expected)


# Positions inside attention


def softmax_by_hand(attention, x, bias_before=0.0, bias_after=0.0):
    q, k, v = heads_of(attention, x)
    scores = (q @ k.mT + bias_before) / math.sqrt(Dh) + bias_after
    return attention.proj_out(merge_heads(scores.softmax(-1) @ v))


def test_the_toeplitz_bias_stands_inside_the_division():
    """MISSION A4: softmax((Q Kᵀ + M_h) / √d_h), M_h[i, j] = m_h[j − i]."""
    attention, x = build(scheme="toeplitz"), tokens()
    bias = torch.zeros(H, T, T, dtype=torch.float64)
    for h, i, j in itertools.product(range(H), range(T), range(T)):
        bias[h, i, j] = attention.positions.weight[h, parts.LONGEST + j - i]
    torch.testing.assert_close(attention(x), softmax_by_hand(attention, x, bias_before=bias))


def test_alibi_is_added_after_the_division():
    """Press et al. 2022: softmax(q kᵀ / √Dh − slope · distance); 6 heads take 4 slopes, then 2."""
    attention, x = build(scheme="alibi"), tokens()
    slopes = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    places = torch.arange(T)
    distance = (places[:, None] - places).abs()
    bias = -torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance
    torch.testing.assert_close(attention(x), softmax_by_hand(attention, x, bias_after=bias))


def test_alibi_is_as_strong_in_additive_attention_which_divides_by_nothing():
    """softmax(wᵀ tanh(W_q q + W_k k) + alibi): the paper's numbers, not √Dh times them."""
    attention, x = build("additive", "alibi"), tokens()
    q, k, v = heads_of(attention, x)
    weights = attention.mechanism.weights(q, k, bias=attention.positions(T))
    torch.testing.assert_close(attention(x), attention.proj_out(merge_heads(weights @ v)))


def test_a_given_bias_and_a_bias_by_distance_are_both_heard():
    """The given one always stands inside the division, ALiBi outside of it."""
    x, added = tokens(), torch.randn(B, 1, T, T, dtype=torch.float64)
    attention = build(scheme="toeplitz")
    expected = softmax_by_hand(attention, x, bias_before=added + attention.positions(T))
    torch.testing.assert_close(attention(x, bias=added), expected)
    attention = build(scheme="alibi")
    expected = softmax_by_hand(attention, x, bias_before=added, bias_after=attention.positions(T))
    torch.testing.assert_close(attention(x, bias=added), expected)


def test_rotary_positions_turn_queries_and_keys_but_not_values():
    attention, x = build(scheme="rotary"), tokens()
    q, k, v = heads_of(attention, x)
    turn = attention.positions
    scores = turn(q) @ turn(k).mT / math.sqrt(Dh)
    expected = attention.proj_out(merge_heads(scores.softmax(-1) @ v))
    torch.testing.assert_close(attention(x), expected)


def test_rotary_positions_are_relative():
    attention, x = build(scheme="rotary"), tokens()
    places = torch.arange(T)
    moved = attention(x, positions=places + 1000)
    torch.testing.assert_close(moved, attention(x, positions=places), rtol=0, atol=1e-11)
    torch.testing.assert_close(attention(x, positions=places), attention(x))
    assert not torch.allclose(attention(x, positions=places * 2), attention(x), atol=1e-4)


def test_rotary_positions_may_differ_by_batch_element():
    attention, x = build(scheme="rotary", n_kv_heads=2), tokens()
    places = torch.tensor([[0, 1, 2, 3, 4], [0, 2, 4, 6, 8]])
    output = attention(x, positions=places)
    for b in range(B):
        alone = attention(x[b : b + 1], positions=places[b])
        torch.testing.assert_close(output[b : b + 1], alone)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_order_matters_exactly_when_there_are_positions(scheme):
    attention, x = build(scheme=scheme), tokens()
    order = torch.tensor([3, 0, 4, 1, 2])
    difference = (attention(x[:, order]) - attention(x)[:, order]).abs().max()
    assert (difference < 1e-12) == (scheme == "none")


# What a mask makes visible


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_maps_show_exactly_the_token_itself_and_the_one_before(scheme):
    """MISSION D1, for every layer of a stack."""
    torch.manual_seed(0)
    blocks = [Block(D, H, positions=SCHEMES[scheme]()) for _ in range(2)]
    stack = Stack(blocks)
    with record(stack) as trace:
        stack(tokens().float(), mask=Mask.causal() & Mask.window(2))
    expected = torch.eye(T).bool() | torch.eye(T).bool().roll(1, 0).tril()
    assert expected.sum() == 2 * T - 1
    assert len(trace.weights()) == 2
    for weights in trace.weights():
        assert weights.shape == (B, H, T, T)
        assert torch.equal(weights > 0, expected.expand_as(weights))
        torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))


def test_a_mask_of_zeros_and_ones_shows_in_the_maps():
    """MISSION D1: (T, T), 0 = must not attend; as integers or booleans."""
    attention, x = build(), tokens()
    flags = (torch.rand(T, T, generator=torch.Generator().manual_seed(5)) > 0.5).long()
    for mask in (flags, flags.bool()):
        with record(attention) as trace:
            attention(x, mask=mask)
        assert torch.equal(trace[""].weights > 0, flags.bool().expand(B, H, T, T))


CAUSAL = [*itertools.product(SCORES, SCHEMES), ("elu", "none"), ("quadratic", "rotary")]


@pytest.mark.parametrize(("mechanism", "scheme"), CAUSAL)
def test_N10_future_tokens_change_nothing(mechanism, scheme):
    """By perturbing the input: the outputs before are the same to the bit."""
    attention, x = build(mechanism, scheme, n_kv_heads=3), tokens()
    before = attention(x, mask=Mask.causal())
    for t in range(1, T):
        other = x.clone()
        other[:, t:] = 100 * torch.randn_like(other[:, t:])
        after = attention(other, mask=Mask.causal())
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.isclose(after[:, t], before[:, t]).all()


@pytest.mark.parametrize(("mechanism", "scheme"), CAUSAL)
def test_no_gradient_comes_from_the_future(mechanism, scheme):
    """MISSION B6, by gradients: exactly zero after t, and something from each token up to t."""
    attention, x = build(mechanism, scheme), tokens().requires_grad_()
    output = attention(x, mask=Mask.causal())
    for t in range(T):
        (grad,) = torch.autograd.grad(output[:, t].square().sum(), x, retain_graph=True)
        assert grad[:, t + 1 :].eq(0).all()
        heard = grad.ne(0).any(dim=-1)
        if mechanism != "argmax":  # which hears one token per head
            assert heard[:, : t + 1].all()


def test_the_source_is_heard_and_x_only_asks():
    attention = build()
    x, source = tokens().requires_grad_(), tokens(S, seed=2)
    other = source.clone()
    other[:, -1] += 1
    assert attention(x, source).shape == (B, T, D)
    assert not torch.isclose(attention(x, other), attention(x, source)).all()
    assert torch.equal(attention(x, x), attention(x))
    # With one key there is no choice: every query gets the same, whatever it asks.
    one = attention(x, source[:, :1])
    torch.testing.assert_close(one, one[:, :1].expand(-1, T, -1))


# Errors


@pytest.mark.parametrize(
    ("build_wrong", "error", "words"),
    [
        (
            lambda: MultiHeadAttention(10, 4),
            ValueError,
            "d_model is 10, which n_heads=4 does not divide",
        ),
        (lambda: MultiHeadAttention(10, 4), ValueError, "take d_model=8 or another n_heads"),
        (lambda: MultiHeadAttention(12, 0), ValueError, "n_heads must be at least 1, got 0"),
        (lambda: MultiHeadAttention(12, -3), ValueError, "n_heads must be at least 1, got -3"),
        (lambda: MultiHeadAttention(0, 3), ValueError, "d_model must be at least 1, got 0"),
        (lambda: MultiHeadAttention(12, 3.0), TypeError, "n_heads must be a whole number, got 3.0"),
        (
            lambda: MultiHeadAttention(12, True),
            TypeError,
            "n_heads must be a whole number, got True",
        ),
        (
            lambda: MultiHeadAttention(12, 6, n_kv_heads=4),
            ValueError,
            "n_heads is 6, which n_kv_heads=4 does not divide",
        ),
        (
            lambda: MultiHeadAttention(12, 3, n_kv_heads=6),
            ValueError,
            "n_kv_heads=6 does not divide",
        ),
        (
            lambda: MultiHeadAttention(12, 3, n_kv_heads=0),
            ValueError,
            "n_kv_heads must be at least 1",
        ),
        (
            lambda: MultiHeadAttention(12, 3, mechanism=ArgmaxAttention(), dropout=0.1),
            ValueError,
            "dropout=0.1 is for the default mechanism; give it to ArgmaxAttention",
        ),
        (
            lambda: MultiHeadAttention(12, 3, dropout=1.5),
            ValueError,
            "dropout must be a finite number",
        ),
        (
            lambda: MultiHeadAttention(12, 3, mechanism="additive"),
            TypeError,
            "mechanism must be .*got str",
        ),
        (
            lambda: MultiHeadAttention(12, 3, positions=LearnedPositions(5, 12)),
            TypeError,
            "positions must be .*got LearnedPositions",
        ),
        (
            lambda: MultiHeadAttention(12, 3, positions=RotaryPositions(6)),
            ValueError,
            "d_head is 6.* d_head=4",
        ),
        (
            lambda: MultiHeadAttention(12, 3, d_head=5, positions=RotaryPositions(4)),
            ValueError,
            "d_head is 4.* d_head=5",
        ),
        (lambda: MultiHeadAttention(12, 5, d_head=0), ValueError, "d_head must be at least 1"),
        (lambda: MultiHeadAttention(12, 0, d_head=3), ValueError, "n_heads must be at least 1"),
        (lambda: MultiHeadAttention(12, 3, d_head=4.0), TypeError, "d_head must be a whole number"),
        (
            lambda: MultiHeadAttention(12, 3, positions=ToeplitzBias(2, 8)),
            ValueError,
            "n_heads is 2.* n_heads=3",
        ),
        (
            lambda: MultiHeadAttention(12, 3, positions=AlibiBias(4)),
            ValueError,
            "n_heads is 4.* n_heads=3",
        ),
    ],
)
def test_N20_what_cannot_work_is_refused_at_construction(build_wrong, error, words):
    with pytest.raises(error, match=words):
        build_wrong()


@pytest.mark.parametrize("d_model", range(1, 9))
def test_N20_sizes_are_accepted_exactly_when_they_divide(d_model):
    """The grid."""
    for n_heads, n_kv_heads in itertools.product(range(9), range(5)):
        if n_heads and n_kv_heads and d_model % n_heads == n_heads % n_kv_heads == 0:
            attention = MultiHeadAttention(d_model, n_heads, n_kv_heads=n_kv_heads)
            assert attention(torch.randn(B, T, d_model)).shape == (B, T, d_model)
        else:
            with pytest.raises(ValueError, match=r"does not divide|must be at least 1"):
                MultiHeadAttention(d_model, n_heads, n_kv_heads=n_kv_heads)


def test_wrong_inputs_are_refused_by_name():
    attention, x = build(), tokens()
    with pytest.raises(ValueError, match=r"x has width 23 .* but d_model is 24"):
        attention(x[..., :23])
    with pytest.raises(ValueError, match=r"source has width 20 .* but d_model is 24"):
        attention(x, tokens(S)[..., :20])
    with pytest.raises(ValueError, match="source must have the batch of x, 2, got 3"):
        attention(x, tokens(S, batch=3))
    with pytest.raises(TypeError, match=r"x must be a torch.Tensor, got list"):
        attention([[1.0]])
    with pytest.raises(TypeError, match=r"x must hold floating-point numbers, got torch.int64"):
        attention(x.long())
    with pytest.raises(ValueError, match="x must have"):
        attention(x[0])
    with pytest.raises(TypeError, match=r"mask must be boolean .* bias="):
        attention(x, mask=torch.ones(T, T))
    with pytest.raises(ValueError, match=r"values need a source, .* give source=x"):
        attention(x, values=x)
    with pytest.raises(ValueError, match=r"values has width 20 .* but d_model is 24"):
        attention(x, x, values=x[..., :20])
    with pytest.raises(
        ValueError, match=r"values must have the shape of source, \(2, 5, 24\), got"
    ):
        attention(x, x, values=tokens(S))
    with pytest.raises(ValueError, match=r"\(T, S\) = \(5, 5\)"):
        attention(x, mask=torch.ones(T, S).bool())


def test_more_axes_than_batch_time_width_are_refused():
    with pytest.raises(ValueError, match=r"x must have .*\(B, T, D\).*got .*\(2, 3, 5, 24\)"):
        build(n_kv_heads=2)(torch.randn(2, 3, 5, D, dtype=torch.float64))


def test_rotary_positions_refuse_another_sequence():
    attention, x = build(scheme="rotary"), tokens()
    with pytest.raises(ValueError, match="rotary positions compare positions in one sequence"):
        attention(x, tokens(S))
    with pytest.raises(ValueError, match=r"positions must have shape \(5,\) or \(2, 5\)"):
        attention(x, positions=torch.arange(T + 1))


@pytest.mark.parametrize("scheme", ["none", "toeplitz", "alibi"])
def test_a_bias_of_another_type_or_shape_is_refused_with_and_without_positions(scheme):
    attention, x = build(scheme=scheme), tokens()
    with pytest.raises(TypeError, match=r"bias must hold floating-point numbers .* use mask="):
        attention(x, bias=torch.ones(T, T, dtype=torch.bool))
    with pytest.raises(TypeError, match="bias must hold floating-point numbers"):
        attention(x, bias=torch.ones(T, T, dtype=torch.long))
    with pytest.raises(TypeError, match=r"bias must be a torch.Tensor, got list"):
        attention(x, bias=[0.0])
    with pytest.raises(ValueError, match=r"bias must broadcast to the scores \(2, 6, 5, 5\)"):
        attention(x, bias=torch.zeros(T - 1, T, dtype=torch.float64))


def test_the_toeplitz_bias_names_its_limit():
    attention = MultiHeadAttention(D, H, positions=ToeplitzBias(H, T)).double()
    assert attention(tokens(T)).shape == (B, T, D)
    with pytest.raises(ValueError, match="length 6 but max_len is 5"):
        attention(tokens(T + 1))
