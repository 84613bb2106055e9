"""clearhead predict."""

import json
import shutil

import pytest
from picture_files import write_mnist
from small_runs import assert_a_mistake, small_run

from clearhead.cli import predict as command
from clearhead.training import load_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose model has a limit: learned positions end at max_len."""
    return small_run(tmp_path_factory.mktemp("runs"), "model.positions=learned")


def test_each_input_is_answered_in_its_order(run, folder):
    texts = ["abcab|ca", "aaaa|b", "cccc|c"]
    expected = [load_run(folder).predict(text) for text in texts]
    code, out, err = run("predict", folder, *texts, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"run": str(folder), "answers": expected}
    _, out, _ = run("predict", folder, *texts)
    assert out.splitlines() == [
        f"{e['input']} → {e['answer']} (probability {e['probability']:.4f})" for e in expected
    ]
    assert run("predict", folder, *texts, "--quiet")[1].split() == [e["answer"] for e in expected]


def test_an_input_outside_of_training_is_noted(run, folder):
    data = load_run(folder).recipe.data
    inside = "a" * data.haystack[1] + "|b"
    outside = {
        "a" + inside: f"the haystack has {data.haystack[1] + 1} letters, but those of training had "
        f"{data.haystack[0]} to {data.haystack[1]}",
        "a|a": f"the haystack has 1 letter, but those of training had {data.haystack[0]} to",
        "aaaa|" + "b" * (data.needle[1] + 1): f"the needle has {data.needle[1] + 1} letters, but",
    }
    assert "note" not in load_run(folder).predict(inside)
    for text, words in outside.items():
        note = load_run(folder).predict(text)["note"]
        assert note.startswith(words)
        _, out, err = run("predict", folder, text)
        assert "letters" not in out
        assert err == f"note: {note}; do not rely on the answer\n"
        assert run("predict", folder, text, "--quiet")[2] == ""
        assert json.loads(run("predict", folder, text, "--json")[1])["answers"][0]["note"] == note


def test_a_run_answers_when_its_data_have_gone_but_is_not_measured(run, tmp_path):
    from clearhead.models import ViTConfig
    from clearhead.training import Recipe, TrainingConfig, train
    from clearhead.training.tasks import PictureData

    (tmp_path / "mnist").mkdir()
    write_mnist(tmp_path / "mnist")
    model = ViTConfig(patch_size=1, d_model=8, n_layers=1, n_heads=2)
    data = PictureData("mnist", path=str(tmp_path / "mnist"))
    training = TrainingConfig(steps=1, batch_size=4)
    folder = train(Recipe("digits", data, model, training), tmp_path / "runs", threads=1).run
    whole = run("predict", folder, folder / "example.png")
    assert whole[0] == 0
    shutil.rmtree(tmp_path / "mnist")
    assert run("predict", folder, folder / "example.png") == whole
    assert_a_mistake(*run("eval", folder, "--threads", "1"))


@pytest.mark.parametrize("kind", ["translate-gru", "translate-transformer"])
def test_a_translation_shows_unk_only_if_asked(run, tmp_path, monkeypatch, kind):
    import torch

    from clearhead.training import find_recipe, train, with_changes

    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"cat {i % 7}\tgato {i % 5}\n" for i in range(40)))
    small = [f"data.path={path}", "training.steps=1", "training.batch_size=4", "data.n_decoded=2"]
    folder = train(with_changes(find_recipe(kind), small), tmp_path / "runs", threads=1).run
    loaded = load_run(folder)
    head = loaded.model.decoder.head if kind == "translate-gru" else loaded.model.head
    unknown = torch.tensor(loaded.predictor.forbid)
    head.register_forward_hook(lambda *args: args[-1].index_fill(-1, unknown, 90.0))
    monkeypatch.setattr(command, "open_run", lambda *args: loaded)
    code, out, err = run("predict", folder, "cat 3", "--quiet")
    assert (code, err) == (0, "")
    assert "<unk>" not in out
    assert set(run("predict", folder, "cat 3", "--quiet", "--unknown")[1].split()) == {"<unk>"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("abcab", "the input must be written haystack|needle, got 'abcab'"),
        ("abz|a", "text has 'z' at index 2, which is not in the alphabet"),
        ("a" * 90 + "|a", "max_len"),
        ("", "the input must be written haystack|needle"),
    ],
)
def test_C01_what_cannot_be_answered_is_told_before_any_answer(run, folder, text, sentence):
    code, out, err = run("predict", folder, "abc|a", text)
    assert_a_mistake(code, out, err)
    assert sentence in err


def test_something_must_be_asked(run, folder):
    code, out, err = run("predict", folder)
    assert_a_mistake(code, out, err)
    assert "INPUT" in err
