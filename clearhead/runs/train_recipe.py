"""Train a recipe in a run folder, from the start or from its last checkpoint.

    result = train(substring(), "runs")             a new run, or the unfinished one of this recipe
    result.metrics["val_accuracy"]

The loop is training/loop.py. Around it are the folder that keeps the run, a lock so that no
other process writes there, the check that a resumed run is still the same run, and signals.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from clearhead.models.model import load_weights
from clearhead.runs.checkpoint import load_best
from clearhead.runs.folder import CODE, COPY, RunFolder, describe_environment, new_run
from clearhead.runs.own_code import OwnCode, add_kinds, check_not_loading, find_code, remember
from clearhead.runs.resume import (
    check_same,
    decide_threads,
    digest_command,
    find_run,
    find_unfinished,
    record_forced,
)
from clearhead.runs.run import Run
from clearhead.runs.signals import Interrupted, Signals
from clearhead.runs.storage import DiskStorage
from clearhead.runtime import pick_device, set_threads
from clearhead.shapes import check_positive
from clearhead.training.gradient import NotFinite, check_trainable
from clearhead.training.loop import Training
from clearhead.training.progress import Tell
from clearhead.training.recipe import Recipe
from clearhead.training.tasks.task import Task


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run; metrics and sample are those of its best checkpoint."""

    run: Path
    steps: int
    seconds: float
    best_step: int | None
    metrics: dict[str, float]
    sample: str | None  # what the model wrote at that step
    next_command: str  # a command to try the model with
    trained: Run = field(repr=False, compare=False)  # as load_run(run) would load it


def train(
    recipe: Recipe,
    out: str | Path = "runs",
    *,
    resume: str | None = None,
    overfit: int | None = None,
    device: str = "auto",
    threads: int | str = "auto",
    force: bool = False,
    tell: Tell = lambda news: None,
) -> RunResult:
    """Train a recipe in a folder below `out`, or resume its unfinished run.

    resume: "last" or the path of a run. overfit: train and evaluate on this many examples.
    threads: "auto" measures which number is faster; a resumed run keeps its own. force: resume
    although training settings, threads or versions differ. tell: called with all progress and
    notices.
    """
    check_not_loading()
    asked = digest_command(recipe, overfit)
    task = _open_task(recipe, overfit)
    recipe = dataclasses.replace(recipe, model=task.complete(recipe.model))
    config = {**recipe.to_dict(), "overfit": overfit, "examples": task.fingerprint, "asked": asked}
    if code := find_code(recipe, tell):
        config[CODE] = code.describe()
        remember(code)
    if resume is None:
        folder = find_unfinished(Path(out), config, tell)
    else:
        folder = find_run(Path(out), resume, recipe.name)
    check_trainable(recipe, task)
    where = pick_device(device)
    set_threads(decide_threads(folder, threads, recipe.training.workers))
    environment = describe_environment(torch.get_num_threads(), where.type)
    is_new = folder is None
    if folder is None:
        folder = new_run(
            Path(out), recipe.name, lambda new: _fill(new, task, code, config, environment)
        )
    with folder.lock():
        kinds = add_kinds(map(type, recipe.sections.values()))
        differences = [] if is_new else check_same(folder, config, environment, force, kinds)
        storage = DiskStorage(folder.path, keep=recipe.training.keep, tell=tell)
        storage.read(recipe.model)
        training = Training(recipe, task, storage, device=where, tell=tell)
        with Signals(training.stop).catch() as signals, _name_checkpoint(storage):
            storage.restore(training)
            if differences:
                _copy_code(folder, code)
                record_forced(folder, config, environment, differences, tell)
            training.run()
            if signals.number is None:
                result = _make_result(training, recipe, folder, tell)
        if signals.number is not None:
            raise Interrupted(signals.number, folder.path, finished=training.is_done)
        return result


def _open_task(recipe: Recipe, overfit: int | None) -> Task:
    """Read the data."""
    task = recipe.data.open()
    if overfit is not None:
        check_positive(overfit=overfit)
        task = task.overfit(overfit)
    if task.n_examples < 1:
        raise ValueError("there are no examples to learn from; change the settings data.…")
    return task


def _fill(
    folder: RunFolder,
    task: Task,
    code: OwnCode | None,
    config: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> None:
    """Write everything a run folder holds before the first step."""
    task.save(folder.path)
    _copy_code(folder, code)
    folder.describe(config, environment)


def _copy_code(folder: RunFolder, code: OwnCode | None) -> None:
    """Keep the file with the recipe's own classes, if it has any."""
    if code is not None:
        with folder.replace(COPY) as file:
            file.write(code.data)


@contextmanager
def _name_checkpoint(storage: DiskStorage) -> Iterator[None]:
    """Name the last checkpoint in a NotFinite error."""
    try:
        yield
    except NotFinite as fault:
        last, none = storage.last_step, "there is no checkpoint yet"
        known = none if last is None else f"the last checkpoint is that of step {last}"
        raise NotFinite(f"{fault}; {known}") from None


def _make_result(training: Training, recipe: Recipe, folder: RunFolder, tell: Tell) -> RunResult:
    """Give the model its best weights, and sum up the run."""
    state, step = training.state, training.state.step
    if state.best_step not in (None, step):
        best = load_best(folder.checkpoints, folder.identity, state.best_step, tell)
        if best is not None:
            load_weights(training.model, best.model)
            step = best.step
    run = Run(folder, recipe, training.task.predictor, training.model.eval(), step, state)
    vars(run)["task"] = training.task  # a cached property: the data are not read again
    return sum_up(run)


def sum_up(run: Run) -> RunResult:
    """The outcome of a run that is loaded."""
    state, path = run.state, run.folder.path
    return RunResult(
        path,
        state.step,
        state.seconds,
        state.best_step,
        state.best_metrics,
        sample=run.task.sample(run.model),
        next_command=run.task.next_command(path),
        trained=run,
    )
