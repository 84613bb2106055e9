"""The translation view: what it shows is what generate, record and beam_search compute."""

import math

import pytest
import torch
from text_models import run_python

from clearhead.generation import beam_search
from clearhead.inspection import alignment_weights, record
from clearhead.runs import load_run
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.sources import Sources
from clearhead.studio.views import translation
from clearhead.training import find_recipe, train, with_changes

SMALL = [
    "data.n_examples=50",
    "data.n_validation=9",
    "data.n_decoded=2",
    "training.steps=1",
    "training.eval_every=1",
    "training.save_every=1",
    "training.batch_size=8",
    "training.warmup=1",
]
WIDTHS = ["model.d_model=12", "model.n_heads=3", "model.n_layers=2", "model.d_ff=10"]
KINDS = {
    "translate-transformer": WIDTHS,
    "translate-gru": ["model.d_hidden=9", "model.d_embedding=5", "data.level=words"],
}
TEXT = "march 3, 1984"


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    """The run folder of a small translator, almost untrained."""
    recipe = with_changes(find_recipe(request.param), [*SMALL, *KINDS[request.param]])
    return train(recipe, tmp_path_factory.mktemp("translator"), threads=1).run


@pytest.fixture(scope="module")
def models(folder):
    return Sources([str(folder)])


@pytest.fixture(scope="module")
def id(folder):
    return folder.name


@pytest.fixture(scope="module")
def run(folder):
    return load_run(folder, device="cpu")


@pytest.fixture(scope="module")
def source(run):
    return torch.tensor([run.predictor.source.encode(TEXT)])


def test_a_translation_is_the_greedy_one_with_the_probabilities_of_teacher_forcing(
    models, id, run, source
):
    answer = translation.translate(models, id, TEXT)
    n_tokens = run.predictor.most_tokens(run.model)
    written = run.model.generate(source, n_tokens, forbid=run.predictor.forbid)
    assert answer["ids"] == written[0].tolist()
    assert answer["text"] == run.predictor.decode(answer["ids"])
    assert answer["target"] == run.predictor.target.spell(answer["ids"], specials=True)
    assert answer["source"] == run.predictor.source.spell(source[0], specials=True)
    inputs = torch.tensor([[run.model.config.start_id, *answer["ids"][:-1]]])
    with torch.no_grad():
        probs = run.model(source, inputs)[0].softmax(-1)
    for step, word in enumerate(answer["ids"]):
        assert float(answer["probs"][step]) == float(probs[step, word])
        for shown in range(answer["likely"]["ids"].size(1)):
            likely = int(answer["likely"]["ids"][step, shown])
            assert float(answer["likely"]["probs"][step, shown]) == float(probs[step, likely])
    expected = sum(math.log(p) for p in answer["probs"].tolist())
    assert float(answer["log_prob"]) == pytest.approx(expected, rel=1e-5)


def test_every_attention_to_the_source_is_shown_and_their_means(models, id, run, source):
    answer = translation.translate(models, id, TEXT)
    T, S = len(answer["target"]), len(answer["source"])
    inputs = torch.tensor([[run.model.config.start_id, *answer["ids"][:-1]]])
    with torch.no_grad(), record(run.model) as trace:
        run.model(source, inputs)
    L, H = (2, 3) if "transformer" in id else (1, 1)
    assert [layer["weights"].shape for layer in answer["layers"]] == [(H, T, S)] * L
    assert answer["layers"][-1]["name"] == run.model.alignment_name
    for layer in answer["layers"]:
        assert torch.equal(layer["mean"], alignment_weights(trace, layer["name"])[0])
        torch.testing.assert_close(layer["weights"].mean(0), layer["mean"])
        torch.testing.assert_close(layer["weights"].sum(-1), torch.ones(H, T))


@pytest.mark.parametrize("prefix", [None, [5, 4, 6]])
def test_the_python_of_a_translation_gives_all_its_numbers(models, id, prefix):
    answer = translation.translate(models, id, TEXT, prefix=prefix)
    python = run_python(answer)
    assert answer["ids"] == python["written"][0].tolist()
    assert torch.equal(answer["probs"], python["probs"].gather(-1, python["written"].mT)[:, 0])
    assert torch.equal(answer["log_probs"], python["log_probs"])
    for layer, weights in zip(answer["layers"], python["alignments"], strict=True):
        assert torch.equal(layer["mean"], weights)
    assert decode_answer(encode_answer(answer))["target"] == answer["target"]


def test_a_forced_word_changes_the_rest(models, id, run, source):
    plain = translation.translate(models, id, TEXT)
    other = next(i for i in plain["likely"]["ids"][1].tolist() if i != plain["ids"][1])
    answer = translation.translate(models, id, TEXT, prefix=[plain["ids"][0], other])
    assert answer["ids"][:2] == [plain["ids"][0], other]
    assert float(answer["probs"][0]) == pytest.approx(float(plain["probs"][0]))
    shown = plain["likely"]["ids"][1].tolist().index(other)
    expected = float(plain["likely"]["probs"][1, shown])
    assert float(answer["probs"][1]) == pytest.approx(expected, rel=1e-5)
    # Both agree with a greedy translation until the forced word, and are greedy after it.
    prefix = torch.tensor([[plain["ids"][0], other]])
    n_tokens = run.predictor.most_tokens(run.model)
    written = run.model.generate(source, n_tokens, forbid=run.predictor.forbid, prefix=prefix)
    assert answer["ids"] == written[0].tolist()


def test_a_weight_is_explained_by_its_scores(models, id):
    answer = translation.translate(models, id, TEXT)
    head, layer = (2, 1) if "transformer" in id else (0, 0)
    words = {"ids": answer["ids"], "step": 3, "place": 2, "layer": layer, "head": head}
    found = translation.explain_alignment(models, id, TEXT, **words)
    assert found["kind"] == ("dot product" if "transformer" in id else "additive")
    weights = answer["layers"][layer]["weights"][head, 3]
    torch.testing.assert_close(found["weights"], weights)
    torch.testing.assert_close(found["scores"].softmax(-1), weights)
    score = (float(found["terms"].sum()) + found["bias"]) * found["scale"]
    assert float(found["scores"][2]) == pytest.approx(score, rel=1e-5)
    python = run_python(found)["found"]
    assert torch.equal(found["terms"], python.terms)
    assert torch.equal(found["scores"], python.scores)


@pytest.mark.parametrize(("n_beams", "length_penalty"), [(1, 1.0), (3, 0.0), (5, 1.4)])
def test_beams_are_those_of_beam_search(models, id, run, source, n_beams, length_penalty):
    answer = translation.search_beams(models, id, TEXT, n_beams, length_penalty)
    expected = beam_search(
        run.model,
        source,
        run.predictor.most_tokens(run.model),
        n_beams=n_beams,
        length_penalty=length_penalty,
        forbid=run.predictor.forbid,
    )
    found = [result["score"] for result in answer["results"]]
    assert found == [score for score in expected.scores[0].tolist() if math.isfinite(score)]
    assert answer["results"][0]["text"] == run.predictor.decode(expected.best[0].tolist())
    python = run_python(answer)
    assert found == python["found"].scores[0].tolist()[: len(found)]
    assert len(answer["steps"]) == len(python["steps"])
    for step, (_, parents, log_probs) in zip(answer["steps"], python["steps"], strict=True):
        assert step["log_probs"] == [p for p in log_probs[0].tolist() if math.isfinite(p)]
        assert step["parents"] == [parents[0].tolist()[place] for place in step["places"]]


def test_the_path_of_a_result_spells_it_and_its_log_p(models, id, run):
    answer = translation.search_beams(models, id, TEXT, 4, 1.0)
    assert answer["results"]
    for result in answer["results"]:
        assert len(result["path"]) == result["length"]
        words, parent = [], None
        for step, place in zip(answer["steps"], result["path"], strict=False):
            node = step["places"].index(place)
            assert parent in (None, step["parents"][node])
            words.append(step["words"][node])
            parent = place
        assert step["log_probs"][node] == result["log_prob"]
        ids = [run.predictor.target.tokens.index(word) for word in words]
        assert run.predictor.decode(ids) == result["text"]
        assert result["score"] == pytest.approx(result["log_prob"] / result["length"])


def test_one_beam_is_the_greedy_translation(models, id):
    greedy = translation.translate(models, id, TEXT)
    answer = translation.search_beams(models, id, TEXT, 1, 1.0)
    assert [words for step in answer["steps"] for words in step["words"]] == greedy["target"]
    assert answer["results"][0]["log_prob"] == pytest.approx(float(greedy["log_prob"]), rel=1e-5)


def test_more_beams_than_a_large_model_can_search_in_time_are_refused(lecture, monkeypatch):
    model = lecture.open("dates").model
    n_words = translation._read(lecture, "dates", "sep 21, 1883").n_tokens
    monkeypatch.setattr(translation, "MAX_WORK", 2 * model.n_parameters * n_words * 3)
    translation.search_beams(lecture, "dates", "sep 21, 1883", 3)
    with pytest.raises(ValueError, match=r"n_beams is 4, .* at most 3 beams are searched here"):
        translation.search_beams(lecture, "dates", "sep 21, 1883", 4)


@pytest.mark.parametrize(
    ("question", "arguments", "message"),
    [
        ("translate", {"text": " "}, "the text is empty; type a sentence"),
        ("translate", {"text": "1 " * 300}, "tokens, but at most .* are read; shorten it"),
        ("translate", {"text": TEXT, "prefix": [10_000]}, "but ids go from 0 to"),
        ("translate", {"text": TEXT, "prefix": [5] * 90}, "prefix has "),
        ("search_beams", {"text": TEXT, "n_beams": 17}, "n_beams must be from 1 to 16 here"),
        ("search_beams", {"text": TEXT, "length_penalty": -1.0}, "length_penalty must be a finite"),
        ("explain_alignment", {"text": TEXT, "ids": [5], "step": 1, "place": 0}, "step is 1, but"),
        ("explain_alignment", {"text": TEXT, "ids": [], "step": 0, "place": 0}, "step is 0, but"),
        ("explain_alignment", {"text": TEXT, "ids": [5], "step": 0, "place": 99}, "column is 99"),
        (
            "explain_alignment",
            {"text": TEXT, "ids": [5], "step": 0, "place": 0, "layer": 2},
            "layer is 2, but there are",
        ),
    ],
)
def test_wrong_input_is_refused_in_words(models, id, question, arguments, message):
    with pytest.raises((ValueError, IndexError), match=message):
        getattr(translation, question)(models, id, **arguments)


def test_other_models_are_refused(sources):
    with pytest.raises(ValueError, match=r"substring-0001 is a .* this view shows translators"):
        translation.translate(sources, "substring-0001", "abc")


def test_the_built_in_translator_reads_dates(lecture):
    answer = translation.translate(lecture, "dates", "march 3, 1984")
    assert answer["text"] == "1984-03-03"
    assert answer["is_ended"]
    assert answer["note"] is None
    odd = translation.translate(lecture, "dates", "no date at all")
    assert "written like none of the dates of training" in odd["note"]
