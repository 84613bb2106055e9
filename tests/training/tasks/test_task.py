"""What all tasks have in common: commands for a shell, sizes for a model, answers for a report."""

import shlex

import pytest

from clearhead.config import UNDECIDED
from clearhead.models import (
    ClassifierConfig,
    GPTConfig,
    Seq2SeqGRUConfig,
    TorchTransformerConfig,
    ViTConfig,
    build_model,
)
from clearhead.training.recipe import with_changes
from clearhead.training.recipes import RECIPES, find_recipe
from clearhead.training.tasks import (
    CharacterData,
    DialogueData,
    PictureData,
    PublishedSequenceData,
    SequenceData,
    SubstringData,
    Task,
    TranslationData,
)

TEXT = "x" * 90 + "it's so..."
PLAY = "".join(f"NURSE:\nit's no. {i}, sir\n\n" for i in range(40))
PAIRS = "".join(f"what's {i}\t{i}\n" for i in range(9))


KINDS = {
    "characters": CharacterData,
    "dialogue": DialogueData,
    "pictures": PictureData,
    "sequences": SequenceData,
    "substrings": SubstringData,
    "translation": TranslationData,
}


def opened(name, folder):
    files = {"text.txt": TEXT, "play.txt": PLAY, "pairs.tsv": PAIRS}
    for file, text in files.items():
        (folder / file).write_text(text)
    text, play, pairs = (str(folder / file) for file in files)
    return {
        "characters": CharacterData(text, context=5),
        "dialogue": DialogueData(play, context=20),
        "pictures": PictureData(size=16, n_train=5, n_test=3),
        "sequences": SequenceData("first", max_len=3, n_examples=4),
        "substrings": SubstringData("a'b", n_examples=9, n_validation=4),
        "translation": TranslationData(pairs),
    }[name].open()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("characters", lambda made, run: ["generate", run, "--prompt", "it's so..."]),
        ("dialogue", lambda made, run: ["generate", run, "--prompt", "NURSE:"]),
        ("pictures", lambda made, run: ["predict", run, f"{run}/example.png"]),
        ("sequences", lambda made, run: ["predict", run, "CAC"]),
        ("substrings", lambda made, run: ["predict", run, made.pictures(None)[0][0]]),
        ("translation", lambda made, run: ["predict", run, made.validation_pairs[0][0]]),
    ],
)
def test_the_next_command_is_what_a_shell_understands(tmp_path, name, words):
    made, run = opened(name, tmp_path), tmp_path / "my runs" / "it's-0001"
    expected = ["clearhead", *words(made, str(run))]
    assert shlex.split(made.next_command(run))[: len(expected)] == expected


def test_without_another_command_a_task_is_evaluated(tmp_path):
    run = tmp_path / "my runs"
    assert shlex.split(Task.next_command(None, run)) == ["clearhead", "eval", str(run)]


class ByAccuracy:
    best_by = "val_accuracy"


@pytest.mark.parametrize(
    ("values", "best_loss", "better"),
    [
        ({"val_accuracy": 0.8, "val_loss": 9.0}, 0.1, True),
        ({"val_accuracy": 0.7, "val_loss": 0.2}, 0.3, True),
        ({"val_accuracy": 0.7, "val_loss": 0.3}, 0.3, False),
        ({"val_accuracy": 0.7, "val_loss": float("nan")}, 0.3, False),
        ({"val_accuracy": 0.7}, 0.3, False),
        ({"val_accuracy": 0.7, "val_loss": 0.2}, None, False),
        ({"val_accuracy": 0.6, "val_loss": 0.0}, 0.3, False),
        ({"val_accuracy": float("nan"), "val_loss": 0.0}, 0.3, False),
    ],
)
def test_equal_metrics_are_told_apart_by_the_loss(values, best_loss, better):
    assert Task.is_better(ByAccuracy, values, 0.7, best_loss=best_loss) is better


# Sizes that the data decide


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_leaves_undecided_what_its_data_decide(name):
    """Only the size of pictures is known beforehand."""
    recipe = find_recipe(name)
    decided = set() if name.startswith("vit") else DECIDED[type(recipe.data)]
    assert set(recipe.model.undecided) - {"max_len"} == decided


DECIDED = {
    CharacterData: {"vocab_size"},
    DialogueData: {"vocab_size"},
    PictureData: {"n_classes", "channels", "image_size"},
    PublishedSequenceData: {"d_input", "d_v"},
    SequenceData: {"d_input", "d_v"},
    SubstringData: {"d_input", "d_output"},
    TranslationData: {"source_vocab_size", "target_vocab_size", "start_id", "end_id", "pad_id"},
}


def test_the_sizes_that_a_task_decides(tmp_path):
    for name, kind in KINDS.items():
        assert opened(name, tmp_path).model_sizes.keys() == DECIDED[kind]


def test_a_given_max_len_is_raised_and_an_open_one_is_that_of_the_data(tmp_path):
    task = opened("characters", tmp_path)
    for given, expected in ((UNDECIDED, 5), (3, 5), (7, 7)):
        config = GPTConfig(UNDECIDED, given, d_model=6, n_layers=1, n_heads=2)
        assert task.complete(config).max_len == expected


def test_what_the_data_do_not_decide_must_be_given(tmp_path):
    task = opened("characters", tmp_path)
    with pytest.raises(ValueError, match="GPTConfig leaves d_model undecided"):
        task.complete(GPTConfig(UNDECIDED, 5, d_model=UNDECIDED, n_layers=1, n_heads=2))


@pytest.mark.parametrize("name", RECIPES)
def test_a_wrong_setting_is_refused_before_the_data_decide_the_rest(name):
    change, words = "training.steps=0", "steps must be at least 1"
    fields = vars(find_recipe(name).model)
    if "n_heads" in fields:
        change, words = "model.n_heads=7", "n_heads"
    elif "attention" in fields:
        change, words = "model.attention=cosine", "attention must be one of"
    with pytest.raises(ValueError, match=words):
        with_changes(find_recipe(name), [change])


# What the report asks


def test_every_task_answers_what_the_report_asks(tmp_path):
    kinds = {"characters": set(), "dialogue": set(), "sequences": set()}
    kinds |= {"substrings": {"examples"}, "translation": {"examples"}, "pictures": {"confusion"}}
    for name, expected in kinds.items():
        task = opened(name, tmp_path)
        model = build_model(task.complete(MODELS[name]))
        found = {"examples"} if task.examples(2) else set()
        found |= {"confusion"} if task.confusion(model) is not None else set()
        assert found == expected
        assert bool(task.baseline()) == (name in ("characters", "dialogue"))
        assert len(task.pictures("it's")) == 1
        assert all(isinstance(part, str) for pair in task.pictures("it's") for part in pair)


def test_a_task_that_says_nothing_more_has_plain_answers():
    assert Task.baseline(None) == {}
    assert Task.confusion(None, None) is None
    assert Task.examples(None, 3) == []
    assert Task.pictures(None, "text") == []


SMALL = {"d_model": 6, "n_layers": 1, "n_heads": 2}
MODELS = {
    "characters": GPTConfig(UNDECIDED, UNDECIDED, **SMALL),
    "dialogue": GPTConfig(UNDECIDED, UNDECIDED, **SMALL),
    "pictures": ViTConfig(patch_size=8, **SMALL),
    "sequences": TorchTransformerConfig(UNDECIDED, 4, UNDECIDED),
    "substrings": ClassifierConfig(UNDECIDED, UNDECIDED, **SMALL),
    "translation": Seq2SeqGRUConfig(*[UNDECIDED] * 5, d_embedding=5, d_hidden=6),
}
