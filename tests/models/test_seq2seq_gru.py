"""Seq2SeqGRU: every shape and state of the description, each step by hand."""

import math

import pytest
import torch
from gru_loops import read, write
from torch import nn
from translators import LENGTHS, OF_GRU, SOURCE_V, B, E, H, L, S, T, V, build, sentences

from clearhead.attention import AdditiveAttention, DotProductAttention, Mask
from clearhead.inspection import record
from clearhead.inspection.measures import alignment_weights
from clearhead.models.seq2seq_gru import Seq2SeqGRU, Seq2SeqGRUConfig


@pytest.fixture(params=["gru", "gru dot"])
def model(request):
    return build(request.param)


def close(a, b, atol=1e-10):
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=atol)


# By hand


@torch.no_grad()
def test_every_row_is_what_the_equations_say_token_by_token(model):
    source, mask, target = sentences()
    with record(model) as trace:
        logits = model(source, target, mask)
    weights = alignment_weights(trace, model.alignment_name)
    for row, length in enumerate(LENGTHS):
        outputs, hidden = read(model.encoder, source[row, :length])
        expected, looked = write(model.decoder, target[row], outputs, hidden)
        assert close(logits[row], expected)
        assert close(weights[row, :, :length], looked)
        assert (weights[row, :, length:] == 0).all()


@torch.no_grad()
def test_one_step_by_hand_with_numbers():
    """H = E = 1, all weights 1, biases 0; two source tokens embedded as 1 and −1."""
    config = Seq2SeqGRUConfig(2, 3, 0, 1, 2, d_embedding=1, d_hidden=1, attention="dot")
    model = Seq2SeqGRU(config).double()
    for name, parameter in model.named_parameters():
        nn.init.constant_(parameter, 0.0 if "bias" in name else 1.0)
    model.encoder.embedding.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    model.decoder.embedding.weight.copy_(torch.tensor([[0.5], [0.0], [0.0]]))

    def sigmoid(a):
        return 1 / (1 + math.exp(-a))

    def gru(total, h):  # the sum of the inputs, the state before
        r = z = sigmoid(total + h)
        return (1 - z) * math.tanh(total + r * h) + z * h

    first = gru(1.0, 0.0)
    second = gru(-1.0, first)
    a, b = math.exp(second * first), math.exp(second * second)
    context = (a * first + b * second) / (a + b)
    logits, state = model.decode_step(torch.tensor([0]), model.encode(torch.tensor([[0, 1]])))
    expected = gru(context + 0.5, second)
    assert state.hidden.item() == pytest.approx(expected)
    assert logits[0].tolist() == pytest.approx([expected] * 3)


# MISSION E4: shapes and states


def test_E4_the_encoder_gives_outputs_and_the_hidden_state_of_all_layers(model):
    source, _, _ = sentences()
    outputs, hidden = model.encoder(source)
    assert outputs.shape == (B, S, H)
    assert hidden.shape == (L, B, H)
    assert torch.equal(outputs[:, -1], hidden[-1])


def test_E4_the_state_is_outputs_hidden_state_and_valid_lengths(model):
    source, mask, target = sentences()
    state = model.encode(source, mask)
    assert state.outputs.shape == (B, S, H)
    assert state.hidden.shape == (L, B, H)
    assert state.valid_lens.tolist() == list(LENGTHS)
    assert model.encode(source).valid_lens.tolist() == [S] * B
    logits, after = model.decode_step(target[:, 0], state)
    assert logits.shape == (B, V)
    assert after.hidden.shape == (L, B, H)
    assert model(source, target, mask).shape == (B, T, V)


def test_E4_each_step_queries_with_the_last_layer_s_hidden_state(model):
    source, mask, target = sentences()
    state = model.encode(source, mask)
    before = []
    with record(model) as trace:
        for t in range(T):
            before.append(state.hidden[-1])
            _, state = model.decode_step(target[:, t], state)
    calls = trace.calls("decoder.attention")
    assert len(calls) == T
    for call, hidden in zip(calls, before, strict=True):
        assert call.q.shape == (B, 1, H)
        assert torch.equal(call.q[:, 0], hidden)
        assert call.v.shape == (B, S, H)
        assert torch.equal(call.v, state.outputs)
        assert call.weights.shape == (B, 1, S)
        assert call.output.shape == (B, 1, H)
        assert close(call.weights @ call.v, call.output)


def test_E4_context_and_embedding_stand_in_this_order(model):
    seen = []
    model.decoder.gru.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    source, mask, target = sentences()
    with record(model) as trace:
        model(source, target, mask)
    for t, call in enumerate(trace.calls("decoder.attention")):
        assert seen[t].shape == (B, 1, H + E)
        assert torch.equal(seen[t][..., :H], call.output)
        assert torch.equal(seen[t][:, 0, H:], model.decoder.embedding(target[:, t]))


def test_the_final_hidden_state_is_that_of_the_last_real_token(model):
    source, mask, _ = sentences()
    state = model.encode(source, mask)
    for row, length in enumerate(LENGTHS):
        outputs, hidden = model.encoder(source[row : row + 1, :length])
        assert close(state.hidden[:, row], hidden[:, 0])
        assert close(state.outputs[row, :length], outputs[0])
        assert (state.outputs[row, length:] == 0).all()


def test_lengths_in_any_order_and_one_token_rows_are_read_right(model):
    torch.manual_seed(3)
    source, lengths = torch.randint(0, SOURCE_V, (5, 6)), torch.tensor([1, 6, 0, 2, 6])
    state = model.encode(source, Mask.padding(lengths))
    assert state.valid_lens.tolist() == [1, 6, 0, 2, 6]
    for row, length in enumerate(lengths.tolist()):
        alone = model.encode(source[row : row + 1, :length])
        assert close(state.hidden[:, row], alone.hidden[:, 0])
        assert close(state.outputs[row, :length], alone.outputs[0])


def test_an_empty_source_leaves_the_state_at_zero(model):
    state = model.encode(sentences()[0], Mask.padding(torch.tensor([0, 3, 0])))
    assert (state.hidden[:, [0, 2]] == 0).all()
    assert (state.outputs[[0, 2]] == 0).all()
    assert (state.hidden[:, 1] != 0).all()


def test_reordered_lengths_stand_with_their_rows(model):
    source, mask, _ = sentences()
    state = model.encode(source, mask)
    state.reorder(torch.tensor([2, 2, 1, 0]))
    assert state.valid_lens.tolist() == [LENGTHS[row] for row in (2, 2, 1, 0)]
    assert (state.mask.sum(-1).squeeze(1) == state.valid_lens).all()


def test_the_weights_of_an_empty_source_are_zero(model):
    source, _, target = sentences()
    with record(model) as trace:
        model(source, target, Mask.padding(torch.tensor([0, 3, 7])))
    weights = alignment_weights(trace, model.alignment_name)
    assert (weights[0] == 0).all()
    assert close(weights[1:].sum(-1), torch.ones(2, T, dtype=torch.float64))


def test_padding_before_or_between_the_tokens_is_refused(model):
    source, _, _ = sentences()
    for row in ([0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 0, 0, 0]):
        mask = torch.tensor([[1] * S, row, [0] * S]).bool()
        with pytest.raises(ValueError, match=r"real tokens first, .* pad on the right"):
            model.encode(source, mask)


# Attention


def test_the_attention_is_additive_or_the_dot_product():
    attention = build("gru").decoder.attention
    assert isinstance(attention, AdditiveAttention)
    shapes = [tuple(p.shape) for p in attention.parameters()]
    assert shapes == [(H, H), (H, H), (1, H)]
    assert isinstance(build("gru dot").decoder.attention, DotProductAttention)


def test_projected_keys_give_the_additive_attention_of_the_keys():
    ours = build("gru").decoder.attention
    theirs = AdditiveAttention(H, H, H).double()
    theirs.load_state_dict(ours.state_dict())
    q, k, v = (torch.randn(B, n, H, dtype=torch.float64) for n in (T, S, S))
    bias = torch.randn(T, S, dtype=torch.float64)
    mask = Mask.padding(torch.tensor([7, 0, 4]))
    keys = theirs.proj_k(k)
    for options in ({}, {"mask": mask}, {"bias": bias}, {"mask": mask, "bias": bias}):
        assert close(ours(q, keys, v, **options), theirs(q, k, v, **options))
        assert close(ours.weights(q, keys, **options), theirs.weights(q, k, **options))


def test_keys_are_projected_once_for_a_sentence():
    model, calls = build("gru"), []
    model.decoder.attention.proj_k.register_forward_hook(lambda *_: calls.append(1))
    source, mask, target = sentences()
    model(source, target, mask)
    assert len(calls) == 1
    model.generate(source, 6, source_mask=mask)
    assert len(calls) == 2


def test_dropout_is_on_embeddings_weights_and_between_layers():
    deep = build("gru", dropout=0.3, n_layers=3)
    assert deep.encoder.dropout.p == deep.decoder.dropout.p == 0.3
    assert deep.decoder.attention.dropout == 0.3
    assert deep.encoder.gru.dropout == deep.decoder.gru.dropout == 0.3
    flat = build("gru", dropout=0.3, n_layers=1)  # no warning of PyTorch's either
    assert flat.encoder.gru.dropout == flat.decoder.gru.dropout == 0.0
    deaf = build("gru", dropout=1.0, n_layers=1).train()
    source, _, target = sentences()
    assert (deaf.decoder.embed(target) == 0).all()
    assert torch.equal(deaf.encoder(source)[0], deaf.encoder(source.flip(1))[0])
    weights = deep.decoder.attention.train()
    q, k, v = torch.ones(1, 1, H), torch.ones(1, 64, H), torch.eye(64).unsqueeze(0)
    kept = weights.float()(q, k, v)[0, 0] * 64
    assert set(kept.detach().mul(0.7).round(decimals=4).tolist()) == {0.0, 1.0}


# Model, config, description


def test_the_parameters_are_named_and_counted():
    model = build("gru")
    of_gru = sum(3 * H * (n + H) + 6 * H for n in (E, H, H + E, H))
    of_attention = 2 * H * H + H
    assert model.n_parameters == SOURCE_V * E + V * E + of_gru + of_attention + V * H + V
    names = set(model.state_dict())
    assert {
        "encoder.embedding.weight",
        "encoder.gru.weight_ih_l1",
        "decoder.attention.proj_k.weight",
        "decoder.gru.weight_ih_l0",
        "decoder.head.bias",
    } <= names
    assert model.state_dict()["decoder.gru.weight_ih_l0"].shape == (3 * H, H + E)
    table = model.describe()
    assert any(
        line.split()[:2] == ["decoder.attention.proj_k", "Linear"] for line in table.splitlines()
    )
    assert f"{model.n_parameters:,}" in table.splitlines()[-1]


def test_the_config_has_small_defaults_and_refuses_the_rest():
    config = Seq2SeqGRUConfig(**{k: v for k, v in OF_GRU.items() if k != "n_layers"})
    assert (config.n_layers, config.attention, config.dropout) == (1, "additive", 0.0)
    assert Seq2SeqGRUConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="attention must be one of 'additive', 'dot', got 'sum'"):
        build("gru", attention="sum")
    with pytest.raises(ValueError, match="d_hidden must be at least 1, got 0"):
        build("gru", d_hidden=0)
    with pytest.raises(ValueError, match="d_embedding must be at least 1, got -3"):
        build("gru", d_embedding=-3)
    with pytest.raises(TypeError, match="Seq2SeqGRU is built from a Seq2SeqGRUConfig, got dict"):
        Seq2SeqGRU(OF_GRU)


def test_targets_may_be_as_long_as_anyone_likes(model):
    assert model.max_len is None
    source, mask, _ = sentences()
    assert model(source, torch.zeros(B, 100).long(), mask).shape == (B, 100, V)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_work(model, dtype):
    source, mask, target = sentences()
    logits = model.to(dtype)(source, target, mask)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
