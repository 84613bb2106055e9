"""GRUEncoder and AttentionDecoder standing alone: loops, states that never change, weights kept."""

import copy

import pytest
import torch
from gru_loops import read, write
from translators import LENGTHS, OF_GRU, SOURCE_V, B, H, L, S, T, V, build, sentences

from clearhead.models import AttentionDecoder, GRUEncoder, Seq2SeqGRUConfig


@pytest.fixture(params=["gru", "gru dot"])
def model(request):
    return build(request.param)


def test_E4_states_and_shapes_are_those_of_the_description():
    config = Seq2SeqGRUConfig(**OF_GRU)
    encoder, decoder = GRUEncoder(config).eval(), AttentionDecoder(config).eval()
    source, _, target = sentences()
    state = decoder.init_state(encoder(source), None)
    output, state = decoder(target, state)
    assert output.shape == (B, T, V)
    assert len(state) == 3
    assert state[0].shape == (B, S, H)
    assert len(state[1]) == L
    assert state[1][0].shape == (B, H)
    assert state[2] is None
    assert len(decoder.attention_weights) == T
    assert all(weights.shape == (B, 1, S) for weights in decoder.attention_weights)


def test_without_lengths_it_is_the_loop_forward_and_backward(model):
    """Also with lengths for attention alone, where the encoder reads all tokens, as in d2l."""
    source, _, target = sentences()
    for lengths in (None, torch.tensor(LENGTHS)):
        encoded = model.encoder(source)
        logits, _ = model.decoder(target, model.decoder.init_state(encoded, lengths))
        expected, hidden = [], []
        for row in range(B):
            outputs, last = read(model.encoder, source[row])
            seen = outputs if lengths is None else outputs[: LENGTHS[row]]
            one, looked = write(model.decoder, target[row], seen, last)
            expected.append(one)
            hidden.append(last)
            kept = torch.cat(model.decoder.attention_weights, dim=1)[row]
            assert (kept[:, : len(seen)] - looked).abs().max() <= 1e-12
            assert (kept[:, len(seen) :] == 0).all()
        expected = torch.stack(expected)
        assert (logits - expected).abs().max() <= 1e-12
        assert (encoded[1] - torch.stack(hidden, dim=1)).abs().max() <= 1e-12
        direction = torch.randn_like(logits)
        ours, theirs = (
            torch.autograd.grad(y, list(model.parameters()), direction) for y in (logits, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            assert (one - other).abs().max() <= 1e-12 * max(1.0, float(other.abs().max()))


def test_with_lengths_in_both_it_is_the_translator_to_the_bit(model):
    source, mask, target = sentences()
    for lengths, source_mask in ((list(LENGTHS), mask), (None, None)):
        encoded = model.encoder(source, lengths)
        logits, _ = model.decoder(target, model.decoder.init_state(encoded, lengths))
        assert torch.equal(logits, model(source, target, source_mask))


def test_the_state_is_returned_and_the_one_given_never_changes(model):
    source, _, target = sentences()
    start = model.decoder.init_state(model.encoder(source), LENGTHS)
    before = copy.deepcopy([part.detach() for part in start])
    whole, end = model.decoder(target, start)
    steps, state = [], start
    for tokens in target.split(1, dim=1):
        logits, after = model.decoder(tokens, state)
        assert after is not state
        assert len(model.decoder.attention_weights) == 1
        steps.append(logits)
        state = after
    assert (torch.cat(steps, dim=1) - whole).abs().max() <= 1e-12
    assert (state.hidden - end.hidden).abs().max() <= 1e-12
    for part, old in zip(start, before, strict=True):
        assert torch.equal(part, old)
    again, _ = model.decoder(target, start)
    assert torch.equal(again, whole)


def test_N06_padding_that_is_not_finite_changes_nothing(model):
    source, _, target = sentences()
    (outputs, hidden), lengths = model.encoder(source), torch.tensor(LENGTHS)
    padding = torch.arange(S) >= lengths[:, None]
    assert padding.any()
    clean, _ = model.decoder(target, model.decoder.init_state((outputs, hidden), lengths))
    broken = outputs.masked_fill(padding.unsqueeze(-1), float("nan"))
    logits, state = model.decoder(target, model.decoder.init_state((broken, hidden), lengths))
    assert torch.equal(logits, clean)
    assert state.outputs is broken


def test_kept_weights_have_no_gradient_and_are_no_parameter(model):
    source, _, target = sentences()
    model.decoder(target, model.decoder.init_state(model.encoder(source)))
    assert not any(weights.requires_grad for weights in model.decoder.attention_weights)
    assert not any("attention_weights" in name for name in model.state_dict())
    assert copy.deepcopy(model).decoder.attention_weights[0].shape == (B, 1, S)
    kept = model.decoder.attention_weights
    model(source, target)  # the translator itself keeps nothing
    assert model.decoder.attention_weights is kept


def test_an_empty_target_and_an_empty_source_keep_their_shapes(model):
    source, _, target = sentences()
    logits, state = model.decoder(target[:, :0], model.decoder.init_state(model.encoder(source)))
    assert logits.shape == (B, 0, V)
    assert model.decoder.attention_weights == []
    state = model.decoder.init_state(model.encoder(source[:, :0]), [0] * B)
    assert model.decoder(target, state)[0].isfinite().all()


def test_mistakes_are_refused(model):
    encoder, decoder, (source, _, target) = model.encoder, model.decoder, sentences()
    with pytest.raises(ValueError, match=f"source\\[0, 0\\] is {SOURCE_V}, but ids go from 0 to"):
        encoder(torch.full((B, S), SOURCE_V))
    with pytest.raises(ValueError, match=r"a length for each source, shape \(3,\), got \(2,\)"):
        encoder(source, [7, 2])
    with pytest.raises(ValueError, match="valid_lens has 8 but the sources have 7 tokens"):
        decoder.init_state(encoder(source), [8, 2, 4])
    with pytest.raises(
        TypeError, match=r"what GRUEncoder returns, \(outputs, hidden\), got Tensor"
    ):
        decoder.init_state(encoder(source)[0])
    outputs, hidden = encoder(source)
    with pytest.raises(
        ValueError, match=r"\(n_layers, B, d_hidden\) = \(2, 3, 8\), got \(1, 3, 8\)"
    ):
        decoder.init_state((outputs, hidden[:1]))
    with pytest.raises(ValueError, match="encoder outputs has width 7"):
        decoder.init_state((outputs[..., :7], hidden))
    for wrong, words in ((hidden.half(), "must have the dtype of the module"), (3, "got int")):
        with pytest.raises(TypeError, match=f"hidden state .*{words}"):
            decoder.init_state((outputs, wrong))
    state = decoder.init_state((outputs, hidden))
    with pytest.raises(ValueError, match=f"ids go from 0 to {V - 1}"):
        decoder(target + V, state)
    with pytest.raises(ValueError, match="tokens must have a row for each source, 3, got shape"):
        decoder(target[:2], state)
    with pytest.raises(
        TypeError, match=r"state must come from init_state .* got GRUState; that of"
    ):
        decoder(target, model.encode(source))
