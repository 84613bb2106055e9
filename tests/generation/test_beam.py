"""Beam search: against every sentence there is, against a plain search that never stops early."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from translators import END, KINDS, LENGTHS, PAD, START, B, V, build, sentences

from clearhead.attention import Mask
from clearhead.generation.beam import BeamResult, _find_largest, _find_likeliest, beam_search

TINY = {"target_vocab_size": 4, "start_id": 3, "end_id": 2, "pad_id": 0}


@torch.no_grad()
def log_probs_of(model, source, every):
    """log p of each of these sentences for one source (1, S), by one teacher-forced pass."""
    longest = max(map(len, every))
    words = torch.tensor([[*sentence, *[0] * (longest - len(sentence))] for sentence in every])
    inputs = torch.cat((torch.full((len(every), 1), model.config.start_id), words[:, :-1]), dim=1)
    logits = model(source.expand(len(every), -1), inputs).log_softmax(-1)
    each = logits.gather(-1, words.unsqueeze(-1)).squeeze(-1)
    real = torch.arange(longest) < torch.tensor([[len(sentence)] for sentence in every])
    return (each * real).sum(1).tolist()


def every_sentence(n_words, n_tokens, end):
    """All that can be written: ended within n_tokens, or n_tokens words without an end."""
    others = [word for word in range(n_words) if word != end]
    for length in range(1, n_tokens + 1):
        for words in itertools.product(others, repeat=length - 1):
            yield (*words, end)
    yield from itertools.product(others, repeat=n_tokens)


def plain_search(model, source, n_tokens, n_beams, length_penalty, source_mask=None):
    """The rule in lists, one source at a time, and never closed before all beams have ended."""
    end, beam, found = model.config.end_id, [(0.0, ())], []
    for length in range(1, n_tokens + 1):
        longer = []
        for before, words in beam:
            inputs = torch.tensor([[model.config.start_id, *words]])
            logits = model(source, inputs, source_mask)[0, -1].detach().log_softmax(-1).tolist()
            longer += [(before + after, (*words, word)) for word, after in enumerate(logits)]
        longer.sort(key=lambda item: -item[0])
        ended = [item for item in longer[:n_beams] if item[1][-1] == end or length == n_tokens]
        found += [(log_p / length**length_penalty, log_p, words) for log_p, words in ended]
        beam = [item for item in longer[:n_beams] if item not in ended]
    return sorted(found, key=lambda item: -item[0])


def words_of(result, row, place):
    return tuple(result.tokens[row, place, : result.lengths[row, place]].tolist())


# The definition


@pytest.mark.parametrize("kind", ["gru", "transformer"])
@pytest.mark.parametrize("length_penalty", [0, 0.6, 1.0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_there_are_sentences_finds_the_best_of_all(kind, length_penalty, seed):
    model, n_tokens = build(kind, seed, scale=1.2, **TINY), 4
    source, mask, _ = sentences(seed)
    every = list(every_sentence(4, n_tokens, end=2))
    assert len(every) == 1 + 3 + 9 + 27 + 81
    result = beam_search(
        model,
        source,
        n_tokens,
        n_beams=len(every),
        length_penalty=length_penalty,
        source_mask=mask,
    )
    for row in range(B):
        log_probs = log_probs_of(model, source[row : row + 1, : LENGTHS[row]], every)
        scores = {
            words: log_p / len(words) ** length_penalty
            for words, log_p in zip(every, log_probs, strict=True)
        }
        best = max(scores, key=scores.get)
        assert words_of(result, row, 0) == best
        assert float(result.scores[row, 0]) == pytest.approx(scores[best], abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_beams", [1, 2, 3, 5])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_it_finds_what_the_plain_search_finds(kind, n_beams, length_penalty):
    for seed in range(3):
        model = build(kind, seed, scale=1.0)
        source, mask, _ = sentences(seed)
        options = {"n_beams": n_beams, "length_penalty": length_penalty}
        result = beam_search(model, source, 6, source_mask=mask, **options)
        for row in range(B):
            one, its = source[row : row + 1], mask[row : row + 1]
            expected = plain_search(model, one, 6, source_mask=its, **options)
            score, log_p, words = expected[0]
            assert words_of(result, row, 0) == words
            assert float(result.scores[row, 0]) == pytest.approx(score, abs=1e-10)
            assert float(result.log_probs[row, 0]) == pytest.approx(log_p, abs=1e-10)
            others = {item[2] for item in expected}
            for place in range(n_beams):
                if result.lengths[row, place]:
                    assert words_of(result, row, place) in others


@pytest.mark.parametrize("kind", KINDS)
def test_one_beam_is_greedy_search(kind):
    for seed in range(12):
        model = build(kind, seed, scale=1.0)
        source, mask, _ = sentences(seed)
        greedy = model.generate(source, 8, source_mask=mask)
        for length_penalty in (0.0, 1.0, 3.0):
            result = beam_search(
                model, source, 8, n_beams=1, length_penalty=length_penalty, source_mask=mask
            )
            assert torch.equal(result.best, greedy)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["gru", "transformer"]),
    seed=st.integers(0, 10**6),
    n_beams=st.integers(1, 6),
    n_tokens=st.integers(1, 6),
    length_penalty=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
)
def test_scores_are_those_of_teacher_forcing_best_first_and_batches_change_nothing(
    kind, seed, n_beams, n_tokens, length_penalty
):
    model = build(kind, seed, scale=1.0)
    source, mask, _ = sentences(seed)
    options = {"n_beams": n_beams, "length_penalty": length_penalty}
    result = beam_search(model, source, n_tokens, source_mask=mask, **options)
    assert (result.scores[:, :-1] >= result.scores[:, 1:]).all()
    assert result.tokens.size(2) == int(result.lengths.max()) <= n_tokens
    for row, length in enumerate(LENGTHS):
        one = source[row : row + 1, :length]
        alone = beam_search(model, one, n_tokens, **options)
        seen = set()
        for place in range(n_beams):
            words = words_of(result, row, place)
            assert words == words_of(alone, 0, place)
            if not words:
                assert result.scores[row, place] == -torch.inf
                continue
            assert words not in seen
            seen.add(words)
            assert END not in words[:-1]
            assert words[-1] == END or len(words) == n_tokens
            assert (result.tokens[row, place, len(words) :] == PAD).all()
            (expected,) = log_probs_of(model, one, [words])
            assert float(result.log_probs[row, place]) == pytest.approx(expected, abs=1e-9)
            score = expected / len(words) ** length_penalty
            assert float(result.scores[row, place]) == pytest.approx(score, abs=1e-9)


def test_the_same_question_has_the_same_answer():
    for kind in KINDS:
        model = build(kind, scale=1.0, dropout=0.5).train()
        source, mask, _ = sentences()
        ours, again = (beam_search(model, source, 6, source_mask=mask) for _ in range(2))
        assert torch.equal(ours.tokens, again.tokens)
        assert torch.equal(ours.scores, again.scores)
        assert model.training
        still = beam_search(model.eval(), source, 6, source_mask=mask)
        assert torch.equal(ours.scores, still.scores)


# Models made to say what a test needs


def scripted(*scripts):
    """A translator whose next word depends on the last one: scripts[source][last] = {word: p}."""
    model = build("gru")
    logits = torch.full((len(scripts), V, V), -40.0, dtype=torch.float64)
    for source, script in enumerate(scripts):
        for last, words in script.items():
            for word, p in words.items():
                logits[source, last, word] = math.log(p)
    model.calls = 0

    def decode_step(tokens, state):
        model.calls += 1
        which = torch.arange(len(scripts)).repeat_interleave(len(tokens) // len(scripts))
        return logits[which, tokens], state

    model.decode_step = decode_step
    return model


A, C, E, G = 4, 5, 6, 7
# Greedy takes A at 0.6 and then has only bad words; C leads to a sure end.
GARDEN_PATH = {
    START: {A: 0.6, C: 0.4},
    A: {E: 0.34, G: 0.33, END: 0.33},
    C: {END: 1.0},
    E: {END: 1.0},
    G: {END: 1.0},
}


def test_two_beams_by_hand_avoid_what_misleads_greedy_search():
    source = sentences()[0][:1]
    model = scripted(GARDEN_PATH)
    assert beam_search(model, source, 5, n_beams=1).best.tolist() == [[A, E, END]]
    result = beam_search(model, source, 5, n_beams=2, length_penalty=0.0)
    assert words_of(result, 0, 0) == (C, END)
    assert float(result.scores[0, 0]) == pytest.approx(math.log(0.4))


def test_the_length_penalty_decides_between_short_and_long_by_hand():
    """END at once has p = 0.25; four sure words after A have 0.2: log p / 1 or / 4."""
    chain = {START: {END: 0.25, A: 0.2, G: 0.1}, A: {C: 1.0}, C: {E: 1.0}, E: {END: 1.0}}
    chain[START] |= {8: 0.15, 9: 0.15, 10: 0.15}
    source = sentences()[0][:1]
    for length_penalty, words in ((0.0, [END]), (0.1, [END]), (0.2, [A, C, E, END])):
        model = scripted(chain)
        result = beam_search(model, source, 6, n_beams=3, length_penalty=length_penalty)
        length = int(result.lengths[0, 0])
        assert result.tokens[0, 0, :length].tolist() == words
        p = 0.25 if words == [END] else 0.2
        assert float(result.scores[0, 0]) == pytest.approx(math.log(p) / length**length_penalty)


def test_a_found_sentence_is_kept_while_the_search_continues():
    """END at once is found in step 1; A might still beat it, but every word after it costs."""
    halves = {A: 0.5, G: 0.5}
    slow = {START: {END: 0.5, A: 0.3, C: 0.2}, A: halves, C: halves, G: halves}
    model = scripted(slow)
    result = beam_search(model, sentences()[0][:1], 9, n_beams=3, length_penalty=0.5)
    assert 1 < model.calls < 9
    assert result.tokens.tolist() == [[[END], [PAD], [PAD]]]  # no column of padding only
    assert result.lengths.tolist() == [[1, 0, 0]]
    assert float(result.log_probs[0, 0]) == pytest.approx(math.log(0.5))


def test_it_stops_when_no_beam_can_win_and_not_before():
    """log p of A is log 0.3: at most log 0.3 / n^penalty, against log 0.5 for END at once."""
    endless = {START: {END: 0.5, A: 0.3, C: 0.2}, A: {A: 1.0}, C: {C: 1.0}}
    source = sentences()[0][:1]
    model = scripted(endless)
    beam_search(model, source, 9, n_beams=3, length_penalty=0.0)
    assert model.calls == 1
    model = scripted(endless)
    result = beam_search(model, source, 9, n_beams=3, length_penalty=1.0)
    assert model.calls == 9  # log 0.3 / 9 is better than log 0.5
    assert words_of(result, 0, 0) == (A,) * 9
    assert float(result.scores[0, 0]) == pytest.approx(math.log(0.3) / 9)
    # log 0.3 / n < log 0.5 as long as n < 1.74: with one word more it may still win.
    for n_tokens, calls in ((1, 1), (2, 2)):
        model = scripted(endless)
        beam_search(model, source, n_tokens, n_beams=3, length_penalty=1.0)
        assert model.calls == calls


def test_a_beam_that_could_only_draw_level_is_not_waited_for():
    level = {START: {END: 0.5, A: 0.5}, A: {A: 1.0}}
    model = scripted(level)
    result = beam_search(model, sentences()[0][:1], 9, n_beams=2, length_penalty=0.0)
    assert model.calls == 1
    assert words_of(result, 0, 0) == (END,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_probability_is_above_1_even_by_rounding(dtype):
    for scale in (1e-3, 1.0, 30.0, 1e4):
        logits = (scale * torch.randn(50, 1, V)).to(dtype)
        _, _, log_probs = _find_likeliest(logits, torch.zeros(50, 1, dtype=torch.float64))
        assert (log_probs <= 0).all()


def test_a_limit_far_away_costs_nothing():
    """10 000^5 is beyond 64 bits, and a billion words would not fit in memory."""
    sure = {START: {A: 1.0}, A: {END: 1.0}}
    for n_tokens, length_penalty in ((10_000, 5), (10**9, 10)):
        result = beam_search(
            scripted(sure), sentences()[0][:1], n_tokens, n_beams=1, length_penalty=length_penalty
        )
        assert result.tokens.tolist() == [[[A, END]]]


def test_a_source_that_is_closed_leaves_the_others_alone():
    """The first ends at once; the second goes on for four words, the third for ever."""
    sure = {START: {END: 0.9, A: 0.1}, A: {A: 1.0}}
    long = {START: {A: 0.9, END: 0.1}, A: {C: 1.0}, C: {E: 1.0}, E: {END: 1.0}}
    endless = {START: {A: 1.0}, A: {A: 1.0}}
    model = scripted(sure, long, endless)
    result = beam_search(model, sentences()[0], 6, n_beams=2, length_penalty=0.0)
    assert model.calls == 6
    assert [words_of(result, row, 0) for row in range(B)] == [(END,), (A, C, E, END), (A,) * 6]
    assert result.tokens.shape == (B, 2, 6)
    assert result.lengths[0].tolist() == [1, 0]  # it never took part again
    assert result.scores[0, 1] == -torch.inf
    assert (result.tokens[0, 1] == PAD).all()
    for row, script in enumerate((sure, long, endless)):
        alone = beam_search(scripted(script), sentences()[0][:1], 6, n_beams=2, length_penalty=0.0)
        assert torch.equal(alone.scores[0], result.scores[row])


def test_ended_beams_are_not_continued_and_their_places_are_filled_again():
    """Of three beams one ends in step 1; in step 2 three continuations of the others are kept."""
    script = {START: {END: 0.4, A: 0.35, C: 0.25}, A: {C: 0.4, E: 0.35, END: 0.25}, C: {A: 1.0}}
    result = beam_search(scripted(script), sentences()[0][:1], 2, n_beams=3, length_penalty=1.0)
    assert [words_of(result, 0, place) for place in range(3)] == [(C, A), (END,), (A, C)]
    expected = [math.log(0.25) / 2, math.log(0.4), math.log(0.35 * 0.4) / 2]
    expected.sort(reverse=True)
    assert result.scores[0].tolist() == pytest.approx(expected)


def test_a_watch_is_given_each_step_by_hand_and_changes_nothing():
    steps = []
    source = sentences()[0][:1]
    options = {"n_beams": 2, "length_penalty": 0.0}
    result = beam_search(
        scripted(GARDEN_PATH), source, 5, **options, watch=lambda *step: steps.append(step)
    )
    alone = beam_search(scripted(GARDEN_PATH), source, 5, **options)
    assert torch.equal(result.tokens, alone.tokens)
    assert torch.equal(result.scores, alone.scores)
    # Step 1: A at 0.6 and C at 0.4. Step 2: C ends at 0.4, and A goes on with E at 0.6 · 0.34.
    words, parents, log_probs = (torch.cat(parts).tolist() for parts in zip(*steps, strict=True))
    assert words == [[A, C], [END, E]]
    assert parents == [[0, 0], [1, 0]]
    assert log_probs[0] == pytest.approx([math.log(0.6), math.log(0.4)])
    assert log_probs[1] == pytest.approx([math.log(0.4), math.log(0.6 * 0.34)])


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_the_steps_that_a_watch_sees_spell_the_results(kind):
    model, n_beams = build(kind, scale=1.0), 3
    source, mask, _ = sentences()
    steps, rows = [], [[()] * n_beams for _ in range(B)]
    result = beam_search(
        model, source, 6, n_beams=n_beams, source_mask=mask, watch=lambda *step: steps.append(step)
    )
    seen = [{} for _ in range(B)]
    for words, parents, log_probs in steps:
        assert words.shape == parents.shape == log_probs.shape == (B, n_beams)
        for row in range(B):
            pairs = zip(parents[row].tolist(), words[row].tolist(), strict=True)
            rows[row] = [(*rows[row][parent], word) for parent, word in pairs]
            seen[row] |= dict(zip(rows[row], log_probs[row].tolist(), strict=True))
    for row in range(B):
        for place in range(n_beams):
            if words := words_of(result, row, place):
                assert seen[row][words] == float(result.log_probs[row, place])


# Ties


@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=n, max_size=n
        )
    ),
    st.integers(1, 7),
)
def test_the_largest_are_those_of_a_stable_sort(rows, n):
    logits = torch.tensor(rows, dtype=torch.float64)
    values, indices = _find_largest(logits, n)
    expected = logits.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, expected.values[..., :n])
    assert torch.equal(indices, expected.indices[..., :n])


@pytest.mark.parametrize("kind", KINDS)
def test_of_equal_words_the_smallest_id_is_taken_as_in_greedy_search(kind):
    model = build(kind)
    nn.init.zeros_(model.head.weight if "transformer" in kind else model.decoder.head.weight)
    if "transformer" not in kind:
        nn.init.zeros_(model.decoder.head.bias)
    source = sentences()[0]
    greedy = model.generate(source, 4)
    assert greedy.tolist() == [[0] * 4] * B
    assert torch.equal(beam_search(model, source, 4, n_beams=1).best, greedy)
    result = beam_search(model, source, 1, n_beams=5)
    assert result.tokens[..., 0].tolist() == [[0, 1, 2, 3, 4]] * B
    assert torch.allclose(result.scores, torch.full((B, 5), -math.log(V), dtype=torch.float64))


def test_half_precision_ties_are_broken_as_in_greedy_search():
    for seed in range(8):
        model = build("gru", seed).to(torch.bfloat16)
        source, mask, _ = sentences(seed)
        greedy = model.generate(source, 8, source_mask=mask)
        result = beam_search(model, source, 8, n_beams=1, source_mask=mask)
        assert torch.equal(result.best, greedy)
        assert result.scores.dtype == torch.float64


# Sizes and mistakes


@pytest.mark.parametrize("kind", KINDS)
def test_N23_sizes_of_nothing_and_beams_beyond_the_vocabulary(kind):
    model = build(kind)
    empty = beam_search(model, torch.zeros(0, 4).long(), 3, n_beams=2)
    assert (empty.tokens.size(0), empty.scores.shape) == (0, (0, 2))
    blank = beam_search(model, torch.zeros(2, 0).long(), 3, n_beams=2)
    assert blank.scores.isfinite()[:, 0].all()
    wide = beam_search(model, sentences()[0], 1, n_beams=V + 3)
    assert wide.scores.isfinite().sum(1).tolist() == [V] * B
    assert sorted(wide.tokens[0, :V, 0].tolist()) == list(range(V))
    assert wide.lengths[:, V:].eq(0).all()
    narrow = build(kind, target_vocab_size=1, start_id=0, end_id=0, pad_id=0)
    assert beam_search(narrow, sentences()[0], 5, n_beams=3).lengths.tolist() == [[1, 0, 0]] * B


def test_a_mask_by_lengths_serves_as_well():
    model = build("transformer")
    source, mask, _ = sentences()
    ours = beam_search(model, source, 5, source_mask=Mask.padding(mask.sum(1)))
    assert torch.equal(ours.scores, beam_search(model, source, 5, source_mask=mask).scores)
    assert isinstance(ours, BeamResult)
    assert torch.equal(ours.best, ours.tokens[:, 0])


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"n_tokens": 0}, ValueError, "n_tokens must be at least 1, got 0"),
        ({"n_tokens": 17}, ValueError, "n_tokens is 17 but max_len is 16; ask for fewer or"),
        ({"n_tokens": 2.0}, TypeError, "n_tokens must be a whole number, got 2"),
        ({"n_beams": 0}, ValueError, "n_beams must be at least 1, got 0"),
        ({"n_beams": True}, TypeError, "n_beams must be a whole number, got True"),
        (
            {"length_penalty": -0.5},
            ValueError,
            "length_penalty must be a finite number from 0 to 10, got -0.5",
        ),
        (
            {"length_penalty": math.nan},
            ValueError,
            "length_penalty must be a finite number from 0 to 10, got nan",
        ),
        (
            {"length_penalty": 11},
            ValueError,
            "length_penalty must be a finite number from 0 to 10, got 11",
        ),
        ({"length_penalty": "1"}, TypeError, "length_penalty must be a number, got"),
        ({"length_penalty": True}, TypeError, "length_penalty must be a number, got"),
        ({"model": nn.Linear(2, 3)}, TypeError, "model must be a Seq2Seq .* got Linear"),
    ],
)
def test_mistakes_are_refused(options, kind, message):
    call = {"model": build("transformer"), "source": sentences()[0], "n_tokens": 3} | options
    with pytest.raises(kind, match=message):
        beam_search(**call)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("n_beams", [1, 3])
def test_broken_weights_are_an_error_and_not_a_sentence(kind, value, n_beams):
    model, (source, mask, _) = build(kind), sentences()
    head = model.head if hasattr(model, "head") else model.decoder.head
    with torch.no_grad():
        head.weight[4, 0] = value
    with pytest.raises(ValueError, match="gives NaN or infinity"):
        beam_search(model, source, 5, n_beams=n_beams, source_mask=mask)
