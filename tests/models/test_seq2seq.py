"""What both translators promise: reading, steps, training and greedy writing agree."""

import copy

import pytest
import torch
from torch import nn
from translators import END, KINDS, LENGTHS, PAD, SOURCE_V, START, B, S, T, V, build, sentences

from clearhead.attention import Mask
from clearhead.inspection import record
from clearhead.inspection.measures import alignment_weights
from clearhead.models.model import Model, evaluation_mode
from clearhead.models.seq2seq import Seq2Seq, find_real_tokens
from clearhead.models.seq2seq_gru import Seq2SeqGRU, Seq2SeqGRUConfig
from clearhead.models.seq2seq_transformer import Seq2SeqTransformer, Seq2SeqTransformerConfig


@pytest.fixture(params=KINDS)
def model(request):
    return build(request.param)


def steps(model, source, target_inputs, source_mask=None):
    """The logits (B, T, V) of T single steps."""
    state, logits = model.encode(source, source_mask), []
    for t in range(target_inputs.size(1)):
        step, state = model.decode_step(target_inputs[:, t], state)
        logits.append(step)
    return torch.stack(logits, dim=1)


def close(a, b, atol=1e-10):
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=atol)


# Steps and the whole pass


def test_the_logits_are_one_row_of_scores_for_each_word(model):
    source, mask, target = sentences()
    assert isinstance(model, Seq2Seq)
    assert isinstance(model, Model)
    assert model(source, target, mask).shape == (B, T, V)
    logits, _ = model.decode_step(target[:, 0], model.encode(source, mask))
    assert logits.shape == (B, V)


@pytest.mark.parametrize("masked", [True, False])
def test_steps_give_what_teacher_forcing_gives_at_every_step(model, masked):
    source, mask, target = sentences()
    mask = mask if masked else None
    whole = model(source, target, mask)
    assert close(steps(model, source, target, mask), whole)


def test_later_words_change_nothing_before_them(model):
    source, mask, target = sentences()
    other = target.clone()
    other[:, 3:] = (other[:, 3:] + 1) % V
    before, after = model(source, target, mask), model(source, other, mask)
    assert close(before[:, :3], after[:, :3], 1e-12)
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_every_real_token_of_the_source_is_heard_and_no_other_row(model):
    source, mask, target = sentences()
    logits = model(source, target, mask)
    for row, length in enumerate(LENGTHS):
        for place in range(S):
            other = source.clone()
            other[row, place] = (other[row, place] + 1) % SOURCE_V
            changed = (model(other, target, mask) != logits).flatten(1).any(1)
            assert changed[row] == (place < length)
            assert not changed[torch.arange(B) != row].any()


def test_extra_columns_of_padding_change_nothing(model):
    source, mask, target = sentences()
    logits = model(source, target, mask)
    for n in (1, 6):
        wider = torch.cat((source, torch.randint(0, SOURCE_V, (B, n))), dim=1)
        longer = nn.functional.pad(mask, (0, n))
        assert close(model(wider, target, longer), logits)
        assert close(steps(model, wider, target, longer), logits)


def test_each_row_of_a_batch_is_what_it_is_alone(model):
    source, mask, target = sentences()
    logits = model(source, target, mask)
    for row, length in enumerate(LENGTHS):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        assert close(logits[row : row + 1], alone)


def test_a_source_without_any_real_token_is_heard_as_nothing(model):
    source, mask, target = sentences()
    mask[1] = False
    logits = model(source, target, mask)
    assert logits.isfinite().all()
    other = source.clone()
    other[1] = (other[1] + 3) % SOURCE_V
    assert torch.equal(model(other, target, mask)[1], logits[1])
    assert close(logits[1:2], model(source[1:2, :0], target[1:2]))
    rest = model(source[[0, 2]], target[[0, 2]], mask[[0, 2]])
    assert close(logits[[0, 2]], rest)
    model.zero_grad()
    logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_lengths_and_token_masks_are_the_same_question(model):
    source, mask, target = sentences()
    logits = model(source, target, mask)
    for other in (Mask.padding(torch.tensor(LENGTHS)), Mask.tokens(mask)):
        assert torch.equal(model(source, target, other), logits)
    everything = torch.ones_like(mask)
    assert close(model(source, target, everything), model(source, target))
    assert torch.equal(model(source, target, Mask()), model(source, target))


def test_a_mask_that_is_changed_later_does_not_change_the_state(model):
    source, mask, target = sentences()
    expected = model(source, target, mask)[:, 0]
    state = model.encode(source, mask)
    mask[:] = True
    assert close(model.decode_step(target[:, 0], state)[0], expected)


# States


def test_reordered_rows_continue_as_if_they_had_always_been_in_that_order(model):
    source, mask, target = sentences()
    rows = torch.tensor([2, 0, 0, 1, 2])
    expected = model(source[rows], target[rows], mask[rows])
    state = model.encode(source, mask)
    for t in range(2):
        _, state = model.decode_step(target[:, t], state)
    assert state.batch_size == B
    state.reorder(rows)
    assert state.batch_size == 5
    for t in range(2, T):
        logits, state = model.decode_step(target[rows, t], state)
        assert close(logits, expected[:, t])


def test_rows_may_be_reordered_before_the_first_step_and_without_a_mask(model):
    source, _, target = sentences()
    rows = torch.tensor([1, 1], dtype=torch.int32)
    state = model.encode(source)
    state.reorder(rows)
    logits, _ = model.decode_step(target[rows.long(), 0], state)
    assert close(logits, model(source, target)[[1, 1], 0])


def test_rows_that_are_no_whole_numbers_are_refused(model):
    state = model.encode(sentences()[0])
    with pytest.raises(TypeError, match=r"rows must hold integers, got torch.float32"):
        state.reorder(torch.tensor([0.0, 1.0]))


# Greedy writing


def greedy(model, source, n_tokens, source_mask=None):
    """By the definition: the whole pass for each word, each row alone."""
    rows = []
    for row in range(source.size(0)):
        tokens = [START]
        mask = None if source_mask is None else source_mask[row : row + 1]
        while len(tokens) <= n_tokens and tokens[-1] != END:
            logits = model(source[row : row + 1], torch.tensor([tokens]), mask)
            tokens.append(int(logits[0, -1].argmax()))
            if tokens[-1] == END:
                break
        rows.append(tokens[1:])
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_generate_takes_the_likeliest_word_up_to_the_end(kind, seed):
    model = build(kind, seed, scale=1.0)
    source, mask, _ = sentences(seed)
    tokens = model.generate(source, 9, source_mask=mask)
    assert torch.equal(tokens, greedy(model, source, 9, mask))
    assert tokens.dtype == torch.long


def forced(model, words):
    """The model, made to write these words whatever it reads: its head scores by step."""

    def step(tokens, state):
        place = step.n
        step.n += 1
        return nn.functional.one_hot(torch.tensor([w[place] for w in words]), V).double(), state

    step.n = 0
    model.decode_step = step
    return model


def test_generate_stops_when_all_rows_have_ended_and_fills_up_with_padding(model):
    words = [[5, END, 7, 7, 7], [END, 6, 6, 6, 6], [4, 4, END, 8, 8]]
    source = sentences()[0]
    expected = [[5, END, PAD], [END, PAD, PAD], [4, 4, END]]
    assert forced(model, words).generate(source, 5).tolist() == expected
    assert forced(model, words).generate(source, 2).tolist() == [[5, END], [END, PAD], [4, 4]]
    assert model.decode_step.n == 2


def test_generate_continues_a_prefix_with_the_likeliest_words(model):
    source, mask, target = sentences()
    prefix = target[:, 1:3].masked_fill(target[:, 1:3] == END, 5)
    tokens = model.generate(source, 9, source_mask=mask, prefix=prefix)
    assert torch.equal(tokens[:, :2], prefix)
    start = torch.full((B, 1), START)
    logits = model(source, torch.cat((start, tokens[:, :-1]), dim=1), mask)
    for row in range(B):
        for t in range(2, tokens.size(1)):
            if END not in tokens[row, :t]:
                assert int(tokens[row, t]) == int(logits[row, t].argmax())
    greedy_words = model.generate(source, 9, source_mask=mask)
    assert torch.equal(
        model.generate(source, 9, source_mask=mask, prefix=prefix[:, :0]), greedy_words
    )
    again = model.generate(source, 9, source_mask=mask, prefix=greedy_words[:, :1])
    assert torch.equal(again, greedy_words)


def test_a_prefix_may_end_a_row_and_holds_forbidden_words_if_it_says_so(model):
    source = sentences()[0]
    prefix = torch.tensor([[END, 5], [6, END], [4, 7]])
    tokens = model.generate(source, 5, prefix=prefix, forbid=[4, 7])
    assert tokens[0].tolist() == [END] + [PAD] * (tokens.size(1) - 1)
    assert tokens[1, :2].tolist() == [6, END]
    assert tokens[2, :2].tolist() == [4, 7]
    assert not set(tokens[2, 2:].tolist()) & {4, 7}


@pytest.mark.parametrize(
    ("prefix", "kind", "message"),
    [
        (torch.zeros(B, 4).long(), ValueError, "prefix has 4 words but n_tokens is 3"),
        (torch.zeros(2, 1).long(), ValueError, "prefix must have a row for each source, 3, got"),
        (torch.full((B, 1), V), ValueError, rf"prefix\[0, 0\] is {V}, but ids go from 0"),
        (torch.zeros(B, 1), TypeError, "prefix must"),
    ],
)
def test_a_wrong_prefix_is_refused(model, prefix, kind, message):
    with pytest.raises(kind, match=message):
        model.generate(sentences()[0], 3, prefix=prefix)


def test_generate_rests_dropout_and_gradients_and_wakes_them_again():
    for kind in KINDS:
        model = build(kind, dropout=0.7, scale=1.0)
        source, mask, _ = sentences()
        expected = model.generate(source, 9, source_mask=mask)
        model.train()
        model.encoder.eval()
        with torch.enable_grad():
            tokens = model.generate(source, 9, source_mask=mask)
            assert torch.is_grad_enabled()
        assert torch.equal(tokens, expected)
        assert model.training
        assert model.decoder.training
        assert not model.encoder.training


def test_at_rest_wakes_a_model_that_raised():
    model = nn.Dropout(0.5)
    with evaluation_mode(model):
        assert not model.training
        assert not torch.is_grad_enabled()
    with pytest.raises(TypeError), evaluation_mode(model):
        model("no tensor")
    assert model.training
    assert torch.is_grad_enabled()


def test_N16_dropout_acts_in_training_only():
    source, mask, target = sentences()
    for kind in KINDS:
        model, dry = build(kind, dropout=0.5), build(kind)
        assert torch.equal(model(source, target, mask), dry(source, target, mask))
        model.train()
        assert not torch.allclose(model(source, target, mask), model(source, target, mask))


# Gradients and parameters


def test_gradients_reach_every_parameter(model):
    source, mask, target = sentences()
    model(source, target, mask).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # What is added to every key alike changes no softmax.
        assert name.endswith("proj_k.bias") or parameter.grad.abs().max() > 1e-6, name


def test_gradients_are_those_of_finite_differences(model):
    source, mask, target = sentences()
    weights = torch.randn(B, T, V, dtype=torch.float64)

    def loss():
        return (model(source, target, mask) * weights).sum()

    loss().backward()
    for name, parameter in model.named_parameters():
        index = int(parameter.grad.abs().argmax())
        flat, eps = parameter.detach().view(-1), 1e-6
        with torch.no_grad():
            flat[index] += eps
            up = loss()
            flat[index] -= 2 * eps
            down = loss()
            flat[index] += eps
        slope = float(up - down) / (2 * eps)
        expected = float(parameter.grad.view(-1)[index])
        assert slope == pytest.approx(expected, rel=1e-4, abs=1e-7), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_computes_the_same(kind):
    source, mask, target = sentences()
    model = build(kind)
    again = type(model).from_config(model.config.to_dict()).double().eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(source, target, mask), model(source, target, mask))
    assert again.config == model.config


def test_ids_may_be_of_any_whole_number_type(model):
    source, mask, target = sentences()
    expected = model(source, target, mask)
    for dtype in (torch.int32, torch.int16, torch.uint8):
        assert torch.equal(model(source.to(dtype), target.to(dtype), mask), expected)
    state = model.encode(source.to(torch.int16), mask)
    assert close(model.decode_step(target[:, 0].to(torch.int16), state)[0], expected[:, 0])


def test_N24_transposed_and_expanded_ids_are_read_alike_and_left_alone(model):
    source, mask, target = sentences()
    expected = model(source, target, mask)
    turned = [x.mT.contiguous().mT for x in (source, target, mask)]
    assert not turned[0].is_contiguous()
    assert torch.equal(model(*turned), expected)
    wide = [x[:1].expand(4, -1) for x in (source, target, mask)]
    assert close(model(*wide), expected[:1].expand(4, -1, -1))
    assert torch.equal(source, sentences()[0])
    assert torch.equal(mask, sentences()[1])
    assert torch.equal(target, sentences()[2])


def test_N26_autocast_inference_mode_and_copies_compute_the_same(model):
    source, mask, target = sentences()
    model = model.float()
    expected, words = model(source, target, mask), model.generate(source, 6, source_mask=mask)
    assert torch.equal(copy.deepcopy(model)(source, target, mask), expected)
    with torch.inference_mode():
        assert close(model(source, target, mask), expected, 1e-6)
        assert torch.equal(model.generate(source, 6, source_mask=mask), words)
    model(source, target, mask).sum().backward()  # nothing of inference mode is left behind
    with torch.autocast("cpu", torch.bfloat16):
        half = model(source, target, mask)
        assert model.generate(source, 6, source_mask=mask).size(0) == B
    assert half.dtype == torch.bfloat16
    assert (half - expected).abs().max() < 0.1 * expected.abs().max()


# Bad input


def test_N27_ids_outside_the_vocabularies_are_refused(model):
    source, _, target = sentences()
    with pytest.raises(ValueError, match=rf"source\[1, 0\] is {SOURCE_V}, but ids go from 0 to 10"):
        model(source.index_put((torch.tensor(1), torch.tensor(0)), torch.tensor(11)), target)
    with pytest.raises(ValueError, match=r"source\[0, 0\] is -1"):
        model.generate(source - source[0, 0] - 1, 3)
    with pytest.raises(ValueError, match=r"target_inputs\[0, 0\] is 13, but ids go from 0 to 12"):
        model(source, torch.full((B, T), V))
    with pytest.raises(ValueError, match=r"tokens\[0, 0\] is 13, but ids go from 0 to 12"):
        model.decode_step(torch.full((B,), V), model.encode(source))
    with pytest.raises(TypeError, match=r"source must hold integers, got torch.float32"):
        model(source.float(), target)
    with pytest.raises(TypeError, match=r"tokens must hold integers, got torch.float32"):
        model.decode_step(torch.zeros(B), model.encode(source))
    with pytest.raises(TypeError, match=r"source must be a torch.Tensor of integers, got list"):
        model([[1, 2]], target)
    with pytest.raises(ValueError, match=r"source must have shape \(B, T\), got \(7,\)"):
        model(source[0], target)


def test_rows_that_do_not_match_are_refused(model):
    source, _, target = sentences()
    with pytest.raises(ValueError, match=r"a row for each source, 3, got shape \(2, 5\)"):
        model(source, target[:2])
    with pytest.raises(ValueError, match=r"each row of the state, shape \(3,\), got \(2,\)"):
        model.decode_step(target[:2, 0], model.encode(source))
    with pytest.raises(ValueError, match=r"each row of the state, shape \(3,\), got \(3, 1\)"):
        model.decode_step(target[:, :1], model.encode(source))


def test_a_source_mask_that_says_something_else_is_refused(model):
    source, mask, target = sentences()
    with pytest.raises(TypeError, match=r"source_mask must be a boolean .* got torch.float32; use"):
        model(source, target, mask.float())
    with pytest.raises(ValueError, match=r"only 0 and 1, .* got 7; for lengths use Mask\.padding"):
        model.encode(source, torch.tensor(LENGTHS))
    with pytest.raises(TypeError, match="True = real, got list"):
        model.encode(source, mask.tolist())
    with pytest.raises(ValueError, match=r"the shape of source, \(3, 7\), got \(3, 6\)"):
        model.encode(source, mask[:, :6])
    with pytest.raises(ValueError, match=r"the shape of source, \(3, 7\), got \(2, 7\)"):
        model.encode(source, Mask.padding(torch.tensor([1, 2])))
    for other in (Mask.causal(), Mask.window(2), Mask.padding(torch.ones(B, S).long())):
        with pytest.raises(ValueError, match=r"source_mask must say which tokens are real, by"):
            model.encode(source, other)


def test_real_tokens_are_all_unless_a_mask_says_so():
    source, mask, _ = sentences()
    assert find_real_tokens(source, None) is None
    assert find_real_tokens(source, Mask()) is None
    assert torch.equal(find_real_tokens(source, mask), mask)
    both = Mask.tokens(mask) & Mask.padding(torch.tensor([3, 3, 3]))
    assert torch.equal(find_real_tokens(source, both), mask & (torch.arange(S) < 3))


def test_a_number_of_words_that_is_none_is_refused(model):
    source = sentences()[0]
    with pytest.raises(ValueError, match="n_tokens must be at least 1, got 0"):
        model.generate(source, 0)
    with pytest.raises(TypeError, match=r"n_tokens must be a whole number, got 2\.5"):
        model.generate(source, 2.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source_vocab_size": 0}, "source_vocab_size must be at least 1, got 0"),
        ({"target_vocab_size": -1}, "target_vocab_size must be at least 1, got -1"),
        ({"start_id": V}, "start_id is 13, but ids of the target go from 0 to 12; take it from"),
        ({"end_id": -1}, "end_id is -1, but ids of the target go from 0 to 12"),
        ({"pad_id": 99}, "pad_id is 99, but ids of the target go from 0 to 12"),
        ({"n_layers": 0}, "n_layers must be at least 1, got 0"),
        ({"dropout": 1.5}, "dropout must be a finite number from 0 to 1, got 1.5"),
    ],
)
def test_configs_refuse_what_cannot_be_built(kind, wrong, message):
    with pytest.raises(ValueError, match=message):
        build(kind, **wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_F11_a_config_is_read_strictly(kind):
    values = build(kind).config.to_dict()
    config_type = KINDS[kind][1]
    with pytest.raises(ValueError, match="has no 'n_layer'; the nearest is 'n_layers'"):
        config_type.from_dict(values | {"n_layer": 2})
    with pytest.raises(TypeError, match="start_id must be a whole number, got True of type bool"):
        config_type.from_dict(values | {"start_id": True})
    del values["end_id"]
    with pytest.raises(ValueError, match="needs 'end_id', which is missing"):
        config_type.from_dict(values)


def test_the_interface_alone_is_no_translator():
    class Mute(Seq2Seq):
        config_type = Seq2SeqGRUConfig

    mute = Mute(build("gru").config)
    for call in (
        lambda: mute.encode(None),
        lambda: mute.decode_step(None, None),
        lambda: mute(None, None),
        lambda: mute.alignment_name,
    ):
        with pytest.raises(NotImplementedError, match="Mute must define"):
            call()
    assert mute.max_len is None


# Sizes of nothing and of one


@pytest.mark.parametrize(("b", "s", "t"), [(0, 7, 5), (3, 0, 5), (3, 7, 0), (0, 0, 0), (1, 1, 1)])
@pytest.mark.parametrize("with_mask", [True, False])
def test_N23_sizes_of_nothing_keep_their_shapes(model, b, s, t, with_mask):
    source, target = torch.zeros(b, s).long(), torch.zeros(b, t).long()
    mask = torch.ones(b, s).bool() if with_mask else None
    logits = model(source, target, mask)
    assert logits.shape == (b, t, V)
    assert logits.isfinite().all()
    logits.sum().backward()
    tokens = model.generate(source, 4, source_mask=mask)
    assert tokens.shape[0] == b
    assert tokens.shape[1] <= 4
    state = model.encode(source, mask)
    assert model.decode_step(torch.zeros(b).long(), state)[0].shape == (b, V)


# What inspection sees


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_of_every_step_are_kept_and_align_words_with_tokens(kind):
    model = build(kind)
    source, mask, target = sentences()
    with record(model) as trace:
        model(source, target, mask)
    weights = alignment_weights(trace, model.alignment_name)
    assert weights.shape == (B, T, S)
    assert close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64))
    assert (weights[~mask.unsqueeze(1).expand(B, T, S)] == 0).all()
    assert (weights[mask.unsqueeze(1).expand(B, T, S)] > 0).all()
    with record(model) as trace:
        steps(model, source, target, mask)
    assert len(trace.calls(model.alignment_name)) == T
    assert close(alignment_weights(trace, model.alignment_name), weights)


def test_an_alignment_of_nothing_is_refused():
    model = build("gru")
    with record(model) as trace:
        pass
    with pytest.raises(ValueError, match=r"'decoder\.attention' was not called while recording"):
        alignment_weights(trace, model.alignment_name)


def test_greedy_words_can_be_aligned_as_they_are_written(model):
    source, mask, _ = sentences()
    with record(model) as trace:
        tokens = model.generate(source, 6, source_mask=mask)
    inputs = torch.cat((torch.full((B, 1), START), tokens[:, :-1]), dim=1)
    with record(model) as whole:
        model(source, inputs, mask)
    ours, theirs = (alignment_weights(t, model.alignment_name) for t in (trace, whole))
    assert close(ours, theirs)


# Learning


def reversals(n):
    """n different rows of letters and the same letters backwards, of lengths 1 to 6."""
    generator = torch.Generator().manual_seed(5)
    found = {}
    while len(found) < n:
        length = int(torch.randint(1, 7, (), generator=generator))
        word = tuple(torch.randint(3, SOURCE_V, (length,), generator=generator).tolist())
        found[word] = word[::-1]
    return list(found.items())


def batch(pairs):
    longest = max(len(word) for word, _ in pairs)
    source = torch.tensor([[*word, *[PAD] * (longest - len(word))] for word, _ in pairs])
    lengths = torch.tensor([len(word) for word, _ in pairs])
    target = torch.tensor(
        [[START, *word, END, *[PAD] * (longest - len(word))] for _, word in pairs]
    )
    return source, torch.arange(longest) < lengths.unsqueeze(1), target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        (Seq2SeqGRU, Seq2SeqGRUConfig(11, 13, START, END, PAD, d_embedding=16, d_hidden=48)),
        (
            Seq2SeqGRU,
            Seq2SeqGRUConfig(
                11, 13, START, END, PAD, d_embedding=16, d_hidden=32, n_layers=2, attention="dot"
            ),
        ),
        (Seq2SeqTransformer, Seq2SeqTransformerConfig(11, 13, START, END, PAD, 16, 32, 2, 4)),
        (
            Seq2SeqTransformer,
            Seq2SeqTransformerConfig(
                11, 13, START, END, PAD, 16, 32, 2, 4, positions="learned", tied=False, norm="rms"
            ),
        ),
    ],
    ids=["gru", "gru dot", "transformer", "transformer learned"],
)
def test_twenty_pairs_are_learned_by_heart(model_type, config):
    from clearhead.generation.beam import beam_search

    model = model_type(config)
    source, mask, target = batch(reversals(20))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    answers = target[:, 1:].masked_fill(target[:, 1:] == PAD, -100)
    for _ in range(300):
        logits = model(source, target[:, :-1], mask)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01
    assert torch.equal(model.generate(source, 7, source_mask=mask), target[:, 1:])
    assert torch.equal(beam_search(model, source, 7, source_mask=mask).best, target[:, 1:])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_broken_weights_are_an_error_and_not_a_word(model, value):
    source, mask, _ = sentences()
    head = model.head if hasattr(model, "head") else model.decoder.head
    with torch.no_grad():
        head.weight[4, 0] = value
    with pytest.raises(ValueError, match="gives NaN or infinity"):
        model.generate(source, 5, source_mask=mask)


def test_N23_no_source_gives_no_word(model):
    assert model.generate(torch.zeros(0, 4).long(), 3).shape == (0, 0)
