"""Bad inputs and faults at the level of whole heads and blocks: the rows N01 … N31 by number."""

import copy
import itertools

import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import (
    KERNELS,
    MECHANISMS,
    ONE_OF_EACH,
    PAIRS,
    SCHEMES,
    B,
    D,
    Dh,
    H,
    S,
    T,
    build,
    build_block,
)

from clearhead.attention import (
    AdditiveAttention,
    DotProductAttention,
    KVCache,
    Mask,
    MultiHeadAttention,
    loop_over_heads,
)
from clearhead.inspection import record
from clearhead.layers import Block, Stack
from clearhead.positions import (
    AlibiBias,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
    ToeplitzBias,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
BROKEN = [torch.nan, torch.inf, -torch.inf]


# Nothing to attend to


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N01_a_head_that_may_attend_to_nothing_gives_zeros(mechanism, scheme, dtype):
    attention = build(mechanism, scheme, bias=False).to(dtype)
    x = torch.randn(B, T, D).to(dtype)
    for mask in (Mask.padding(torch.tensor([0, 3])), Mask.padding(torch.tensor([0, 0]))):
        output = attention(x, mask=mask)
        assert output.dtype == dtype
        assert output[0].eq(0).all()
        assert output.isfinite().all()
    assert attention(x, mask=Mask.padding(torch.tensor([0, 3])))[1].ne(0).any()
    reference = loop_over_heads(attention, x, mask=Mask.padding(torch.tensor([0, 3])))
    assert reference[0].eq(0).all()


@pytest.mark.parametrize("pre_norm", [True, False])
def test_N01_a_block_that_hears_nothing_thinks_alone(pre_norm):
    block = build_block(pre_norm=pre_norm, bias=False)
    x = torch.randn(B, T, D)
    output = block(x, mask=torch.zeros(T, T, dtype=torch.bool))
    own = x if pre_norm else block.norm_attention(x)
    expected = block._add(own, block.feed_forward, block.norm_feed_forward)
    assert torch.equal(output, expected)


@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N02_an_empty_row_sends_no_gradient(mechanism, scheme):
    attention = build(mechanism, scheme, bias=False).double()
    x = torch.randn(3, T, D, dtype=torch.float64, requires_grad=True)
    lens = torch.tensor([0, 3, 5])
    attention(x, mask=Mask.padding(lens)).square().sum().backward()
    grads = [parameter.grad for parameter in attention.parameters()]
    assert x.grad[0].eq(0).all()
    assert all(g is None or g.isfinite().all() for g in grads)

    without = x.detach()[1:].requires_grad_()
    attention.zero_grad()
    attention(without, mask=Mask.padding(lens[1:])).square().sum().backward()
    torch.testing.assert_close(x.grad[1:], without.grad)
    for g, parameter in zip(grads, attention.parameters(), strict=True):
        if g is not None:
            torch.testing.assert_close(g, parameter.grad)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_N02_gradcheck_beside_an_empty_row(scheme):
    attention = build(scheme=scheme).double()
    may = torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 0]]).bool()
    x = torch.randn(1, 3, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: attention(x, mask=may), (x,))


@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N03_a_batch_element_does_not_depend_on_the_others(mechanism, scheme):
    attention = build(mechanism, scheme).eval()
    x, lens = torch.randn(3, T, D), torch.tensor([0, 1, T])
    output = attention(x, mask=Mask.padding(lens))
    assert output.isfinite().all()
    for b in range(3):
        others = torch.randn(3, T, D) * 100
        others[b] = x[b]
        beside = attention(others, mask=Mask.padding(lens))
        assert torch.equal(beside[b], output[b])
        alone = attention(x[b : b + 1], mask=Mask.padding(lens[b : b + 1]))
        torch.testing.assert_close(alone[0], output[b], rtol=0, atol=1e-6)


# Broken numbers


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N06_broken_padding_changes_no_live_output(mechanism, scheme, causal, value):
    """Bit for bit, though the padding's own rows ask with broken queries."""
    attention = build(mechanism, scheme).eval()
    x = torch.randn(B, T, D)
    real = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]).bool()
    mask = Mask.tokens(real) & (Mask.causal() if causal else None)
    poisoned = x.masked_fill(~real[..., None], value)
    assert torch.equal(attention(poisoned, mask=mask)[real], attention(x, mask=mask)[real])


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_N06_broken_padding_changes_no_live_output_of_blocks(pre_norm, scheme, value):
    stack = Stack([build_block(scheme, pre_norm=pre_norm) for _ in range(2)])
    x = torch.randn(B, T, D)
    real = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]).bool()
    poisoned = x.masked_fill(~real[..., None], value)
    mask = Mask.causal() & Mask.tokens(real)
    assert torch.equal(stack(poisoned, mask=mask)[real], stack(x, mask=mask)[real])


@pytest.mark.parametrize("value", BROKEN)
def test_N06_a_broken_source_is_not_heard_where_it_is_padding(value):
    block = build_block(cross=True)
    x, source = torch.randn(B, T, D), torch.randn(B, S, D)
    mask = Mask.padding(torch.tensor([3, 6]))
    poisoned = source.clone()
    poisoned[0, 3:] = poisoned[1, 6:] = value
    assert torch.equal(block(x, poisoned, source_mask=mask), block(x, source, source_mask=mask))


@pytest.mark.parametrize("value", BROKEN)
@torch.no_grad()
def test_N06_broken_padding_in_a_cache_is_not_heard(value):
    attention = build(scheme="rotary")
    x = torch.randn(B, T, D)
    real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    outputs = []
    for y in (x, x.masked_fill(~real[..., None], value)):
        cache = KVCache()
        attention(y[:, :4], mask=Mask.causal() & Mask.tokens(real[:, :4]), cache=cache)
        outputs.append(attention(y[:, 4:], mask=Mask.causal() & Mask.tokens(real), cache=cache))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("value", BROKEN)
def test_N06_the_written_out_form_does_not_hear_broken_padding(value):
    attention = build()
    x = torch.randn(B, T, D)
    mask = Mask.padding(torch.tensor([3, 4]))
    real = torch.arange(T) < torch.tensor([3, 4])[:, None]
    poisoned = x.masked_fill(~real[..., None], value)
    found = loop_over_heads(attention, poisoned, mask=mask)[real]
    torch.testing.assert_close(found, loop_over_heads(attention, x, mask=mask)[real])


@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N07_a_live_nan_shows_exactly_where_it_can_reach(mechanism, scheme):
    attention = build(mechanism, scheme).eval()
    masks = {Mask.causal(): torch.ones(T, T).tril().bool(), None: torch.ones(T, T).bool()}
    if mechanism not in KERNELS:
        window = Mask.causal() & Mask.window(2)
        masks[window] = window.dense(T, T)
    for (mask, may), s in itertools.product(masks.items(), range(T)):
        x = torch.randn(B, T, D)
        x[1, s, 2] = torch.nan
        broken = attention(x, mask=mask).isnan()
        assert not broken[0].any()
        reached = may[:, s].clone()
        reached[s] = True  # its own query
        assert torch.equal(broken[1].all(dim=-1), reached), (mask, s)
        assert torch.equal(broken[1].any(dim=-1), reached), (mask, s)


# Causality


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_N10_a_stack_of_causal_blocks_does_not_see_the_future(pre_norm, scheme):
    stack = Stack([build_block(scheme, pre_norm=pre_norm) for _ in range(2)])
    x = torch.randn(B, T, D)
    before = stack(x, mask=Mask.causal())
    for t in range(1, T):
        other = x.clone()
        other[:, t:] = torch.randn(B, T - t, D) * 10
        after = stack(other, mask=Mask.causal())
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.isclose(after[:, t:], before[:, t:]).all(dim=-1).any()


# Dropout


@pytest.mark.parametrize("pre_norm", [True, False])
def test_N16_dropout_rests_in_evaluation_and_comes_back_in_training(pre_norm):
    x, mask = torch.randn(B, T, D), Mask.causal()
    dropping = build_block(dropout=0.9, pre_norm=pre_norm)
    plain = build_block(pre_norm=pre_norm)
    first, second = dropping.eval()(x, mask=mask), dropping(x, mask=mask)
    assert torch.equal(first, second)
    assert torch.equal(first, plain(x, mask=mask))
    dropping.train()
    assert not torch.equal(dropping(x, mask=mask), dropping(x, mask=mask))
    dropping.eval()
    assert torch.equal(dropping(x, mask=mask), first)
    dropping.train()
    torch.manual_seed(1)
    again = dropping(x, mask=mask)
    fresh = build_block(dropout=0.9, pre_norm=pre_norm).train()
    torch.manual_seed(1)
    assert torch.equal(fresh(x, mask=mask), again)


def test_N17_dropout_one_silences_attention_and_zero_changes_nothing():
    x = torch.randn(B, T, D)
    torch.manual_seed(0)
    silent = MultiHeadAttention(D, H, dropout=1.0).train()
    expected = silent.proj_out.bias.expand(B, T, D)
    torch.testing.assert_close(silent(x), expected)
    torch.manual_seed(0)
    plain = MultiHeadAttention(D, H, dropout=0.0)
    assert torch.equal(plain.train()(x), plain.eval()(x))


@pytest.mark.parametrize("mechanism", ["dot product", "additive"])
def test_N17_the_mean_over_dropped_heads_is_the_undropped(mechanism):
    """Kept weights grow by 1/(1−p): over many draws the output of the heads is unbiased."""
    dropped = {
        "dot product": DotProductAttention(0.25),
        "additive": AdditiveAttention(Dh, Dh, 6, dropout=0.25),
    }
    torch.manual_seed(0)
    attention = MultiHeadAttention(D, H, mechanism=dropped[mechanism])
    x = torch.randn(1, T, D)
    mean = attention.train()(x.expand(20_000, -1, -1)).mean(0)
    torch.testing.assert_close(mean, attention.eval()(x)[0], rtol=0, atol=0.02)


# Sizes


def test_N18_a_sequence_beyond_the_table_is_refused_and_one_at_the_limit_is_not():
    for add, words in (
        (LearnedPositions(T, D), "x has length 6 but max_len is 5"),
        (SinusoidalPositions(D, max_len=T), "x has length 6 but max_len is 5"),
        (build_limited(), "length 6 but max_len is 5"),
    ):
        assert add(torch.randn(B, T, D)).shape == (B, T, D)
        with pytest.raises(ValueError, match=words):
            add(torch.randn(B, T + 1, D))


def build_limited():
    return Block(D, H, positions=ToeplitzBias(H, T))


@pytest.mark.parametrize("width", range(1, 10))
def test_N19_odd_widths_have_sinusoids_but_no_rotation(width):
    assert SinusoidalPositions(width)(torch.randn(B, T, width)).shape == (B, T, width)
    if width % 2:
        with pytest.raises(ValueError, match=f"d_head must be even.*got {width}"):
            RotaryPositions(width)
    else:
        attention = MultiHeadAttention(H * width, H, positions=RotaryPositions(width))
        assert attention(torch.randn(B, T, H * width)).shape == (B, T, H * width)


def test_N20_a_block_refuses_what_its_heads_refuse():
    with pytest.raises(ValueError, match="d_model is 10, which n_heads=4 does not divide"):
        Block(10, 4)
    with pytest.raises(ValueError, match="n_heads must be at least 1, got 0"):
        Block(12, 0)
    with pytest.raises(ValueError, match="n_kv_heads=4 does not divide"):
        Block(12, 6, n_kv_heads=4)


def test_N22_equal_sizes_give_a_mask_no_second_meaning():
    """B = H = T = S = 4: the rank alone says what a matrix is for."""
    n = 4
    torch.manual_seed(0)
    attention = MultiHeadAttention(2 * n, n).eval()
    x = torch.randn(n, n, 2 * n)
    may = torch.rand(n, n) > 0.5
    cube = torch.rand(n, n, n) > 0.5

    def maps(mask):
        with record(attention) as trace:
            attention(x, mask=mask)
        return trace[""].weights > 0

    for t, s in itertools.product(range(n), range(n)):
        assert (maps(may)[:, :, t, s] == may[t, s]).all()
    assert torch.equal(maps(cube[:, None]), cube[:, None].expand(n, n, n, n))
    assert torch.equal(maps(cube[None]), cube[None].expand(n, n, n, n))
    real = Mask.tokens(may)
    assert torch.equal(maps(real), may[:, None, None, :].expand(n, n, n, n))
    with pytest.raises(ValueError, match=r"mask has 3 axes .* but the scores have 4"):
        attention(x, mask=cube)


@pytest.mark.parametrize("shape", [(B, 0, D), (0, T, D), (0, 0, D), (1, 1, D), (B, 1, D)])
@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N23_empty_and_single_sizes_keep_their_shape_and_gradient(mechanism, scheme, shape):
    attention = build(mechanism, scheme)
    lens = torch.full((shape[0],), shape[1])
    real = torch.ones(shape[:2], dtype=torch.bool)
    for mask in (None, Mask.causal(), Mask.padding(lens), Mask.causal() & Mask.tokens(real)):
        x = torch.randn(shape, requires_grad=True)
        output = attention(x, mask=mask)
        assert output.shape == shape
        output.sum().backward()
        assert x.grad.shape == shape
        assert x.grad.isfinite().all()
        assert attention(x.detach(), mask=mask, cache=KVCache()).shape == shape


@pytest.mark.parametrize(("t", "s"), [(0, S), (T, 0), (0, 0)])
@pytest.mark.parametrize("mechanism", ONE_OF_EACH)
def test_N23_an_empty_source_gives_what_silence_gives(mechanism, t, s):
    attention = build(mechanism)
    output = attention(torch.randn(B, t, D), torch.randn(B, s, D))
    assert output.shape == (B, t, D)
    if s == 0:
        torch.testing.assert_close(output, attention.proj_out.bias.expand(B, t, D))


@pytest.mark.parametrize("mechanism", ["dot product", "argmax", "elu"])
def test_N23_heads_of_one_column_work(mechanism):
    attention = MultiHeadAttention(H, H, mechanism=MECHANISMS[mechanism]())
    x = torch.randn(B, T, H, requires_grad=True)
    output = attention(x, mask=Mask.causal())
    output.square().sum().backward()
    torch.testing.assert_close(output, loop_over_heads(attention, x, mask=Mask.causal()))
    assert x.grad.isfinite().all()


# Memory layouts, types


LAYOUTS = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "column major": lambda x: x.mT.contiguous().mT,
    "every second": lambda x: x.repeat_interleave(2, dim=-1)[..., ::2],
    "from the middle": lambda x: torch.cat([x, x, x], dim=1)[:, x.size(1) : 2 * x.size(1)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N24_memory_layout_changes_nothing_and_inputs_stay(mechanism, scheme, layout):
    attention = build(mechanism, scheme, n_kv_heads=1).eval()
    x, lens = torch.randn(B, T, D), torch.tensor([3, 5])
    other = LAYOUTS[layout](x)
    assert torch.equal(other, x)
    assert not other.is_contiguous()
    kept, versions = x.clone(), (other._version, lens._version)
    output = attention(other, mask=Mask.causal() & Mask.padding(lens))
    expected = attention(x, mask=Mask.causal() & Mask.padding(lens))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    assert torch.equal(other, kept)
    assert (other._version, lens._version) == versions


@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N24_expanded_inputs_are_as_good_as_copies(mechanism, scheme):
    attention = build(mechanism, scheme).eval()
    one = torch.randn(1, 1, D)
    x = one.expand(B, T, D)
    may = torch.ones(1, 1, dtype=torch.bool).expand(T, T)
    mask = None if mechanism in KERNELS else may
    torch.testing.assert_close(
        attention(x, mask=mask), attention(x.contiguous(), mask=mask), rtol=0, atol=1e-6
    )
    assert x._version == one._version == 0


def test_N25_other_dtypes_and_devices_are_refused():
    attention, x = build(), torch.randn(B, T, D)
    words = r"must have the dtype of the module, torch\.float32, got torch\."
    with pytest.raises(TypeError, match=f"x {words}float64"):
        attention(x.double())
    with pytest.raises(TypeError, match=f"source {words}float16"):
        attention(x, torch.randn(B, S, D).half())
    with pytest.raises(TypeError, match="mask must be boolean"):
        attention(x, mask=torch.ones(T, T))
    with pytest.raises(ValueError, match="bias must be on the device of q, cpu, got meta"):
        attention(x, bias=torch.zeros(T, T, device="meta"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N25_every_precision_works_alone(mechanism, scheme, dtype):
    attention = build(mechanism, scheme).eval()
    x = torch.randn(B, T, D)
    exact = copy.deepcopy(attention).double()(x.double(), mask=Mask.causal())
    output = attention.to(dtype)(x.to(dtype), mask=Mask.causal())
    assert output.dtype == dtype
    if mechanism != "argmax":  # where rounding may change which key is best
        torch.testing.assert_close(output.double(), exact, rtol=0, atol=30 * torch.finfo(dtype).eps)


# Ways to run a module

# The tracer itself warns: it makes and reads objects that PyTorch does not want made or read.
traced = pytest.mark.filterwarnings("ignore")
COMPILED = [
    pytest.param(*pair, marks=[] if "dot product" in pair or "none" in pair else pytest.mark.slow)
    for pair in PAIRS
]


@traced
@pytest.mark.parametrize(("mechanism", "scheme"), COMPILED)
def test_N26_a_compiled_head_computes_the_same(mechanism, scheme):
    torch._dynamo.reset()
    attention = build(mechanism, scheme)
    compiled = torch.compile(attention, backend="aot_eager")
    mask = Mask.causal() & Mask.tokens(torch.tensor([[1, 1, 1, 0, 1], [0, 0, 1, 1, 1]]).bool())
    for chosen in (None, mask):
        results = []
        for run in (attention, compiled):
            x = torch.randn(B, T, D, generator=torch.Generator().manual_seed(1)).requires_grad_()
            output = run(x, mask=chosen)
            (grad,) = torch.autograd.grad(output.square().sum(), x)
            results.append((output, grad))
        for plain, compiled_too in zip(*results, strict=True):
            torch.testing.assert_close(compiled_too, plain, rtol=1e-5, atol=1e-5)


@traced
@pytest.mark.parametrize("scheme", SCHEMES)
def test_N26_a_compiled_block_computes_the_same(scheme):
    torch._dynamo.reset()
    block = build_block(scheme)
    compiled = torch.compile(block, backend="aot_eager")
    x = torch.randn(B, T, D)
    torch.testing.assert_close(compiled(x, mask=Mask.causal()), block(x, mask=Mask.causal()))


@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N26_autocast_gives_half_precision_of_the_same_numbers(mechanism, scheme):
    attention = build(mechanism, scheme).eval()
    x = torch.randn(B, T, D)
    with torch.autocast("cpu", torch.bfloat16):
        output = attention(x, mask=Mask.causal())
        weights_first = attention(x[:, :1])
    assert output.dtype == weights_first.dtype == torch.bfloat16
    if mechanism != "argmax":
        expected = attention(x, mask=Mask.causal())
        torch.testing.assert_close(output.float(), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_N26_autocast_trains_a_block_and_keeps_a_cache(scheme):
    block = build_block(scheme)
    x = torch.randn(B, T, D, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        full = block(x, mask=Mask.causal())
        cache = KVCache()
        with torch.no_grad():
            parts = [block(y, mask=Mask.causal(), cache=cache) for y in x.split([2, 3], dim=1)]
    full.float().square().sum().backward()
    assert x.grad.dtype == torch.float32
    assert x.grad.isfinite().all()
    torch.testing.assert_close(torch.cat(parts, 1).float(), full.float(), rtol=0, atol=0.05)


@pytest.mark.parametrize(("mechanism", "scheme"), PAIRS)
def test_N26_the_mode_of_differentiation_changes_no_value(mechanism, scheme):
    attention = build(mechanism, scheme).eval()
    x = torch.randn(B, T, D)
    with torch.inference_mode():
        inference = attention(x, mask=Mask.causal())
    with torch.no_grad():
        quiet = attention(x, mask=Mask.causal())
    output = attention(x, mask=Mask.causal())
    assert inference.is_inference()
    assert not quiet.requires_grad
    torch.testing.assert_close(inference, output, rtol=0, atol=1e-6)
    torch.testing.assert_close(quiet, output, rtol=0, atol=1e-6)
    output.sum().backward()  # tables made in inference mode must serve training too
    assert attention.proj_v.weight.grad.ne(0).any()


@pytest.mark.parametrize("scheme", [*SCHEMES])
def test_N26_copies_and_saved_states_compute_the_same(scheme):
    block = build_block(scheme, cross=True, n_kv_heads=1)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_()
    x, source = torch.randn(B, T, D), torch.randn(B, S, D)
    expected = block(x, source, mask=Mask.causal())
    assert torch.equal(copy.deepcopy(block)(x, source, mask=Mask.causal()), expected)
    fresh = build_block(scheme, cross=True, n_kv_heads=1)
    assert not torch.equal(fresh(x, source, mask=Mask.causal()), expected)
    state = block.state_dict()
    assert set(state) == {name for name, _ in block.named_parameters()}
    fresh.load_state_dict(state, strict=True)
    assert torch.equal(fresh(x, source, mask=Mask.causal()), expected)


# Random configurations


@st.composite
def configurations(draw):
    n_kv_heads = draw(st.integers(1, 3))
    n_heads = n_kv_heads * draw(st.integers(1, 3))
    d_head = 2 * draw(st.integers(1, 3))
    batch, t, s = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    density = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    scheme = draw(st.sampled_from(["none", "toeplitz", "alibi"]))
    return n_kv_heads, n_heads, d_head, batch, t, s, density, scheme, draw(st.integers(0, 999))


@given(configurations())
def test_N31_any_configuration_is_the_sum_written_out(configuration):
    """Cross-attention of any sizes against loops over numbers in float64."""
    n_kv_heads, n_heads, d_head, batch, t, s, density, scheme, seed = configuration
    torch.manual_seed(seed)
    d_model = n_heads * d_head
    positions = {"none": None, "toeplitz": ToeplitzBias(n_heads, 6), "alibi": AlibiBias(n_heads)}[
        scheme
    ]
    if scheme == "toeplitz":
        torch.nn.init.normal_(positions.weight)
    attention = MultiHeadAttention(d_model, n_heads, n_kv_heads=n_kv_heads, positions=positions)
    x, source = torch.randn(batch, t, d_model), torch.randn(batch, s, d_model)
    may = torch.rand(batch, n_heads, t, s) < density
    with torch.no_grad():
        output = attention(x, source, mask=may)
        expected = by_loops(attention.double(), x.double(), source.double(), may)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=3e-6)


def by_loops(attention, x, source, may):
    """Projections and the bias of each pair by hand, then the loops over numbers."""
    Dh, T, S = attention.d_head, x.size(1), source.size(1)
    layers = ((attention.proj_q, x), (attention.proj_k, source), (attention.proj_v, source))
    q, k, v = (layer(y).unflatten(-1, (-1, Dh)).transpose(1, 2) for layer, y in layers)
    k, v = (y.repeat_interleave(attention.n_heads // attention.n_kv_heads, dim=1) for y in (k, v))
    positions, bias = attention.positions, torch.zeros(attention.n_heads, T, S).double()
    for h, t, s in itertools.product(range(attention.n_heads), range(T), range(S)):
        distance = s - (t + S - T)
        if isinstance(positions, ToeplitzBias):
            bias[h, t, s] = positions.weight[h, positions.max_len + distance]
        elif isinstance(positions, AlibiBias):  # added after the division by √Dh
            bias[h, t, s] = -positions.slopes[h] * abs(distance) * Dh**0.5
    heads, _ = oracle.dot_product(q, k, v, may, bias)
    return attention.proj_out(heads.transpose(1, 2).flatten(2))
