"""A signal stops a run after its step, when all is saved."""

import os
import random
import signal
import time

import pytest
from runs.tiny_runs import (
    Child,
    in_child,
    left_behind,
    run_tiny,
    uninterrupted,
)
from training.tiny_task import TinyTask, tiny

from clearhead.runs import RunFolder, find_runs, storage
from clearhead.runs.checkpoint import find_checkpoints, is_finished, load_newest
from clearhead.training import Progress


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_T12_a_signal_saves_and_ends_within_seconds_at_twenty_moments(folder, number):
    recipe = tiny(2000, log_every=1, save_every=500, eval_every=50)
    randomly = random.Random(number)
    steps = []
    for _ in range(20):
        child = Child(lambda ready: run_tiny(folder, recipe, tell=lambda news: ready()))
        child.wait_ready()
        time.sleep(randomly.uniform(0, 0.05))
        child.send(number)
        sent = time.monotonic()
        assert child.end() == 128 + number
        assert time.monotonic() - sent < 5
        run = find_runs(folder, "tiny")[0]
        steps.append(int(find_checkpoints(run.checkpoints)[-1].name.removeprefix("step-")))
        assert run.read_metrics()[-1]["step"] in (
            steps[-1],
            steps[-1] - 1,
        )  # an evaluation is put off
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


def test_a_process_with_an_agent_ignores_the_second_signal_and_saves(folder, monkeypatch):
    """A service manager signals all processes, and then the agent passes the signal on."""
    for name, value in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)):
        monkeypatch.setenv(name, str(value))

    def work(ready):
        loss = TinyTask.loss

        def slow_loss(self, model, batch):
            ready()
            time.sleep(0.4)
            return loss(self, model, batch)

        monkeypatch.setattr(TinyTask, "loss", slow_loss)
        run_tiny(folder)

    child = Child(work)
    child.wait_ready()
    for _ in range(2):
        child.send(signal.SIGTERM)
        time.sleep(0.1)
    assert child.end() == 143
    (run,) = find_runs(folder, "tiny")
    assert find_checkpoints(run.checkpoints)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_T12_a_run_that_was_signalled_ends_with_the_same_numbers(folder, number):
    recipe = tiny(40)
    expected = uninterrupted(folder, recipe)
    for at in (3, 8, 20, 40):  # also where it evaluates

        def work(ready, at=at):
            def hit(news):
                if isinstance(news, Progress) and news.step >= at:
                    os.kill(os.getpid(), number)

            run_tiny(folder / "signalled", recipe, tell=hit)

        assert Child(work).end() == 128 + number
    assert in_child(lambda: run_tiny(folder / "signalled", recipe)) == 0
    assert left_behind(folder / "signalled") == expected


def test_T12_a_long_evaluation_is_broken_off_and_done_again(folder, monkeypatch):
    expected = uninterrupted(folder)
    evaluate = TinyTask.evaluate

    def long(self, model):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(100):
            time.sleep(0.1)

    for _ in range(3):  # steps 4, 4 again, and the last evaluation likewise
        monkeypatch.setattr(TinyTask, "evaluate", long)
        began = time.monotonic()
        assert in_child(lambda: run_tiny(folder / "stopped")) == 143
        assert time.monotonic() - began < 5
    assert find_runs(folder / "stopped", "tiny")[0].read_metrics()[-1]["step"] == 2
    calls = []

    def long_at_the_end(self, model):
        calls.append(1)
        return evaluate(self, model) if len(calls) < 3 else long(self, model)

    monkeypatch.setattr(TinyTask, "evaluate", long_at_the_end)
    assert in_child(lambda: run_tiny(folder / "stopped")) == 143
    monkeypatch.setattr(TinyTask, "evaluate", evaluate)
    assert in_child(lambda: run_tiny(folder / "stopped")) == 0
    assert left_behind(folder / "stopped") == expected
    assert is_finished(RunFolder(folder / "stopped" / "tiny-0001").checkpoints)
    names = [p.name for p in (folder / "stopped" / "tiny-0001" / "checkpoints").iterdir()]
    assert all(name.startswith("step-") and "." not in name for name in names)


@pytest.mark.parametrize("where", ["step", "save"])
def test_T13_a_second_signal_ends_the_process_at_once(folder, monkeypatch, where):
    expected = uninterrupted(folder)

    def work(ready):
        fsync, loss = os.fsync, TinyTask.loss

        def slow_loss(self, model, batch):
            if where == "step":
                ready()
                time.sleep(1)
            return loss(self, model, batch)

        def slow_fsync(number):
            if where == "save":
                ready()
                time.sleep(1)
            fsync(number)

        monkeypatch.setattr(TinyTask, "loss", slow_loss)
        monkeypatch.setattr(os, "fsync", slow_fsync)
        run_tiny(folder / "stopped", started)

    started = tiny()
    in_child(lambda: run_tiny(folder / "stopped", started), 0.02)
    child = Child(work)
    child.wait_ready()
    child.send(signal.SIGTERM)
    time.sleep(0.1)
    child.send(signal.SIGTERM)
    sent = time.monotonic()
    assert child.end() == -signal.SIGTERM
    assert time.monotonic() - sent < 0.9
    assert in_child(lambda: run_tiny(folder / "stopped", started)) == 0
    assert left_behind(folder / "stopped") == expected


def test_T13_a_signal_during_a_save_lets_it_finish(folder, monkeypatch):
    def work(ready):
        save = storage.save

        def signalled(*given):
            os.kill(os.getpid(), signal.SIGINT)
            return save(*given)

        monkeypatch.setattr(storage, "save", signalled)
        run_tiny(folder)

    assert Child(work).end() == 130
    run = find_runs(folder, "tiny")[0]
    assert [place.name for place in find_checkpoints(run.checkpoints)] == ["step-0000003"]
    assert load_newest(run.checkpoints, run.identity).step == 3


def test_a_signal_while_the_result_is_made_is_not_lost(folder, monkeypatch):
    sample = TinyTask.sample

    def work(ready):
        def signalled(self, model):
            if is_finished(find_runs(folder, "tiny")[0].checkpoints):
                os.kill(os.getpid(), signal.SIGINT)
            return sample(self, model)

        monkeypatch.setattr(TinyTask, "sample", signalled)
        run_tiny(folder)

    assert Child(work).end() == 130


def test_signals_are_as_before_after_a_run_and_one_that_is_ignored_stays_ignored(folder):
    before = signal.getsignal(signal.SIGINT)
    seen = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        run_tiny(folder, tell=lambda news: seen.append(signal.getsignal(signal.SIGTERM)))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert set(seen) == {signal.SIG_IGN}
    assert signal.getsignal(signal.SIGINT) is before


def test_training_works_outside_the_main_thread(folder):
    from threading import Thread

    results = []
    thread = Thread(target=lambda: results.append(run_tiny(folder)))
    thread.start()
    thread.join()
    assert results[0].steps == 12
