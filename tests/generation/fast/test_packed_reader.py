"""Random models say the same words plain, packed, batched, alone and in chunks.

The last sixty of them have heads of any width, and norms and biases of their own.
"""

import random

import pytest
import torch
from language_models import MAX_LEN, POSITIONS, build, ids

from clearhead.data import pad_left
from clearhead.generation import generate, pack
from clearhead.generation.fast import PackedReader

NEW = 16


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
    if seed >= 200:
        changes |= {
            "d_model": draw.choice([10, 18]),
            "d_head": 2 * d_head,
            "attention_bias": draw.choice([None, False, True]),
            "norm_bias": draw.choice([None, False, changes["norm"] == "layer"]),
            "norm_attention": draw.random() < 0.5,
            "final_norm": draw.choice([None, False, True]),
            "head_bias": draw.random() < 0.6,
            "tied": draw.random() < 0.5,
        }
    # Without a norm large weights would let numbers grow until float32 has no digits left.
    has_all_norms = changes["norm"] != "none" and seed < 200
    model = build(seed=seed, std=0.4 if has_all_norms else 0.2, **changes)
    rows = [
        ids(draw.randint(1, 9), seed=seed + i, high=30).tolist()
        for i in range(draw.choice([1, 1, 2, 4]))
    ]
    tokens, token_mask = pad_left(rows, draw.randrange(30))
    return model, rows, tokens, token_mask, draw.randint(1, 9)


@torch.inference_mode()
def in_one_pass(model, tokens, token_mask, words):
    """What the model would say at each place, if these were the words: no cache, no steps."""
    real = torch.cat((token_mask, torch.ones_like(words, dtype=torch.bool)), dim=1)
    logits = model(torch.cat((tokens, words), dim=1), token_mask=real)[:, tokens.size(1) - 1 : -1]
    return logits.argmax(-1), logits


@torch.inference_mode()
def read(packed, tokens, token_mask, words):
    """The logits (B, n, V) of a reader that is given these words one by one."""
    reader = PackedReader(packed, len(tokens), tokens.size(1) + words.size(1), token_mask)
    parts = [tokens, *words[:, :-1].split(1, dim=1)]
    return torch.stack([reader.read(part) for part in parts], dim=1)


@pytest.mark.parametrize("start", [*range(0, 200, 20), *range(200, 260, 10)])
def test_greedy_words_are_the_same_however_they_are_read(start):
    said = []
    for seed in range(start, start + 10):
        model, rows, tokens, real, prefill = random_case(seed)
        packed, options = pack(model, n_rows=len(rows)), {"token_mask": real, "prefill": prefill}
        words = generate(packed, tokens, NEW, **options)[:, tokens.size(1) :]
        whole, exact = in_one_pass(model, tokens, real, words)
        assert torch.equal(words, whole), f"case {seed}, packed"
        logits = read(packed, tokens, real, words)
        assert float((logits - exact).abs().max()) <= 1e-5 * max(1.0, float(exact.abs().max()))
        for n, way in ((NEW, {}), (6, {"cache": False})):
            plain = generate(model, tokens, n, **options, **way)[:, tokens.size(1) :]
            assert torch.equal(plain, words[:, :n]), f"case {seed}, {way}"
        row = seed % len(rows)
        alone = generate(packed, torch.tensor([rows[row]]), NEW)
        assert torch.equal(alone[0, len(rows[row]) :], words[row]), f"case {seed}, alone"
        said.append(len(set(words.flatten().tolist())))
    assert sum(said) > (60 if start < 200 else 20)  # the models do not say one word for ever


@torch.inference_mode()
def test_each_reader_of_a_packed_model_keeps_its_own_keys_and_values():
    model = build()
    packed = pack(model, n_rows=2)
    one, other = (PackedReader(packed, 2, MAX_LEN) for _ in range(2))
    a, b = ids(2, 8, seed=1), ids(2, 8, seed=2)
    for t in range(8):  # turn by turn
        y, z = one.read(a[:, t : t + 1]), other.read(b[:, t : t + 1])
    assert torch.allclose(y, model(a)[:, -1], rtol=0, atol=1e-4)
    assert torch.allclose(z, model(b)[:, -1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("weights", ["float", "int8"])
def test_autocast_changes_nothing(weights):
    packed, tokens = pack(build(), weights=weights), ids(2, 5)
    for options in ({}, {"temperature": 1.0, "seed": 0}, {"prefill": 2}):
        expected = generate(packed, tokens, NEW, **options)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(generate(packed, tokens, NEW, **options), expected)
