"""Keys and values kept between steps: however a sequence is cut, the numbers stay the same."""

import parts
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parts import LONGEST, SCHEMES, B, D, Dh, G, H

from clearhead.attention import KVCache, Mask, MultiHeadAttention
from clearhead.layers import Block, Stack
from clearhead.positions import LearnedPositions, SinusoidalPositions, ToeplitzBias

ADDED = {
    "learned": lambda: LearnedPositions(LONGEST, D),
    "sinusoidal": lambda: SinusoidalPositions(D),
}


def build(scheme="none", n_kv_heads=G, **options):
    return parts.build(scheme=scheme, n_kv_heads=n_kv_heads, **options)


def keys_and_values(length, batch=B, d_value=3):
    return torch.randn(batch, G, length, Dh), torch.randn(batch, G, length, d_value)


# Cached passes are the full pass


@torch.no_grad()
def check_every_split(attention, length, block_size):
    """A prefix at once, then the rest at once, at every split point."""
    x = torch.randn(B, length, D)
    full = attention(x, mask=Mask.causal())
    for split in range(length + 1):
        cache = KVCache(block_size)
        cut = x.split([split, length - split], dim=1)
        cached = torch.cat([attention(y, mask=Mask.causal(), cache=cache) for y in cut], dim=1)
        assert len(cache) == length
        assert (cached - full).abs().max() <= 1e-6
        assert torch.equal(cached.argmax(-1), full.argmax(-1))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_N14_every_split_of_32_tokens_gives_the_full_pass(scheme):
    check_every_split(build(scheme), 32, block_size=8)


@pytest.mark.parametrize("n_kv_heads", [H, 1])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_N14_every_split_of_12_tokens_gives_the_full_pass_of_any_grouping(scheme, n_kv_heads):
    check_every_split(build(scheme, n_kv_heads), 12, block_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("n_kv_heads", [H, 1])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_N14_every_split_of_32_tokens_gives_the_full_pass_of_any_grouping(scheme, n_kv_heads):
    check_every_split(build(scheme, n_kv_heads), 32, block_size=8)


@pytest.mark.parametrize("mechanism", ["additive", "argmax", "elu"])
def test_N14_other_mechanisms_are_cached_too(mechanism):
    check_every_split(parts.build(mechanism, n_kv_heads=G), 12, block_size=4)


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_N14_N12_a_prefix_and_then_token_by_token_gives_the_full_pass(scheme):
    """The one new token sees all cached keys."""
    attention = build(scheme)
    x = torch.randn(B, 32, D)
    full = attention(x, mask=Mask.causal())
    for prefix in (0, 1, 7, 8, 9, 31):
        cache = KVCache(block_size=8)
        outputs = [attention(x[:, :prefix], mask=Mask.causal(), cache=cache)]
        for t in range(prefix, 32):
            outputs.append(attention(x[:, t : t + 1], mask=Mask.causal(), cache=cache))
        assert (torch.cat(outputs, dim=1) - full).abs().max() <= 1e-6


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), block_size=st.integers(1, 9))
@torch.no_grad()
def test_chunked_prefill_of_any_sizes_gives_the_full_pass(sizes, block_size):
    attention, cache = build("rotary"), KVCache(block_size)
    x = torch.randn(B, sum(sizes), D)
    outputs = [attention(y, mask=Mask.causal(), cache=cache) for y in x.split(sizes, dim=1)]
    full = attention(x, mask=Mask.causal())
    torch.testing.assert_close(torch.cat(outputs, dim=1), full, rtol=0, atol=1e-6)


@torch.no_grad()
def test_N12_one_query_after_seven_cached_keys_sees_all_eight():
    attention = build()
    x, cache = torch.randn(B, 8, D), KVCache()
    attention(x[:, :7], mask=Mask.causal(), cache=cache)
    last = attention(x[:, 7:], mask=Mask.causal(), cache=cache)
    torch.testing.assert_close(last, attention(x)[:, 7:])  # no mask at all: every key
    for s in range(8):
        other = x.clone()
        other[:, s] += 1
        assert not torch.allclose(attention(other)[:, 7:], last)


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_a_stack_of_blocks_with_a_cache_each_gives_the_full_pass(scheme):
    torch.manual_seed(0)
    stack = Stack([Block(D, H, n_kv_heads=G, positions=SCHEMES[scheme]()) for _ in range(2)]).eval()
    x = torch.randn(B, 9, D)
    full = stack(x, mask=Mask.causal())
    caches = [KVCache(4), KVCache(4)]
    outputs = [stack(y, mask=Mask.causal(), caches=caches) for y in x.split([3, 1, 4, 1], dim=1)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), full, rtol=0, atol=2e-6)
    with pytest.raises(ValueError, match="caches must hold one KVCache for each block, 2, got 1"):
        stack(x, caches=caches[:1])


@torch.no_grad()
def test_a_window_is_counted_from_the_new_token():
    attention, mask = build(), Mask.causal() & Mask.window(3)
    x, cache = torch.randn(B, 12, D), KVCache()
    full = attention(x, mask=mask)
    outputs = [attention(y, mask=mask, cache=cache) for y in x.split([5, 1, 6], dim=1)]
    torch.testing.assert_close(torch.cat(outputs, dim=1), full, rtol=0, atol=1e-6)


@torch.no_grad()
def test_N01_an_empty_row_gives_zeros_with_a_cache_too():
    """On the cached path."""
    attention = build(bias=False)
    x, cache = torch.randn(B, 5, D), KVCache()
    real = torch.tensor([[False] * 5, [True] * 5])
    attention(x[:, :4], mask=Mask.tokens(real[:, :4]), cache=cache)
    last = attention(x[:, 4:], mask=Mask.tokens(real), cache=cache)
    assert last[0].eq(0).all()
    torch.testing.assert_close(last[1], attention(x[1:])[0, 4:])


# Left-padded batches


def left_padded(lengths, width):
    """Random tokens (B, width, D) and their token mask, each row's real tokens at the end."""
    x = torch.randn(len(lengths), width, D)
    real = torch.arange(width) >= width - torch.tensor(lengths)[:, None]
    return x, real


@pytest.mark.parametrize("scheme", [*SCHEMES, *ADDED])
@torch.no_grad()
def test_N15_a_left_padded_sequence_gets_what_it_gets_alone(scheme):
    """In one pass: padding is not heard and not counted."""
    torch.manual_seed(0)
    add = ADDED[scheme]() if scheme in ADDED else None
    inside = SCHEMES[scheme]() if scheme in SCHEMES else None
    block = Block(D, H, n_kv_heads=G, positions=inside).eval()
    lengths = [1, 3, 6, 8]
    x, real = left_padded(lengths, 8)
    mask = Mask.causal() & Mask.tokens(real)
    places = mask.positions(8)
    embedded = x if add is None else add(x, positions=places)
    output = block(embedded, mask=mask, positions=places)
    for b, length in enumerate(lengths):
        alone = x[b : b + 1, 8 - length :]
        alone = alone if add is None else add(alone)
        expected = block(alone, mask=Mask.causal())
        torch.testing.assert_close(output[b : b + 1, 8 - length :], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheme", [*SCHEMES, *ADDED])
@torch.no_grad()
def test_N15_a_left_padded_batch_generates_with_a_cache_what_each_generates_alone(scheme):
    """Token by token: the next input depends on the last output, as in greedy decoding."""
    torch.manual_seed(0)
    add = ADDED[scheme]() if scheme in ADDED else None
    inside = SCHEMES[scheme]() if scheme in SCHEMES else None
    block = Block(D, H, n_kv_heads=G, positions=inside).eval()
    embedding = torch.randn(11, D)

    def generate(x, real, steps=6):
        cache, chosen, new = KVCache(block_size=4), [], x
        for _ in range(steps):
            mask = Mask.causal() & Mask.tokens(real)
            places = mask.positions(new.size(1), real.size(1))
            y = new if add is None else add(new, positions=places)
            logits = block(y, mask=mask, positions=places, cache=cache)[:, -1] @ embedding.mT
            chosen.append(logits)
            new = embedding[logits.argmax(-1)].unsqueeze(1)
            real = torch.cat([real, torch.ones(len(real), 1, dtype=torch.bool)], dim=1)
        return torch.stack(chosen, dim=1)

    lengths = [1, 2, 4, 7]
    x, real = left_padded(lengths, 7)
    together = generate(x, real)
    for b, length in enumerate(lengths):
        alone = generate(x[b : b + 1, 7 - length :], real[b : b + 1, 7 - length :])
        torch.testing.assert_close(together[b : b + 1], alone, rtol=0, atol=2e-5)
        assert torch.equal(together[b].argmax(-1), alone[0].argmax(-1))


@torch.no_grad()
def test_N18_learned_positions_refuse_a_cache_that_crosses_the_limit():
    """The error names length and limit; nothing is clamped."""
    add = LearnedPositions(5, D)
    x = torch.randn(B, 1, D)
    assert add(x, positions=torch.tensor([4])).shape == (B, 1, D)
    with pytest.raises(ValueError, match=r"positions reach 5.*max_len is 5"):
        add(x, positions=torch.tensor([5]))
    attention = MultiHeadAttention(D, H, positions=ToeplitzBias(H, 5))
    cache = KVCache()
    attention(torch.randn(B, 5, D), cache=cache)
    with pytest.raises(ValueError, match="length 6 but max_len is 5"):
        attention(x, cache=cache)


# The cache itself


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=8),
    block_size=st.integers(1, 9),
)
def test_what_was_appended_comes_back_in_order_and_never_changes(sizes, block_size):
    cache = KVCache(block_size)
    assert len(cache) == 0
    ks, vs, handed_out = [], [], []
    for n in sizes:
        k, v = keys_and_values(n)
        ks.append(k)
        vs.append(v)
        keys, values = cache.append(k, v)
        handed_out.append((keys, values, keys.clone(), values.clone()))
        assert len(cache) == sum(x.size(-2) for x in ks)
        assert torch.equal(keys, torch.cat(ks, dim=-2))
        assert torch.equal(values, torch.cat(vs, dim=-2))
    cache.reorder(torch.tensor([1, 1, 0]))
    cache.append(*keys_and_values(2, batch=3))
    cache.clear()
    cache.append(*keys_and_values(5))
    for keys, values, keys_then, values_then in handed_out:
        assert torch.equal(keys, keys_then)
        assert torch.equal(values, values_then)


def test_the_cache_grows_a_block_at_a_time_and_not_before():
    cache = KVCache(block_size=4)
    places = []
    for _ in range(9):
        keys, _ = cache.append(*keys_and_values(1))
        places.append(keys.untyped_storage().data_ptr())
    assert places[0] == places[3] != places[4] == places[7] != places[8]


def test_the_cache_keeps_copies():
    cache, (k, v) = KVCache(), keys_and_values(3)
    keys, values = cache.append(k, v)
    before = keys.clone(), values.clone()
    k.zero_()
    v.zero_()
    assert torch.equal(keys, before[0])
    assert torch.equal(values, before[1])


def test_reorder_takes_rows_even_twice():
    cache, (k, v) = KVCache(block_size=4), keys_and_values(5)
    cache.append(k, v)
    cache.reorder(torch.tensor([1, 1, 0]))
    more_k, more_v = keys_and_values(2, batch=3)
    keys, values = cache.append(more_k, more_v)
    assert len(cache) == 7
    assert torch.equal(keys, torch.cat([k[[1, 1, 0]], more_k], dim=-2))
    assert torch.equal(values, torch.cat([v[[1, 1, 0]], more_v], dim=-2))


def test_rows_copied_by_reorder_go_separate_ways():
    cache = KVCache(block_size=8)
    cache.append(*keys_and_values(3))
    cache.reorder(torch.tensor([0, 0]))
    k, v = keys_and_values(1)
    keys, _ = cache.append(k, v)
    assert torch.equal(keys[0, :, :3], keys[1, :, :3])
    assert torch.equal(keys[:, :, 3:], k)


def test_reordering_an_empty_cache_does_nothing():
    cache = KVCache()
    cache.reorder(torch.tensor([1, 0]))
    assert len(cache) == 0


def test_a_cleared_cache_takes_another_batch_and_dtype():
    cache = KVCache()
    cache.append(*keys_and_values(3))
    cache.clear()
    assert len(cache) == 0
    keys, _ = cache.append(*(x.double() for x in keys_and_values(2, batch=5)))
    assert keys.shape == (5, G, 2, Dh)
    assert keys.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_cache_keeps_the_dtype(dtype):
    keys, values = KVCache().append(*(x.to(dtype) for x in keys_and_values(3)))
    assert keys.dtype == values.dtype == dtype


@pytest.mark.parametrize("shape", [(0, G, 3, Dh), (B, G, 0, Dh)])
def test_N23_empty_batches_and_no_tokens_are_kept_as_well(shape):
    cache, x = KVCache(), torch.randn(shape)
    for n in (1, 2):
        keys, values = cache.append(x, x)
        assert keys.shape == values.shape == (*shape[:2], n * shape[2], Dh)


def test_gradients_do_not_flow_through_the_cache():
    cache = KVCache()
    k, v = (x.requires_grad_() for x in keys_and_values(3))
    keys, values = cache.append(k, v)
    assert not keys.requires_grad
    assert not values.requires_grad


@pytest.mark.parametrize("n_kv_heads", [H, G])
def test_gradients_of_an_earlier_step_survive_a_later_one(n_kv_heads):
    """What append handed out never changes, so a backward pass may come after the next step."""
    attention, cache, x = build(n_kv_heads=n_kv_heads), KVCache(), torch.randn(B, 5, D)
    first = attention(x[:, :3], mask=Mask.causal(), cache=cache)
    expected = torch.autograd.grad(first.sum(), attention.proj_q.weight, retain_graph=True)
    attention(x[:, 3:], mask=Mask.causal(), cache=cache)
    found = torch.autograd.grad(first.sum(), attention.proj_q.weight)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reorder", [False, True])
def test_a_cache_filled_in_inference_mode_serves_outside_of_it(reorder):
    attention = build("rotary")
    x = torch.randn(B, 6, D)
    rows = torch.tensor([1, 0])
    full = attention(x[rows] if reorder else x, mask=Mask.causal())
    cache = KVCache(block_size=4)
    with torch.inference_mode():
        attention(x[:, :3], mask=Mask.causal(), cache=cache)
        if reorder:
            cache.reorder(rows)
    rest = x[rows, 3:] if reorder else x[:, 3:]
    outside = [attention(y, mask=Mask.causal(), cache=cache) for y in rest.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(outside, dim=1), full[:, 3:], rtol=0, atol=1e-6)


def test_a_cache_filled_outside_serves_in_inference_mode():
    attention, x, cache = build(), torch.randn(B, 6, D), KVCache(block_size=4)
    full = attention(x, mask=Mask.causal())
    attention(x[:, :3], mask=Mask.causal(), cache=cache)
    with torch.inference_mode():
        rest = attention(x[:, 3:], mask=Mask.causal(), cache=cache)
    torch.testing.assert_close(rest, full[:, 3:], rtol=0, atol=1e-6)


# Errors


def test_another_batch_width_or_number_of_heads_is_refused():
    cache = KVCache()
    cache.append(*keys_and_values(3))
    k, v = keys_and_values(1, batch=4)
    with pytest.raises(ValueError, match=r"k has shape \(4, 3, 1, 4\) but the cache holds .*clear"):
        cache.append(k, v)
    k, v = keys_and_values(1)
    with pytest.raises(ValueError, match=r"k has shape \(2, 2, 1, 4\) but the cache holds"):
        cache.append(k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match=r"k has shape \(2, 3, 1, 3\) but the cache holds"):
        cache.append(k[..., :3], v)
    with pytest.raises(ValueError, match=r"v has shape \(2, 3, 1, 2\) but the cache holds"):
        cache.append(k, v[..., :2])
    assert len(cache) == 3
    keys, _ = cache.append(k, v)  # a refused append has left nothing behind
    assert torch.equal(keys[..., 3:, :], k)


def test_another_dtype_is_refused():
    cache = KVCache()
    cache.append(*keys_and_values(3))
    with pytest.raises(
        TypeError, match=r"k is torch.float64 on cpu but the cache holds torch.float32"
    ):
        cache.append(*(x.double() for x in keys_and_values(1)))


def test_keys_and_values_that_do_not_match_are_refused_by_their_own_names():
    k, v = keys_and_values(3)
    with pytest.raises(ValueError, match=r"^v must have one row per key, 3, got 1"):
        KVCache().append(k, v[..., :1, :])
    with pytest.raises(ValueError, match=r"^v must have one row per key, 3, got 2"):
        KVCache().append(k, v[..., :2, :])
    with pytest.raises(
        ValueError, match=r"^v must have the leading axes of k, \(2, 3\), got \(2, 2\)"
    ):
        KVCache().append(k, v[:, :2])
    with pytest.raises(
        TypeError, match=r"^v must have the dtype of k, torch.float32, got torch.flo"
    ):
        KVCache().append(k, v.double())
    with pytest.raises(TypeError, match=r"^k must be a torch.Tensor, got list"):
        KVCache().append([1.0], v)


def test_a_block_size_of_nothing_is_refused():
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        KVCache(0)


def test_rows_that_are_not_integers_are_refused():
    cache = KVCache()
    cache.append(*keys_and_values(3))
    with pytest.raises(TypeError, match=r"rows must hold integers, got torch.float32"):
        cache.reorder(torch.tensor([0.0, 1.0]))
    with pytest.raises(TypeError, match=r"rows must be a torch.Tensor of integers, got list"):
        cache.reorder([0, 1])


def test_a_source_is_projected_once_and_heard_the_same_at_every_step():
    """A source is whole from the start; appending it again would make it heard twice."""
    attention, cache, calls = MultiHeadAttention(12, 3, qk_norm=True), KVCache(), []
    attention.proj_k.register_forward_hook(lambda *_: calls.append("k"))
    x, source = torch.randn(2, 4, 12), torch.randn(2, 5, 12)
    mask = Mask.padding(torch.tensor([5, 3]))
    whole = attention(x, source, mask=mask)
    for t in range(4):
        step = attention(x[:, t : t + 1], source, mask=mask, cache=cache)
        assert torch.allclose(step, whole[:, t : t + 1], atol=1e-6)
    assert len(cache) == 5
    assert len(calls) == 2


def test_a_cache_of_another_source_is_refused():
    attention, cache = MultiHeadAttention(12, 3), KVCache()
    attention(torch.randn(2, 4, 12), torch.randn(2, 5, 12), cache=cache)
    with pytest.raises(ValueError, match="cache holds 5 keys but source has length 6"):
        attention(torch.randn(2, 4, 12), torch.randn(2, 6, 12), cache=cache)
    with pytest.raises(ValueError, match="the cache is empty"):
        KVCache().read()


@pytest.mark.parametrize("wrong", [{"mask": torch.ones(9, 9).bool()}, {"bias": torch.ones(9, 9)}])
def test_a_refused_call_leaves_the_cache_as_it_was(wrong):
    attention, cache = MultiHeadAttention(12, 3), KVCache()
    x = torch.randn(2, 5, 12)
    attention(x, mask=Mask.causal(), cache=cache)
    with pytest.raises(ValueError, match=r"mask|bias"):
        attention(x, cache=cache, **wrong)
    assert len(cache) == 5


def test_a_sequence_beyond_the_scheme_leaves_the_cache_as_it_was():
    attention, cache = MultiHeadAttention(12, 3, positions=ToeplitzBias(3, max_len=7)), KVCache()
    attention(torch.randn(2, 5, 12), cache=cache)
    with pytest.raises(ValueError, match="length 8 but max_len is 7"):
        attention(torch.randn(2, 3, 12), cache=cache)
    assert len(cache) == 5


def test_rows_to_keep_are_a_list_of_whole_numbers():
    cache = KVCache()
    cache.append(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4))
    with pytest.raises(ValueError, match=r"rows must have shape \(B,\), got \(1, 2\)"):
        cache.reorder(torch.tensor([[0, 1]]))
    cache.reorder(torch.tensor([1, 1, 0], dtype=torch.int16))
    k, _ = cache.append(torch.randn(3, 3, 1, 4), torch.randn(3, 3, 1, 4))
    assert k.shape == (3, 3, 6, 4)
