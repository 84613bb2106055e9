"""clearhead eval."""

import json
import re
import shutil

import pytest
from small_runs import assert_a_mistake, small_run

from clearhead.training import load_run

ONE = ("--threads", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs"))


def test_it_measures_what_was_measured_when_it_was_trained(run, folder):
    code, out, err = run("eval", folder, *ONE, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert list(found) == ["run", "seconds", "metrics"]
    assert found["run"] == str(folder)
    assert found["metrics"] == load_run(folder).evaluate()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert found["metrics"]["val_loss"] in [json.loads(line).get("val_loss") for line in lines]


def test_for_people_it_says_which_step_and_how_good(run, folder):
    code, out, _ = run("eval", folder, *ONE)
    assert code == 0
    assert re.fullmatch(
        r"substring-0001 after step \d: val_loss [\d.]+, val_accuracy [\d.]+ \(\d+\.\d s\)\n", out
    )
    assert re.fullmatch(
        r"val_loss [\d.]+, val_accuracy [\d.]+\n", run("eval", folder, *ONE, "--quiet")[1]
    )


def test_which_chooses_the_checkpoint(run, folder):
    assert "after step 4:" in run("eval", folder, *ONE, "--which", "last")[1]
    best = load_run(folder, which="best").step
    assert f"after step {best}:" in run("eval", folder, *ONE, "--which", "best")[1]


@pytest.mark.parametrize("verb", [["eval"], ["predict"]], ids=" ".join)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{run}", "--which", "worst"], "--which must be best or last, got 'worst'"),
        (["{run}", "--threads", "0"], "--threads must be auto or a number of at least 1"),
        (["{run}", "--device", "abacus"], "--device 'abacus' cannot be used on this machine"),
        (["{run}", "--nothing"], "--nothing"),
        (["nowhere"], "nowhere is not a run folder: there is no such folder"),
        (["file"], "file is not a run folder: it is a file"),
        (["empty"], "empty/config.json is not there"),
        (["odd"], "odd/config.json: "),
        (["fresh"], "fresh has no checkpoint yet; let it train a little longer"),
        ([], "Missing argument 'RUN'"),
    ],
    ids=str,
)
def test_C01_a_mistake_is_one_line_and_a_hint(
    run, folder, tmp_path, monkeypatch, verb, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/config.json").write_text('{"model_type": "gpt2"}')
    shutil.copytree(folder, "fresh", ignore=shutil.ignore_patterns("step-*"))
    words = [word.format(run=folder) for word in arguments]
    text = ["abc|a"] if verb == ["predict"] and words else []
    code, out, err = run(*verb, *words[:1], *text, *words[1:])
    assert_a_mistake(code, out, err)
    assert sentence in err.splitlines()[0]
    asks_for_run = any(words in sentence for words in ("not a run folder", "Missing"))
    usage = f"clearhead {verb[0]} --help lists its arguments and options"
    hint = "clearhead runs lists your runs" if asks_for_run else usage
    assert err.splitlines()[1] == f"hint: {hint}"


def damage(checkpoint):
    path = checkpoint / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("verb", ["eval", "predict", "plot"])
def test_a_checkpoint_that_is_passed_over_is_told(run, folder, tmp_path, verb):
    shutil.copytree(folder, tmp_path / "run")
    checkpoints = sorted((tmp_path / "run/checkpoints").iterdir())
    damage(checkpoints[-1])
    extra = {"eval": ONE, "predict": ("abc|a", *ONE), "plot": ()}[verb]
    code, _, err = run(verb, tmp_path / "run", *extra)
    assert code == 0, err
    assert f"{checkpoints[-1].name}" in err
    assert "this checkpoint is skipped" in err
