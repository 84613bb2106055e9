"""A run cannot be lost: kills, signals, faults of the disk and numbers that are none."""

import ctypes
import errno
import os
import random
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from runs.faulty_disk import FAULTS, Disk
from runs.tiny_runs import Child, in_child, left_behind, memory_folder, run_tiny, through_kills
from training.tiny_task import TinyTask, tiny

from clearhead.data.batch import IGNORE
from clearhead.files.tensors import read_tensors
from clearhead.models import ViTConfig
from clearhead.runs import Busy, RunFolder, find_runs, storage, train
from clearhead.runs.checkpoint import find_checkpoints, is_finished, load_newest
from clearhead.training import NotFinite, Optimizer, Progress, Recipe, TrainingConfig, loop, tasks
from clearhead.training.loop import Training
from clearhead.training.state import State
from clearhead.training.tasks.pictures import PictureData, PictureTask


@pytest.fixture
def folder():
    torch.set_num_threads(1)
    with memory_folder() as path:
        yield path


class Killed(BaseException):
    """Ends a run in the middle, without a child."""


def uninterrupted(folder, recipe=None):
    run_tiny(folder / "uninterrupted", recipe)
    return left_behind(folder / "uninterrupted")


def stop_at_call(monkeypatch, name, number, kind=TinyTask):
    """The call of this number of a method raises Killed, before it does anything."""
    before, calls = getattr(kind, name), [0]

    def counted(self, *given, **named):
        calls[0] += 1
        if calls[0] == number:
            raise Killed
        return before(self, *given, **named)

    monkeypatch.setattr(kind, name, counted)
    return lambda: monkeypatch.setattr(kind, name, before)


def no_nan_anywhere(out):
    for path in out.rglob("*.safetensors"):
        assert all(t.isfinite().all() for t in read_tensors(path, finite=False).values())


# Kills


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
    assert n_runs <= 25


def by(workers, steps=12, **training):
    """A recipe for one worker, or for two, which have no dropout."""
    return tiny(steps, workers=workers, dropout=0.2 if workers == 1 else 0.0, **training)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", range(1, 25))
def test_T03_a_run_stopped_at_any_batch_goes_on_bit_for_bit(folder, monkeypatch, number, workers):
    """All of: within an epoch, at its end, at its start, within a step, in the warm-up, last."""
    recipe = by(workers, save_every=1)
    expected = uninterrupted(folder, recipe)
    undo = stop_at_call(monkeypatch, "batch", number + number // 9)  # evaluations take one, too
    with pytest.raises(Killed):
        run_tiny(folder / "stopped", recipe)
    undo()
    run_tiny(folder / "stopped", recipe)
    assert left_behind(folder / "stopped") == expected


@pytest.mark.parametrize("number", [1, 7, 8, 11])
def test_T03_batch_norm_and_two_workers_at_once_go_on_bit_for_bit(folder, monkeypatch, number):
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
def test_T03_a_run_stopped_at_any_evaluation_goes_on_bit_for_bit(folder, monkeypatch, name, number):
    expected = uninterrupted(folder)
    undo = stop_at_call(monkeypatch, name, number)
    with pytest.raises(Killed):
        run_tiny(folder / "stopped")
    undo()
    run_tiny(folder / "stopped")
    assert left_behind(folder / "stopped") == expected


def forget_the_cursor(monkeypatch):
    from_dict = State.from_dict.__func__
    forgotten = {"epoch": 0, "cursor": 0}
    monkeypatch.setattr(
        State, "from_dict", classmethod(lambda c, values: from_dict(c, {**values, **forgotten}))
    )


def after_a_restore(monkeypatch, spoil):
    """Do this to a run that goes on, and nothing to one that begins."""
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


# Signals


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


# Faults of the disk


@pytest.mark.parametrize(("first", "fault"), list(enumerate(FAULTS, 1)))
def test_T05_T06_T32_a_fault_of_the_disk_during_a_run_loses_nothing(folder, first, fault):
    recipe = tiny(6)
    expected = uninterrupted(folder, recipe)
    with Disk() as disk:
        run_tiny(folder / "counted", recipe)
    for at in range(2 * first, disk.n_calls + 1, 8):
        out = folder / f"{at}"
        with Disk(at, fault), suppress(OSError):
            run_tiny(out, recipe)
        assert not list(out.rglob("*.part")), at
        run_tiny(out, recipe)
        assert left_behind(out) == expected, at


def test_T05_a_full_small_disk_keeps_the_last_good_checkpoint(folder):
    recipe = tiny(20, d_model=200, save_every=2, eval_every=50, log_every=3)
    expected = uninterrupted(folder, recipe)
    (folder / "disk").mkdir()
    report = folder / "report"

    def work():
        libc = ctypes.CDLL(None, use_errno=True)
        out = folder / "disk"
        private = 1 << 18 | 1 << 14
        if libc.unshare(1 << 17) or libc.mount(b"none", b"/", None, private, None):
            os._exit(77)
        if libc.mount(b"tmpfs", str(out).encode(), b"tmpfs", 0, b"size=2m"):
            os._exit(77)
        (out / "ballast").write_bytes(bytes(1_300_000))
        with pytest.raises(OSError, match="No space left") as caught:
            run_tiny(out, recipe)
        assert caught.value.errno == errno.ENOSPC
        run = find_runs(out, "tiny")[0]
        found = load_newest(run.checkpoints, run.identity)
        assert found.step >= 2
        assert not list(run.path.rglob("*.part"))
        (out / "ballast").unlink()
        run_tiny(out, recipe)
        assert left_behind(out) == expected
        report.write_text(f"{found.step}")

    code = in_child(work)
    if code == 77:
        pytest.skip("this machine does not let us mount a small tmpfs")
    assert code == 0
    assert report.exists()


# Numbers that are none


def poison(monkeypatch, name, change):
    before = getattr(TinyTask, name)
    monkeypatch.setattr(TinyTask, name, lambda self, *given: change(self, before, *given))


def test_T19_a_bad_batch_stops_the_run_and_is_named(folder, monkeypatch):
    bad = []

    def batch(self, before, plan):
        made = before(self, plan)
        if 13 in plan and not isinstance(plan, range):
            bad.append(made.targets)
        return made

    def loss(self, before, model, batch):
        is_bad = any(batch.targets is targets for targets in bad)
        return before(self, model, batch) * (torch.nan if is_bad else 1)

    poison(monkeypatch, "batch", batch)
    poison(monkeypatch, "loss", loss)
    with pytest.raises(NotFinite, match=r"the loss is nan at step \d, .*examples [^;]*\b13\b"):
        run_tiny(folder)
    no_nan_anywhere(folder)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_T19_a_much_too_high_learning_rate_stops_the_run(folder, optimizer):
    recipe = tiny(lr=1e20, matrix_lr=1e20, save_every=1, optimizer=optimizer, clip=None, warmup=0.0)
    with pytest.raises(NotFinite, match=r"step \d.*training\.lr"):
        run_tiny(folder, recipe)
    no_nan_anywhere(folder)


def test_T19_the_sentence_says_which_checkpoint_is_good(folder, monkeypatch):
    calls = []

    def loss(self, before, model, batch):
        calls.append(model.training)
        return before(self, model, batch) * (torch.inf if sum(calls) == 11 else 1)

    poison(monkeypatch, "loss", loss)
    with pytest.raises(
        NotFinite, match=r"is inf at step 5.*; the last checkpoint is that of step 4$"
    ):
        run_tiny(folder)
    assert load_newest(*checkpoints_of(folder)).step == 4


def checkpoints_of(out):
    run = find_runs(out, "tiny")[0]
    return run.checkpoints, run.identity


def test_T20_nan_in_a_gradient_alone_stops_the_run_and_names_the_tensor(folder, monkeypatch):
    init = Training.__init__

    def spoiled(self, *given, **named):
        init(self, *given, **named)
        weight = self.model.inner.weight
        weight.register_hook(lambda g: g * torch.nan if self.state.step == 5 else g)

    monkeypatch.setattr(Training, "__init__", spoiled)
    with pytest.raises(NotFinite, match=r"gradient of inner\.weight is not finite at step 5"):
        run_tiny(folder)
    no_nan_anywhere(folder)
    assert load_newest(*checkpoints_of(folder)).step == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("idle", torch.nan), ("table", torch.inf), ("adamw.exp_avg_sq.head.weight", torch.inf)],
)
def test_T20_nan_in_one_parameter_or_in_the_optimizer_is_never_saved(
    folder, monkeypatch, name, value
):
    update = Training.update

    def spoiled(self, plans):
        loss = update(self, plans)
        if self.state.step == 4:
            tensors = {**self.model.state_dict(), **self.optimizer.tensors()}
            tensors[name].view(-1)[0] = value
        return loss

    monkeypatch.setattr(Training, "update", spoiled)
    with pytest.raises(NotFinite, match=rf"{name} is not finite at step \d+.*not saved"):
        run_tiny(folder)
    no_nan_anywhere(folder)
    assert load_newest(*checkpoints_of(folder)).step == 4


def test_T20_nan_in_a_used_parameter_stops_the_run(folder, monkeypatch):
    update = Training.update

    def spoiled(self, plans):
        loss = update(self, plans)
        if self.state.step == 4:
            self.model.state_dict()["head.weight"][0, 0] = torch.nan
        return loss

    monkeypatch.setattr(Training, "update", spoiled)
    with pytest.raises(NotFinite, match="step"):
        run_tiny(folder)
    no_nan_anywhere(folder)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_T21_a_measure_that_is_no_number_is_never_the_best(folder, monkeypatch, bad):
    calls = []

    def evaluate(self, before, model):
        calls.append(1)
        return {"val_loss": [0.5, bad, 0.7][len(calls) - 1], "val_odd": bad}

    poison(monkeypatch, "evaluate", evaluate)
    said = []
    result = run_tiny(folder, tell=said.append)
    assert result.metrics == {"val_loss": 0.5}
    lines = find_runs(folder, "tiny")[0].read_metrics()
    assert [line.get("val_loss") for line in lines if line["step"] in (4, 8, 12)] == [
        0.5,
        None,
        0.7,
    ]
    assert any("val_loss is" in news for news in said if isinstance(news, str))
    names = [p.name for p in find_checkpoints(find_runs(folder, "tiny")[0].checkpoints)]
    assert "step-0000004" in names  # the best is kept


def test_T21_if_no_measure_is_a_number_there_is_no_best(folder, monkeypatch):
    poison(monkeypatch, "evaluate", lambda self, before, model: {"val_loss": float("nan")})
    assert run_tiny(folder).metrics == {}


# Two at once


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


# How many examples


@pytest.mark.parametrize("n", range(1, 18))
@pytest.mark.parametrize("accumulate", [1, 3])
def test_T26_every_example_is_learned_from_once_in_an_epoch(folder, monkeypatch, n, accumulate):
    seen = []

    def batch(self, before, plan):
        if not isinstance(plan, range):  # that is an evaluation
            seen.extend(plan)
        return before(self, plan)

    poison(monkeypatch, "batch", batch)
    n_batches = -(-n // 4)
    result = run_tiny(folder, tiny(n_batches * 2, n=n, accumulate=accumulate, save_every=100))
    assert result.steps == n_batches * 2
    epochs = [sorted(seen[i : i + n]) for i in range(0, len(seen), n)]
    assert epochs == [list(range(n))] * (2 * accumulate)


def test_T26_no_examples_are_refused_before_a_folder_is_made(folder):
    with pytest.raises(ValueError, match="no examples to learn from"):
        run_tiny(folder / "none", tiny(n=0))
    assert not (folder / "none").exists()


# The metrics file


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


# What is left, and what is not


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
    assert told[-1] == "all 12 steps are made; training.steps=24 would be more"


def test_compile_is_refused_where_it_would_do_nothing(folder, monkeypatch):
    monkeypatch.setattr(TinyTask, "can_compile", False)
    with pytest.raises(ValueError, match="which are not compiled"):
        run_tiny(folder, tiny(compile=True))


def test_without_a_number_it_is_evaluated_once_an_epoch(folder):
    run_tiny(folder, tiny(10, eval_every=None))  # five batches an epoch, two to a step
    lines = find_runs(folder, "tiny")[0].read_metrics()
    assert [line["step"] for line in lines if "val_loss" in line] == [3, 6, 9, 10]


@pytest.mark.parametrize("writes", [True, False])
def test_what_a_writer_writes_is_told_after_each_evaluation_but_the_last(
    folder, monkeypatch, writes
):
    monkeypatch.setattr(TinyTask, "has_text_samples", writes)
    told = []
    result = run_tiny(folder, tell=told.append)
    kept = re.findall(r"--- step (\d+)\n(.*)\n", (result.run / "samples.txt").read_text())
    assert [step for step, _ in kept] == ["4", "8", "12"]
    assert [news for news in told if isinstance(news, str)] == [
        sample for step, sample in kept if writes and step != "12"
    ]
    assert result.sample == kept[-1][1]


def test_a_finished_run_that_is_resumed_gives_its_result_again(folder):
    first = run_tiny(folder)
    before = left_behind(folder)
    again = run_tiny(folder, resume=str(first.run))
    assert (again.run, again.steps, again.metrics) == (first.run, first.steps, first.metrics)
    assert again.sample == first.sample
    assert left_behind(folder) == before


def test_a_finished_run_goes_on_with_more_steps_if_forced(folder):
    first = run_tiny(folder)
    result = run_tiny(folder, tiny(20), resume="last", force=True)
    assert (result.run, result.steps) == (first.run, 20)


def test_overfit_learns_few_examples_and_is_another_run(folder):
    result = run_tiny(folder, tiny(150, dropout=0.0, lr=0.05), overfit=4)
    assert result.metrics["val_loss"] < 0.05
    assert find_runs(folder, "tiny")[0].config["overfit"] == 4
    with pytest.raises(ValueError, match="overfit must be at least 1, got 0"):
        run_tiny(folder, overfit=0)


def test_accumulated_batches_are_one_large_batch(folder):
    plain = {"optimizer": "adamw", "dropout": 0.0, "clip": 0.5, "warmup": 0.0}
    run_tiny(folder / "two", tiny(10, accumulate=2, batch_size=2, **plain))
    run_tiny(folder / "one", tiny(10, accumulate=1, batch_size=4, **plain))
    two, one = (load_newest(*checkpoints_of(folder / name)).model for name in ("two", "one"))
    for name in one:
        assert torch.allclose(one[name], two[name], atol=1e-5), name


@pytest.mark.parametrize("clip", [1e-3, 1e3, None])
def test_a_gradient_is_made_no_longer_than_clip(folder, monkeypatch, clip):
    step, lengths = Optimizer.step, []

    def watched(self, factor):
        gradients = [p.grad.flatten() for p in self.parameters if p.grad is not None]
        lengths.append(float(torch.cat(gradients).norm()))
        step(self, factor)

    monkeypatch.setattr(Optimizer, "step", watched)
    run_tiny(folder, tiny(5, clip=clip))
    assert len(lengths) == 5
    if clip == 1e-3:
        assert lengths == pytest.approx([1e-3] * 5, rel=1e-2)
    else:
        assert min(lengths) > 1e-2


def test_progress_tells_how_it_goes(folder):
    said = []
    run_tiny(folder, tell=said.append)
    progress = [news for news in said if isinstance(news, Progress)]
    assert [news.step for news in progress] == [2, 4, 6, 8, 10, 12]
    assert progress[-1].seconds_left == 0 < progress[0].seconds_left
    assert all(news.rate > 0 for news in progress)
    assert progress[0].metrics.keys() == {"loss", "lr"}


@pytest.mark.parametrize(("unit", "n_units"), [("examples", [8, 16]), ("tokens", [6, 12])])
def test_progress_says_what_its_rate_counts(folder, monkeypatch, unit, n_units):
    """Examples, or tokens that are predicted: of four in a batch the first is padding here."""
    said, counted, batch, log = [], [], TinyTask.batch, Training.log

    def padded(self, plan):
        made = batch(self, plan)
        if not isinstance(plan, range) and unit == "tokens":
            made.targets[0] = IGNORE
        return made

    def watched(self, *given):
        counted.append(self.clock.n_units)
        log(self, *given)

    monkeypatch.setattr(TinyTask, "batch", padded)
    monkeypatch.setattr(TinyTask, "unit", unit)
    monkeypatch.setattr(Training, "log", watched)
    run_tiny(folder, tiny(2), tell=said.append)
    assert counted == n_units
    assert {news.unit for news in said if isinstance(news, Progress)} == {unit}


def test_language_is_counted_in_tokens_and_the_rest_in_examples():
    found = {"tokens": set(), "examples": set()}
    for kind in (getattr(tasks, name) for name in tasks.__all__):
        if issubclass(kind, tasks.Task) and kind is not tasks.Task:
            found[kind.unit].add(kind.__name__)
    assert found == {
        "tokens": {"CharacterTask", "DialogueTask", "TranslationTask"},
        "examples": {"PictureTask", "SequenceTask", "SubstringTask"},
    }


def test_training_goes_on_outside_the_main_thread(folder):
    from threading import Thread

    results = []
    thread = Thread(target=lambda: results.append(run_tiny(folder)))
    thread.start()
    thread.join()
    assert results[0].steps == 12


def test_compile_that_does_not_work_is_refused_by_a_sentence(folder, monkeypatch):
    def broken(model):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(ValueError, match=r"torch\.compile does not work here.*compile=false"):
        run_tiny(folder, tiny(compile=True))


def test_train_takes_a_folder_and_needs_no_more(folder):
    assert train(tiny(2), folder).steps == 2
