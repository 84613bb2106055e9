"""Token by token: the modules with a cache, without one, and the packed form give one answer."""

import pytest
import torch
from language_models import MAX_LEN, POSITIONS, V, build, ids

from clearhead.data import pad_left
from clearhead.generation import generate, pack
from clearhead.generation.fast import PackedReader
from clearhead.generation.reader import ModelReader

WAYS = ["cached", "again", "packed"]
NEW = 16


def make_reader(way, model, batch_size=1, token_mask=None, capacity=MAX_LEN):
    """One of the three ways to read."""
    if way == "packed":
        return PackedReader(pack(model, n_rows=batch_size), batch_size, capacity, token_mask)
    return ModelReader(model, token_mask, cache=way == "cached")


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
        reader = make_reader(way, model, 2)
        for part, t in ((tokens[:, :split], split), (tokens[:, split:], 32)):
            y = reader.read(part)
            assert y.shape == (2, V)
            assert close(y, whole[:, t - 1], 1e-6)
            assert torch.equal(y.argmax(-1), whole[:, t - 1].argmax(-1))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("way", ["cached", "packed"])
@torch.inference_mode()
def test_N12_token_by_token_each_sees_all_before_it(positions, way):
    model, tokens = build(torch.float64, positions=positions, n_kv_heads=2), ids(3, 20)
    whole = model(tokens)
    reader = make_reader(way, model, 3)
    for t in range(20):
        assert close(reader.read(tokens[:, t : t + 1]), whole[:, t], 1e-12)
    reader = make_reader(way, model, 3)
    for part in tokens.split((7, 1, 5, 7), dim=1):
        y = reader.read(part)
    assert close(y, whole[:, -1], 1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_N15_a_left_padded_row_is_read_as_if_alone(positions, way):
    model = build(positions=positions, n_kv_heads=2)
    rows = [ids(n, seed=n).tolist() for n in range(1, 10)]
    tokens, real = pad_left(rows, 5)
    words, logits = greedy(make_reader(way, model, 9, real), tokens, 8)
    for i, row in enumerate(rows):
        alone, exact = greedy(make_reader(way, model), torch.tensor([row]), 8)
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
        words, logits = greedy(make_reader(way, model, 2, real), tokens, 6, prefill=size)
        alone, exact = greedy(make_reader(way, model), ids(2)[None], 6)
        assert close(logits[:1], exact, limit)
        assert torch.equal(words[:1], alone)


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_that_is_all_real_changes_nothing(way):
    model, tokens = build(), ids(3, 6)
    real = torch.ones(3, 6, dtype=torch.bool)
    expected = greedy(make_reader(way, model, 3), tokens, 5)
    masked = greedy(make_reader(way, model, 3, real), tokens, 5)
    assert torch.equal(masked[0], expected[0])
    assert close(masked[1], expected[1], 1e-6)  # the layout of packed weights may differ


@pytest.mark.parametrize("positions", POSITIONS)
def test_N14_buffers_and_tables_grow_past_a_block(positions):
    """Caches grow by 256 tokens, tables of angles by powers of two."""
    model, tokens = build(positions=positions, max_len=300, n_layers=1), ids(2, 250)
    expected, logits = greedy(make_reader("again", model, 2), tokens, 10)
    for way in ("cached", "packed"):
        words, near = greedy(make_reader(way, model, 2, capacity=300), tokens, 10, prefill=249)
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
            assert torch.equal(make_reader(way, model, 4).best(tokens[:, :t]), expected)


@pytest.mark.parametrize("positions", POSITIONS)
def test_float64_is_read_as_exactly(positions):
    model, tokens = build(torch.float64, positions=positions, activation="swiglu"), ids(3, 7)
    words, logits = greedy(make_reader("again", model, 3), tokens, NEW)
    for way in ("cached", "packed"):
        same, near = greedy(make_reader(way, model, 3), tokens, NEW)
        assert near.dtype == torch.float64
        assert torch.equal(same, words)
        assert close(near, logits, 1e-12)


@pytest.mark.parametrize("positions", [p for p in POSITIONS if p != "rotary"])
def test_N23_a_model_one_number_wide(positions):
    sizes = {"d_model": 1, "n_heads": 1, "d_ff": 3}
    model, tokens = build(positions=positions, norm="none", std=1.0, **sizes), ids(3, 4)
    expected = generate(model, tokens, NEW, cache=False)
    for form in (model, pack(model)):
        assert torch.equal(generate(form, tokens, NEW), expected)
        assert torch.equal(generate(form, tokens, NEW, temperature=0.5, seed=0)[:, :4], tokens)


@pytest.mark.parametrize("cap", [0.01, 0.1, 1.0])
def test_a_cap_that_all_large_logits_reach_gives_one_answer_everywhere(cap):
    """tanh makes equals of what is far above the cap, so who is chosen is a matter of rule."""
    model, tokens = build(soft_cap=cap, std=0.6), ids(4, 5)
    expected = generate(model, tokens, NEW, cache=False)[:, 5:]
    for way in WAYS:
        assert torch.equal(greedy(make_reader(way, model, 4), tokens, NEW)[0], expected)
    assert torch.equal(generate(pack(model), tokens, NEW)[:, 5:], expected)


@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_reading_drops_nothing_and_leaves_every_part_as_it_was(way):
    model, tokens = build(dropout=0.5), ids(2, 9)
    expected = greedy(make_reader(way, model, 2), tokens, 6)
    for part in (model, model.stack.blocks[1], model.stack.blocks[0].attention.mechanism):
        model.eval()
        part.train()
        before = [module.training for module in model.modules()]
        words, logits = greedy(make_reader(way, model, 2), tokens, 6)
        assert torch.equal(words, expected[0])
        assert close(logits, expected[1], 1e-6)
        assert [module.training for module in model.modules()] == before


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
            getattr(make_reader(way, model), ask)(tokens)


@pytest.mark.parametrize("way", WAYS)
def test_logits_too_large_for_a_number_are_an_error_and_not_a_word(way):
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
        reader = make_reader(way, model)
        with pytest.raises(ValueError, match="NaN or infinity"), torch.inference_mode():
            getattr(reader, ask)(torch.tensor([[1, 2]]))
