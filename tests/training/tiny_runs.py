"""A run of a few milliseconds, children that can be killed, and a disk that fails when asked."""

import builtins
import errno
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
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from clearhead.data.batch import Batch
from clearhead.models.model import Config, Model, at_rest
from clearhead.training.checkpoint import NoGoodCheckpoint, places
from clearhead.training.finite import NotFinite
from clearhead.training.loop import train
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.run_folder import Busy, find_runs
from clearhead.training.stopping import Interrupted
from clearhead.training.tasks.task import DataConfig, Task

# A task of whole numbers: is the sum of three of them even?


@dataclass(frozen=True)
class TinyConfig(Config):
    d_model: int = 6
    dropout: float = 0.2


class TinyModel(Model):
    config_type = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        d = config.d_model
        self.embedding = nn.Embedding(7, d)
        self.inner = nn.Linear(d, d + 1)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(d + 1, 2)
        self.idle = nn.Parameter(torch.ones(3))  # never has a gradient
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("seen", torch.zeros(1))  # moves while it learns

    def forward(self, tokens):
        x = self.embedding(tokens).mean(1)
        if self.training:
            self.seen.add_(x.detach().sum(), alpha=0.01)
        return self.head(self.dropout(torch.relu(self.inner(x))))


@dataclass(frozen=True)
class TinyData(DataConfig):
    n: int = 20
    salt: int = 0

    def open(self):
        return TinyTask(self)


class TinyTask(Task):
    def __init__(self, data):
        numbers = torch.arange(data.n)[:, None] * torch.tensor([3, 5, 11]) + data.salt
        self.tokens = numbers % 7
        self.n_examples = data.n
        self.fingerprint = hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()

    def complete(self, config):
        return config

    def build(self, config):
        return TinyModel(config)

    def batch(self, plan):
        tokens = self.tokens[torch.as_tensor(plan)]
        return Batch(tokens, tokens.sum(1) % 2)

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch.inputs), batch.targets)

    def evaluate(self, model):
        with at_rest(model):
            return {"val_loss": float(self.loss(model, self.batch(range(self.n_examples))))}

    def overfit(self, n):
        self.tokens, self.n_examples = self.tokens[:n], n
        return self

    def sample(self, model):
        with at_rest(model):
            return f"{float(model(self.tokens[:1])[0, 0]):.6f}"

    def save(self, folder):
        (folder / "tokenizer.json").write_text("{}")


def tiny(steps=12, *, n=20, salt=0, d_model=6, dropout=0.2, **training):
    """A recipe: five batches an epoch, two to a step, dropout, both optimizers, warm-up."""
    wanted = {
        "batch_size": 4,
        "accumulate": 2,
        "lr": 0.02,
        "matrix_lr": 0.05,
        "optimizer": "muon",
        "weight_decay": 0.01,
        "warmup": 0.4,
        "log_every": 2,
        "eval_every": 4,
        "save_every": 3,
        **training,
    }
    data, model = TinyData(n, salt), TinyConfig(d_model, dropout)
    return Recipe("tiny", data, model, TrainingConfig(steps=steps, **wanted))


def run_tiny(out, recipe=None, *, threads=1, **options):
    return train(recipe or tiny(), out, threads=threads, device="cpu", **options)


def left_behind(out):
    """SHA-256 of all that must not depend on how often a run was stopped."""
    run = find_runs(Path(out), "tiny")[-1]
    files = {f"last {name}": places(run.checkpoints)[-1] / name for name in TENSORS}
    files |= {name: run / name for name in ("metrics.jsonl", "samples.txt", "config.json")}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return {"step": places(run.checkpoints)[-1].name, **found}


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


# A disk that fails

CALLS = ("fsync", "rename", "replace", "unlink", "mkdir", "rmdir")


class Disk:
    """Counts what changes the disk; from call number `at` on it fails, by an errno or by a kill.

    A write that fails has written half of its bytes. once: only that one call fails.
    """

    def __init__(self, at=None, fault=None, *, once=True, writes_only=False):
        self.at, self.fault, self.once, self.writes_only = at, fault, once, writes_only
        self.n_calls, self.log = 0, []

    def __enter__(self):
        self.before = {name: getattr(os, name) for name in CALLS}
        self.open = builtins.open
        for name in CALLS:
            setattr(os, name, self._failing(name, self.before[name]))
        builtins.open = self._opened
        return self

    def __exit__(self, *reason):
        for name, call in self.before.items():
            setattr(os, name, call)
        builtins.open = self.open

    def _failing(self, name, call):
        def wrapped(*given, **named):
            if not (self.writes_only and name in ("unlink", "rmdir")):
                self.reached(name)
            return call(*given, **named)

        return wrapped

    def _opened(self, path, mode="r", *given, **named):
        if isinstance(path, int) or not set(mode) & set("wax+") or "lock" in str(path):
            return self.open(path, mode, *given, **named)
        self.reached("open")
        return _Written(self.open(path, mode, *given, **named), self)

    def reached(self, name):
        """Count a call; fail if it is time."""
        self.n_calls += 1
        self.log.append(name)
        if self.is_time():
            self.fail()

    def is_time(self):
        if self.at is None:
            return False
        return self.n_calls == self.at or (not self.once and self.n_calls > self.at)

    def fail(self):
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.fault, os.strerror(self.fault))


class _Written:
    """A file whose writes are counted."""

    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.file.close()

    def write(self, data):
        self.disk.n_calls += 1
        self.disk.log.append("write")
        if self.disk.is_time():
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
            self.disk.fail()
        return self.file.write(data)

    def truncate(self, size):
        self.disk.reached("truncate")
        return self.file.truncate(size)


FAULTS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)
