"""Token by token: the modules with a cache, without one, and the packed form say the same."""

import copy
import gc
import random
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn

from clearhead.attention import ArgmaxAttention
from clearhead.data import pad_left
from clearhead.generation import generate, packed_gpt, step, step_fast
from clearhead.models.gpt import GPT, GPTConfig

V, MAX_LEN, D, H, F, L = 37, 48, 24, 6, 20, 2
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "toeplitz", "none"]
NEW = 16  # what is worth packing


def build(dtype=torch.float32, seed=0, std=0.3, **changes):
    """A model with spread-out random weights, so that its words differ from step to step."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"vocab_size": V, "max_len": MAX_LEN, "d_model": D, "n_layers": L, "n_heads": H}
    model = GPT(GPTConfig(**sizes | {"d_ff": F, "tied": False} | changes)).to(dtype)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=std, generator=generator)
        parameter.data.add_(name.endswith("gain")).mul_(0.3 if name.endswith("shift") else 1)
    model.embedding.weight.data.mul_(4)  # what was said decides, so that it says many words
    return model.eval()


def ids(*shape, seed=0, high=V):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


WAYS = ["cached", "again", "packed"]


def reader(way, model, batch_size=1, token_mask=None, capacity=MAX_LEN):
    """One of the three ways to read."""
    if way == "packed":
        packed = packed_gpt.packed(model, n_rows=batch_size)
        return step_fast.Reader(packed, batch_size, capacity, token_mask)
    return step.Reader(model, token_mask, cache=way == "cached")


def close(y, expected, limit):
    return float((y - expected).abs().max()) <= limit * max(1.0, float(expected.abs().max()))


@torch.inference_mode()
def greedy(reader, tokens, n_tokens, prefill=None):
    """The next tokens (B, n) and all logits (B, n, V), by reading alone."""
    *first, fresh = tokens.split(prefill or tokens.size(1), dim=1)
    for part in first:
        reader.read(part)
    words, logits = [], []
    for _ in range(n_tokens):
        logits.append(reader.read(fresh))
        words.append(logits[-1].argmax(-1))
        fresh = words[-1][:, None]
    return torch.stack(words, dim=1), torch.stack(logits, dim=1)


# One pass in parts


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_N14_every_split_point_gives_the_whole_pass(positions, way):
    model = build(positions=positions, n_kv_heads=3, norm="rms", qk_norm=True)
    tokens = ids(2, 32)
    whole = model(tokens)
    for split in range(1, 32):
        reading = reader(way, model, 2)
        for part, t in ((tokens[:, :split], split), (tokens[:, split:], 32)):
            y = reading.read(part)
            assert y.shape == (2, V)
            assert close(y, whole[:, t - 1], 1e-6)
            assert torch.equal(y.argmax(-1), whole[:, t - 1].argmax(-1))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("way", ["cached", "packed"])
@torch.inference_mode()
def test_N12_token_by_token_each_sees_all_before_it(positions, way):
    model, tokens = build(torch.float64, positions=positions, n_kv_heads=2), ids(3, 20)
    whole = model(tokens)
    reading = reader(way, model, 3)
    for t in range(20):
        assert close(reading.read(tokens[:, t : t + 1]), whole[:, t], 1e-12)
    reading = reader(way, model, 3)
    for part in tokens.split((7, 1, 5, 7), dim=1):
        y = reading.read(part)
    assert close(y, whole[:, -1], 1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_N15_a_left_padded_row_is_read_as_if_alone(positions, way):
    model = build(positions=positions, n_kv_heads=2)
    rows = [ids(n, seed=n).tolist() for n in range(1, 10)]
    tokens, real = pad_left(rows, 5)
    words, logits = greedy(reader(way, model, 9, real), tokens, 8)
    for i, row in enumerate(rows):
        alone, exact = greedy(reader(way, model), torch.tensor([row]), 8)
        assert close(logits[i], exact[0], 1e-6)
        assert torch.equal(words[i], alone[0])


@pytest.mark.parametrize("way", ["cached", "packed"])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@torch.inference_mode()
def test_N15_chunks_of_padding_alone_are_read_too(way, size, dtype, limit):
    for positions in POSITIONS:
        model = build(dtype, positions=positions)
        tokens, real = pad_left([ids(2).tolist(), ids(8).tolist()], 0)
        words, logits = greedy(reader(way, model, 2, real), tokens, 6, prefill=size)
        alone, exact = greedy(reader(way, model), ids(2)[None], 6)
        assert close(logits[:1], exact, limit)
        assert torch.equal(words[:1], alone)


def test_a_mask_that_is_all_real_changes_nothing():
    model, tokens = build(), ids(3, 6)
    real = torch.ones(3, 6, dtype=torch.bool)
    for way in WAYS:
        expected = greedy(reader(way, model, 3), tokens, 5)
        for a, b in zip(greedy(reader(way, model, 3, real), tokens, 5), expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("positions", POSITIONS)
def test_N14_buffers_and_tables_grow_past_a_block(positions):
    """Caches grow by 256 tokens, tables of angles by powers of two."""
    model, tokens = build(positions=positions, max_len=300, n_layers=1), ids(2, 250)
    expected, logits = greedy(reader("again", model, 2), tokens, 10)
    for way in ("cached", "packed"):
        words, near = greedy(reader(way, model, 2, capacity=300), tokens, 10, prefill=249)
        assert torch.equal(words, expected)
        assert close(near, logits, 1e-5)


@pytest.mark.parametrize("soft_cap", [None, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.inference_mode()
def test_best_is_the_largest_of_read(soft_cap, dtype):
    model, tokens = build(dtype, soft_cap=soft_cap), ids(4, 9)
    for t in range(1, 10):
        expected = model(tokens[:, :t])[:, -1].argmax(-1)
        for way in WAYS:
            assert torch.equal(reader(way, model, 4).best(tokens[:, :t]), expected)


# Two hundred models


def random_case(seed):
    """A model, prompts of unequal length padded on the left, how many at a time."""
    draw = random.Random(seed)
    n_heads = draw.choice([1, 2, 3, 4, 6])
    d_head = draw.choice([2, 4, 6])
    changes = {
        "vocab_size": draw.randint(30, 90),
        "max_len": 32,
        "d_model": n_heads * d_head,
        "n_layers": draw.choice([1, 1, 2]),
        "n_heads": n_heads,
        "n_kv_heads": draw.choice([None, *(g for g in (1, 2, 3) if n_heads % g == 0)]),
        "d_ff": draw.randint(3, 30),
        "positions": POSITIONS[seed % 6],
        "rotary_base": draw.choice([100.0, 10000.0]),
        "norm": draw.choice(["layer", "rms", "none"]),
        "norm_eps": draw.choice([1e-6, 1e-3]),
        "activation": draw.choice(["relu", "gelu", "gelu_tanh", "squared_relu", "swiglu"]),
        "bias": draw.random() < 0.5,
        "qk_norm": draw.random() < 0.4,
        "soft_cap": draw.choice([None, None, 30.0]),
    }
    # Without a norm large weights would let numbers grow until float32 has no digits left.
    model = build(seed=seed, std=0.2 if changes["norm"] == "none" else 0.4, **changes)
    rows = [
        ids(draw.randint(1, 9), seed=seed + i, high=30).tolist()
        for i in range(draw.choice([1, 1, 2, 4]))
    ]
    tokens, token_mask = pad_left(rows, draw.randrange(30))
    return model, rows, tokens, token_mask, draw.randint(1, 9)


@pytest.mark.parametrize("start", range(0, 200, 10))
def test_greedy_words_are_the_same_however_they_are_read(start, monkeypatch):
    """200 random models: with and without cache, packed, batched and single, in chunks."""
    built = []
    for module in (step, step_fast):
        init = module.Reader.__init__

        def noted(self, *args, _init=init, _name=module.__name__, **options):
            built.append(_name)
            _init(self, *args, **options)

        monkeypatch.setattr(module.Reader, "__init__", noted)
    said = []
    for seed in range(start, start + 10):
        model, rows, tokens, real, prefill = random_case(seed)
        B = len(rows)
        words, logits = greedy(reader("packed", model, B, real), tokens, NEW, prefill)
        whole, exact = in_one_pass(model, tokens, real, words)
        assert torch.equal(words, whole), f"case {seed}, packed"
        assert close(logits, exact, 1e-5), f"case {seed}, packed"
        for way, n, size in (("cached", 8, prefill), ("again", 6, None)):
            same, near = greedy(reader(way, model, B, real), tokens, n, size)
            assert torch.equal(same, words[:, :n]), f"case {seed}, {way}"
            assert close(near, exact[:, :n], 1e-5), f"case {seed}, {way}"
        built.clear()
        made = generate(model, tokens, NEW, token_mask=real, prefill=prefill)
        assert built == ["clearhead.generation.step_fast"]
        assert torch.equal(made, torch.cat((tokens, words), dim=1)), f"case {seed}, generate"
        row = seed % B
        if B > 1:
            alone = generate(model, torch.tensor([rows[row]]), NEW)
            assert torch.equal(alone[0, len(rows[row]) :], words[row]), f"case {seed}, alone"
        said.append(len(set(words.flatten().tolist())))
    built.clear()
    made = generate(model, torch.tensor([rows[row]]), 5)
    assert built == ["clearhead.generation.step"]
    assert torch.equal(made[0, len(rows[row]) :], words[row, :5])
    assert sum(said) > 60  # the models do not say one word for ever


@torch.inference_mode()
def in_one_pass(model, tokens, token_mask, words):
    """What the model would say at each place, if these were the words: no cache, no steps."""
    real = torch.cat((token_mask, torch.ones_like(words, dtype=torch.bool)), dim=1)
    logits = model(torch.cat((tokens, words), dim=1), token_mask=real)[:, tokens.size(1) - 1 : -1]
    return logits.argmax(-1), logits


@pytest.mark.parametrize("positions", [p for p in POSITIONS if p != "rotary"])
def test_N23_a_model_one_number_wide(positions):
    model = build(
        torch.float32, d_model=1, n_heads=1, d_ff=3, positions=positions, norm="none", std=1.0
    )
    tokens = ids(3, 4)
    expected = generate(model, tokens, NEW, cache=False)
    assert torch.equal(generate(model, tokens, NEW), expected)
    assert torch.equal(generate(model, tokens, NEW, temperature=0.5, seed=0)[:, :4], tokens)


@pytest.mark.parametrize("cap", [0.01, 0.1, 1.0])
def test_a_cap_that_all_large_logits_reach_gives_one_answer_everywhere(cap):
    """tanh makes equals of what is far above the cap, so who is chosen is a matter of rule."""
    model, tokens = build(soft_cap=cap, std=0.6), ids(4, 5)
    expected = generate(model, tokens, NEW, cache=False)
    assert torch.equal(generate(model, tokens, NEW), expected)
    kept = step_fast.Reader(packed_gpt.packed(model), 4, MAX_LEN)
    assert torch.equal(greedy(kept, tokens, NEW)[0], expected[:, 5:])


@pytest.mark.parametrize("positions", POSITIONS)
def test_float64_is_packed_as_exactly(positions):
    model, tokens = build(torch.float64, positions=positions, activation="swiglu"), ids(3, 7)
    words, logits = greedy(reader("again", model, 3), tokens, NEW)
    for way in ("cached", "packed"):
        same, near = greedy(reader(way, model, 3), tokens, NEW)
        assert near.dtype == torch.float64
        assert torch.equal(same, words)
        assert close(near, logits, 1e-12)


def test_the_cache_keeps_what_was_read_apart_for_each_reader():
    model = build()
    packed = packed_gpt.packed(model, n_rows=2)
    one, other = (step_fast.Reader(packed, 2, MAX_LEN) for _ in range(2))
    a, b = ids(2, 8, seed=1), ids(2, 8, seed=2)
    with torch.inference_mode():
        for t in range(8):  # turn by turn
            y, z = one.read(a[:, t : t + 1]), other.read(b[:, t : t + 1])
        assert close(y, model(a)[:, -1], 1e-6)
        assert close(z, model(b)[:, -1], 1e-6)


def test_N06_broken_numbers_in_padding_reach_nobody():
    model, clean = build(), build()
    rows = [ids(2, high=30).tolist(), ids(6, high=30, seed=1).tolist()]
    tokens, real = pad_left(rows, 36)
    with torch.no_grad():
        model.embedding.weight[36] = torch.nan
        for each in (model, clean):
            each.head.weight[36] = 0  # never the best of 37: padding is not said
    for n_tokens in (5, NEW):
        expected = generate(clean, tokens, n_tokens, token_mask=real)
        assert 36 not in expected[:, 6:]
        assert torch.equal(generate(model, tokens, n_tokens, token_mask=real), expected)


# The packed form is remembered, and never out of date


def swap(x, a, b):
    x[[a, b]] = x[[b, a]].clone()


def by_optimiser(model, tokens):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    model(tokens).logsumexp(-1).sum().backward()
    optimiser.step()


CHANGES = {
    "an optimiser's step": by_optimiser,
    "load_state_dict": lambda m, t: m.load_state_dict(build(seed=9).state_dict()),
    "one number of the head": lambda m, t: m.head.weight.data[4, :1].copy_(
        99 * m.hidden(t)[0, -1, :1].sign()
    ),
    "two rows of the head": lambda m, t: swap(m.head.weight.data, *best_two(m, t)),
    "two rows of the table": lambda m, t: swap(m.embedding.weight.data, *t[0, -2:].tolist()),
    "two rows of positions": lambda m, t: swap(m.positions.weight.data, 0, t.size(1) - 1),
    "one number of a bias": lambda m, t: (
        m.stack.blocks[0].attention.proj_v.bias.data[3].fill_(30.0)
    ),
    "a gain": lambda m, t: m.stack.norm.gain.data.mul_(-1.0),
    "a shift": lambda m, t: m.stack.blocks[1].norm_feed_forward.shift.data.add_(5.0),
    "columns of a weight": lambda m, t: swap(
        m.stack.blocks[1].feed_forward.proj_in.weight.data.mT, 2, 3
    ),
    "a new parameter": lambda m, t: setattr(
        m.head, "weight", nn.Parameter(m.head.weight.detach().flip(0))
    ),
    "new data": lambda m, t: setattr(m.head.weight, "data", m.head.weight.data.roll(1, 0)),
}


def best_two(model, tokens):
    """The most likely next word of the first row and its neighbour."""
    with torch.no_grad():
        best = int(model(tokens)[0, -1].argmax())
    return max(best, 1), best + 1 if best + 1 < model.config.vocab_size else best - 1


@pytest.mark.parametrize("change", CHANGES)
def test_after_any_change_the_new_numbers_are_used(change):
    model, tokens = build(), ids(2, 5, seed=3)
    for parameter in model.parameters():  # sums of such numbers are exact, in whatever order
        parameter.data.mul_(32).round_().div_(32)
    before = generate(model, tokens, NEW)
    assert torch.equal(generate(model, tokens, NEW), before)
    with torch.set_grad_enabled(change == "an optimiser's step"):
        CHANGES[change](model, tokens)
    expected = generate(model, tokens, NEW, cache=False)
    assert not torch.equal(expected, before)  # or the test would show nothing
    assert torch.equal(generate(model, tokens, NEW), expected)


def test_a_change_in_a_large_table_is_seen():
    """Two neighbours of 50,257 rows change places: sums in float32 hardly move."""
    model = build(vocab_size=50_257, d_model=32, n_heads=4, n_layers=1, positions="none")
    table, missed = model.head.weight.data, 0
    for seed in range(8):
        tokens = ids(1, 3, seed=seed, high=50_257)
        best = int(generate(model, tokens, NEW)[0, 3])
        other = best + 1 if best + 1 < 50_257 else best - 1
        swap(table, best, other)
        missed += int(generate(model, tokens, NEW)[0, 3]) != other
    assert missed == 0


def test_a_small_change_of_one_number_is_seen():
    model = build(vocab_size=50_257, d_model=32, n_heads=4, n_layers=1, positions="none")
    table, missed = model.head.weight.data, 0
    for seed in range(6):
        tokens = ids(1, 3, seed=seed, high=50_257)
        x = model.hidden(tokens)[0, -1].detach()
        best, place = int((table @ x).argmax()), int(x.abs().argmax())
        twin = (best + 25_000) % 50_257
        table[twin] = table[best]
        table[twin, place] -= 1e-5 * x[place].sign()
        assert int(generate(model, tokens, NEW)[0, 3]) == best
        table[twin, place] += 2e-5 * x[place].sign()  # now it is the better one
        missed += int(generate(model, tokens, NEW)[0, 3]) != twin
    assert missed == 0


def test_a_change_that_keeps_sums_and_means_is_seen():
    """Three neighbours get +3, −6 and +3: no sum whose weights grow evenly would notice."""
    model, missed = build(vocab_size=65), 0
    for seed in range(8):
        tokens = ids(1, 3, seed=seed)
        x = model.hidden(tokens)[0, -1].detach()
        place = int(x.abs().argmax())
        generate(model, tokens, NEW)
        middle = 1 + 7 * seed
        shift = torch.tensor([3.0, -6.0, 3.0]) * x[place].sign() * (-1 if seed % 2 else 1)
        model.head.weight.data[middle - 1 : middle + 2, place] += shift
        expected = generate(model, tokens, NEW, cache=False)
        missed += not torch.equal(generate(model, tokens, NEW), expected)
    assert missed == 0


def test_the_packed_form_is_made_once_while_nothing_changes():
    model = build()
    assert packed_gpt.packed(model) is packed_gpt.packed(model)
    assert packed_gpt.packed(model, "int8") is packed_gpt.packed(model, "int8")
    assert packed_gpt.packed(model, "int8") is not packed_gpt.packed(model)
    assert packed_gpt.packed(model, "int8", n_rows=5) is packed_gpt.packed(model, "int8")
    assert packed_gpt.packed(model, n_rows=5) is packed_gpt.packed(model, n_rows=2)


def test_a_change_that_no_sum_of_its_row_could_show_is_seen():
    model = build(positions="alibi")
    with torch.no_grad():
        model.head.weight[4, 0] = 1e12
        before = packed_gpt.packed(model)
        model.head.weight[4, 1] += 1e-3
        assert packed_gpt.packed(model) is not before
        before = packed_gpt.packed(model)
        model.stack.blocks[1].attention.positions.slopes.data.mul_(2)  # no parameter
        assert packed_gpt.packed(model) is not before


def test_a_model_and_its_copy_are_two():
    model, tokens = build(), ids(2, 5)
    before = generate(model, tokens, NEW)
    twin = copy.deepcopy(model)
    assert torch.equal(generate(twin, tokens, NEW), before)
    with torch.no_grad():
        twin.head.weight.copy_(twin.head.weight.flip(0))
    assert not torch.equal(generate(twin, tokens, NEW), before)
    assert torch.equal(generate(model, tokens, NEW), before)


def test_a_model_nobody_holds_is_freed():
    model = build()
    generate(model, ids(1, 3), NEW)
    generate(model, ids(2, 3), NEW, weights="int8")
    kept, table = packed_gpt.packed(model), weakref.ref(model.head.weight)
    watched = weakref.ref(model)
    del model
    gc.collect()
    assert watched() is None  # not even who holds the packed form keeps it
    del kept
    gc.collect()
    assert table() is None


def test_changing_the_type_of_the_numbers():
    model, tokens = build(), ids(2, 5)
    words = generate(model, tokens, NEW)
    model.double()
    assert torch.equal(generate(model, tokens, NEW), words)
    model.float()
    assert torch.equal(generate(model, tokens, NEW), words)


# When the modules themselves must run


def other_mechanism(model):
    model.stack.blocks[0].attention.mechanism = ArgmaxAttention()


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def other_projection(model):
    model.stack.blocks[0].attention.proj_v.__class__ = Doubled


def other_head(model):
    model.head.__class__ = Doubled


def other_block(model):
    model.stack.blocks[0].pre_norm = False


def other_eps(model):
    model.stack.blocks[0].norm_attention.eps = 10.0


def other_activation(model):
    model.stack.blocks[0].feed_forward.activation = "squared_relu"


def hooked(model):
    model.stack.blocks[0].attention.register_forward_hook(lambda _m, _i, out: 3 * out)


def pre_hooked(model):
    model.stack.blocks[1].register_forward_pre_hook(lambda _m, inputs: (-inputs[0], *inputs[1:]))


EXCHANGED = [
    other_mechanism,
    other_projection,
    other_head,
    other_block,
    other_eps,
    other_activation,
    hooked,
    pre_hooked,
]


@pytest.mark.parametrize("change", EXCHANGED, ids=lambda change: change.__name__)
def test_a_model_whose_parts_were_exchanged_runs_as_it_is(change):
    model, tokens = build(), ids(2, 5)
    options = {"temperature": 1.0, "seed": 0} if change is other_head else {}
    before = generate(model, tokens, NEW, **options)
    change(model)
    expected = generate(model, tokens, NEW, cache=False, **options)
    assert not torch.equal(expected, before)
    assert torch.equal(generate(model, tokens, NEW, **options), expected)


@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_reading_drops_nothing_and_leaves_every_part_as_it_was(way):
    model, tokens = build(dropout=0.5), ids(2, 9)
    expected = greedy(reader(way, model, 2), tokens, 6)
    for part in (model, model.stack.blocks[1], model.stack.blocks[0].attention.mechanism):
        model.eval()
        part.train()
        before = [module.training for module in model.modules()]
        for a, b in zip(greedy(reader(way, model, 2), tokens, 6), expected, strict=True):
            assert torch.equal(a, b)
        assert [module.training for module in model.modules()] == before


def test_can_pack_says_what_can_be_packed():
    assert packed_gpt.can_pack(build())
    assert packed_gpt.can_pack(build(torch.float64))
    assert packed_gpt.can_pack(build().train())
    assert packed_gpt.can_pack(build(dropout=0.1))
    assert packed_gpt.can_pack(copy.deepcopy(build()).requires_grad_(False))
    with torch.autocast("cpu", torch.bfloat16):
        assert not packed_gpt.can_pack(build())
    assert not packed_gpt.can_pack(build(torch.bfloat16))
    assert not packed_gpt.can_pack(nn.Linear(2, 2))

    class Other(GPT):
        pass

    assert not packed_gpt.can_pack(Other(build().config))


# Broken numbers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "place", ["stack.blocks.1.feed_forward.proj_out.weight", "head.weight", "embedding.weight"]
)
def test_broken_weights_are_an_error_and_not_a_word(way, value, place):
    model, tokens = build(), torch.tensor([[1, 2, 3]])
    model.state_dict()[place][3] = value
    for ask in ("read", "best"):
        with pytest.raises(ValueError, match="gives NaN or infinity"), torch.inference_mode():
            getattr(reader(way, model), ask)(tokens)


PROGRAM = """
import sys, torch
from clearhead.generation import generate
from clearhead.models import GPT, GPTConfig
model = GPT(GPTConfig(vocab_size=50, max_len=40, d_model=32, n_layers=2, n_heads=4)).eval()
before = len(sys.modules)
generate(model, torch.zeros(1, 3, dtype=torch.long), 20)
print(len(sys.modules) - before)
"""


def test_the_first_word_waits_for_no_imports():
    """Some of what torch can do imports hundreds of modules, for seconds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert int(done.stdout) < 50, done.stderr


def test_weights_has_two_names():
    with pytest.raises(ValueError, match="weights must be one of 'float', 'int8', got 'int4'"):
        packed_gpt.PackedGPT(build(), "int4")


def test_logits_too_large_for_a_number_are_an_error_and_not_a_word():
    """Weights and what the head reads are numbers, their product is not."""
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 3}
    model = build(positions="none", norm="none", n_layers=1, **sizes)
    with torch.no_grad():
        for parameter in model.stack.parameters():
            parameter.zero_()
        model.embedding.weight.fill_(1e20)
        model.head.weight.fill_(-1.0)
        model.head.weight[7] = 1e20
    for ask in ("read", "best"):
        for way in WAYS:
            reading = reader(way, model)
            with pytest.raises(ValueError, match="NaN or infinity"), torch.inference_mode():
                getattr(reading, ask)(torch.tensor([[1, 2]]))


def test_two_precisions_and_watchers_of_everything_are_not_packed():
    model = build()
    model.stack.norm.double()
    assert not packed_gpt.can_pack(model)
    model = build()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not packed_gpt.can_pack(model)
    finally:
        handle.remove()
    assert packed_gpt.can_pack(model)
