"""Seq2SeqTransformer: PyTorch's own transformer with its parameters; positions; caches."""

import math

import pytest
import torch
from torch import nn
from translators import (
    LENGTHS,
    OF_TRANSFORMER,
    PAD,
    SOURCE_V,
    START,
    B,
    D,
    L,
    S,
    T,
    V,
    build,
    sentences,
)

from clearhead.attention import Mask
from clearhead.inspection import record
from clearhead.inspection.measures import alignment_weights
from clearhead.layers import RMSNorm
from clearhead.models.seq2seq_transformer import Seq2SeqTransformer, Seq2SeqTransformerConfig
from clearhead.positions import sinusoid_table


@pytest.fixture(params=["transformer", "transformer learned"])
def model(request):
    return build(request.param)


def close(a, b, atol=1e-10):
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=atol)


def steps(model, source, target_inputs, source_mask=None):
    state, logits = model.encode(source, source_mask), []
    for t in range(target_inputs.size(1)):
        step, state = model.decode_step(target_inputs[:, t], state)
        logits.append(step)
    return torch.stack(logits, dim=1)


# PyTorch's own


def copy_attention(theirs, ours):
    layers = (ours.proj_q, ours.proj_k, ours.proj_v)
    theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
    theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
    theirs.out_proj.load_state_dict(ours.proj_out.state_dict())


def copy_norm(theirs, ours):
    theirs.weight.copy_(ours.gain)
    theirs.bias.copy_(ours.shift)


@torch.no_grad()
def pytorch_transformer(model):
    """torch.nn.Transformer with the parameters of the model."""
    c = model.config
    theirs = nn.Transformer(
        D,
        c.n_heads,
        L,
        L,
        c.d_ff,
        dropout=0.0,
        activation=c.activation,
        batch_first=True,
        norm_first=True,
    )
    theirs = theirs.double().train()  # in eval it takes another path, which warns
    for side, stack in ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder)):
        for layer, block in zip(side.layers, stack.blocks, strict=True):
            copy_attention(layer.self_attn, block.attention)
            copy_norm(layer.norm1, block.norm_attention)
            if block.cross:
                copy_attention(layer.multihead_attn, block.cross_attention)
                copy_norm(layer.norm2, block.norm_cross)
            copy_norm(layer.norm3 if block.cross else layer.norm2, block.norm_feed_forward)
            layer.linear1.load_state_dict(block.feed_forward.proj_in.state_dict())
            layer.linear2.load_state_dict(block.feed_forward.proj_out.state_dict())
        copy_norm(side.norm, stack.norm)
    return theirs


def embedded(model, side, tokens):
    """As the equations say: √D · embedding + sinusoids, or embedding + a learned row."""
    x = getattr(model, f"{side}_embedding").weight[tokens]
    if model.config.positions == "learned":
        return x + getattr(model, f"{side}_positions").weight[: tokens.size(1)]
    return math.sqrt(D) * x + sinusoid_table(tokens.size(1), D, torch.float64)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("kind", ["transformer", "transformer learned"])
def test_it_is_pytorch_s_transformer_with_the_same_parameters(kind, activation):
    model = build(kind, activation=activation)
    source, mask, target = sentences()
    theirs = pytorch_transformer(model)
    ahead = torch.ones(T, T).triu(1).bool()
    x = theirs(
        embedded(model, "source", source),
        embedded(model, "target", target),
        tgt_mask=ahead,
        src_key_padding_mask=~mask,
        memory_key_padding_mask=~mask,
    )
    expected = x @ model.head.weight.mT
    assert close(model(source, target, mask), expected)
    assert close(steps(model, source, target, mask), expected)


# Padding and positions


def test_padding_on_the_left_or_between_changes_nothing(model):
    source, _, target = sentences()
    row, words = source[:1, :4], target[:1]
    alone = model(row, words)
    for places in ([3, 4, 5, 6], [0, 2, 3, 8], [1, 2, 6, 7]):
        spread, mask = torch.randint(0, SOURCE_V, (1, 9)), torch.zeros(1, 9).bool()
        spread[0, places], mask[0, places] = row, True
        assert close(model(spread, words, mask), alone)


def test_order_matters_in_source_and_target(model):
    source, _, target = sentences()
    logits = model(source, target)
    assert not torch.allclose(model(source.flip(1), target), logits)
    other = target[:, [0, 2, 1, 3, 4]]
    assert not torch.allclose(model(source, other)[:, -1], logits[:, -1])


def test_widths_norms_and_biases_of_its_own_reach_both_stacks():
    exact = {
        "d_head": 5,
        "attention_bias": False,
        "norm_bias": False,
        "norm_attention": False,
        "final_norm": False,
    }
    model = build("transformer", scale=0.3, **exact)
    assert Seq2SeqTransformerConfig.from_dict(model.config.to_dict()) == model.config
    names = list(model.state_dict())
    assert model.decoder.blocks[1].cross_attention.proj_q.weight.shape == (15, D)
    assert not any(name.endswith("shift") or "proj_q.bias" in name for name in names)
    assert {name.split(".")[3] for name in names if "norm" in name} == {"norm_feed_forward"}
    source, mask, target = sentences()
    state, steps = model.encode(source, mask), []
    for tokens in target.unbind(1):
        logits, state = model.decode_step(tokens, state)
        steps.append(logits)
    assert (torch.stack(steps, dim=1) - model(source, target, mask)).abs().max() <= 1e-12


def test_N18_a_length_beyond_max_len_is_refused_by_name(model):
    ids = torch.zeros(B, 17).long()
    fits = ids[:, :16]
    assert model(fits, fits).shape == (B, 16, V)
    with pytest.raises(ValueError, match="source has length 17 but max_len is 16; shorten it or"):
        model(ids, fits)
    with pytest.raises(ValueError, match="target_inputs has length 17 but max_len is 16"):
        model(fits, ids)
    assert model.generate(fits, 16).size(1) <= 16
    with pytest.raises(ValueError, match="n_tokens is 17 but max_len is 16; ask for fewer or"):
        model.generate(fits, 17)
    state = model.encode(fits)
    for _ in range(16):
        _, state = model.decode_step(ids[:, 0], state)
    with pytest.raises(ValueError, match="tokens would be word 17 but max_len is 16; stop before"):
        model.decode_step(ids[:, 0], state)


# Steps


@pytest.mark.parametrize("kind", ["transformer", "transformer learned"])
def test_N14_float32_steps_are_within_1e_6_of_the_whole_pass(kind):
    torch.manual_seed(1)
    trained = build(kind, scale=0.2).float()
    source, target = torch.randint(0, SOURCE_V, (B, 16)), torch.randint(0, V, (B, 16))
    mask = torch.arange(16) < torch.tensor([[16], [3], [9]])
    whole = trained(source, target, mask)
    ours = steps(trained, source, target, mask)
    assert close(ours, whole, atol=1e-6)
    assert torch.equal(ours.argmax(-1), whole.argmax(-1))


def test_a_long_target_outgrows_the_first_block_of_a_cache():
    model = build("transformer", max_len=80)
    source, mask, _ = sentences()
    target = torch.randint(0, V, (B, 80))
    assert close(steps(model, source, target, mask), model(source, target, mask))


def test_the_memory_is_projected_at_the_first_step_only(model):
    calls = []
    for block in model.decoder.blocks:
        block.cross_attention.proj_k.register_forward_hook(lambda *_: calls.append("memory"))
        block.attention.proj_k.register_forward_hook(lambda *_: calls.append("words"))
    source, mask, target = sentences()
    steps(model, source, target, mask)
    assert calls.count("memory") == L
    assert calls.count("words") == L * T


def test_the_state_holds_the_memory_and_a_pair_of_caches_for_each_block(model):
    source, mask, target = sentences()
    state = model.encode(source, mask)
    assert state.memory.shape == (B, S, D)
    assert torch.equal(state.real, mask)
    assert [len(cache) for cache in state.caches] == [0] * L
    _, state = model.decode_step(target[:, 0], state)
    _, state = model.decode_step(target[:, 1], state)
    assert [len(cache) for cache in state.caches] == [2] * L
    assert [len(cache) for cache in state.memory_caches] == [S] * L


# What inspection sees


def test_the_alignment_is_the_mean_of_the_heads_in_the_last_block(model):
    assert model.alignment_name == f"decoder.blocks.{L - 1}.cross_attention"
    source, mask, target = sentences()
    with record(model) as trace:
        model(source, target, mask)
    weights = trace[model.alignment_name].weights
    assert weights.shape == (B, 3, T, S)
    assert torch.equal(alignment_weights(trace, model.alignment_name), weights.mean(1))
    own = trace["decoder.blocks.0.attention"].weights
    assert (own.triu(1) == 0).all()
    reading = trace["encoder.blocks.0.attention"].weights
    assert close(reading.sum(-1), torch.ones(B, 3, S, dtype=torch.float64))
    assert (reading[1, :, :, LENGTHS[1] :] == 0).all()


# Model, config, description


def test_a_tied_head_is_the_embedding_of_the_target_and_counts_once():
    tied, free = build("transformer"), build("transformer", tied=False)
    assert tied.head.weight is tied.target_embedding.weight
    assert free.n_parameters - tied.n_parameters == V * D
    assert "(= target_embedding.weight)" in tied.describe()
    again = Seq2SeqTransformer(tied.config).double()
    again.load_state_dict(tied.state_dict())
    assert again.head.weight is again.target_embedding.weight
    assert torch.equal(again.head.weight, tied.head.weight)


def test_embeddings_start_at_unit_scale_beside_the_positions():
    torch.manual_seed(0)
    config = Seq2SeqTransformerConfig(
        500, 600, START, 2, PAD, 32, d_model=64, n_layers=1, n_heads=4
    )
    model = Seq2SeqTransformer(config)
    for embedding in (model.source_embedding, model.target_embedding):
        assert float(embedding.weight.detach().std()) == pytest.approx(1 / 8, rel=0.02)
    logits = model(torch.randint(0, 500, (4, 32)), torch.randint(0, 600, (4, 32)))
    assert 0.3 < float(logits.detach().std()) < 3


def test_norm_and_activation_are_chosen_by_name():
    model = build("transformer", norm="rms", activation="swiglu")
    for stack in (model.encoder, model.decoder):
        assert isinstance(stack.norm, RMSNorm)
        assert isinstance(stack.blocks[0].norm_attention, RMSNorm)
        assert stack.blocks[0].feed_forward.activation == "swiglu"
        assert len(stack.blocks) == L
    source, mask, target = sentences()
    assert close(steps(model, source, target, mask), model(source, target, mask))


def test_dropout_is_on_the_embeddings_and_in_every_block():
    model = build("transformer", dropout=0.25)
    assert model.dropout.p == 0.25
    for block in (*model.encoder.blocks, *model.decoder.blocks):
        assert block.dropout.p == block.attention.mechanism.dropout == 0.25
    source, mask, target = sentences()
    seen = []
    model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model.decoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model.train()(source, target, mask)
    for x in seen:
        assert 0.1 < float((x == 0).double().mean()) < 0.4


def test_the_config_has_defaults_and_refuses_the_rest():
    values = {k: v for k, v in OF_TRANSFORMER.items() if k != "d_ff"}
    config = Seq2SeqTransformerConfig(**values)
    assert (config.d_ff, config.positions, config.tied) == (None, "sinusoidal", True)
    assert Seq2SeqTransformerConfig.from_dict(config.to_dict()) == config
    blocks = Seq2SeqTransformer(config).decoder.blocks
    assert blocks[0].feed_forward.proj_in.out_features == 4 * D
    with pytest.raises(ValueError, match="d_model is 12, which n_heads=5 does not divide"):
        build("transformer", n_heads=5)
    with pytest.raises(ValueError, match="positions must be one of 'learned', 'sinusoidal', got"):
        build("transformer", positions="rotary")
    with pytest.raises(ValueError, match="norm must be one of 'layer', 'rms', 'none', got 'batch'"):
        build("transformer", norm="batch")
    with pytest.raises(ValueError, match=r"activation must be one of .* got 'tanh'"):
        build("transformer", activation="tanh")
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        build("transformer", max_len=0)
    with pytest.raises(ValueError, match="d_ff must be at least 1, got 0"):
        build("transformer", d_ff=0)


def test_a_mask_by_lengths_is_heard_in_encoder_and_decoder(model):
    source, mask, target = sentences()
    with record(model) as trace:
        model(source, target, Mask.padding(torch.tensor(LENGTHS)))
    hidden = ~mask[:, None, None, :]
    for name in trace.attention:
        if name.startswith("encoder") or "cross" in name:
            weights = trace[name].weights
            assert (weights[hidden.expand_as(weights)] == 0).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_work(model, dtype):
    source, mask, target = sentences()
    model = model.to(dtype)
    logits = model(source, target, mask)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
    assert steps(model, source, target, mask).dtype == dtype
