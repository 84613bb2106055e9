"""What all tasks have in common: the command that tries the model works in a shell."""

import shlex

import pytest

from clearhead.training.tasks import (
    CharacterData,
    DialogueData,
    PictureData,
    SequenceData,
    SubstringData,
    Task,
    TranslationData,
)

TEXT = "x" * 90 + "it's so..."
PLAY = "".join(f"NURSE:\nit's no. {i}, sir\n\n" for i in range(40))
PAIRS = "".join(f"what's {i}\t{i}\n" for i in range(9))


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
        ("substrings", lambda made, run: ["predict", run, made.validation[1][0]]),
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
