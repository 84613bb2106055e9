"""A run of a few milliseconds, and children that can be killed."""

import hashlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

import torch
from training.tiny_task import TinyTask, tiny

from clearhead.runs import Busy, Interrupted, NoGoodCheckpoint, find_runs, train
from clearhead.runs.checkpoint import find_checkpoints
from clearhead.training import NotFinite


def run_tiny(out, recipe=None, *, threads=1, **options):
    return train(recipe or tiny(), out, threads=threads, device="cpu", **options)


def left_behind(out):
    """SHA-256 of all that must not depend on how often a run was stopped."""
    run = find_runs(Path(out), "tiny")[-1]
    files = {f"last {name}": find_checkpoints(run.checkpoints)[-1] / name for name in TENSORS}
    files |= {name: run / name for name in ("metrics.jsonl", "samples.txt", "config.json")}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return {"step": find_checkpoints(run.checkpoints)[-1].name, **found}


TENSORS = ("model.safetensors", "optimizer.safetensors")


@contextmanager
def memory_folder():
    """A folder in memory where there is one: a sync to a disk takes milliseconds."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=memory, prefix="clearhead-test-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


# Runs that are stopped or spoiled


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


def poison(monkeypatch, name, change):
    before = getattr(TinyTask, name)
    monkeypatch.setattr(TinyTask, name, lambda self, *given: change(self, before, *given))


def checkpoints_of(out):
    run = find_runs(out, "tiny")[0]
    return run.checkpoints, run.identity


# Children: forked from this process, so that nothing has to be imported again

CODES = {NotFinite: 3, OSError: 4, NoGoodCheckpoint: 5, Busy: 6}


class Child:
    """A process that does `work(ready)`; it calls ready() when it is worth being disturbed."""

    def __init__(self, work):
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            self.number = os.fork()
        if not self.number:
            os._exit(_worked(work, lambda: os.write(writer, b"!")))
        os.close(writer)
        self.reader = reader

    def wait_ready(self, seconds=20):
        assert select.select([self.reader], [], [], seconds)[0], "the child never got ready"
        os.read(self.reader, 1)

    def send(self, number=signal.SIGKILL):
        os.kill(self.number, number)

    def end(self, seconds=60):
        """The exit code, negative for a signal."""
        limit = time.monotonic() + seconds
        while True:
            number, status = os.waitpid(self.number, os.WNOHANG)
            if number:
                os.close(self.reader)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > limit:
                self.send()
                raise AssertionError("the child did not end")
            time.sleep(0.0005)


def _worked(work, ready):
    """The exit code that the command line would give."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    try:
        work(ready)
        return 0
    except Interrupted as stop:
        return 128 + stop.number
    except KeyboardInterrupt:
        return 130
    except BaseException as fault:
        for kind, code in CODES.items():
            if isinstance(fault, kind):
                return code
        traceback.print_exc()
        return 99


def in_child(work, kill_after=None):
    child = Child(lambda ready: work())
    if kill_after is not None:
        time.sleep(kill_after)
        child.send()
    return child.end()


def through_kills(out, recipe, n_kills, random, longest):
    """Run with a SIGKILL at random moments, at most n_kills of them; returns how many hit."""
    hits = 0
    while hits < n_kills:
        code = in_child(lambda: run_tiny(out, recipe), random.uniform(0, longest))
        if code == 0:
            return hits
        assert code == -signal.SIGKILL
        hits += 1
    assert in_child(lambda: run_tiny(out, recipe)) == 0
    return hits
