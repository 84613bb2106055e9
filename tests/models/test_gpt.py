"""GPT: the equations written out, what must change nothing, cached passes, and what is refused."""

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clearhead.attention import Mask
from clearhead.models.gpt import GPT, GPTConfig

V, MAX_LEN, D, H, F, L, B, T = 11, 32, 24, 6, 7, 2, 3, 5
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "toeplitz", "none"]
NORMS = ["layer", "rms", "none"]
ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "squared_relu", "swiglu"]


def config(**changes):
    sizes = {"vocab_size": V, "max_len": MAX_LEN, "d_model": D, "n_layers": L, "n_heads": H}
    return GPTConfig(**sizes | {"d_ff": F} | changes)


def build(dtype=torch.float64, seed=0, std=0.4, **changes):
    """A model with every parameter random."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(config(**changes)).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std, generator=generator)
    return model.eval()


def ids(*shape, seed=0, high=V):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


# The equations, one sequence, one head and one query at a time


def by_equations(model, row):
    """Logits (T, V) of one sequence (T,), from the numbers of the model and nothing else of it."""
    c, p = model.config, model.state_dict(keep_vars=True)
    x = p["embedding.weight"][row]
    if c.positions == "learned":
        x = x + p["positions.weight"][: len(row)]
    if c.positions == "sinusoidal":
        x = x + wide([[clock(t, i) for i in range(D)] for t in range(len(row))]).to(x)
    for n in range(c.n_layers):
        block = {k.removeprefix(f"stack.blocks.{n}."): v for k, v in p.items()}
        x = x + heard(c, block, normed(c, block, "norm_attention", x))
        x = x + thought(c, block, normed(c, block, "norm_feed_forward", x))
    logits = normed(c, p, "stack.norm", x) @ p["head.weight"].mT
    return logits if c.soft_cap is None else c.soft_cap * torch.tanh(logits / c.soft_cap)


def wide(rows):
    return torch.tensor(rows, dtype=torch.float64)


def clock(t, i):
    angle = t / 10000 ** ((i - i % 2) / D)
    return math.cos(angle) if i % 2 else math.sin(angle)


def normed(c, p, name, x):
    if c.norm == "none":
        return x
    if c.norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + c.norm_eps) * p[f"{name}.gain"]
    return x + p[f"{name}.shift"] if c.norm == "layer" and c.bias else x


def line(p, name, x):
    y = x @ p[f"{name}.weight"].mT
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def heard(c, p, x):
    Dh, shared = D // c.n_heads, c.n_heads // (c.n_kv_heads or c.n_heads)
    q, k, v = (line(p, f"attention.proj_{name}", x) for name in "qkv")
    heads = []
    for h in range(c.n_heads):
        of_q, of_k = slice(h * Dh, h * Dh + Dh), slice(h // shared * Dh, h // shared * Dh + Dh)
        mine, keys, values = q[:, of_q], k[:, of_k], v[:, of_k]
        if c.qk_norm:
            mine = unit(mine) * p["attention.norm_q.weight"]
            keys = unit(keys) * p["attention.norm_k.weight"]
        if c.positions == "rotary":
            mine, keys = turned(mine, c.rotary_base), turned(keys, c.rotary_base)
        rows = []
        for t in range(len(x)):
            scores = keys[: t + 1] @ mine[t]
            if c.positions == "toeplitz":
                scores = scores + p["attention.positions.weight"][h, c.max_len - t : c.max_len + 1]
            scores = scores / math.sqrt(Dh)
            if c.positions == "alibi":
                away = torch.arange(t, -1, -1).to(x)
                scores = scores - SLOPES[h] * away
            weights = torch.exp(scores - scores.max())
            rows.append(weights / weights.sum() @ values[: t + 1])
        heads.append(torch.stack(rows))
    return line(p, "attention.proj_out", torch.cat(heads, dim=-1))


def unit(x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def turned(x, base):
    """A point (x[i], x[i + Dh/2]) as a complex number, times a number of length 1."""
    half = x.size(-1) // 2
    angle = wide([[t / base ** (i / half) for i in range(half)] for t in range(len(x))])
    a, b, cos, sin = x[:, :half], x[:, half:], angle.cos().to(x), angle.sin().to(x)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


# Press et al. 2022: of 6 heads, four have the slopes of 4, two every second one of those of 8.
SLOPES = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]


def thought(c, p, x):
    inner = line(p, "feed_forward.proj_in", x)
    if c.activation == "relu":
        inner = inner * (inner > 0)
    elif c.activation == "gelu":
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    elif c.activation == "gelu_tanh":
        inside = math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)
        inner = inner * 0.5 * (1 + torch.tanh(inside))
    elif c.activation == "squared_relu":
        inner = (inner * (inner > 0)) ** 2
    else:
        gate = line(p, "feed_forward.proj_gate", x)
        inner = gate / (1 + torch.exp(-gate)) * inner
    return line(p, "feed_forward.proj_out", inner)


GRID = list(itertools.product(POSITIONS, NORMS, ACTIVATIONS))


@pytest.mark.parametrize("place", range(len(GRID)))
@torch.no_grad()
def test_the_model_is_its_equations(place):
    positions, norm, activation = GRID[place]
    bits = [place * 37 >> n & 1 for n in range(5)]  # every scheme meets every switch, on and off
    model = build(
        positions=positions,
        norm=norm,
        activation=activation,
        n_kv_heads=[None, 3, 2, 1][place % 4],
        qk_norm=bool(bits[0]),
        soft_cap=1.5 if bits[1] else None,
        tied=bool(bits[2]),
        bias=bool(bits[3]),
        norm_eps=0.1 if bits[4] else 1e-5,
        rotary_base=7.0,
    )
    tokens = ids(B, T)
    expected = torch.stack([by_equations(model, row) for row in tokens])
    y = model(tokens)
    assert y.shape == (B, T, V)
    assert torch.allclose(y, expected, rtol=0, atol=1e-11 * max(1.0, float(expected.abs().max())))


switches = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(POSITIONS),
        "norm": st.sampled_from(NORMS[:2]),
        "activation": st.sampled_from(ACTIVATIONS),
        "n_kv_heads": st.sampled_from([None, 1, 2, 3, 6]),
        "qk_norm": st.booleans(),
        "soft_cap": st.sampled_from([None, 0.7, 30]),
        "tied": st.booleans(),
        "bias": st.booleans(),
        "n_layers": st.integers(1, 3),
    }
)


@given(switches, st.integers(1, 7), st.integers(0, 2**20))
@settings(max_examples=40)
def test_N31_random_models_are_as_exact_as_the_plain_equations(chosen, length, seed):
    double, single = build(seed=seed, **chosen), build(torch.float32, seed=seed, **chosen)
    double.load_state_dict(single.state_dict())  # the same numbers
    row = ids(length, seed=seed)
    toward = torch.randn(length, V, generator=torch.Generator().manual_seed(seed)).double()

    def run(model, forward):
        model.zero_grad()
        y = forward(model)
        (y * toward.to(y)).sum().backward()
        return [y.detach(), *(p.grad.clone() for p in model.parameters())]

    exact = run(double, lambda model: by_equations(model, row))
    close = run(double, lambda model: model(row[None])[0])
    naive = run(single, lambda model: by_equations(model, row))
    ours = run(single, lambda model: model(row[None])[0])
    results = zip(exact, close, naive, ours, strict=True)
    for place, (truth, in_double, plain, in_single) in enumerate(results):
        scale = max(1.0, float(truth.abs().max()))
        assert torch.allclose(in_double, truth, rtol=0, atol=1e-10 * scale)
        times = 2.0 if place else 1.5  # gradients, the value
        allowed = times * float((plain.double() - truth).abs().max()) + 1e-6 * scale
        assert float((in_single.double() - truth).abs().max()) <= allowed


def test_a_model_of_one_number_by_hand():
    model = GPT(GPTConfig(2, 2, 1, 1, 1, 1, 1, norm="none", activation="relu", tied=False))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    attention, thinking = model.stack.blocks[0].attention, model.stack.blocks[0].feed_forward
    for part in (attention.proj_v, attention.proj_out, thinking.proj_in, thinking.proj_out):
        nn.init.ones_(part.weight)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.tensor([[1.0], [3.0]]))
        model.positions.weight.copy_(torch.tensor([[0.5], [-2.0]]))
        model.head.weight.copy_(torch.tensor([[2.0], [-1.0]]))
    # x = 3½ and −1. Equal scores: the first hears 3½, the second the mean of both, 1¼.
    # So 7 and ¼; each thinks max(x, 0) and adds it: 14 and ½; the head gives 2x and −x.
    assert model(torch.tensor([[1, 0]])).tolist() == [[[28.0, -14.0], [1.0, -0.5]]]


# What changes nothing


@pytest.mark.parametrize("positions", POSITIONS)
def test_N10_future_tokens_change_nothing(positions):
    model, tokens = build(positions=positions), ids(B, T)
    y = model(tokens)
    for t in range(1, T):
        other = tokens.clone()
        other[:, t:] = (other[:, t:] + 1) % V
        changed = model(other)
        assert torch.equal(changed[:, :t], y[:, :t])
        assert not torch.isclose(changed[:, t:], y[:, t:]).all(-1).any()


@pytest.mark.parametrize("positions", POSITIONS)
def test_no_gradient_comes_from_the_future_and_one_from_every_token_before(positions):
    model, tokens = build(positions=positions), ids(1, T)
    seen = []
    model.embedding.register_forward_hook(lambda _m, _i, out: seen.append(out))
    y = model(tokens)
    for t in range(T):
        (grad,) = torch.autograd.grad(y[0, t].square().sum(), seen[0], retain_graph=True)
        assert bool((grad[0, t + 1 :] == 0).all())
        assert bool((grad[0, : t + 1].abs().amax(-1) > 1e-9).all())


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("n", [1, 7])
def test_padding_changes_nothing(positions, side, n):
    model, tokens = build(positions=positions), ids(B, T)
    left, right = (n if side in (where, "both") else 0 for where in ("left", "right"))
    filling = ids(B, left + right, seed=1)
    padded = torch.cat((filling[:, :left], tokens, filling[:, left:]), dim=1)
    real = torch.zeros(B, left + T + right, dtype=torch.bool)
    real[:, left : left + T] = True
    y = model(padded, token_mask=real)[:, left : left + T]
    assert torch.allclose(y, model(tokens), rtol=0, atol=1e-12)
    other = torch.where(real, padded, (padded + 1) % V)
    assert torch.equal(model(other, token_mask=real)[:, left : left + T], y)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("by", ["token_mask", "mask"])
def test_padding_in_the_middle_changes_nothing_or_is_refused(positions, by):
    """A position counts real tokens; a bias by distance cannot, and says so."""
    model, tokens = build(positions=positions), ids(B, T)
    places = [0, *range(2, T + 1)]
    padded, real = ids(B, T + 1, seed=1), torch.zeros(B, T + 1, dtype=torch.bool)
    padded[:, places], real[:, places] = tokens, True
    given = {by: real if by == "token_mask" else Mask.tokens(real)}
    if positions in ("alibi", "toeplitz"):
        with pytest.raises(ValueError, match="padding between real tokens in row 0, but Toeplitz"):
            model(padded, **given)
    else:
        assert torch.allclose(model(padded, **given)[:, places], model(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["alibi", "toeplitz"])
def test_padding_in_the_middle_is_refused_before_a_cache_has_grown(positions):
    model, caches = build(positions=positions), build().make_caches()
    model(ids(1, 2), token_mask=torch.tensor([[True, False]]), caches=caches)
    with pytest.raises(ValueError, match="padding between real tokens in row 0"):
        model(ids(1, 1), token_mask=torch.tensor([[True, False, True]]), caches=caches)
    assert [len(cache) for cache in caches] == [2] * len(caches)


def test_rows_of_unequal_length_each_answer_as_alone():
    lengths, rows = [1, 4, T], [ids(1, n, seed=n) for n in (1, 4, T)]
    for positions, left in itertools.product(POSITIONS, [True, False]):
        model = build(positions=positions)
        tokens, real = torch.zeros(B, T, dtype=torch.long), torch.zeros(B, T, dtype=torch.bool)
        places = [slice(T - n, T) if left else slice(n) for n in lengths]
        for i, (row, place) in enumerate(zip(rows, places, strict=True)):
            tokens[i, place], real[i, place] = row[0], True
        y = model(tokens, token_mask=real)
        for i, (row, place) in enumerate(zip(rows, places, strict=True)):
            assert torch.allclose(y[i, place], model(row)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
def test_packed_documents_are_as_alone(positions):
    model = build(positions=positions)
    lengths = [[4, 1, 3], [2, 6]]
    documents = [[ids(1, n, seed=10 * r + n) for n in row] for r, row in enumerate(lengths)]
    tokens = torch.cat([torch.cat(row, dim=1) for row in documents])
    segments = torch.stack(
        [torch.repeat_interleave(torch.arange(len(row)), torch.tensor(row)) for row in lengths]
    )
    y = model(tokens, mask=Mask.segments(segments))
    for r, row in enumerate(documents):
        start = 0
        for document in row:
            end = start + document.size(1)
            alone = model(document)[0]
            assert torch.allclose(y[r, start:end], alone, rtol=0, atol=1e-12)
            start = end


def test_packed_documents_with_padding_between_them_and_any_ids():
    model, alone = build(positions="rotary"), ids(2, 3)
    tokens = torch.cat((alone[:1], ids(1, 2, seed=5), alone[1:]), dim=1)
    segments = torch.tensor([[7, 7, 7, -1, -1, 4, 4, 4]])
    y = model(tokens, mask=Mask.segments(segments))
    assert torch.allclose(y[:, :3], model(alone[:1]), rtol=0, atol=1e-12)
    assert torch.allclose(y[:, 5:], model(alone[1:]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_given_positions_are_used(positions):
    model, tokens = build(positions=positions), ids(B, T)
    y = model(tokens)
    plain = torch.arange(T)
    assert torch.allclose(model(tokens, positions=plain), y, rtol=0, atol=1e-12)
    assert torch.allclose(model(tokens, positions=plain.expand(B, T)), y, rtol=0, atol=1e-12)
    apart = model(tokens, positions=3 * plain)
    assert not torch.allclose(apart, y, atol=1e-3)
    if positions == "rotary":  # only distances count
        assert torch.allclose(model(tokens, positions=plain + 9), y, rtol=0, atol=1e-9)


def test_a_mask_of_ones_own_is_joined_to_the_causal_one():
    model, tokens = build(), ids(B, T)
    nearest = model(tokens, mask=Mask.window(1), positions=torch.arange(T))
    everything = torch.eye(T, dtype=torch.bool)
    assert torch.allclose(model(tokens, mask=everything), nearest, rtol=0, atol=1e-12)
    assert torch.equal(model(tokens, mask=torch.ones(T, T, dtype=torch.bool)), model(tokens))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_gradient_reaches_every_parameter(positions, tied):
    model = build(positions=positions, tied=tied, qk_norm=True, n_kv_heads=3, activation="swiglu")
    model(ids(B, MAX_LEN)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if name.endswith("attention.positions.weight"):  # what is ahead is never asked for
            behind = parameter.grad[:, 1 : MAX_LEN + 1]
            assert bool((behind != 0).all())
            assert bool((parameter.grad[:, MAX_LEN + 1 :] == 0).all())
        else:
            assert float(parameter.grad.abs().max()) > 1e-9, name


# Cached passes


@pytest.mark.parametrize("positions", POSITIONS)
def test_N14_every_split_point_gives_the_whole_pass(positions):
    model = build(torch.float32, std=0.3, positions=positions, n_kv_heads=2, norm="rms")
    tokens = ids(2, 32)
    with torch.no_grad():
        whole = model(tokens)
        for split in range(33):
            caches = model.make_caches()
            parts = [model(part, caches=caches) for part in (tokens[:, :split], tokens[:, split:])]
            y = torch.cat(parts, dim=1)
            assert float((y - whole).abs().max()) <= 1e-6 * max(1.0, float(whole.abs().max()))
            assert torch.equal(y.argmax(-1), whole.argmax(-1))
            assert [len(cache) for cache in caches] == [32] * L


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("size", [1, 2, 5, 31])
def test_N14_chunks_of_any_size_give_the_whole_pass(positions, size):
    model, tokens = build(positions=positions, n_kv_heads=3, qk_norm=True), ids(2, 32)
    with torch.no_grad():
        caches = model.make_caches()
        y = torch.cat([model(part, caches=caches) for part in tokens.split(size, dim=1)], dim=1)
        assert torch.allclose(y, model(tokens), rtol=0, atol=1e-12)


def test_N12_one_new_token_sees_all_cached_ones():
    model, tokens = build(positions="none"), ids(1, 8)
    with torch.no_grad():
        for t in range(7):
            caches, other = model.make_caches(), tokens.clone()
            other[0, t] = (other[0, t] + 1) % V
            model(other[:, :-1], caches=caches)
            y = model(other[:, -1:], caches=caches)
            assert torch.allclose(y[0, -1], model(other)[0, -1], rtol=0, atol=1e-12)
            assert not torch.allclose(y[0, -1], model(tokens)[0, -1], atol=1e-6)


@pytest.mark.parametrize("positions", POSITIONS)
def test_N15_left_padding_and_caches_together(positions):
    model, row = build(positions=positions), ids(1, 9)
    real = torch.tensor([[False] * 4 + [True] * 9])
    padded = torch.cat((ids(1, 4, seed=3), row), dim=1)
    with torch.no_grad():
        for split in range(1, 13):
            caches = model.make_caches()
            parts = [
                model(padded[:, :split], token_mask=real[:, :split], caches=caches),
                model(padded[:, split:], token_mask=real, caches=caches),
            ]
            y = torch.cat(parts, dim=1)[:, 4:]
            assert torch.allclose(y, model(row), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("past", [0, 1, 20, 32])
def test_N18_too_many_tokens_are_refused_and_the_caches_stay(positions, past):
    model = build(positions=positions)
    caches, before = model.make_caches(), ids(1, past)
    with torch.no_grad():
        model(before, caches=caches)
        kept = [tuple(part.clone() for part in cache.read()) for cache in caches] if past else []
        words = (
            f"tokens has length {33 - past} after {past} kept in the caches but max_len is 32"
            if past
            else "tokens has length 33 but max_len is 32; shorten it .* max_len=33"
        )
        with pytest.raises(ValueError, match=words):
            model(ids(1, 33 - past), caches=caches)
        assert [len(cache) for cache in caches] == [past] * L
        for cache, (k, v) in zip(caches, kept, strict=False):
            assert torch.equal(cache.read()[0], k)
            assert torch.equal(cache.read()[1], v)
        rest = ids(1, 32 - past, seed=4)
        y = model(rest, caches=caches)
        whole = model(torch.cat((before, rest), dim=1))[:, past:]
        assert torch.allclose(y, whole, rtol=0, atol=1e-12)


def test_a_refused_call_leaves_the_caches_as_they_were():
    model = build()
    caches = model.make_caches()
    with torch.no_grad():
        model(ids(2, 4), caches=caches)
        kept = caches[0].read()[0].clone()
        for bad in (
            lambda: model(ids(3, 1), caches=caches),
            lambda: model(torch.full((2, 1), V), caches=caches),
            lambda: model(ids(2, 1), token_mask=torch.ones(2, 3, dtype=torch.bool), caches=caches),
            lambda: model(ids(2, 1), token_mask=torch.ones(2, 5), caches=caches),
            lambda: model(ids(2, 1), caches=caches[:1]),
        ):
            with pytest.raises((ValueError, TypeError)):
                bad()
            assert [len(cache) for cache in caches] == [4] * L
            assert torch.equal(caches[0].read()[0], kept)


def test_no_caches_at_all_are_refused_by_their_number():
    with pytest.raises(ValueError, match="caches must hold one KVCache for each block, 2, got 0"):
        build()(ids(1, 2), caches=[])


# Sizes at the edge


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(("b", "t"), [(0, 4), (2, 0), (0, 0), (1, 1), (1, MAX_LEN)])
def test_N23_empty_and_single_sizes_keep_their_shapes_and_gradients(positions, b, t):
    model = build(positions=positions)
    y = model(ids(b, t))
    assert y.shape == (b, t, V)
    y.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    real = torch.ones(b, t, dtype=torch.bool)
    assert model(ids(b, t), token_mask=real).shape == (b, t, V)
    assert model(ids(b, t), caches=model.make_caches()).shape == (b, t, V)


@pytest.mark.parametrize("positions", [p for p in POSITIONS if p != "rotary"])
def test_N23_heads_one_column_wide(positions):
    model = build(positions=positions, n_heads=24, n_kv_heads=8)
    assert model(ids(B, T)).shape == (B, T, V)
    model(ids(B, T)).sum().backward()


def test_N23_a_row_of_padding_alone_gives_numbers_and_spoils_no_other():
    model, tokens = build(), ids(B, T)
    real = torch.ones(B, T, dtype=torch.bool)
    real[1] = False
    y = model(tokens, token_mask=real)
    assert bool(y.isfinite().all())
    assert torch.allclose(y[[0, 2]], model(tokens[[0, 2]]), rtol=0, atol=1e-12)


# The pieces around the equations


def test_hidden_and_logits_are_the_two_halves_of_forward():
    model, tokens = build(soft_cap=2.0), ids(B, T)
    x = model.hidden(tokens)
    assert x.shape == (B, T, D)
    assert torch.equal(model.logits(x), model(tokens))
    assert torch.allclose(model.logits(x[:, -1]), model(tokens)[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cap", [0.01, 1.0, 5])
def test_a_soft_cap_bounds_the_logits_and_keeps_their_order(cap):
    x = torch.randn(4, D, dtype=torch.float64)
    capped, free = build(soft_cap=cap).logits(x), build().logits(x)
    assert bool((capped.abs() <= cap).all())
    assert torch.allclose(capped, cap * torch.tanh(free / cap), rtol=0, atol=1e-12)
    if cap == 5:
        assert torch.equal(capped.argsort(-1), free.argsort(-1))


def test_a_tied_head_is_the_table_itself_and_an_untied_one_is_not():
    tied, untied = build(tied=True), build(tied=False)
    assert tied.head.weight is tied.embedding.weight
    assert untied.head.weight is not untied.embedding.weight
    assert untied.n_parameters - tied.n_parameters == V * D
    twin = copy.deepcopy(tied)
    assert twin.head.weight is twin.embedding.weight


def test_dropout_acts_in_training_only():
    model, tokens = build(dropout=0.5), ids(B, T)
    assert torch.equal(model(tokens), build()(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))
    everything = build(
        dropout=1.0
    ).train()  # nothing gets through to the logits but the norm's shift
    assert torch.equal(everything(tokens)[0, 0], everything(tokens)[2, 3])


@pytest.mark.parametrize("tied", [True, False])
def test_weights_start_as_in_gpt2(tied):
    model = GPT(GPTConfig(500, 64, 96, 8, 4, tied=tied, positions="toeplitz", qk_norm=True))
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "shift")) or "positions" in name:
            assert bool((parameter == 0).all()), name
        elif parameter.ndim == 1:
            assert bool((parameter == 1).all()), name
        else:
            expected = 0.02 / (4 if name.endswith("proj_out.weight") else 1)  # √(2·8) = 4
            assert abs(float(parameter.detach().std()) / expected - 1) < 0.06, name
            assert abs(float(parameter.detach().mean())) < 0.1 * expected, name
    learned = GPT(GPTConfig(50, 256, 96, 1, 4)).positions.weight
    assert abs(float(learned.detach().std()) / 0.02 - 1) < 0.06


def test_gpt2_small_has_124_439_808_parameters():
    with torch.device("meta"):
        model = GPT(GPTConfig(50257, 1024, 768, 12, 12, activation="gelu_tanh"))
    assert model.n_parameters == 124_439_808
    table = model.describe()
    assert table.splitlines()[-1].split() == ["GPT", "124,439,808"]
    assert table.splitlines()[0].split() == ["layer", "kind", "shapes", "parameters"]
    counts = [line.split()[-1].replace(",", "") for line in table.splitlines()[1:-1]]
    assert sum(map(int, counts)) == 124_439_808
    first = next(line for line in table.splitlines() if line.startswith("embedding"))
    assert "50257×768" in first
    assert "38,597,376" in first
    shared = next(line for line in table.splitlines() if line.startswith("head"))
    assert "embedding.weight" in shared
    assert shared.split()[-1] == "0"


def test_a_small_model_counted_by_hand():
    # Table 11·24, positions 32·24; a block: norms 2·48, q 600, k and v 2·300, out 600, feed-forward
    # 7·25 + 24·8; the last norm 48.
    expected = 11 * 24 + 32 * 24 + 2 * (96 + 600 + 600 + 600 + 175 + 192) + 48
    assert GPT(config(n_kv_heads=3)).n_parameters == expected
    # Without bias: no shift either; RMS norm has none.
    bare = 11 * 24 * 2 + 2 * (48 + 576 + 2 * 288 + 576 + 3 * 168) + 24
    model = GPT(
        config(bias=False, positions="alibi", activation="swiglu", tied=False, n_kv_heads=3)
    )
    assert model.n_parameters == bare


def test_the_state_goes_from_one_model_to_another():
    for positions in POSITIONS:
        one, other = build(positions=positions), build(positions=positions, seed=1)
        assert not torch.equal(one(ids(B, T)), other(ids(B, T)))
        other.load_state_dict(one.state_dict())
        assert torch.equal(one(ids(B, T)), other(ids(B, T)))
        assert torch.equal(copy.deepcopy(one)(ids(B, T)), one(ids(B, T)))


def test_N26_no_grad_and_inference_mode_give_the_same_bits():
    model, tokens = build(torch.float32), ids(B, T)
    y = model(tokens)
    with torch.no_grad():
        assert torch.equal(model(tokens), y)
    with torch.inference_mode():
        assert torch.equal(model(tokens), y)
    assert model(tokens).requires_grad


# The config


def test_a_config_goes_to_plain_values_and_back():
    c = config(positions="rotary", soft_cap=3, n_kv_heads=2, norm="rms", activation="swiglu")
    assert GPTConfig.from_dict(c.to_dict()) == c
    assert type(c.soft_cap) is float
    assert GPT.from_config(c.to_dict()).config == c
    assert GPT.from_config(c).config == c


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"n_head": 3}, ValueError, "GPTConfig has no 'n_head'; the nearest is 'n_heads'"),
        ({"dmodel": 3}, ValueError, "GPTConfig has no 'dmodel'; the nearest is 'd_model'"),
        ({"n_layers": True}, TypeError, "n_layers must be a whole number, got True"),
        ({"max_len": 8.0}, TypeError, "max_len must be a whole number, got 8.0"),
        ({"vocab_size": "9"}, TypeError, "vocab_size must be a whole number, got '9'"),
        ({"tied": 1}, TypeError, "tied must be true or false, got 1"),
        ({"bias": None}, TypeError, "bias must be true or false, got None"),
        ({"norm_eps": math.nan}, ValueError, "norm_eps must be a finite number, got nan"),
        ({"rotary_base": math.inf}, ValueError, "rotary_base must be a finite number, got inf"),
        ({"soft_cap": math.nan}, ValueError, "soft_cap must be a finite number, got nan"),
        ({"soft_cap": True}, TypeError, "soft_cap must be a number or none, got True"),
        ({"soft_cap": 0.0}, ValueError, "soft_cap must be a finite number above 0, got 0.0"),
        ({"soft_cap": -3}, ValueError, "soft_cap must be a finite number above 0, got -3"),
        ({"norm_eps": 0.0}, ValueError, "norm_eps must be a finite number above 0, got 0.0"),
        (
            {"rotary_base": -1.0},
            ValueError,
            "rotary_base must be a finite number above 0, got -1.0",
        ),
        ({"dropout": 1.5}, ValueError, "dropout must be a finite number from 0 to 1, got 1.5"),
        ({"dropout": -0.1}, ValueError, "dropout must be a finite number from 0 to 1"),
        ({"dropout": math.nan}, ValueError, "dropout must be a finite number, got nan"),
        ({"vocab_size": 0}, ValueError, "vocab_size must be at least 1, got 0"),
        ({"max_len": 0}, ValueError, "max_len must be at least 1, got 0"),
        ({"n_layers": 0}, ValueError, "n_layers must be at least 1, got 0"),
        ({"n_layers": -2}, ValueError, "n_layers must be at least 1, got -2"),
        ({"d_model": 0}, ValueError, "d_model must be at least 1, got 0"),
        ({"d_ff": 0}, ValueError, "d_ff must be at least 1, got 0"),
        ({"n_heads": 0}, ValueError, "n_heads must be at least 1, got 0"),
        ({"n_heads": 5}, ValueError, "d_model is 24, which n_heads=5 does not divide"),
        ({"n_kv_heads": 4}, ValueError, "n_heads is 6, which n_kv_heads=4 does not divide"),
        ({"n_kv_heads": 0}, ValueError, "n_kv_heads must be at least 1, got 0"),
        ({"n_kv_heads": 12}, ValueError, "n_heads is 6, which n_kv_heads=12 does not divide"),
        ({"d_head": 0}, ValueError, "d_head must be at least 1, got 0"),
        ({"d_head": 2.5}, TypeError, "d_head must be a whole number or none, got 2.5"),
        ({"d_head": 2**19}, ValueError, "n_heads · d_head must be at most"),
        ({"positions": "rotary", "d_head": 5}, ValueError, "d_head must be even.* got 5"),
        ({"norm_bias": "yes"}, TypeError, "norm_bias must be true or false or none, got 'yes'"),
        ({"norm": "rms", "norm_bias": True}, ValueError, "norm_bias=True .* norm='rms' has none"),
        ({"final_norm": 1}, TypeError, "final_norm must be true or false or none, got 1"),
        ({"norm_attention": None}, TypeError, "norm_attention must be true or false, got None"),
        ({"head_bias": None}, TypeError, "head_bias must be true or false, got None"),
        ({"positions": "rope"}, ValueError, "positions must be one of 'learned', .*got 'rope'"),
        ({"positions": None}, TypeError, "positions must be a word, got None"),
        ({"norm": "batch"}, ValueError, "norm must be one of 'layer', 'rms', 'none', got 'batch'"),
        ({"activation": "silu"}, ValueError, "activation must be one of .*'swiglu', got 'silu'"),
        ({"vocab_size": 10**30}, ValueError, "vocab_size must be less than 2.63 in size"),
        ({"norm_eps": 10**400}, ValueError, "norm_eps must be less than 2.63 in size"),
        (
            {"positions": "rotary", "n_heads": 8},
            ValueError,
            "d_head must be even, because rotary positions turn pairs of columns, got 3",
        ),
    ],
    ids=lambda x: str(x)[:50],
)
def test_F11_a_wrong_config_is_refused_by_the_name_of_its_field(changes, kind, words):
    with pytest.raises(kind, match=words):
        GPTConfig.from_dict(config().to_dict() | changes)


@pytest.mark.parametrize("name", ["vocab_size", "max_len", "d_model", "n_layers", "n_heads"])
def test_F11_what_has_no_default_must_be_given(name):
    values = config().to_dict()
    del values[name]
    with pytest.raises(ValueError, match=f"GPTConfig needs '{name}', which is missing"):
        GPTConfig.from_dict(values)


def test_a_model_is_built_from_its_own_config_only():
    with pytest.raises(TypeError, match="GPT is built from a GPTConfig, got dict"):
        GPT({"vocab_size": 3})


# Ids


@pytest.mark.parametrize(
    ("tokens", "kind", "words"),
    [
        ([[1, 2], [3, 11]], ValueError, r"tokens\[1, 1\] is 11, but ids go from 0 to 10"),
        ([[1, -1], [3, 4]], ValueError, r"tokens\[0, 1\] is -1, but ids go from 0 to 10"),
        ([[2**40, 0]], ValueError, r"tokens\[0, 0\] is 1099511627776, but ids go"),
        ([[1.0, 2.0]], TypeError, r"tokens must hold integers, got torch.float32; use tokens.long"),
        ([[True, False]], TypeError, "tokens must hold integers, got torch.bool"),
        ([1, 2, 3], ValueError, r"tokens must have shape \(B, T\), got \(3,\); .* tokens\[None\]"),
        ([[[1]]], ValueError, r"tokens must have shape \(B, T\), got \(1, 1, 1\)"),
    ],
)
def test_N27_wrong_ids_are_refused_before_the_embedding(tokens, kind, words):
    model = build()
    model.embedding.register_forward_hook(lambda *_: pytest.fail("the embedding was asked"))
    with pytest.raises(kind, match=words):
        model(torch.tensor(tokens))


def test_N27_a_list_is_no_tensor():
    with pytest.raises(TypeError, match=r"tokens must be a torch\.Tensor of integers, got list"):
        build()([[1, 2]])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_N27_ids_of_any_whole_type_mean_the_same(dtype):
    model, tokens = build(), ids(B, T)
    assert torch.equal(model(tokens.to(dtype)), model(tokens))


@pytest.mark.parametrize("positions", POSITIONS)
def test_N18_the_longest_sequence_is_legal_and_one_more_is_not(positions):
    model = build(positions=positions)
    assert model(ids(1, MAX_LEN)).shape == (1, MAX_LEN, V)
    with pytest.raises(ValueError, match=r"tokens has length 33 but max_len is 32; .*max_len=33"):
        model(ids(1, MAX_LEN + 1))
