"""Train a recipe in a run folder."""

import re
import signal
import subprocess
import sys

import pytest
from runs.tiny_runs import (
    Child,
    Killed,
    left_behind,
    poison,
    run_tiny,
    stop_at_call,
)
from training.tiny_task import TinyTask, tiny

from clearhead.runs import Busy, find_runs, train
from clearhead.runs.checkpoint import find_checkpoints


def test_T22_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(folder):
    recipe = tiny(100_000)
    child = Child(lambda ready: run_tiny(folder, recipe, tell=lambda news: ready()))
    child.wait_ready()
    with pytest.raises(Busy, match=f"in use by process {child.number}"):
        run_tiny(folder, recipe)
    child.send(signal.SIGKILL)
    assert child.end() == -signal.SIGKILL
    with find_runs(folder, "tiny")[0].lock():
        pass


def test_T26_no_examples_are_refused_before_a_folder_is_made(folder):
    with pytest.raises(ValueError, match="no examples to learn from"):
        run_tiny(folder / "none", tiny(n=0))
    assert not (folder / "none").exists()


def test_keep_and_best_are_what_is_left(folder, monkeypatch):
    values = iter([0.9, 0.1, 0.5, 0.6])
    poison(monkeypatch, "evaluate", lambda self, before, model: {"val_loss": next(values)})
    run_tiny(folder, tiny(16, save_every=2))
    run = find_runs(folder, "tiny")[0]
    assert [p.name for p in find_checkpoints(run.checkpoints)] == [
        f"step-{n:07d}" for n in (8, 14, 16)
    ]


def test_patience_ends_a_run_and_is_kept_over_a_stop(folder, monkeypatch):
    monkeypatch.setattr(TinyTask, "evaluate", lambda self, model: {"val_loss": 1.0})
    recipe = tiny(100, eval_every=2, patience=3)
    undo = stop_at_call(monkeypatch, "batch", 11)
    with pytest.raises(Killed):
        run_tiny(folder, recipe)
    undo()
    result = run_tiny(folder, recipe)
    assert result.steps == 8  # best at 2, none better at 4, 6, 8
    assert run_tiny(folder, recipe).run.name == "tiny-0002"  # the first is finished


def test_measures_and_sample_of_the_result_are_those_of_the_best(folder, monkeypatch):
    values = iter([0.5, 0.1, 0.9])
    poison(monkeypatch, "evaluate", lambda self, before, model: {"val_loss": next(values)})
    result = run_tiny(folder)
    kept = re.findall(r"--- step (\d+)\n(.*)\n", (result.run / "samples.txt").read_text())
    assert (result.best_step, result.metrics) == (8, {"val_loss": 0.1})
    assert result.sample == dict(kept)["8"] != dict(kept)["12"]


def test_a_run_that_got_no_better_says_so_when_it_is_taken_up(folder, monkeypatch):
    monkeypatch.setattr(TinyTask, "evaluate", lambda self, model: {"val_loss": 1.0})
    run_tiny(folder, tiny(100, eval_every=2, patience=3))
    told = []
    run_tiny(folder, tiny(100, eval_every=2, patience=3), resume="last", tell=told.append)
    assert "the run ended after step 8, with no improvement for 3 evaluations" in told[0]
    run_tiny(folder / "whole")
    run_tiny(folder / "whole", resume="last", tell=told.append)
    assert told[-1] == "all 12 steps are made; training.steps=24 would continue the run"


def test_a_finished_run_that_is_resumed_gives_its_result_again(folder):
    first = run_tiny(folder)
    before = left_behind(folder)
    again = run_tiny(folder, resume=str(first.run))
    assert (again.run, again.steps, again.metrics) == (first.run, first.steps, first.metrics)
    assert again.sample == first.sample
    assert left_behind(folder) == before


def test_a_finished_run_continues_with_more_steps_if_forced(folder):
    first = run_tiny(folder)
    result = run_tiny(folder, tiny(20), resume="last", force=True)
    assert (result.run, result.steps) == (first.run, 20)


def test_overfit_learns_few_examples_and_is_another_run(folder):
    result = run_tiny(folder, tiny(150, dropout=0.0, lr=0.05), overfit=4)
    assert result.metrics["val_loss"] < 0.05
    assert find_runs(folder, "tiny")[0].config["overfit"] == 4
    with pytest.raises(ValueError, match="overfit must be at least 1, got 0"):
        run_tiny(folder, overfit=0)


def test_train_takes_a_folder_and_needs_no_more(folder):
    assert train(tiny(2), folder).steps == 2


def test_one_process_trains_with_a_torch_that_was_built_without_distributed():
    """Such a build lacks _c10d_init, by which torch.distributed knows what it can offer."""
    code = """
import sys
import torch._dynamo
del torch._C._c10d_init, torch.distributed
for name in [name for name in sys.modules if name.startswith("torch.distributed")]:
    del sys.modules[name]
import torch.distributed
assert not torch.distributed.is_available()
import clearhead.runs.train_recipe
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr
