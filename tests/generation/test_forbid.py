"""forbid: ids that are never generated, by any way of choosing and any form of the model."""

from functools import partial
from itertools import product

import pytest
import torch
import translators
from language_models import MAX_LEN, V, build, counter, ids

from clearhead.data import pad_left
from clearhead.generation import Sampling, beam_search, choose, generate, pack, stream
from clearhead.generation.fast import best_word
from clearhead.generation.fast.best_word import BestWord

FORMS = {
    "model": (lambda model: model, {}),
    "no cache": (lambda model: model, {"cache": False}),
    "packed": (pack, {}),
    "int8": (lambda model: pack(model, weights="int8"), {}),
}
EACH = pytest.mark.parametrize(("form", "options"), FORMS.values(), ids=FORMS)


@EACH
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"repetition_penalty": 1.3},
        {"temperature": 5.0, "seed": 1},
        {"temperature": 5.0, "top_k": 9, "seed": 1},
        {"temperature": 5.0, "top_p": 0.9, "min_p": 0.001, "repetition_penalty": 2.0, "seed": 1},
    ],
)
def test_a_forbidden_id_is_never_generated(form, options, sampling):
    model, tokens = build(), ids(4, 5)
    free = generate(form(model), tokens, 30, **options, **sampling)[:, 5:]
    forbid = set(free.unique().tolist()[::2])
    made = generate(form(model), tokens, 30, forbid=forbid, **options, **sampling)[:, 5:]
    assert forbid
    assert not forbid & set(made.unique().tolist())


@EACH
def test_greedy_takes_the_likeliest_of_the_others(form, options):
    model, tokens, forbid = build(), ids(3, 5), list(range(0, V, 3))
    made = generate(form(model), tokens, 20, forbid=forbid, **options)
    logits = torch.stack(
        [s.logits for s in stream(form(model), tokens, 20, forbid=forbid, keep_logits=True)], 1
    )
    assert torch.equal(made[:, 5:], logits.index_fill(-1, torch.tensor(forbid), -1e9).argmax(-1))
    assert not torch.equal(made[:, 5:], logits.argmax(-1))  # they would have been chosen


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_exact_search_in_8_bits_finds_the_best_of_the_others(batch_size, monkeypatch):
    torch.manual_seed(0)
    table, x = torch.randn(400, 32), torch.randn(batch_size, 32)
    forbidden = (x @ table.mT).topk(5).indices.unique()
    expected = (x @ table.mT).index_fill(-1, forbidden, -torch.inf).argmax(-1)
    search = BestWord(table)
    assert torch.equal(search(x, forbidden), expected)
    assert not torch.equal(search(x), expected)
    monkeypatch.setattr(best_word, "SMALL", 1e9)  # so that all words are candidates
    assert torch.equal(search(x, forbidden), expected)


def test_a_model_that_counts_skips_nothing_else():
    model = counter()
    assert generate(model, torch.tensor([[3]]), 3, forbid=[9]).tolist() == [[3, 4, 5, 6]]
    made = generate(model, torch.tensor([[3]]), 3, forbid=[5, 5]).tolist()[0]
    assert made[:2] == [3, 4]
    assert 5 not in made


def test_the_others_share_the_probability():
    """Drawing without a forbidden id is drawing from the renormalised rest."""
    logits = torch.tensor([[1.0, 3.0, 0.5, 2.0]]).expand(2000, 4)
    draws = torch.linspace(0, 1, 2000)
    found = choose(logits, Sampling(1.0), draws, forbidden=torch.tensor([1]))
    rest = logits[0, [0, 2, 3]].softmax(-1)
    shares = torch.tensor([(found == i).float().mean() for i in (0, 2, 3)])
    assert (shares - rest).abs().max() < 1e-3
    assert not (found == 1).any()


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 2}])
def test_nothing_forbidden_changes_nothing_and_an_unlikely_id_neither(sampling):
    model, tokens = build(), ids(2, 5)
    made = generate(model, tokens, 12, **sampling)
    assert torch.equal(generate(model, tokens, 12, forbid=(), **sampling), made)
    if not sampling:
        absent = next(i for i in range(V) if i not in made[:, 5:])
        assert torch.equal(generate(model, tokens, 12, forbid={absent}), made)


@EACH
def test_it_holds_past_the_context_length_and_with_padding(form, options):
    prompt, token_mask = pad_left([[1, 2, 3], [4]], 0)
    more = {"token_mask": token_mask, "roll": True, **options}
    made = generate(form(build()), prompt, MAX_LEN + 7, forbid=[0, 5, 6], **more)[:, 3:]
    assert not torch.isin(made, torch.tensor([0, 5, 6])).any()


def test_the_logits_of_a_step_are_the_model_s_own():
    model, tokens = build(), ids(1, 4)
    step = next(stream(model, tokens, 1, forbid=[0, 1], keep_logits=True))
    with torch.no_grad():
        assert torch.allclose(step.logits, model(tokens)[:, -1], atol=1e-5)


@pytest.mark.parametrize(
    ("forbid", "error", "words"),
    [
        (3, TypeError, r"forbid must be a list or set of ids, got 3; write forbid=\[3\]"),
        ([V], ValueError, f"forbid must hold ids from 0 to {V - 1}, got {V}"),
        ([-1], ValueError, "forbid must hold ids"),
        ([True], ValueError, "forbid must hold ids"),
        (range(V), ValueError, f"forbid holds all {V} ids, so none is left; leave one out"),
    ],
)
def test_what_cannot_be_forbidden_is_named(forbid, error, words):
    with pytest.raises(error, match=words):
        stream(build(), ids(1, 4), 3, forbid=forbid)


# Translators

EACH_KIND = pytest.mark.parametrize("kind", translators.KINDS)


def prefer(kind, word, seed=0):
    """A translator whose best word is always this one."""
    model = translators.build(kind, seed, scale=1.0)
    decode_step = model.decode_step

    def decode_and_prefer(tokens, state):
        logits, state = decode_step(tokens, state)
        return logits.index_fill(-1, torch.tensor([word]), 30.0), state

    model.decode_step = decode_and_prefer
    return model


@EACH_KIND
def test_a_translation_has_no_forbidden_word_even_if_it_is_the_best(kind):
    (source, mask, _), unk = translators.sentences(), 3
    model = prefer(kind, unk)
    assert (model.generate(source, 6, source_mask=mask) == unk).all()
    assert unk not in model.generate(source, 6, source_mask=mask, forbid=[unk])
    for n_beams in (1, 3, translators.V + 2):
        free = beam_search(model, source, 6, n_beams=n_beams, source_mask=mask)
        assert (free.best == unk).all()
        found = beam_search(model, source, 6, n_beams=n_beams, source_mask=mask, forbid=[unk])
        assert unk not in found.tokens


@EACH_KIND
def test_one_beam_is_greedy_search_among_the_others(kind):
    for seed in range(6):
        model = translators.build(kind, seed, scale=1.0)
        source, mask, _ = translators.sentences(seed)
        written = model.generate(source, 6, source_mask=mask)
        forbid = set(written.unique().tolist()) - {translators.END}
        greedy = model.generate(source, 6, source_mask=mask, forbid=forbid)
        found = beam_search(model, source, 6, n_beams=1, source_mask=mask, forbid=forbid)
        assert torch.equal(found.best, greedy)
        for t in range(greedy.size(1)):  # the likeliest of the others at each step
            inputs = torch.cat((torch.full((3, 1), translators.START), greedy[:, :t]), dim=1)
            logits = model(source, inputs, mask)[:, -1].detach()
            best = logits.index_fill(-1, torch.tensor(sorted(forbid)).long(), -1e9).argmax(-1)
            ended = (greedy[:, :t] == translators.END).any(1)
            assert torch.equal(greedy[:, t], best.masked_fill(ended, translators.PAD))


@EACH_KIND
def test_a_wide_beam_finds_the_best_of_all_sentences_without_the_forbidden_word(kind):
    """Their probabilities are the model's own, those of teacher forcing."""
    tiny = {"target_vocab_size": 5, "start_id": 3, "end_id": 2, "pad_id": 0}
    model, source = translators.build(kind, scale=1.0, **tiny), translators.sentences()[0][:1]
    found = beam_search(model, source, 3, n_beams=64, length_penalty=0.0, forbid=[1, 4])
    every = [(2,), *((a, 2) for a in (0, 3)), *product((0, 3), (0, 3), (0, 2, 3))]
    log_probs = {}
    for words in every:
        logits = model(source, torch.tensor([[3, *words[:-1]]])).detach().log_softmax(-1)[0]
        log_probs[words] = sum(float(logits[t, word]) for t, word in enumerate(words))
    order = sorted(every, key=lambda words: -log_probs[words])
    n = int(found.lengths[0, 0])
    assert tuple(found.tokens[0, 0, :n].tolist()) == order[0]
    assert float(found.log_probs[0, 0]) == pytest.approx(log_probs[order[0]], abs=1e-9)
    for words, length, log_prob in zip(
        found.tokens[0].tolist(), found.lengths[0], found.log_probs[0], strict=True
    ):
        if length:
            expected = log_probs[tuple(words[:length])]
            assert float(log_prob) == pytest.approx(expected, abs=1e-9)


@EACH_KIND
def test_nothing_forbidden_changes_no_translation(kind):
    model, (source, mask, _) = translators.build(kind, scale=1.0), translators.sentences()
    assert torch.equal(
        model.generate(source, 6, source_mask=mask),
        model.generate(source, 6, source_mask=mask, forbid=[]),
    )
    ours, free = (
        beam_search(model, source, 6, source_mask=mask, **options)
        for options in ({"forbid": ()}, {})
    )
    assert torch.equal(ours.scores, free.scores)
    assert torch.equal(ours.tokens, free.tokens)


def test_rows_that_have_ended_are_filled_with_padding_even_if_that_is_forbidden():
    model = prefer("gru", translators.END)
    source = translators.sentences()[0]
    assert model.generate(source, 4, forbid=[translators.PAD]).tolist() == [[translators.END]] * 3
    model = translators.build("transformer", 3, scale=1.0)
    made = model.generate(source, 12, forbid=[translators.PAD])
    ended = (made == translators.END).cumsum(1).bool()
    assert ((made == translators.PAD) == (ended & (made != translators.END))).all()


@EACH_KIND
@pytest.mark.parametrize(
    ("forbid", "error", "words"),
    [
        (3, TypeError, r"forbid must be a list or set of ids, got 3; write forbid=\[3\]"),
        ([translators.V], ValueError, "forbid must hold ids from 0 to 12, got 13"),
        ([True], ValueError, "forbid must hold ids from 0 to 12, got True"),
        (range(translators.V), ValueError, "forbid holds all 13 ids, so none is left; leave one"),
        ([translators.END, 5], ValueError, "forbid holds 2, the end token, without which no sent"),
    ],
)
def test_what_a_translator_cannot_do_without_is_named(kind, forbid, error, words):
    model, source = translators.build(kind), translators.sentences()[0]
    for translate in (model.generate, partial(beam_search, model)):
        with pytest.raises(error, match=words):
            translate(source, 3, forbid=forbid)
