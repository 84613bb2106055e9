"""A run that is killed at any moment continues to the same bytes."""

import os
import random
from pathlib import Path

import pytest
from runs.tiny_runs import (
    Child,
    Killed,
    checkpoints_of,
    in_child,
    left_behind,
    run_tiny,
    stop_at_call,
    through_kills,
    uninterrupted,
)
from training.tiny_task import tiny

from clearhead.models import ViTConfig
from clearhead.runs import RunFolder, find_runs
from clearhead.runs.checkpoint import load_newest
from clearhead.training import Optimizer, Recipe, TrainingConfig, loop
from clearhead.training.loop import Training
from clearhead.training.state import State
from clearhead.training.tasks.pictures import PictureData, PictureTask


def test_T01_five_kills_at_random_moments_change_nothing(folder):
    recipe = tiny(60, save_every=5)
    expected = uninterrupted(folder, recipe)
    n = through_kills(folder / "killed", recipe, 5, random.Random(1), 0.3)
    assert n >= 1
    assert left_behind(folder / "killed") == expected


@pytest.mark.slow
def test_T01_fifty_kills_at_random_moments_change_nothing(folder):
    recipe = tiny(200, save_every=5)
    expected = uninterrupted(folder, recipe)
    randomly, hits, n_runs = random.Random(2), 0, 0
    while hits < 50:
        n_runs += 1
        hits += through_kills(folder / f"{n_runs}", recipe, 50, randomly, 0.4)
        assert left_behind(folder / f"{n_runs}") == expected
    assert n_runs <= 50  # the faster the machine, the fewer kills come before the end of a run


def by(workers, steps=12, **training):
    """A recipe for one worker, or for two, which have no dropout."""
    return tiny(steps, workers=workers, dropout=0.2 if workers == 1 else 0.0, **training)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", range(1, 25))
def test_T03_a_run_stopped_at_any_batch_resumes_bit_for_bit(folder, monkeypatch, number, workers):
    """All of: within an epoch, at its end, at its start, within a step, in the warm-up, last."""
    recipe = by(workers, save_every=1)
    expected = uninterrupted(folder, recipe)
    undo = stop_at_call(monkeypatch, "batch", number + number // 9)  # evaluations take one, too
    with pytest.raises(Killed):
        run_tiny(folder / "stopped", recipe)
    undo()
    run_tiny(folder / "stopped", recipe)
    assert left_behind(folder / "stopped") == expected


@pytest.mark.parametrize("number", [1, 2, 9, 15, 24])
def test_T03_sgd_and_single_losses_resume_bit_for_bit(folder, monkeypatch, number):
    """The optimizer keeps nothing between steps; an evaluation waits between update and log."""
    recipe = tiny(optimizer="sgd", log_mean=False, log_every=3, save_every=2)
    expected = uninterrupted(folder, recipe)
    undo = stop_at_call(monkeypatch, "batch", number)
    with pytest.raises(Killed):
        run_tiny(folder / "stopped", recipe)
    undo()
    run_tiny(folder / "stopped", recipe)
    assert left_behind(folder / "stopped") == expected


@pytest.mark.parametrize("number", [1, 7, 8, 11])
def test_T03_batch_norm_and_two_workers_at_once_resume_bit_for_bit(folder, monkeypatch, number):
    """Pictures shifted and mirrored; nine batches an epoch, two to a step."""
    recipe = Recipe(
        "tiny",
        PictureData("digits", size=16, n_train=17, n_test=5, mirror=True, shift=2),
        ViTConfig(
            stem="convolution", patch_size=8, class_token=False, pool="mean",
            d_model=12, n_layers=1, n_heads=3,
        ),
        TrainingConfig(
            6, batch_size=2, accumulate=2, workers=2, eval_every=3, log_every=2, save_every=1
        ),
    )  # fmt: skip
    run_tiny(folder / "whole", recipe, threads=2)
    undo = stop_at_call(monkeypatch, "batch", number, PictureTask)
    with pytest.raises(Killed):
        run_tiny(folder / "stopped", recipe, threads=2)
    undo()
    run_tiny(folder / "stopped", recipe, threads=2)
    assert left_behind(folder / "stopped") == left_behind(folder / "whole")


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("name", ["evaluate", "sample"])
@pytest.mark.parametrize("log_mean", [True, False])
def test_T03_a_run_stopped_at_any_evaluation_resumes_bit_for_bit(
    folder, monkeypatch, name, number, log_mean
):
    recipe = tiny(log_mean=log_mean)
    expected = uninterrupted(folder, recipe)
    undo = stop_at_call(monkeypatch, name, number)
    with pytest.raises(Killed):
        run_tiny(folder / "stopped", recipe)
    undo()
    run_tiny(folder / "stopped", recipe)
    assert left_behind(folder / "stopped") == expected


def forget_the_cursor(monkeypatch):
    from_dict = State.from_dict.__func__
    forgotten = {"epoch": 0, "cursor": 0}
    monkeypatch.setattr(
        State, "from_dict", classmethod(lambda c, values: from_dict(c, {**values, **forgotten}))
    )


def after_a_restore(monkeypatch, spoil):
    """Do this to a resumed run, and nothing to a new one."""
    load = Training.load

    def spoiled(self, snapshot):
        load(self, snapshot)
        spoil(self)

    monkeypatch.setattr(Training, "load", spoiled)


def forget_the_seed(monkeypatch):
    def spoil(training):
        monkeypatch.setattr(loop, "seed_torch", lambda device, seed, purpose, step: None)

    after_a_restore(monkeypatch, spoil)


def forget_the_schedule(monkeypatch):
    """It begins again."""

    def spoil(training):
        schedule, first = training.schedule, training.state.step
        training.schedule = lambda step: schedule(step - first)

    after_a_restore(monkeypatch, spoil)


def forget_the_optimizer(monkeypatch):
    monkeypatch.setattr(Optimizer, "load", lambda self, tensors: None)


def forget_the_weights(monkeypatch):
    monkeypatch.setattr(loop, "load_weights", lambda model, tensors: None)


def forget_the_buffers(monkeypatch):
    load_weights = loop.load_weights

    def without(model, tensors):
        load_weights(model, {**tensors, **{name: b.clone() for name, b in model.named_buffers()}})

    monkeypatch.setattr(loop, "load_weights", without)


def forget_what_was_measured(monkeypatch):
    monkeypatch.setattr(RunFolder, "cut_back", lambda self, sizes, tell: None)


SABOTAGES = {
    forget_the_cursor: "last model.safetensors",
    forget_the_seed: "last model.safetensors",
    forget_the_schedule: "last model.safetensors",
    forget_the_optimizer: "last model.safetensors",
    forget_the_weights: "last model.safetensors",
    forget_the_buffers: "last model.safetensors",
    forget_what_was_measured: "metrics.jsonl",
}


@pytest.mark.parametrize(("sabotage", "seen_in"), SABOTAGES.items())
def test_T04_what_is_not_restored_is_seen_in_the_comparison(folder, monkeypatch, sabotage, seen_in):
    expected = uninterrupted(folder)
    undo = stop_at_call(monkeypatch, "batch", 24)  # step 10 is written down, step 9 is saved
    with pytest.raises(Killed):
        run_tiny(folder / "stopped")
    undo()
    sabotage(monkeypatch)
    run_tiny(folder / "stopped")
    assert left_behind(folder / "stopped")[seen_in] != expected[seen_in]


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_T04_it_is_the_resume_that_the_comparison_sees(folder, monkeypatch, sabotage):
    expected = uninterrupted(folder)
    sabotage(monkeypatch)
    run_tiny(folder / "whole")
    assert left_behind(folder / "whole") == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_T18_two_runs_of_one_seed_are_equal_and_of_two_seeds_are_not(folder, workers):
    one = uninterrupted(folder, by(workers))
    assert in_child(lambda: run_tiny(folder / "two", by(workers))) == 0
    assert left_behind(folder / "two") == one
    run_tiny(folder / "other", by(workers, seed=1))
    assert left_behind(folder / "other")["metrics.jsonl"] != one["metrics.jsonl"]


@pytest.mark.parametrize("threads", [1, 2])
def test_T18_two_workers_learn_what_one_does(folder, threads):
    """Bit for bit, whether they run at once or not; only running means are their own."""
    run_tiny(folder / "one", tiny(dropout=0.0))
    run_tiny(folder / "two", tiny(dropout=0.0, workers=2), threads=threads)
    one, two = (left_behind(folder / name) for name in ("one", "two"))
    assert two["metrics.jsonl"] == one["metrics.jsonl"]
    assert two["last optimizer.safetensors"] == one["last optimizer.safetensors"]


def test_T27_metrics_that_a_kill_cut_are_repaired(folder, monkeypatch):
    recipe = tiny(12, save_every=5, eval_every=5)
    expected = uninterrupted(folder, recipe)
    undo = stop_at_call(monkeypatch, "batch", 21)
    with pytest.raises(Killed):
        run_tiny(folder / "stopped", recipe)
    undo()
    run = find_runs(folder / "stopped", "tiny")[0]
    whole, known = (
        (run / "metrics.jsonl").read_bytes(),
        load_newest(*checkpoints_of(run.path.parent)),
    )
    least = known.state["sizes"]["metrics.jsonl"]
    assert least < len(whole)
    kept = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    for cut in range(least, len(whole) + 1, 9):
        for path in run.path.rglob("*"):
            if path.is_file() and path not in kept:
                path.unlink()
        for path, data in kept.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        (run / "metrics.jsonl").write_bytes(whole[:cut] + b'{"step": 99' * (cut % 2))
        run_tiny(folder / "stopped", recipe)
        assert left_behind(folder / "stopped") == expected


def test_T27_what_a_checkpoint_knew_of_and_is_gone_is_told(folder, monkeypatch):
    undo = stop_at_call(monkeypatch, "batch", 21)
    with pytest.raises(Killed):
        run_tiny(folder)
    undo()
    run = find_runs(folder, "tiny")[0]
    first, *_ = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(first + b'{"step": 4, "los')
    said = []
    run_tiny(folder, tell=said.append)
    assert any("metrics.jsonl has lost" in news for news in said if isinstance(news, str))
    steps = [line["step"] for line in run.read_metrics()]
    assert steps == sorted(set(steps))
    assert steps[0] == 2


@pytest.mark.slow
def test_T30_memory_and_open_files_do_not_grow(folder):
    def work():
        seen = []

        def look(news):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen.append((pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))))

        run_tiny(folder, tiny(5000, log_every=250, eval_every=500, save_every=250), tell=look)
        (first, files), (last, files_after) = seen[3], seen[-1]
        assert files == files_after
        assert (last - first) / 4000 <= 1024, (first, last)

    assert Child(lambda ready: work()).end(200) == 0
