"""Cases of training: what the loop adds to a step, the cost of its data, the start.

The loop is the real one, with the line that a step writes to metrics.jsonl. Evaluations and
checkpoints are left out, since a recipe decides how often they happen.
"""

import dataclasses
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path

import torch

from clearhead.bench.row import Row, Rows, Work
from clearhead.data.batch import Batch
from clearhead.runs.folder import METRICS
from clearhead.runs.storage import DiskStorage
from clearhead.timing import best_seconds
from clearhead.training import Recipe, find_recipe, with_changes
from clearhead.training.loop import Training
from clearhead.training.state import State

RECIPES = ("substring", "shakespeare-char")
STEPS = 20  # the last of them writes the line in metrics.jsonl
ONLY_STEPS = [f"training.log_every={STEPS}", "training.eval_every=999", "training.save_every=999"]
N_CHARACTERS = 1_000_000  # of the generated text
COMMAND = (sys.executable, "-m", "clearhead.cli.main")


def loop(seconds: float) -> Rows:
    """A step of the training loop against the bare step, and how long making its batch takes."""
    rows = []
    for name in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            rows += _measure_recipe(_prepare_recipe(name, Path(folder)), Path(folder), seconds)
    return rows


def _measure_recipe(recipe: Recipe, folder: Path, seconds: float) -> Rows:
    """Each step of the loop is measured in turn with the bare step on the same batch."""
    ours, bare = _prepare_run(recipe, folder / "ours"), _prepare_run(recipe, folder / "bare")
    plans = [bare.order.next(bare.state) for _ in range(STEPS)]
    works: dict[str, Work] = {"epoch": _make_epochs(recipe)}
    for number, plan in enumerate(plans):
        works[f"batch {number}"] = partial(bare.task.batch, plan)
        works[f"bare {number}"] = partial(_bare_step, bare, bare.task.batch(plan))
        works[f"loop {number}"] = partial(_loop_step, ours, number)
    best = best_seconds(works, seconds=2 * seconds, rounds=3)
    step = {
        way: sum(best[f"{way} {n}"] for n in range(STEPS)) / STEPS
        for way in ("loop", "bare", "batch")
    }
    epoch = best["epoch"] / len(bare.order.plans)  # the share of one step
    other = ("forward, backward, update", step["bare"])
    return [
        Row(f"{recipe.name}, a step of the loop", step["loop"] + epoch, *other, "aim ≤ 1.03×"),
        Row(f"{recipe.name}, making its batch", step["batch"] + epoch, *other, "aim ≤ 0.02×"),
    ]


def _loop_step(training: Training, number: int) -> None:
    """Take the next step; start again after the last, so that every round has the same batches."""
    if number == 0:
        training.state = State()
    training.advance()


def _bare_step(training: Training, batch: Batch) -> None:
    """Forward, backward, and the update, which also clears the gradient."""
    training.task.loss(training.model, batch).backward()
    training.optimizer.step(training.schedule(0.5))


def _make_epochs(recipe: Recipe) -> Work:
    """A function that starts a new epoch at each call. Its task is new, as tasks keep an epoch."""
    task, c, epochs = recipe.data.open(), recipe.training, count()
    return lambda: task.batch(task.plans(c.seed, next(epochs), c.batch_size)[0])


def _prepare_run(recipe: Recipe, folder: Path) -> Training:
    """A run before its first step."""
    folder.mkdir()
    task = recipe.data.open()
    complete = dataclasses.replace(recipe, model=task.complete(recipe.model))
    run = Training(complete, task, DiskStorage(folder, keep=complete.training.keep))
    run.model.train()
    return run


def _prepare_recipe(name: str, folder: Path) -> Recipe:
    """A recipe without evaluations and checkpoints, on data that need no download.

    One worker computes all examples of a step at once, both in the loop and in the bare step.
    """
    recipe = find_recipe(name)
    c = recipe.training
    at_once = [f"training.batch_size={c.batch_size * c.accumulate}", "training.accumulate=1"]
    changes = [*ONLY_STEPS, *at_once, "training.workers=1"]
    if name == "shakespeare-char":
        text = folder / "text.txt"
        text.write_text(draw_text(N_CHARACTERS), encoding="utf-8")
        changes.append(f"data.path={text}")
    return with_changes(recipe, changes)


def draw_text(n: int) -> str:
    """Random characters, as many kinds as in Shakespeare's plays."""
    ids = torch.randint(65, (n,), generator=torch.Generator().manual_seed(0))
    return bytes((ids + ord("0")).tolist()).decode()


# From the command to the first step


def start(seconds: float) -> Rows:
    """The time from a command to its help text, and to the first step of a training."""
    works: dict[str, Work] = {
        "train": _train_until_first_step,
        "help": partial(subprocess.check_output, [*COMMAND, "--help"]),
        "torch": partial(subprocess.check_output, [sys.executable, "-c", "import torch"]),
        "python": partial(subprocess.check_output, [sys.executable, "-c", ""]),
    }
    best = best_seconds(works, seconds=seconds, rounds=3)
    train = "first step of clearhead train substring"
    return [
        Row(train, best["train"], "6 s", 6.0, "aim ≤ 1.0×"),
        Row(train, best["train"], "import torch", best["torch"]),
        Row("clearhead --help", best["help"], "0.3 s", 0.3, "aim ≤ 1.0×"),
        Row("clearhead --help", best["help"], "an empty Python program", best["python"]),
    ]


def _train_until_first_step() -> None:
    """Train until metrics.jsonl exists, then end the training and delete its run."""
    with tempfile.TemporaryDirectory() as folder:
        what = ("train", "substring", "training.log_every=1", "--out", folder, "--quiet")
        training = subprocess.Popen([*COMMAND, *what])
        try:
            while not list(Path(folder).glob(f"*/{METRICS}")):
                if training.poll() is not None:
                    raise RuntimeError("clearhead train substring ended before its first step")
                time.sleep(0.005)
        finally:
            training.kill()
            training.wait()
