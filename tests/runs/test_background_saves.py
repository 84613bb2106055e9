"""Checkpoints that are written while the training goes on keep every promise of the others."""

import errno
import os
import random
import shutil
import signal
import threading
from contextlib import suppress

import pytest
from runs.faulty_disk import Disk
from runs.tiny_runs import (
    Child,
    checkpoints_of,
    left_behind,
    poison,
    run_tiny,
    through_kills,
    uninterrupted,
)
from training.tiny_task import tiny

from clearhead.files.tensors import read_tensors
from clearhead.runs import find_runs, storage
from clearhead.runs.checkpoint import find_checkpoints, load_newest
from clearhead.training import NotFinite, Progress, TrainingConfig
from clearhead.training.loop import Training


def background(steps=12, **training):
    return tiny(steps, save_in_background=True, **training)


@pytest.fixture
def slow_disk(monkeypatch):
    """Each write of a checkpoint waits for the event; it is set at the end, so that none hangs."""
    may_write, write = threading.Event(), storage.save

    def wait_and_write(*given):
        may_write.wait(20)
        return write(*given)

    monkeypatch.setattr(storage, "save", wait_and_write)
    yield may_write
    may_write.set()


def watch_steps(monkeypatch, step, action):
    """Call the action when this step begins."""
    update = Training.update

    def watched(self, plans):
        if self.state.step == step:
            action()
        return update(self, plans)

    monkeypatch.setattr(Training, "update", watched)


def test_a_checkpoint_holds_the_step_of_its_save_although_training_goes_on(
    folder, monkeypatch, slow_disk
):
    slow_disk.set()
    run_tiny(folder / "waits", tiny(save_every=6, eval_every=50, keep=5))
    slow_disk.clear()
    watch_steps(monkeypatch, 11, slow_disk.set)  # a training that waits would never begin it
    run_tiny(folder / "goes on", background(save_every=6, eval_every=50, keep=5))
    for step in (6, 12):
        one, other = (
            checkpoints_of(folder / name)[0] / f"step-{step:07}" for name in ("waits", "goes on")
        )
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (one / name).read_bytes() == (other / name).read_bytes(), (step, name)


def test_a_save_waits_for_the_one_before_so_that_there_is_one_copy(folder, monkeypatch, slow_disk):
    events, copy = [], storage._copy
    watch_steps(monkeypatch, 1, lambda: threading.Timer(0.3, slow_disk.set).start())
    monkeypatch.setattr(storage, "_copy", lambda tensors: events.append("copy") or copy(tensors))
    monkeypatch.setattr(storage, "remove_old", lambda *given: events.append(given[1]))
    run_tiny(folder, background(4, save_every=1, eval_every=50))
    copies = ["copy", "copy"]  # of the weights, of the optimizer
    assert events == [*copies, 1, *copies, 2, *copies, 3, *copies, 4]


def test_T01_kills_change_nothing(folder):
    recipe = background(60, save_every=2)
    expected = uninterrupted(folder, recipe)
    n = through_kills(folder / "killed", recipe, 5, random.Random(3), 0.3)
    assert n >= 1
    assert left_behind(folder / "killed") == expected


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_T05_T32_a_fault_of_the_disk_loses_nothing(folder, fault):
    recipe = background(6)
    expected = uninterrupted(folder, recipe)
    with Disk() as disk:
        run_tiny(folder / "counted", recipe)
    for at in range(3, disk.n_calls + 1, 5):
        out = folder / f"{at}"
        with Disk(at, fault), suppress(OSError):
            run_tiny(out, recipe)
        assert not list(out.rglob("*.part")), at
        run_tiny(out, recipe)
        assert left_behind(out) == expected, at


def test_T32_a_failed_write_ends_the_run_at_the_next_save(folder, monkeypatch):
    def fail(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    seen = []
    watch_steps(monkeypatch, 5, lambda: seen.append("step 5"))
    monkeypatch.setattr(storage, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        run_tiny(folder, background(save_every=4, eval_every=50))
    assert seen == ["step 5"]
    assert not find_checkpoints(find_runs(folder, "tiny")[0].checkpoints)


def test_T32_a_run_whose_last_write_fails_has_no_result(folder, monkeypatch):
    def fail_at_the_end(checkpoints, checkpoint):
        if checkpoint.step == 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(checkpoints, checkpoint)

    save = storage.save
    monkeypatch.setattr(storage, "save", fail_at_the_end)
    with pytest.raises(OSError, match="No space left"):
        run_tiny(folder, background(save_every=4, eval_every=50))
    assert load_newest(*checkpoints_of(folder)).step == 8


def test_T12_a_signal_ends_a_run_only_when_its_checkpoint_is_written(folder):
    recipe = background(2000, log_every=1, save_every=1, eval_every=500)

    def work(ready):
        def hit(news):
            if isinstance(news, Progress) and news.step >= 7:
                os.kill(os.getpid(), signal.SIGTERM)

        run_tiny(folder, recipe, tell=hit)

    assert Child(work).end() == 128 + signal.SIGTERM
    run = find_runs(folder, "tiny")[0]
    assert load_newest(*checkpoints_of(folder)).step == run.read_metrics()[-1]["step"]
    assert not list(run.path.rglob("*.part"))


def make_infinite(monkeypatch, step):
    """The loss of this step is infinite, counted from 0; two batches make a step."""

    def loss(self, before, model, batch):
        calls.append(model.training)
        return before(self, model, batch) * (float("inf") if sum(calls) == 2 * step + 1 else 1)

    calls = []
    poison(monkeypatch, "loss", loss)


def test_T19_an_error_of_the_training_waits_for_the_checkpoint_and_names_it(
    folder, monkeypatch, slow_disk
):
    make_infinite(monkeypatch, 5)
    watch_steps(monkeypatch, 5, lambda: threading.Timer(0.3, slow_disk.set).start())
    with pytest.raises(NotFinite, match=r"at step 5.*; the last checkpoint is that of step 4$"):
        run_tiny(folder, background(save_every=4, eval_every=50))
    checkpoint = load_newest(*checkpoints_of(folder))
    assert checkpoint.step == 4
    assert read_tensors(checkpoint.path / "model.safetensors").keys() == checkpoint.model.keys()


def test_T32_a_failed_write_is_not_named_as_the_last_checkpoint(folder, monkeypatch):
    written = []

    def fail_later(*given):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(given)
        return save(*given)

    save = storage.save
    monkeypatch.setattr(storage, "save", fail_later)
    make_infinite(monkeypatch, 5)
    told = []
    with pytest.raises(NotFinite, match=r"the last checkpoint is that of step 2$"):
        run_tiny(folder, background(save_every=2, eval_every=50), tell=told.append)
    assert any("the last checkpoint was not saved: " in str(news) for news in told)


def test_a_run_deleted_while_a_checkpoint_is_written_is_named(folder, monkeypatch):
    def delete_and_fail(checkpoints, checkpoint):
        shutil.rmtree(checkpoints.parent)
        raise FileNotFoundError(checkpoints)

    monkeypatch.setattr(storage, "save", delete_and_fail)
    monkeypatch.setattr(storage.DiskStorage, "_append", lambda *given: None)
    with pytest.raises(storage.RunDeleted, match="was deleted or moved while it trains"):
        run_tiny(folder, background(save_every=4, eval_every=50))


def test_several_writing_processes_cannot_write_in_the_background():
    with pytest.raises(ValueError, match="save_in_background is for one writing process"):
        TrainingConfig(steps=2, parallel="fsdp", save_in_background=True)
