"""What a run folder keeps of a task is all that a model needs to answer."""

import dataclasses
import json
import math
import shutil

import pytest
import torch

from clearhead.config import UNDECIDED
from clearhead.data import CharTokenizer, WordTokenizer
from clearhead.files import BadFile
from clearhead.models import (
    ClassifierConfig,
    GPTConfig,
    Seq2SeqGRUConfig,
    Seq2SeqTransformerConfig,
    TorchTransformerConfig,
    ViTConfig,
)
from clearhead.models.model import Config, Model
from clearhead.training import tasks
from clearhead.training.tasks import (
    CharacterData,
    DataConfig,
    DialogueData,
    PictureData,
    PicturePredictor,
    PublishedSequenceData,
    SequenceData,
    SubstringData,
    TranslationData,
    TranslationPredictor,
)

SIZES = {"d_model": 12, "n_layers": 1, "n_heads": 3}
PLAY = "\n\n".join(f"{'ROMEO' if i % 2 else 'NURSE'}:\nspeak no more, {i % 7}." for i in range(60))
PAIRS = "\n".join(f"the cat {i}\tel gato {i}" for i in range(40))

# kind: (data, the file they are read from, model, a question)
KINDS = {
    "substrings": (
        SubstringData(n_examples=5),
        None,
        ClassifierConfig(UNDECIDED, UNDECIDED, **SIZES),
        "abca|ca",
    ),
    "characters": (
        CharacterData(context=7),
        PLAY,
        GPTConfig(UNDECIDED, 7, **SIZES),
        "ROMEO:\nspeak",
    ),
    "dialogue": (
        DialogueData(context=24, sample_length=5),
        PLAY,
        GPTConfig(UNDECIDED, 24, **SIZES),
        "ROMEO:\nspeak",
    ),
    "dates": (
        TranslationData(n_examples=20, n_validation=5),
        None,
        Seq2SeqGRUConfig(*[UNDECIDED] * 5, d_embedding=5, d_hidden=7),
        "may 3rd 1984",
    ),
    "sentences": (
        TranslationData(),
        PAIRS,
        Seq2SeqTransformerConfig(*[UNDECIDED] * 5, max_len=UNDECIDED, **SIZES),
        "the cat 3",
    ),
    "pictures": (
        PictureData(size=8, n_train=20, n_test=5),
        None,
        ViTConfig(patch_size=4, **SIZES),
        "example.png",
    ),
    "unique": (
        SequenceData("unique", n_examples=9),
        None,
        TorchTransformerConfig(UNDECIDED, 4, UNDECIDED),
        "CAC",
    ),
    "identity as published": (
        PublishedSequenceData("identity", n_examples=9),
        None,
        TorchTransformerConfig(UNDECIDED, 4, UNDECIDED),
        "CAC",
    ),
    "first": (
        SequenceData("first", n_examples=9),
        None,
        TorchTransformerConfig(UNDECIDED, 4, UNDECIDED),
        "CAC",
    ),
}
WITH_FILES = [kind for kind in KINDS if kind not in ("unique", "first")]


def opened(kind, folder):
    """The data config, its task and a complete model config."""
    data, text, config, _ = KINDS[kind]
    if text is not None:
        (folder / "source.txt").write_text(text)
        data = dataclasses.replace(data, path=str(folder / "source.txt"))
    task = data.open()
    return data, task, task.complete(config)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_every_kind_of_data_is_tried():
    found = (getattr(tasks, name) for name in tasks.__all__)
    kinds = {kind for kind in found if isinstance(kind, type) and issubclass(kind, DataConfig)}
    assert {type(data) for data, *_ in KINDS.values()} == kinds - {DataConfig}


def test_what_was_kept_answers_as_the_task_does_and_needs_no_data(kind, tmp_path, kept):
    data, task, config = opened(kind, tmp_path)
    task.save(kept)
    if (tmp_path / "source.txt").exists():
        (tmp_path / "source.txt").unlink()
    loaded = data.load_predictor(kept)
    loaded.check(config, kept)
    assert loaded.model_sizes == task.predictor.model_sizes
    torch.manual_seed(0)
    model = task.build(config)
    question = KINDS[kind][3]
    question = str(kept / question) if question.endswith(".png") else question
    assert loaded.predict(model, question) == task.predictor.predict(model, question)
    assert loaded.tokenizer == task.predictor.tokenizer


def test_all_files_that_are_kept_are_told(kind, tmp_path, kept):
    _, task, _ = opened(kind, tmp_path)
    task.predictor.save(kept)
    assert {path.name for path in kept.iterdir()} == set(task.predictor.files)


def test_the_data_decide_sizes_of_the_model_and_another_is_refused(kind, tmp_path, kept):
    _, task, config = opened(kind, tmp_path)
    for name, value in task.predictor.model_sizes.items():
        assert getattr(config, name) == value
        other = dataclasses.replace(config)
        object.__setattr__(other, name, value + 1)
        words = (
            f"mixes files of different runs: .*{name} is {value}, but by config.json {value + 1}"
        )
        with pytest.raises(BadFile, match=words) as fault:
            task.predictor.check(other, kept)
        assert all(file in str(fault.value) for file in task.predictor.files)


def test_a_model_of_another_kind_cannot_learn_it(kind, tmp_path):
    _, task, config = opened(kind, tmp_path)
    wrong = KINDS["pictures" if kind != "pictures" else "characters"][2]
    words = f"a {type(task).__name__} is learned by the model of a .*, got a {type(wrong).__name__}"
    with pytest.raises(TypeError, match=words):
        task.complete(wrong)
    assert isinstance(config, task.config_type)


# Bad files


BROKEN = {"cut": "{", "empty": "", "list": "[1]", "twice": '{"a": 1, "a": 2}', "nan": "NaN"}


@pytest.mark.parametrize("kind", WITH_FILES)
@pytest.mark.parametrize("fault", ["missing", *BROKEN])
def test_F10_a_bad_file_is_named(kind, fault, tmp_path, kept):
    data, task, _ = opened(kind, tmp_path)
    for name in task.predictor.files:
        shutil.rmtree(kept)
        kept.mkdir()
        task.save(kept)
        if fault == "missing":
            (kept / name).unlink()
        else:
            (kept / name).write_text(BROKEN[fault])
        with pytest.raises(BadFile, match=rf"run/{name}"):
            data.load_predictor(kept)


def test_F18_a_tokenizer_of_another_kind_or_without_an_end_is_named(tmp_path, kept):
    data, _, _ = opened("dialogue", tmp_path)
    CharTokenizer("abc").save(kept / "tokenizer.json")
    with pytest.raises(BadFile, match=r"tokenizer\.json is not a tokenizer of words"):
        data.load_predictor(kept)
    WordTokenizer(["a", "b"]).save(kept / "tokenizer.json")
    with pytest.raises(BadFile, match=r"tokenizer\.json: the tokenizer must have <end>"):
        data.load_predictor(kept)
    for other in ("substrings", "characters"):
        with pytest.raises(BadFile, match=r"tokenizer\.json is not a tokenizer of characters"):
            opened(other, tmp_path)[0].load_predictor(kept)


GOOD = {"classes": ["cat", "dog"], "mean": [0.5, 0.25, 0], "std": [1, 0.5, 0.1]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"classes": []}, "classes must be a list of names"),
        ({"classes": "cat"}, "classes must be a list of names, got 'cat'"),
        ({"classes": ["cat", 3]}, "classes must be a list of names"),
        ({"mean": [0.5, "x", 0.2]}, "mean must be a list of numbers"),
        ({"mean": [True, 0.1, 0.2]}, "mean must be a list of numbers"),
        ({"mean": [0.5]}, "mean and std must have a number for each channel, got 1 and 3"),
        ({"std": [1, 0, 1]}, "std must be a list of positive numbers"),
        ({"std": [1, -1, 1]}, "std must be a list of positive numbers"),
        ({"size": 3}, "it must hold classes, mean, std and nothing else"),
    ],
)
def test_pictures_json_with_wrong_values_is_named(values, words, kept):
    (kept / "pictures.json").write_text(json.dumps(GOOD))
    predictor = PicturePredictor.load(kept)
    assert (predictor.class_names, predictor.model_sizes["channels"]) == (("cat", "dog"), 3)
    (kept / "pictures.json").write_text(json.dumps({**GOOD, **values}))
    with pytest.raises(BadFile, match=rf"pictures\.json: {words}"):
        PicturePredictor.load(kept)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_tokens": 0}, "n_tokens must be at least 1, got 0"),
        ({"n_tokens": "9"}, "n_tokens must be a whole number"),
        ({"n_tokens": 10**9}, "n_tokens must be at most 100,000"),
        ({"n": 9}, "it must hold n_tokens and nothing else"),
    ],
)
def test_translation_json_with_wrong_values_is_named(values, words, tmp_path, kept):
    opened("dates", tmp_path)[1].save(kept)
    (kept / "translation.json").write_text(json.dumps(values))
    with pytest.raises(BadFile, match=rf"translation\.json: {words}"):
        TranslationPredictor.load(kept)


# What they mean


class Says(Model):
    """The same logit for every token."""

    config_type = Config

    def __init__(self, logit):
        super().__init__(Config())
        self.logit = torch.nn.Parameter(torch.tensor(logit))

    def forward(self, tokens):
        return self.logit + torch.zeros(*tokens.shape, 1)


@pytest.mark.parametrize(("logit", "answer"), [(1.5, "yes"), (-1.5, "no")])
def test_the_probability_is_that_of_the_answer(logit, answer, tmp_path):
    """Also of a no: beside it, the probability of a yes would be read wrongly."""
    _, task, _ = opened("substrings", tmp_path)
    found = task.predictor.predict(Says(logit), "abca|ca")
    assert found["answer"] == answer
    assert found["probability"] == pytest.approx(1 / (1 + math.exp(-1.5)))


def test_a_translation_has_room_for_the_longest_that_was_learned_and_ten_more(tmp_path):
    _, task, config = opened("sentences", tmp_path)
    longest = max(map(len, task.train.target_rows))
    assert task.predictor.n_tokens == longest + 10
    model = task.build(config)
    assert task.predictor.most_tokens(model) == model.max_len < longest + 10
    gru, config = opened("dates", tmp_path)[1:]
    assert gru.predictor.most_tokens(gru.build(config)) == gru.predictor.n_tokens
