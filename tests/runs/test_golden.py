"""Run folders that release 0.1.0 wrote, with checkpoints of format 1, load, predict and resume.

Each has checkpoints of steps 2 and 4. The one of step 4 is taken away, and the resumed run must
reach it again.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from small_runs import choose_tolerance

from clearhead.files.tensors import read_tensors
from clearhead.runs import load_run, train, train_recipe

GOLDEN = Path(__file__).parents[1] / "golden"
# What release 0.1.0 predicted.
ANSWERS = {
    "substring-0001": ("abccab|cca", "yes", "probability", 0.5460944175720215),
    "identity-0001": ("CAB", "AAA", "error", 1.0010000467300415),
}
LAST = "checkpoints/step-0000004"


@pytest.fixture(params=ANSWERS)
def golden(request):
    return GOLDEN / request.param


@pytest.fixture
def stopped(golden, tmp_path):
    """A copy that was killed after step 4, before that was saved."""
    copy = shutil.copytree(golden, tmp_path / golden.name)
    shutil.rmtree(copy / LAST)
    return copy


def resume(run, **options):
    """With force: versions and machine may differ from those that the run began on."""
    return train(load_run(run).recipe, run.parent, threads=1, force=True, **options)


def read_lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_T29_an_old_run_loads_and_predicts_as_before(golden):
    text, answer, name, value = ANSWERS[golden.name]
    run = load_run(golden)
    found = run.predict(text)
    assert found["answer"] == answer
    assert found[name] == pytest.approx(value, abs=1e-6)
    assert (run.state.step, run.state.logged, run.state.finished) == (4, 4, True)


def test_T29_an_old_run_of_words_keeps_its_rules():
    """Its tokenizer names no rules, so a full stop inside a line stays with its word."""
    run = load_run(GOLDEN / "dialogue-0001")
    assert run.tokenizer.rules == run.recipe.data.word_rules == 1
    assert run.tokenizer.tokenize("I am here. You are there.")[2] == "here."
    found = run.predict("I am here. You are there.")
    assert found["probability"] == pytest.approx(0.0029471558518707752, abs=1e-8)
    assert found["answer"] == "." * 60
    found = run.predict("First Citizen:")
    assert found["probability"] == pytest.approx(0.0030553315300494432, abs=1e-8)
    assert found["answer"] == " ".join(["not"] * 60)


def test_T29_an_old_run_resumes_to_the_same_weights_and_metrics(golden, stopped):
    assert load_run(stopped).step == 2
    result = resume(stopped, resume=str(stopped))
    assert (result.run, result.steps) == (stopped, 4)
    for expected, found in zip(read_lines(golden), read_lines(stopped), strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    assert (stopped / "samples.txt").read_text() == (golden / "samples.txt").read_text()
    model = load_run(golden, which="last").model
    expected = model.translate_names(read_tensors(golden / LAST / "model.safetensors"))
    found = read_tensors(stopped / LAST / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, atol=choose_tolerance(name)), name


def test_T29_the_same_command_finds_an_old_unfinished_run(stopped):
    assert resume(stopped).run == stopped


def test_T29_a_kill_before_the_first_new_checkpoint_leaves_an_old_run_usable(stopped, monkeypatch):
    def killed(self, plans):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_recipe.Training, "update", killed)
    with pytest.raises(KeyboardInterrupt):
        resume(stopped, resume=str(stopped))
    monkeypatch.undo()
    assert load_run(stopped).step == 2
    assert resume(stopped, resume=str(stopped)).steps == 4
