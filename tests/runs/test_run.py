"""A run that was trained, loaded for use."""

import json
import os
import shutil

import pytest
import torch
from runs.tiny_runs import memory_folder, run_tiny
from training.tiny_task import TinyTask, tiny

from clearhead.data import CharTokenizer
from clearhead.files import BadFile
from clearhead.inspection.report import write_report
from clearhead.models import GPTConfig
from clearhead.models.model import load_weights
from clearhead.runs import checkpoint, train
from clearhead.runs.checkpoint import NoGoodCheckpoint, find_checkpoints
from clearhead.runs.run import config_kinds, load_run, read_recipe
from clearhead.runs.storage import RunDeleted
from clearhead.training.recipe import Recipe, TrainingConfig, with_changes
from clearhead.training.recipes.substring import substring
from clearhead.training.tasks.characters import CharacterData
from clearhead.training.tasks.substrings import SubstringTask

SMALL = [
    "training.steps=6",
    "training.batch_size=4",
    "training.eval_every=2",
    "training.save_every=2",
    "training.warmup=0",
    "model.d_model=8",
    "model.n_heads=2",
    "model.n_layers=1",
    "data.n_examples=12",
    "data.n_validation=10",
]


@pytest.fixture(scope="module")
def trained():
    """A run of which step 2 is the best, and 4 and 6 are the last."""
    torch.set_num_threads(1)
    evaluate = SubstringTask.evaluate
    values = iter([0.9, 0.5, 0.7])
    with memory_folder() as out:
        try:
            SubstringTask.evaluate = lambda self, model: {
                **evaluate(self, model),
                "val_accuracy": next(values),
            }
            result = train(with_changes(substring(), SMALL), out, threads=1)
        finally:
            SubstringTask.evaluate = evaluate
        yield result.run


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / trained.name)


def place(run, step):
    return run / "checkpoints" / f"step-{step:07d}"


def test_a_run_has_its_recipe_its_task_and_its_best_weights(trained):
    run = load_run(trained)
    assert run.recipe.name == "substring"
    assert run.recipe.model.d_input == run.tokenizer.vocab_size  # what the data decided
    assert run.step == 2
    assert load_run(trained, which="last").step == 6
    assert not run.model.training
    assert run.tokenizer == run.task.predictor.tokenizer
    assert run.task is run.task  # the data are read once
    assert run.predict("abcabc|ca").keys() == {"input", "answer", "probability"}
    assert run.evaluate().keys() == {"val_loss", "val_accuracy"}
    first, last = run.model.state_dict(), load_run(trained, which="last").model.state_dict()
    assert any(not torch.equal(first[name], last[name]) for name in first)


def test_a_recipe_read_back_is_the_same(trained):
    config = json.loads((trained / "config.json").read_text())
    recipe = read_recipe(config)
    assert recipe.to_dict() == {name: config[name] for name in recipe.to_dict()}
    assert Recipe.from_dict(recipe.to_dict(), config_kinds()) == recipe


def test_a_broken_best_is_told_and_the_newest_taken(run):
    (place(run, 2) / "model.safetensors").write_bytes(b"")
    said = []
    assert load_run(run, tell=said.append).step == 6
    assert len(said) == 1
    assert "model.safetensors is damaged" in said[0]
    assert "the newest checkpoint is used instead of the best" in said[0]


def test_a_broken_newest_is_told_and_the_best_still_found(run):
    (place(run, 6) / "state.json").unlink()
    said = []
    assert load_run(run, tell=said.append).step == 2
    assert load_run(run, which="last").step == 4
    assert "state.json is missing" in said[0]


def test_runs_without_a_good_checkpoint_are_refused(run):
    for each in find_checkpoints(run / "checkpoints"):
        (each / "manifest.json").unlink()
    with pytest.raises(NoGoodCheckpoint, match="none of the 3 checkpoints"):
        load_run(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(BadFile, match="has no checkpoint yet"):
        load_run(run)


def change(run, **values):
    config = json.loads((run / "config.json").read_text())
    config |= values
    config = {name: value for name, value in config.items() if value != "remove"}
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "remove"}, "'model' is missing; it is not the config of a run"),
        ({"colour": 1}, "'colour' is not known"),
        ({"model": {"kind": "Pipe"}}, "model is of the unknown kind 'Pipe'"),
        ({"model": [1]}, "model is of the unknown kind None"),
        ({"data": {"kind": ["x"]}}, "data is of the unknown kind"),
        ({"data": {"kind": "SubstringData", "n": 3}}, "SubstringData has no 'n'; the nearest is"),
        ({"data": {"kind": "GRU"}}, "data is of the unknown kind 'GRU'"),
        (
            {"data": {"kind": "TrainingConfig", "steps": 3}},
            "data must be a DataConfig, got TrainingConfig",
        ),
        ({"training": {"kind": "TrainingConfig"}}, "TrainingConfig needs 'steps'"),
        ({"training": {"kind": "SubstringData"}}, "training must be a TrainingConfig"),
        ({"overfit": 0}, "overfit must be at least 1"),
        ({"overfit": "x"}, "overfit must be a whole number"),
    ],
)
def test_a_config_that_is_none_is_refused_by_the_name_of_the_file(run, values, words):
    change(run, **values)
    with pytest.raises(BadFile, match=rf"config\.json: .*{words}"):
        load_run(run)


def test_T24_a_run_whose_data_have_changed_is_not_used(run, monkeypatch):
    init = SubstringTask.__init__

    def changed(self, data):
        init(self, data)
        self.fingerprint = "0" * 64

    monkeypatch.setattr(SubstringTask, "__init__", changed)
    loaded = load_run(run)
    for use in (loaded.evaluate, lambda: loaded.task):
        with pytest.raises(BadFile, match=r"the data of .* have changed since it was trained"):
            use()
    assert loaded.predict("abc|a")["input"] == "abc|a"


def test_a_model_answers_without_its_data_and_is_measured_only_with_them(tmp_path):
    text = tmp_path / "play.txt"
    text.write_text("the cat sat on the mat. " * 30)
    recipe = Recipe(
        "letters",
        CharacterData(str(text), context=8, sample_length=9),
        GPTConfig(1, 8, d_model=12, n_layers=1, n_heads=3),
        TrainingConfig(steps=2, batch_size=4, eval_every=1),
    )
    folder = train(recipe, tmp_path / "runs", threads=1).run
    before, measured = load_run(folder).predict("the c"), load_run(folder).evaluate()
    text.rename(tmp_path / "moved.txt")
    loaded = load_run(folder)
    assert loaded.predict("the c") == before
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("mat")) == "mat"
    with pytest.raises(BadFile, match=r"play\.txt is not there"):
        loaded.evaluate()
    text.write_text("the cat sat on the hat. " * 30)
    with pytest.raises(BadFile, match=r"the data of .* have changed since it was trained"):
        load_run(folder).evaluate()
    (tmp_path / "moved.txt").replace(text)
    assert loaded.evaluate() == measured


def test_F06_a_tokenizer_of_another_run_is_refused(run):
    CharTokenizer("abcd|").save(run / "tokenizer.json")
    words = r"by tokenizer\.json d_input is 6, but by config\.json 5; restore the files"
    with pytest.raises(BadFile, match=words):
        load_run(run)
    (run / "tokenizer.json").unlink()
    with pytest.raises(BadFile, match=r"tokenizer\.json is not there"):
        load_run(run)


def test_a_config_that_was_edited_does_not_fit_the_checkpoints(run):
    change(run, recipe="other")
    with pytest.raises(NoGoodCheckpoint, match="belongs to another run"):
        load_run(run)


def test_weights_that_do_not_fit_are_refused_whole(trained):
    model = load_run(trained).model
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    name = next(iter(own))
    zeros = {key: torch.zeros_like(value) for key, value in own.items()}
    missing = {key: value for key, value in zeros.items() if key != name}
    for tensors, words in (
        (missing, f"{name!r} is missing"),
        ({**zeros, "x": torch.ones(1)}, "'x' is not part of the model"),
        ({**zeros, name: torch.ones(1, 99)}, r"has shape \(1, 99\), not"),
    ):
        with pytest.raises(ValueError, match=words):
            load_weights(model, tensors)
    assert all(torch.equal(own[key], value) for key, value in model.state_dict().items())


def test_best_or_last_and_nothing_else(trained):
    with pytest.raises(ValueError, match="which must be one of 'best', 'last', got 'first'"):
        load_run(trained, which="first")
    with pytest.raises(BadFile, match="is not a run folder"):
        load_run(trained / "none")


def test_every_config_kind_is_known_by_its_name():
    kinds = config_kinds()
    assert {"GPTConfig", "ViTConfig", "ClassifierConfig", "SubstringData", "TrainingConfig"} <= set(
        kinds
    )
    assert all(kind.__name__ == name for name, kind in kinds.items())


# Every file is hashed once


@pytest.fixture
def hashed(monkeypatch):
    """The files that were hashed, in order."""
    hash_file, paths = checkpoint.hash_file, []

    def noted(path):
        paths.append(f"{path.parent.name}/{path.name}")
        return hash_file(path)

    monkeypatch.setattr(checkpoint, "hash_file", noted)
    return paths


FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def files_of(*steps):
    return sorted(f"step-{step:07d}/{name}" for step in steps for name in FILES)


def test_loading_hashes_each_file_of_the_newest_and_of_the_best_once(run, hashed):
    load_run(run, which="last")
    assert sorted(hashed) == files_of(6)
    hashed.clear()
    load_run(run)
    assert sorted(hashed) == files_of(2, 6)


def test_a_report_hashes_each_file_once(run, hashed):
    write_report(run)
    assert sorted(hashed) == files_of(2, 6)


def test_resuming_hashes_each_file_once_and_its_state_to_see_that_it_is_unfinished(
    tmp_path, hashed, monkeypatch
):
    recipe = with_changes(substring(), SMALL)
    batch = SubstringTask.batch

    def killed(self, plan):
        if hashed:
            raise KeyboardInterrupt
        return batch(self, plan)

    monkeypatch.setattr(SubstringTask, "batch", killed)
    with pytest.raises(KeyboardInterrupt):  # after step 2 is saved
        train(recipe, tmp_path, threads=1)
    hashed.clear()
    monkeypatch.setattr(SubstringTask, "batch", killed)
    with pytest.raises(KeyboardInterrupt):  # after it is restored
        train(recipe, tmp_path, threads=1)
    assert sorted(hashed) == sorted([*files_of(2), "step-0000002/state.json"])


def test_a_run_describes_itself_in_a_few_lines(run):
    loaded = load_run(run)
    lines = repr(loaded).splitlines()
    assert lines[0] == f"{run.name}, a run of substring"
    assert lines[1].split() == ["progress", "step", "6", "of", "6"]
    assert lines[2].split() == ["weights", "of", "step", "2"]
    assert "val_accuracy 0.9" in lines[3]
    assert lines[4].split()[:2] == ["model", "SequenceClassifier,"]
    assert loaded._repr_html_() == f"<pre>{loaded!r}</pre>"


@pytest.mark.parametrize("when", ["loss", "evaluate"])
def test_a_run_that_is_deleted_while_it_trains_is_not_made_again(folder, monkeypatch, when):
    before, calls = getattr(TinyTask, when), []

    def delete(self, *given, **named):
        calls.append(when)
        if len(calls) == 2:
            shutil.rmtree(folder / "tiny-0001")
        return before(self, *given, **named)

    monkeypatch.setattr(TinyTask, when, delete)
    with pytest.raises(RunDeleted, match=r"tiny-0001 was deleted or moved while it trains"):
        run_tiny(folder, tiny(6, save_every=2))
    assert os.listdir(folder) == []
