"""A run that was trained, loaded for use."""

import json
import shutil

import pytest
import torch
from training.tiny_runs import memory_folder

from clearhead.files import BadFile
from clearhead.training.checkpoint import NoGoodCheckpoint, places
from clearhead.training.loop import train
from clearhead.training.recipe import Recipe, with_changes
from clearhead.training.recipes.substring import substring
from clearhead.training.run import config_kinds, fill, load_run, read_recipe
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
    assert run.recipe.model.d_input == run.task.tokenizer.vocab_size  # what the data decided
    assert run.step == 2
    assert load_run(trained, which="last").step == 6
    assert not run.model.training
    assert run.tokenizer is run.task.tokenizer
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
    assert "the newest checkpoint is taken for the best" in said[0]


def test_a_broken_newest_is_told_and_the_best_still_found(run):
    (place(run, 6) / "state.json").unlink()
    said = []
    assert load_run(run, tell=said.append).step == 2
    assert load_run(run, which="last").step == 4
    assert "state.json is missing" in said[0]


def test_runs_without_a_good_checkpoint_are_refused(run):
    for each in places(run / "checkpoints"):
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
        ({"model": "remove"}, "'model' is missing; it is no config of a run"),
        ({"colour": 1}, "'colour' is not known"),
        ({"model": {"kind": "Pipe"}}, "model is of the unknown kind 'Pipe'"),
        ({"model": [1]}, "model is of the unknown kind None"),
        ({"data": {"kind": ["x"]}}, "data is of the unknown kind"),
        ({"data": {"kind": "SubstringData", "n": 3}}, "SubstringData has no 'n'; the nearest is"),
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
    with pytest.raises(BadFile, match=r"the data of .* have changed since it was trained"):
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
            fill(model, tensors)
    assert all(torch.equal(own[key], value) for key, value in model.state_dict().items())


def test_best_or_last_and_nothing_else(trained):
    with pytest.raises(ValueError, match="which must be one of 'best', 'last', got 'first'"):
        load_run(trained, which="first")
    with pytest.raises(BadFile, match="is no run folder"):
        load_run(trained / "none")


def test_every_config_kind_is_known_by_its_name():
    kinds = config_kinds()
    assert {"GPTConfig", "ViTConfig", "ClassifierConfig", "SubstringData", "TrainingConfig"} <= set(
        kinds
    )
    assert all(kind.__name__ == name for name, kind in kinds.items())
