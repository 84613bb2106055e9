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

TEXT = "".join(f"NURSE:\nit's no. {i}, sir\n\n" for i in range(40))
PAIRS = "".join(f"what's {i}\t{i}\n" for i in range(9))


def opened(name, folder):
    (folder / "play.txt").write_text(TEXT)
    (folder / "pairs.tsv").write_text(PAIRS)
    play, pairs = str(folder / "play.txt"), str(folder / "pairs.tsv")
    few = {"n_examples": 9, "n_validation": 4}
    return {
        "characters": CharacterData(play, context=5),
        "dialogue": DialogueData(play, context=20),
        "pictures": PictureData(size=16, n_train=5, n_test=3),
        "sequences": SequenceData("first", max_len=3, n_examples=4),
        "substrings": SubstringData("a'b", **few),
        "translation": TranslationData(pairs),
    }[name].open()


@pytest.mark.parametrize(
    ("name", "verb", "rest"),
    [
        ("characters", "generate", ["--prompt", "it's no", "--tokens"]),
        ("dialogue", "generate", ["--prompt", "NURSE:", "--temperature"]),
        ("pictures", "predict", ["{run}/example.png"]),
        ("sequences", "predict", ["CAC"]),
        ("substrings", "predict", ["{text}"]),
        ("translation", "predict", ["{sentence}"]),
    ],
)
def test_the_next_command_is_what_a_shell_understands(tmp_path, name, verb, rest):
    made, run = opened(name, tmp_path), tmp_path / "my runs" / "it's-0001"
    words = shlex.split(made.next_command(run))
    assert words[:3] == ["clearhead", verb, str(run)]
    if name == "substrings":
        known = {"text": made.validation[1][0]}
    elif name == "translation":
        known = {"sentence": made.validation_pairs[0][0]}
    else:
        known = {"run": run}
    for word, expected in zip(words[3:], rest, strict=False):
        assert word.startswith(expected.format(**known))
    assert len(words) >= 3 + len(rest)


def test_without_another_command_a_task_is_evaluated(tmp_path):
    run = tmp_path / "my runs"
    assert shlex.split(Task.next_command(None, run)) == ["clearhead", "eval", str(run)]
