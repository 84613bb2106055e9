"""generate and stream: words by hand, stops, steps, modes, and broken numbers."""

import itertools
import math

import pytest
import torch
from language_models import L, V, build, counter, ids

from clearhead.data import pad_left
from clearhead.generation import Sampling, generate, pack, stream
from clearhead.generation.fast import PackedReader
from clearhead.generation.reader import ModelReader
from clearhead.inspection import record

NEW = 12
BOTH = pytest.mark.parametrize("form", [lambda model: model, pack], ids=["model", "packed"])
BROKEN = "gives NaN or infinity"


def words(steps):
    return torch.stack([each.tokens for each in steps], dim=1)


# By hand


@BOTH
def test_a_model_that_counts_continues_counting(form):
    made = generate(form(counter()), torch.tensor([[3, 4], [0, 9]]), NEW)
    assert made.tolist() == [
        [3, *((4 + i) % 12 for i in range(NEW + 1))],
        [0, *((9 + i) % 12 for i in range(NEW + 1))],
    ]


@BOTH
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_each_word_is_the_most_likely_after_all_before_it(form, positions):
    model, tokens = build(positions=positions), ids(3, 5)
    made = generate(form(model), tokens, NEW)
    assert made.shape == (3, 5 + NEW)
    assert torch.equal(made[:, :5], tokens)
    with torch.no_grad():
        best = model(made).argmax(-1)
    assert torch.equal(made[:, 5:], best[:, 4:-1])


@BOTH
def test_what_it_returns_is_an_ordinary_tensor_and_nothing_else_has_changed(form):
    model, tokens = build().train(), ids(2, 5)
    before, state, draws = tokens.clone(), model.state_dict(), torch.get_rng_state()
    state = {name: x.clone() for name, x in state.items()}
    for options in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0}):
        made = generate(form(model), tokens, NEW, **options)
        assert not made.is_inference()
        made[0, 0] = 0  # a copy
    assert torch.equal(tokens, before)
    assert torch.equal(torch.get_rng_state(), draws)
    assert model.training
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    model(made).sum().backward()  # it can be learned from


@BOTH
@pytest.mark.parametrize("prefill", [1, 2, 5, 6, 7, 100])
def test_reading_the_prompt_in_parts_changes_no_word(form, prefill):
    model, tokens = build(positions="rotary", n_kv_heads=2), ids(2, 7)
    for options in ({}, {"temperature": 1.0, "seed": 3}):
        expected = generate(form(model), tokens, NEW, **options)
        assert torch.equal(generate(form(model), tokens, NEW, prefill=prefill, **options), expected)
        again = generate(model, tokens, NEW, prefill=prefill, cache=False, **options)
        assert torch.equal(again, expected)


@BOTH
def test_N15_rows_of_unequal_length_each_give_what_they_give_alone(form):
    model = form(build())
    rows = [ids(n, seed=n).tolist() for n in (3, 9, 1, 6)]
    tokens, real = pad_left(rows, 5)
    made = generate(model, tokens, NEW, token_mask=real)
    for row, whole in zip(rows, made, strict=True):
        alone = generate(model, torch.tensor([row]), NEW)
        assert torch.equal(whole[9 - len(row) :], alone[0])
    again = generate(model, tokens.masked_fill(~real, 0), NEW, token_mask=real)
    assert torch.equal(again[:, 9:], made[:, 9:])


@BOTH
@pytest.mark.parametrize("prefill", [None, 1, 3])
def test_N06_padding_may_hold_anything(form, prefill):
    """Also where a part of the prompt ends in padding."""
    model, clean = build(), build()
    tokens, real = pad_left([ids(2, high=30).tolist(), ids(6, high=30, seed=1).tolist()], 36)
    with torch.no_grad():
        model.embedding.weight[36] = torch.nan
        for each in (model, clean):
            each.head.weight[36] = 0  # never the best of 37: padding is not said
    expected = generate(form(clean), tokens, NEW, token_mask=real)
    assert 36 not in expected[:, 6:]
    made = generate(form(model), tokens, NEW, token_mask=real, prefill=prefill)
    assert torch.equal(made, expected)


@BOTH
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_a_prompt_of_another_whole_type_is_continued_by_the_same_words(form, dtype):
    model, tokens = form(counter(300)), torch.tensor([[7, 250], [7, 100]])
    expected = generate(model, tokens, NEW)
    assert int(expected.max()) == 250 + NEW  # at last more than 8 bits hold
    assert torch.equal(generate(model, tokens.to(dtype), NEW).long(), expected)


def test_bfloat16_runs_by_the_modules():
    model, tokens = build(torch.bfloat16), ids(2, 5)
    assert torch.equal(generate(model, tokens, NEW)[:, :5], tokens)


@pytest.mark.parametrize("form", [lambda m: m, pack, lambda m: pack(m, weights="int8")])
def test_N23_no_rows_give_no_rows_and_of_no_rows_all_have_stopped(form):
    nobody, model = torch.zeros(0, 4, dtype=torch.long), form(build())
    real = torch.zeros(0, 4, dtype=torch.bool)
    for options in ({}, {"temperature": 1.0}, {"repetition_penalty": 2.0}):
        for n_tokens in (0, 3):
            assert generate(model, nobody, n_tokens, **options).shape == (0, 4 + n_tokens)
            assert generate(model, nobody, n_tokens, stop=[2], **options).shape == (0, 4)
        assert generate(model, nobody, 3, token_mask=real, prefill=2, **options).shape == (0, 7)
    assert list(stream(model, nobody, None, stop=[2])) == []
    assert generate(build(), nobody, 3, cache=False).shape == (0, 7)


# Stops


@BOTH
def test_rows_stop_one_by_one_and_are_filled_up(form):
    made = generate(form(counter()), torch.tensor([[3], [1], [5]]), NEW, stop=[6])
    assert made.tolist() == [
        [3, 4, 5, 6, 6, 6],
        [1, 2, 3, 4, 5, 6],
        [5, 6, 6, 6, 6, 6],
    ]


@BOTH
def test_any_of_several_stops_ends_a_row_and_a_stop_in_the_prompt_does_not(form):
    tokens = torch.tensor([[6, 3], [6, 6]])
    for stop in ([5, 7], {7, 5}, (7, 5, 7), {5: 1, 7: 2}):
        made = generate(form(counter()), tokens, NEW, stop=stop)
        assert made.tolist() == [[6, 3, 4, 5], [6, 6, 7, 7]]


def test_without_a_stop_all_tokens_are_made():
    assert generate(counter(), torch.tensor([[3]]), 6, stop=[2]).shape == (1, 7)
    assert generate(counter(), torch.tensor([[3]]), 3, stop=[6]).tolist() == [[3, 4, 5, 6]]


def test_the_steps_say_which_rows_are_still_running():
    steps = list(stream(counter(), torch.tensor([[3], [1]]), 9, stop=[5]))
    assert [each.tokens.tolist() for each in steps] == [[4, 2], [5, 3], [5, 4], [5, 5]]
    running = [[True, True], [True, True], [False, True], [False, True]]
    assert [each.running.tolist() for each in steps] == running


@BOTH
def test_a_stopped_row_disturbs_no_other(form):
    model, tokens = form(build()), ids(4, 3)
    free = generate(model, tokens, NEW, temperature=1.0, seed=0)
    stop = int(free[1, 4])
    made = generate(model, tokens, NEW, temperature=1.0, seed=0, stop=[stop])
    for row, whole in zip(made, free, strict=True):
        new = whole[3:].tolist()
        end = new.index(stop) + 1 if stop in new else len(new)
        end = min(end, made.size(1) - 3)
        assert torch.equal(row[: 3 + end], whole[: 3 + end])
        assert bool((row[3 + end :] == stop).all())


# The stream


@BOTH
@pytest.mark.parametrize("keep_logits", [True, False])
def test_the_model_runs_no_further_than_asked(form, keep_logits, monkeypatch):
    read = []
    for reader in (ModelReader, PackedReader):
        hidden = reader.hidden

        def noted(self, tokens, _hidden=hidden):
            read.append(tokens.size(1))
            return _hidden(self, tokens)

        monkeypatch.setattr(reader, "hidden", noted)
    steps = stream(form(counter()), torch.tensor([[3, 4, 5]]), NEW, keep_logits=keep_logits)
    assert read == []
    assert next(steps).tokens.tolist() == [6]
    assert read == [3]
    assert next(steps).tokens.tolist() == [7]
    assert read == [3, 1]
    assert len(list(itertools.islice(steps, 3))) == 3
    assert read == [3, 1, 1, 1, 1]
    steps.close()
    assert list(steps) == []


@BOTH
def test_two_streams_of_one_model_do_not_disturb_each_other(form):
    model = form(build())
    a, b = ids(2, 5, seed=1), ids(2, 5, seed=2)
    pairs = list(zip(stream(model, a, NEW), stream(model, b, NEW), strict=True))
    assert torch.equal(words([one for one, _ in pairs]), generate(model, a, NEW)[:, 5:])
    assert torch.equal(words([other for _, other in pairs]), generate(model, b, NEW)[:, 5:])


@BOTH
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_probabilities_are_those_of_the_model_before_any_filter(form, temperature):
    model = build(soft_cap=5.0)
    rows = [ids(n, seed=n).tolist() for n in (3, 5)]
    tokens, real = pad_left(rows, 0)
    sampling = Sampling(temperature, top_k=2, repetition_penalty=1.3)
    options = {"sampling": sampling, "seed": 1, "token_mask": real}
    steps = list(stream(form(model), tokens, NEW, **options))
    kept = stream(form(model), tokens, NEW, keep_logits=True, **options)
    assert torch.equal(words(kept), words(steps))
    so_far = [torch.tensor([row]) for row in rows]
    for each in steps:
        assert each.texts is None
        assert each.probs.shape == (2, V)
        assert torch.allclose(each.probs.sum(-1), torch.ones(2), rtol=0, atol=1e-6)
        for r in range(2):
            with torch.no_grad():
                logits = model(so_far[r])[0, -1]
            assert torch.allclose(each.logits[r], logits, rtol=0, atol=2e-5)
            assert torch.allclose(each.probs[r], logits.softmax(-1), rtol=0, atol=1e-5)
            so_far[r] = torch.cat((so_far[r], each.tokens[r].view(1, 1)), dim=1)


@BOTH
def test_kept_logits_stay_as_they_are_and_change_no_word(form):
    model, tokens = form(build()), ids(2, 3)
    steps = list(stream(model, tokens, NEW, keep_logits=True))
    assert len({float(each.logits[0, 0]) for each in steps}) > NEW // 2
    assert not steps[0].logits.is_inference()
    assert torch.equal(words(steps), torch.stack([s.logits.argmax(-1) for s in steps], dim=1))
    assert torch.equal(words(steps), generate(model, tokens, NEW)[:, 3:])


def test_a_step_without_logits_says_how_to_get_them():
    (each,) = stream(counter(), torch.tensor([[3]]), 1)
    assert each.logits is None
    with pytest.raises(ValueError, match="kept no logits; ask for them with keep_logits=True"):
        _ = each.probs


@BOTH
def test_a_stream_made_in_inference_mode_continues_outside(form):
    model, tokens = form(build()), ids(2, 4)
    for sampling in (Sampling(), Sampling(repetition_penalty=1.5), Sampling(1.0)):
        expected = words(stream(model, tokens, NEW, sampling=sampling, seed=0))
        with torch.inference_mode():
            steps = stream(model, tokens, NEW, sampling=sampling, seed=0)
        assert torch.equal(words(steps), expected)


@pytest.mark.parametrize("options", [{}, {"cache": False}, None], ids=["cache", "again", "packed"])
def test_an_open_stream_does_not_follow_the_prompt_s_tensors(options):
    model = pack(build()) if options is None else build()
    tokens, real = pad_left([ids(3).tolist(), ids(7, seed=1).tolist()], 5)
    options = {"token_mask": real} | (options or {})
    expected = words(stream(model, tokens, NEW, **options))
    steps = stream(model, tokens, NEW, **options)
    tokens.fill_(9)
    given = [next(steps)]
    real.fill_(True)
    given += steps
    assert torch.equal(words(given), expected)


# Hooks and modes


def test_record_and_hooks_see_every_token_of_a_plain_model():
    model, tokens, seen = build(), ids(2, 5), []
    expected = generate(model, tokens, 30)
    handle = model.stack.blocks[1].register_forward_hook(lambda _m, _in, x: seen.append(x.size(1)))
    with record(model) as trace:
        assert torch.equal(generate(model, tokens, 30), expected)
    handle.remove()
    assert seen == [5] + 29 * [1]
    for block in range(L):
        calls = trace.calls(f"stack.blocks.{block}.attention")
        assert [call.q.size(-2) for call in calls] == seen
        assert [call.k.size(-2) for call in calls] == list(range(5, 35))
    with model.head.register_forward_hook(lambda _m, _in, x: -x):  # an intervention is heard, too
        assert not torch.equal(generate(model, tokens, 30), expected)


@pytest.mark.parametrize("cache", [True, False])
def test_generating_drops_nothing_even_in_training(cache):
    model, tokens = build(dropout=0.4), ids(3, 5)
    expected = generate(build(), tokens, NEW, cache=cache)
    model.train()
    model.stack.blocks[0].eval()
    before = [part.training for part in model.modules()]
    assert torch.equal(generate(model, tokens, NEW, cache=cache), expected)
    assert torch.equal(generate(pack(model), tokens, NEW), expected)
    assert [part.training for part in model.modules()] == before


def test_the_mode_stays_while_a_stream_is_open_and_after_an_error():
    model = build(dropout=0.4).train()
    steps = stream(model, ids(1, 3), 5)
    next(steps)
    assert all(part.training for part in model.modules())
    model.positions.weight.data[3:] = math.nan
    with pytest.raises(ValueError, match=BROKEN):
        next(steps)
    assert all(part.training for part in model.modules())


@BOTH
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_N26_any_mode_gives_the_same_words(form, mode):
    model, tokens = build(), ids(2, 5)
    expected = generate(build(), tokens, NEW)
    with mode():
        assert torch.equal(generate(form(model), tokens, NEW), expected)
    assert torch.equal(generate(form(model), tokens, NEW), expected)
    model(tokens).sum().backward()


def test_N26_a_model_in_float64_gives_the_same_words():
    single, double = build(), build(torch.float64)
    double.load_state_dict(single.state_dict())
    tokens = ids(3, 5)
    assert torch.equal(generate(single, tokens, NEW), generate(double, tokens, NEW))


# Broken numbers


@BOTH
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "place", ["embedding.weight", "stack.blocks.0.attention.proj_v.weight", "head.weight"]
)
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 0}], ids=["greedy", "drawn"])
def test_a_model_with_broken_weights_says_nothing(form, value, place, options):
    model = build()
    model.state_dict()[place][3] = value
    with pytest.raises(ValueError, match=BROKEN):
        generate(form(model), torch.tensor([[1], [3]]), NEW, **options)


@BOTH
def test_what_came_before_a_broken_number_is_given(form):
    model = build()
    model.positions.weight.data[6] = math.nan  # the fifth new word stands there
    steps = stream(form(model), ids(1, 2), NEW)
    made = [next(steps).tokens.item() for _ in range(5)]
    with pytest.raises(ValueError, match=BROKEN):
        next(steps)
    assert made == generate(build(), ids(1, 2), 5)[0, 2:].tolist()


# The old way to ask for 8 bits


@pytest.mark.parametrize("function", [generate, lambda *a, **o: words(stream(*a, **o))])
def test_weights_int8_still_works_and_names_the_new_way(function):
    model, tokens = build(), ids(2, 4)
    expected = function(pack(model, weights="int8"), tokens, NEW)
    with pytest.warns(DeprecationWarning, match=r'pack\(model, weights="int8"\)') as caught:
        assert torch.equal(function(model, tokens, NEW, weights="int8"), expected)
    assert [each.filename for each in caught] == [__file__]
