"""What an answer comes from: each measure is that of inspection, and its Python gives the same."""

import pytest
import torch
from text_models import OTHER, TEXT, RandomSources, run_python

from clearhead.inspection import ablate
from clearhead.studio.frames import encode_answer
from clearhead.studio.views import effects
from clearhead.studio.views.changes import Change
from clearhead.studio.views.effects import attribute, measure_heads, read_layers, sweep_patches

ANSWERING = ("gpt", "llama", "alibi", "classes", "toeplitz", "additive")
CHANGES = [
    Change("silence", 0, 1, by="mean"),
    Change("sharpen", 1, 0, factor=2.0),
    Change("patch", "blocks.0", position=2, from_text=OTHER),
]


@pytest.fixture(scope="module")
def models():
    return RandomSources([])


def run(models, name):
    """The logits of a model on the text, (T, ·)."""
    opened = models.open(name)
    with torch.no_grad():
        return opened.model(torch.tensor([opened.tokenizer.encode(TEXT)]))[0]


@pytest.mark.parametrize("name", ANSWERING)
def test_the_python_of_measure_heads_gives_the_same_effects(models, name):
    changes = CHANGES if name != "additive" else CHANGES[:1]
    for given in ([], changes):
        answer = measure_heads(models, name, TEXT, changes=given)
        sweep = run_python(answer)["sweep"]
        assert torch.equal(answer["effect"], sweep.effect)
        assert answer["unchanged"] == sweep.unchanged
        assert answer["effect"].shape == (2, 4)


def test_the_effect_of_a_head_is_that_of_silencing_it(models):
    answer = measure_heads(models, "gpt", TEXT, position=4)
    logits, model = run(models, "gpt"), models.open("gpt").model
    first, second = logits[4].topk(2).indices.tolist()
    assert (answer["target"], answer["against"]) == (first, second)
    with ablate(model, 1, 2):
        without = run(models, "gpt")
    expected = (without[4, first] - without[4, second]) - (logits[4, first] - logits[4, second])
    torch.testing.assert_close(answer["effect"][1, 2], expected, rtol=1e-4, atol=1e-5)


def test_the_metric_of_a_classifier_is_the_logit_of_its_answer(lecture):
    for text, sign in (("abccab|cca", 1), ("abccab|aaa", -1)):
        answer = measure_heads(lecture, "substring", text)
        logit = read_layers(lecture, "substring", text)["answer"]["logits"][-1, 0]
        assert answer["unchanged"] == pytest.approx(sign * float(logit), abs=1e-4)
        assert answer["unchanged"] > 0
        assert answer["metric"] == f"the logit of {'yes' if sign > 0 else 'no'} at [CLS]"


def test_another_target_can_be_measured(models):
    logits = run(models, "gpt")[-1]
    worst = int(logits.argmin())
    answer = measure_heads(models, "gpt", TEXT, target=worst)
    assert answer["unchanged"] == pytest.approx(float(logits[worst] - logits.max()), abs=1e-5)
    with pytest.raises(ValueError, match="target must be from 0 to 6, got 7"):
        measure_heads(models, "gpt", TEXT, target=7)


def test_a_silent_head_has_no_further_effect(models):
    effect = measure_heads(models, "gpt", TEXT, changes=[Change("silence", 1, 2)])["effect"]
    assert abs(float(effect[1, 2])) < 1e-5
    assert abs(float(effect[1, 1])) > 1e-3


@pytest.mark.parametrize("over", ["head", "position"])
@pytest.mark.parametrize("name", ["gpt", "classes", "toeplitz"])
def test_the_python_of_sweep_patches_gives_the_same_effects(models, name, over):
    answer = sweep_patches(models, name, TEXT, OTHER, over=over)
    sweep = run_python(answer)["sweep"]
    assert torch.equal(answer["values"], sweep.values)
    assert torch.equal(answer["recovered"], sweep.recovered)
    assert (answer["unchanged"], answer["goal"]) == (sweep.unchanged, sweep.goal)
    assert answer["effect"].shape == ((2, 4) if over == "head" else (2, 7))


def test_the_metric_of_a_sweep_is_the_other_answer_against_this_one(models):
    opened, other = models.open("llama"), "aaaaaa"
    with torch.no_grad():
        theirs = opened.model(torch.tensor([opened.tokenizer.encode(other)]))[0, -1]
    mine = run(models, "llama")[-1]
    answer = sweep_patches(models, "llama", TEXT, other)
    first, own = int(theirs.argmax()), int(mine.argmax())
    assert own not in theirs.topk(2).indices.tolist()  # else the second best would do as well
    assert (answer["target"], answer["against"]) == (first, own)
    assert answer["unchanged"] == pytest.approx(float(mine[first] - mine[own]), abs=1e-4)
    assert answer["goal"] == pytest.approx(float(theirs[first] - theirs[own]), abs=1e-4)


def test_the_last_block_at_the_answer_recovers_all(models):
    recovered = sweep_patches(models, "gpt", TEXT, OTHER, over="position")["recovered"]
    assert float(recovered[-1, -1]) == pytest.approx(1, abs=1e-4)
    assert recovered[-1, :-1].abs().max() < 1e-4


def test_a_sweep_that_would_take_too_long_is_refused(models, monkeypatch):
    parameters = models.open("gpt").model.n_parameters
    T = len(sweep_patches(models, "gpt", TEXT, OTHER, over="position")["effect"][0])
    monkeypatch.setattr(effects, "MAX_WORK", 2 * parameters * 2 * T * T)
    sweep_patches(models, "gpt", TEXT, OTHER, over="position")
    monkeypatch.setattr(effects, "MAX_WORK", 2 * parameters * 2 * T * T - 1)
    with pytest.raises(ValueError, match=f"has {T} tokens, .* at most {T - 1} positions here"):
        sweep_patches(models, "gpt", TEXT, OTHER, over="position")


@pytest.mark.parametrize("name", ["gpt", "additive"])
def test_heads_that_would_take_too_long_to_measure_are_refused(models, monkeypatch, name):
    parameters = models.open(name).model.n_parameters
    n_heads = measure_heads(models, name, TEXT)["effect"].numel()
    T = len(models.open(name).tokenizer.encode(TEXT))

    def ask_all():
        measure_heads(models, name, TEXT)
        sweep_patches(models, name, TEXT, OTHER, over="head")

    monkeypatch.setattr(effects, "MAX_WORK", 2 * parameters * n_heads * T)
    ask_all()
    monkeypatch.setattr(effects, "MAX_WORK", 2 * parameters * n_heads * T - 1)
    with pytest.raises(ValueError, match=f"the {n_heads} heads .* on at most {T - 1} tokens here"):
        measure_heads(models, name, TEXT)
    with pytest.raises(ValueError, match=f"the {n_heads} heads .* on at most {T - 1} tokens here"):
        sweep_patches(models, name, TEXT, OTHER, over="head")


def test_two_equal_texts_leave_nothing_to_recover(models):
    answer = sweep_patches(models, "gpt", TEXT, TEXT)
    assert answer["recovered"] is None
    assert answer["effect"].abs().max() < 1e-4
    encode_answer(answer)


@pytest.mark.parametrize("name", ANSWERING)
def test_the_python_of_read_layers_gives_the_same_logits(models, name):
    answer = read_layers(models, name, TEXT, changes=CHANGES[:1])
    lens = run_python(answer)["lens"][:, 0]
    logits = answer["answer"]["logits"]
    if name == "toeplitz":
        assert torch.equal(logits[:, 0], lens[:, 0, 0])
    elif name == "classes":
        assert torch.equal(logits, lens[:, 0])
    else:
        assert torch.equal(logits, lens.gather(-1, answer["answer"]["ids"]))
    assert answer["titles"] == ["embedding", "after layer 0", "after layer 1"]


@pytest.mark.parametrize("name", ANSWERING)
def test_the_python_of_attribute_gives_the_same_terms(models, name):
    for changes in ([], CHANGES[:1]):
        answer = attribute(models, name, TEXT, changes=changes)
        found = run_python(answer)["found"]
        assert answer["names"] == list(found.terms)
        assert torch.equal(answer["values"], torch.cat(list(found.terms.values())))
        assert torch.equal(answer["heads"], found.heads[0])
        assert answer["total"] == pytest.approx(answer["logit"], abs=1e-4)


def test_attribute_explains_the_answer_at_the_position_that_is_asked_for(models):
    logits = run(models, "gpt")
    answer = attribute(models, "gpt", TEXT, position=3)
    assert answer["target"] == int(logits[3].argmax())
    assert answer["logit"] == pytest.approx(float(logits[3].max()), abs=1e-5)


def test_questions_that_have_no_answer_are_refused(models):
    with pytest.raises(ValueError, match="gives vectors, no answer"):
        measure_heads(models, "encoder", TEXT)
    with pytest.raises(ValueError, match="has 3 tokens and this one 7"):
        sweep_patches(models, "gpt", TEXT, "ab")
    with pytest.raises(IndexError, match="position must be from 0 to 6, got 7"):
        attribute(models, "gpt", TEXT, position=7)
    with pytest.raises(ValueError, match="temperature must be a finite number"):
        read_layers(models, "gpt", TEXT, temperature=0.0)
