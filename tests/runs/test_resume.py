"""A new run or a resumed one: nothing is resumed or started anew by mistake."""

import dataclasses

import pytest
import torch
from runs.tiny_runs import Killed, left_behind, run_tiny
from training.tiny_task import TinyTask, tiny

from clearhead.files import BadFile
from clearhead.runs import train_recipe
from clearhead.runs.checkpoint import NoGoodCheckpoint, find_checkpoints, is_finished
from clearhead.runs.folder import RunFolder, find_runs
from clearhead.runs.resume import check_same, decide_threads, find_run


@pytest.fixture
def stopped(folder, monkeypatch):
    """A folder with a run that was killed in its ninth step."""
    calls = stop_in_batch(monkeypatch, 19)
    with pytest.raises(Killed):
        run_tiny(folder)
    calls.clear()
    return folder


def stop_in_batch(monkeypatch, number):
    """Kill a run when it asks for this batch, until the list that is returned is cleared."""
    calls, batch = [0], TinyTask.batch

    def ending(self, plan):
        if calls:
            calls[0] += 1
            if calls[0] == number:
                raise Killed
        return batch(self, plan)

    monkeypatch.setattr(TinyTask, "batch", ending)
    return calls


def constant_loss(model, value):
    """A loss that has a gradient, 0, and always this value."""
    return value + 0 * sum(p.sum() for p in model.parameters())


def only(out):
    (run,) = find_runs(out, "tiny")
    return run


# Which run


def test_the_same_command_resumes_and_after_the_end_begins_a_new_run(stopped):
    assert not is_finished(only(stopped).checkpoints)
    assert run_tiny(stopped).run.name == "tiny-0001"
    assert is_finished(only(stopped).checkpoints)
    assert run_tiny(stopped).run.name == "tiny-0002"


def test_something_else_is_another_run(stopped):
    assert run_tiny(stopped, tiny(seed=1)).run.name == "tiny-0002"
    assert run_tiny(stopped, overfit=4).run.name == "tiny-0003"
    assert run_tiny(stopped).run.name == "tiny-0001"


def test_resume_takes_a_path_or_the_last_of_this_recipe(stopped):
    assert run_tiny(stopped / "elsewhere", resume=str(stopped / "tiny-0001")).steps == 12
    assert run_tiny(stopped, resume="last").run.name == "tiny-0001"
    with pytest.raises(BadFile, match="has no run of tiny; start one: clearhead train tiny"):
        run_tiny(stopped / "none", resume="last")
    with pytest.raises(BadFile, match="is not a run folder"):
        run_tiny(stopped, resume=str(stopped / "tiny-0007"))
    with pytest.raises(BadFile, match=r"is a folder of runs"):
        find_run(stopped, str(stopped), "tiny")


def test_a_run_with_a_broken_config_is_left_out_with_a_sentence(stopped):
    (only(stopped) / "config.json").write_text("{")
    said = []
    assert run_tiny(stopped, tell=said.append).run.name == "tiny-0002"
    assert any("config.json is not JSON" in news for news in said if isinstance(news, str))


def test_a_run_is_finished_by_its_newest_good_checkpoint_alone(folder):
    run_tiny(folder)
    run = only(folder)
    assert is_finished(run.checkpoints)
    (find_checkpoints(run.checkpoints)[-1] / "model.safetensors").write_bytes(b"")
    assert not is_finished(run.checkpoints)
    before = left_behind(folder)["metrics.jsonl"]
    assert run_tiny(folder).run == run.path  # it is made good
    assert left_behind(folder)["metrics.jsonl"] == before
    assert is_finished(run.checkpoints)


def test_T11_a_run_of_which_all_checkpoints_are_bad_is_refused(stopped):
    for place in find_checkpoints(only(stopped).checkpoints):
        (place / "manifest.json").unlink()
    with pytest.raises(NoGoodCheckpoint, match="restore one, or move the run away"):
        run_tiny(stopped)


def test_a_start_that_is_killed_before_the_first_step_leaves_no_empty_run(folder, monkeypatch):
    def killed(*_):
        raise Killed

    for home, name in (
        (train_recipe, "set_threads"),
        (train_recipe, "describe_environment"),
        (TinyTask, "save"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(home, name, killed)
            with pytest.raises(Killed):
                run_tiny(folder)
        assert list(folder.iterdir()) == []
    assert run_tiny(folder).run.name == "tiny-0001"


# What must be equal


CHANGES = {
    "training.batch_size": {"batch_size": 5},
    "training.steps": {"steps": 13},
    "training.lr": {"lr": 0.5},
    "training.accumulate": {"accumulate": 1},
    "model.d_model": {"d_model": 8},
    "data.salt": {"salt": 1},
    "training.seed": {"seed": 4},
}


@pytest.mark.parametrize("name", CHANGES)
def test_T17_another_config_is_refused_field_by_field(stopped, name):
    changed = CHANGES[name]
    with pytest.raises(ValueError, match="cannot be resumed, because these have changed") as caught:
        run_tiny(stopped, tiny(**changed), resume="last")
    (value,) = changed.values()
    lines = str(caught.value).splitlines()
    assert any(line.startswith(f"  {name}: ") and f"{value!r} now" in line for line in lines)
    assert len(lines) == (4 if name == "data.salt" else 3)  # other data are named as such, too
    assert ("--force" in lines[-1]) == name.startswith("training.")
    assert run_tiny(stopped).run.name == "tiny-0001"  # and nothing was harmed


@pytest.mark.parametrize(
    ("field", "there"),
    [
        ("threads", 2),
        ("torch", "1.0"),
        ("device", "cuda"),
        ("processor", "AVX9"),
        ("clearhead", "0"),
        ("machine", "pdp11"),
    ],
)
def test_T17_another_environment_is_refused_field_by_field(stopped, monkeypatch, field, there):
    before = train_recipe.describe_environment
    monkeypatch.setattr(
        train_recipe, "describe_environment", lambda *given: {**before(*given), field: there}
    )
    with pytest.raises(ValueError, match=f"\n  {field}: .* then, {there!r} now\n"):
        run_tiny(stopped)
    said = []
    assert run_tiny(stopped, force=True, tell=said.append).steps == 12
    assert any(f"resuming although this differs: {field}" in n for n in said if isinstance(n, str))
    (noted,) = RunFolder(stopped / "tiny-0001").read_forced()
    assert noted.startswith(f"{field}: ")
    assert noted.endswith(f" then, {there!r} now")


def test_what_was_forced_is_noted_once(stopped, monkeypatch):
    before = train_recipe.describe_environment
    for there in ("0", "1", "0"):
        monkeypatch.setattr(
            train_recipe, "describe_environment", lambda *g, v=there: {**before(*g), "torch": v}
        )
        run_tiny(stopped, resume="last", force=True)
    noted = RunFolder(stopped / "tiny-0001").read_forced()
    assert [line.rpartition("torch: ")[2] for line in noted] == [
        f"{torch.__version__!r} then, '0' now",
        "'0' then, '1' now",
        "'1' then, '0' now",
    ]


def test_what_was_forced_is_the_run_s_own_from_then_on(folder, monkeypatch):
    run_tiny(folder, tiny(5, log_every=2))  # its last loss is of one step
    longer = tiny(9, log_every=4, lr=0.5)
    calls = stop_in_batch(monkeypatch, 4)
    with pytest.raises(Killed):
        run_tiny(folder, longer, resume="last", force=True)
    calls.clear()
    assert only(folder).config["training"]["steps"] == 9
    assert run_tiny(folder, longer).run == only(folder).path  # the same, no longer forced
    assert only(folder).config["training"]["lr"] == 0.5
    noted = only(folder).read_forced()
    assert [line.split(":")[0] for line in noted] == [
        f"training.{name}" for name in ("steps", "lr", "log_every")
    ]


def test_a_loss_is_the_mean_of_the_steps_since_the_last_one_also_if_that_was_forced(
    folder, monkeypatch
):
    monkeypatch.setattr(TinyTask, "loss", lambda self, model, batch: constant_loss(model, 3.0))
    run_tiny(folder, tiny(5, log_every=2))
    run_tiny(folder, tiny(11, log_every=4), resume="last", force=True)
    lines = [line for line in only(folder).read_metrics() if "loss" in line]
    assert [line["step"] for line in lines] == [2, 4, 5, 8, 11]
    assert [line["loss"] for line in lines] == [pytest.approx(3.0)] * 5


def test_T17_python_and_the_system_do_not_matter(stopped, monkeypatch):
    before = train_recipe.describe_environment
    other = {"python": "9", "system": "Multics"}
    monkeypatch.setattr(
        train_recipe, "describe_environment", lambda *given: {**before(*given), **other}
    )
    assert run_tiny(stopped).run.name == "tiny-0001"


def test_T17_the_order_of_the_data_stays_if_another_batch_size_is_forced(folder, monkeypatch):
    seen, batch = [], TinyTask.batch

    def watched(self, plan):
        if not isinstance(plan, range):
            seen.extend(plan)
        return batch(self, plan)

    monkeypatch.setattr(TinyTask, "batch", watched)
    plain = {"accumulate": 1, "save_every": 1}
    run_tiny(folder / "whole", tiny(20, batch_size=2, **plain))
    order = seen[:40]
    seen.clear()
    run_tiny(folder / "changed", tiny(3, batch_size=2, **plain))  # 6 examples
    changed = tiny(7, batch_size=4, **plain)  # 2, and then 4 in each step
    run_tiny(folder / "changed", changed, resume="last", force=True)
    assert seen == order[:20]  # an epoch, each example once


def test_T17_a_forced_config_that_does_not_fit_the_weights_is_refused(stopped):
    with pytest.raises(ValueError, match="the optimizer does not fit this model"):
        run_tiny(stopped, tiny(optimizer="adamw"), resume="last", force=True)
    assert only(stopped).read_forced() == []
    assert run_tiny(stopped).run == only(stopped).path  # and nothing was harmed


@pytest.mark.parametrize("change", [{"d_model": 9}, {"dropout": 0.1}, {"salt": 1}], ids=str)
def test_no_force_makes_another_model_or_other_data_of_a_run(stopped, change):
    with pytest.raises(
        ValueError, match="restore the old values, or use another --out to start a new run"
    ):
        run_tiny(stopped, tiny(**change), resume="last", force=True)


def test_T24_changed_data_are_refused_by_the_same_command(stopped, monkeypatch):
    made = TinyTask.__init__

    def changed(self, data):
        made(self, dataclasses.replace(data, salt=data.salt + 1))

    monkeypatch.setattr(TinyTask, "__init__", changed)
    with pytest.raises(ValueError, match=r"\n  examples: '[0-9a-f]{64}' then, '[0-9a-f]{64}' now"):
        run_tiny(stopped)
    assert [run.path.name for run in find_runs(stopped, "tiny")] == ["tiny-0001"]
    with pytest.raises(ValueError, match=r"\n  examples: "):
        run_tiny(stopped, force=True)


def test_all_differences_are_told_at_once(stopped):
    run = only(stopped)
    config = {**run.config, "recipe": "other", "training": {**run.config["training"], "lr": 7}}
    with pytest.raises(ValueError, match="cannot be resumed") as caught:
        check_same(run, config, {**run.environment, "threads": 8, "new": "x"})
    for line in ("recipe: 'tiny' then, 'other' now", "training.lr: 0.02 then, 7 now"):
        assert line in str(caught.value)
    assert "threads: 1 then, 8 now" in str(caught.value)
    assert "new: None then, 'x' now" in str(caught.value)


def test_a_resumed_run_keeps_its_threads_unless_others_are_given(stopped):
    run = only(stopped)
    assert decide_threads(run, "auto") == 1
    assert decide_threads(run, 2) == 2
    assert decide_threads(run, "3") == 3
    assert decide_threads(None, "auto") == "auto"
    assert decide_threads(None, "3") == 3


def test_a_config_that_was_edited_after_the_start_is_refused(stopped):
    path = only(stopped) / "config.json"
    whole = path.read_text()
    path.write_text(whole.replace('"steps": 12', '"steps": 14'))
    with pytest.raises(ValueError, match=r"training\.steps: 14 then, 12 now"):
        run_tiny(stopped)
    path.write_text(whole.replace('"dropout": 0.2', '"dropout": 0.3'))
    with pytest.raises(NoGoodCheckpoint, match="belongs to another run"):
        run_tiny(stopped, tiny(dropout=0.3), resume="last", force=True)


@pytest.mark.parametrize(("asked", "wanted"), [("1", "auto"), ("", 2)])
def test_workers_have_a_thread_each_unless_the_environment_says_otherwise(
    monkeypatch, asked, wanted
):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert decide_threads(None, "auto", workers=2) == wanted
