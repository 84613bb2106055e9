"""TextEncoder: by hand, padding on both sides, types, sentences, and what is refused."""

import dataclasses

import pytest
import torch
from torch import nn

from clearhead.inspection import record
from clearhead.models.encoder import TextEncoder, TextEncoderConfig

B, T, D, H, V = 3, 7, 12, 3, 11
CONFIG = TextEncoderConfig(vocab_size=V, max_len=9, d_model=D, n_layers=2, n_heads=H, d_ff=10)


def encoder(**options):
    model = TextEncoder(dataclasses.replace(CONFIG, **options)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def tokens(length=T):
    return torch.randint(V, (B, length))


def test_the_embedding_is_a_normed_sum_of_three_tables():
    model, x = encoder(), tokens()
    types = torch.randint(2, (B, T))
    summed = model.embedding.weight[x] + model.positions.weight[:T] + model.types.weight[types]
    expected = model.stack(model.norm(summed))
    assert torch.allclose(model(x, types=types), expected, rtol=0, atol=1e-12)
    assert model(x).shape == (B, T, D)


def test_without_types_all_are_zero():
    model, x = encoder(), tokens()
    assert torch.equal(model(x), model(x, types=torch.zeros_like(x)))
    assert not torch.allclose(model(x), model(x, types=torch.ones_like(x)))


def test_every_token_listens_to_all_others():
    model, x = encoder(), tokens()
    other = x.clone()
    other[:, -1] = (other[:, -1] + 1) % V
    assert ((model(x) - model(other)).abs().sum(-1) > 1e-6).all()
    with record(model) as trace:
        model(x)
    weights = trace["stack.blocks.0.attention"].weights
    assert weights.shape == (B, H, T, T)
    assert (weights > 0).all()


def test_blocks_are_post_norm_so_that_nothing_follows_them():
    model = encoder()
    assert model.stack.norm is None
    last = model.stack.blocks[-1].norm_feed_forward
    y = (model(tokens()) - last.shift) / last.gain
    assert torch.allclose(y.mean(-1), torch.zeros(B, T).double(), atol=1e-9)
    assert torch.allclose(y.var(-1, correction=0), torch.ones(B, T).double(), atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n_pad", [1, 2])
@pytest.mark.parametrize("fill", [0, V - 1])
def test_padding_on_either_side_changes_nothing(side, n_pad, fill):
    model, x = encoder(), tokens()
    padding = torch.full((B, n_pad), fill)
    real = torch.ones(B, T, dtype=torch.bool)
    parts = [(x, real), (padding, torch.zeros_like(padding, dtype=torch.bool))]
    parts = parts if side == "right" else parts[::-1]
    padded, mask = (torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
    y = model(padded, token_mask=mask)[mask].view(B, T, D)
    assert torch.allclose(y, model(x), rtol=0, atol=1e-13)
    sentence = model.sentence(padded, mask)
    assert torch.allclose(sentence, model.sentence(x), rtol=0, atol=1e-13)


def test_each_row_of_a_padded_batch_equals_that_row_alone():
    model, x = encoder(), tokens()
    lengths = torch.tensor([1, 4, 7])
    mask = torch.arange(T) < lengths[:, None]
    rows, sentences = model(x, token_mask=mask), model.sentence(x, mask)
    for row, length in enumerate(lengths.tolist()):
        alone = x[row : row + 1, :length]
        assert torch.allclose(rows[row, :length], model(alone)[0], rtol=0, atol=1e-13)
        assert torch.allclose(sentences[row], model.sentence(alone)[0], rtol=0, atol=1e-13)


def test_a_sentence_is_the_mean_brought_to_length_one():
    model, x = encoder(), tokens()
    mean = model(x).mean(1)
    expected = mean / mean.norm(dim=-1, keepdim=True)
    assert torch.allclose(model.sentence(x), expected, rtol=0, atol=1e-12)
    assert torch.allclose(model.sentence(x).norm(dim=-1), torch.ones(B).double())


def test_a_sentence_without_a_real_token_is_zero_and_others_do_not_notice():
    model, x = encoder(), tokens()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1] = False
    sentences = model.sentence(x, mask)
    assert torch.equal(sentences[1], torch.zeros(D).double())
    assert torch.allclose(sentences[0], model.sentence(x[:1])[0], rtol=0, atol=1e-13)
    sentences.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_N23_no_rows_no_tokens_one_token():
    model = encoder()
    assert model(torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3, D)
    assert model(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, D)
    assert model.sentence(torch.zeros(2, 0, dtype=torch.long)).tolist() == [[0.0] * D] * 2
    assert model(torch.zeros(1, 1, dtype=torch.long)).shape == (1, 1, D)


def test_dropout_acts_in_training_only():
    model, x = encoder(dropout=0.5), tokens()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_dropout_acts_on_the_embedding_too():
    """All of it dropped, no token can be told from another."""
    model = encoder(dropout=1.0).train()
    assert torch.equal(model(tokens()), model(tokens()))


def test_the_first_weights_are_small_and_the_norms_open():
    model = TextEncoder(dataclasses.replace(CONFIG, vocab_size=500))
    assert 0.015 < model.embedding.weight.std() < 0.025
    assert torch.equal(model.norm.gain, torch.ones(D))
    assert not model.stack.blocks[0].attention.proj_q.bias.any()


def test_counts_and_config():
    model = TextEncoder(CONFIG)
    block = 4 * (D * D + D) + 2 * D * 10 + 10 + D + 4 * D
    assert model.n_parameters == V * D + 9 * D + 2 * D + 2 * D + 2 * block
    assert TextEncoder.from_config(CONFIG.to_dict()).config == CONFIG
    assert "types" in model.describe()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m(tokens(10)), "tokens has length 10 but max_len is 9"),
        (lambda m: m(torch.full((1, 2), V)), r"tokens\[0, 0\] is 11, but ids go from 0 to 10"),
        (lambda m: m(tokens(), types=torch.full((B, T), 2)), r"types\[0, 0\] is 2, but ids go"),
        (lambda m: m(tokens(), types=torch.zeros(B, 2).long()), "types must have the shape of"),
        (lambda m: m(tokens(), token_mask=torch.ones(B, 2).bool()), "token_mask must have the sh"),
        (lambda m: m.sentence(tokens(), torch.ones(B, 2).bool()), "token_mask must have the shape"),
        (lambda m: m(tokens()[0]), r"tokens must have shape \(B, T\)"),
    ],
)
def test_wrong_values_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(encoder())


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="tokens must hold integers"):
        encoder()(torch.zeros(1, 2))
    with pytest.raises(
        TypeError, match="token_mask must be a boolean tensor, True = real, got list"
    ):
        encoder()(tokens(), token_mask=[True])
    with pytest.raises(TypeError, match="bool"):
        encoder()(tokens(), token_mask=torch.ones(B, T))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_heads": 5}, "d_model is 12, which n_heads=5 does not divide"),
        ({"n_types": 0}, "n_types must be at least 1"),
        ({"max_len": 0}, "max_len must be at least 1"),
        ({"d_ff": 0}, "d_ff must be at least 1"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"norm_eps": 0.0}, "norm_eps must be a finite number above 0"),
        ({"dropout": 1.5}, "dropout must be a finite number"),
    ],
)
def test_wrong_configs_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(CONFIG, **values)
