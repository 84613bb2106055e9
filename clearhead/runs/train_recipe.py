"""Train a recipe in a run folder, from the start or from its last checkpoint.

    result = train(substring(), "runs")             a new run, or the unfinished one of this recipe
    result.metrics["val_accuracy"]

The loop is training/loop.py. Around it are the folder that keeps the run, a lock so that no
other process writes there, the check that a resumed run is still the same run, and signals. Of
several processes that train one run together, the first reads and writes the folder.
"""

import dataclasses
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from clearhead.files.lock import PATIENCE
from clearhead.models.model import Model, load_weights
from clearhead.runs.checkpoint import load_best, load_newest
from clearhead.runs.folder import CODE, COPY, RunFolder, describe_environment, new_run
from clearhead.runs.own_code import OwnCode, add_kinds, check_not_loading, find_code, remember
from clearhead.runs.resume import (
    HARMLESS,
    check_same,
    decide_threads,
    digest_command,
    find_run,
    find_unfinished,
    record_forced,
    record_processes,
)
from clearhead.runs.run import Run
from clearhead.runs.signals import Interrupted, Signals
from clearhead.runs.storage import DiskStorage
from clearhead.runtime import Place, pick_device, read_place, set_threads
from clearhead.shapes import check_positive
from clearhead.training.gradient import NotFinite, check_trainable
from clearhead.training.group import Group
from clearhead.training.loop import Training
from clearhead.training.progress import Progress, Tell
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.storage import Memory
from clearhead.training.tasks.task import Task

WAIT_FOR_LAST = 15.0  # seconds for which the last processes of a run may still hold its lock


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
    # As load_run(run) would load it. With parallel=fsdp only the first process has the whole model.
    trained: Run = field(repr=False, compare=False)


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
    find_finished: Callable[[], RunFolder | None] = lambda: None,
) -> RunResult:
    """Train a recipe in a folder below `out`, or resume its unfinished run.

    resume: "last" or the path of a run. overfit: train and evaluate on this many examples.
    threads: "auto" measures which number is faster; a resumed run keeps its own. force: resume
    although training settings, threads or versions differ. tell: called with all progress and
    notices. find_finished: called in the first process; if it finds a run, Finished is raised in
    all, and nothing is trained.
    """
    check_not_loading()
    place = read_place()
    where = pick_device(device, place)
    with _join_group(recipe.training.parallel, where, place) as group:
        if group.rank > 0:
            tell = _say_nothing
        outcome: RunResult | Interrupted | Finished
        if finished := group.ask_first(lambda: (run := find_finished()) and str(run.path)):
            outcome = Finished(finished)
        else:
            task = _open_task(recipe, overfit)
            start = _describe(recipe, task, overfit, tell)
            environment = describe_environment(1, where.type)
            group.compare({**start.config, **environment}, ignore=HARMLESS)
            check_trainable(start.recipe, task)
            folder = _find_folder(Path(out), resume, start, tell) if group.rank == 0 else None
            wanted = _decide_threads(folder, threads, recipe.training)
            set_threads(group.ask_first(lambda: set_threads(wanted, place)))
            outcome = _train(group, start, task, folder, Path(out), where, force, tell)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _join_group(
    parallel: str | None, device: torch.device, place: Place
) -> AbstractContextManager[Group]:
    """The group of this process; a process alone must not need torch.distributed, which some
    builds of PyTorch lack."""
    if place.size == 1 and parallel in (None, "exact"):
        return nullcontext(Group(has_agent=place.has_agent))
    from clearhead.parallel.group import join_group

    return join_group(parallel, device, place)


class Finished(Exception):
    """`find_finished` found a run; nothing was trained."""

    def __init__(self, run: str) -> None:
        super().__init__(f"{run} is finished")
        self.run = Path(run)


@dataclass(frozen=True)
class _Start:
    """What a run starts from: its recipe with all sizes, config.json, and the user's own file."""

    recipe: Recipe
    config: dict[str, Any]
    code: OwnCode | None


def _train(
    group: Group,
    start: _Start,
    task: Task,
    folder: RunFolder | None,
    out: Path,
    device: torch.device,
    force: bool,
    tell: Tell,
) -> RunResult | Interrupted:
    """Train in a new folder, or resume in the given one; only the group's first process writes."""
    recipe, is_new, is_first = start.recipe, folder is None, group.rank == 0
    environment = describe_environment(torch.get_num_threads(), device.type)
    if recipe.training.parallel is not None:
        environment["processes"] = group.size
    if is_first and folder is None:
        folder = new_run(out, recipe.name, lambda new: _fill(new, task, start, environment))
    path = None if folder is None else str(folder.path)
    folder = RunFolder(group.ask_first(lambda: path))  # only the first process knew it
    # An agent that was killed leaves processes that save and end. If the same command is given
    # meanwhile, it must not fail.
    wait = WAIT_FOR_LAST if group.has_agent else PATIENCE
    with folder.lock(wait) if is_first else nullcontext():
        differences: list[str] = []
        if is_first and not is_new:
            kinds = add_kinds(map(type, recipe.sections.values()))
            differences = check_same(folder, start.config, environment, force, kinds)
            record_processes(folder, environment, tell)
        storage, takes_part = _open_storage(group, folder, recipe.training, tell)
        if takes_part:
            storage.read(recipe.model)
        kept_in = storage if takes_part else Memory()
        training = Training(recipe, task, kept_in, device=device, tell=tell, group=group)
        with (
            Signals(training.stop, has_agent=group.has_agent).catch() as signals,
            _name_checkpoint(training),
            closing(storage),
        ):
            if takes_part:
                storage.restore(training)
            training.join()
            if differences:
                _copy_code(folder, start.code)
                record_forced(folder, start.config, environment, differences, tell)
            if notice := group.find_notice(recipe.training):
                tell(notice)
            training.run()
            # Asked only now: a signal may have come while the last checkpoint was written.
            is_stopped = group.any(training.is_stopped)
            if cost := group.describe_cost(training.clock.seconds_learning):
                tell(cost)
            result = None if is_stopped else _make_result(training, recipe, folder, tell)
        if result is not None and signals.number is None:
            return result
        # Without a signal of its own, this process stopped because another one did.
        number = signals.number or signal.SIGTERM
        return Interrupted(number, folder.path, finished=training.is_done)


def _open_storage(
    group: Group, folder: RunFolder, config: TrainingConfig, tell: Tell
) -> tuple[DiskStorage, bool]:
    """The storage of a run, and whether this process reads and writes it."""
    if config.parallel != "fsdp":
        storage = DiskStorage(
            folder.path, keep=config.keep, in_background=config.save_in_background, tell=tell
        )
        return storage, group.rank == 0
    from clearhead.parallel.sharded import Sharded  # few runs need it, and it takes half a second
    from clearhead.runs.sharding import ShardedStorage

    assert isinstance(group, Sharded)
    return ShardedStorage(folder.path, group, keep=config.keep, tell=tell), True


def _say_nothing(news: Progress | str) -> None:
    """The first process of a group speaks for all."""


def _describe(recipe: Recipe, task: Task, overfit: int | None, tell: Tell) -> _Start:
    """Complete the recipe by the sizes of the data, and list everything for config.json."""
    asked = digest_command(recipe, overfit)
    recipe = dataclasses.replace(recipe, model=task.complete(recipe.model))
    config = {**recipe.to_dict(), "overfit": overfit, "examples": task.fingerprint, "asked": asked}
    if code := find_code(recipe, tell):
        config[CODE] = code.describe()
        remember(code)
    return _Start(recipe, config, code)


def _find_folder(out: Path, resume: str | None, start: _Start, tell: Tell) -> RunFolder | None:
    """The run to resume; None for a new one."""
    if resume is None:
        return find_unfinished(out, start.config, tell)
    return find_run(out, resume, start.recipe.name)


def _decide_threads(folder: RunFolder | None, threads: int | str, config: TrainingConfig) -> Any:
    return decide_threads(folder, threads, config.workers, config.parallel)


def _open_task(recipe: Recipe, overfit: int | None) -> Task:
    """Read the data."""
    task = recipe.data.open()
    if overfit is not None:
        check_positive(overfit=overfit)
        task = task.overfit(overfit)
    if task.n_examples < 1:
        raise ValueError("there are no examples to learn from; change the settings data.…")
    return task


def _fill(folder: RunFolder, task: Task, start: _Start, environment: Mapping[str, Any]) -> None:
    """Write everything a run folder holds before the first step."""
    task.save(folder.path)
    _copy_code(folder, start.code)
    folder.describe(start.config, environment)


def _copy_code(folder: RunFolder, code: OwnCode | None) -> None:
    """Keep the file with the recipe's own classes, if it has any."""
    if code is not None:
        with folder.replace(COPY) as file:
            file.write(code.data)


@contextmanager
def _name_checkpoint(training: Training) -> Iterator[None]:
    """Name the last checkpoint in a NotFinite error."""
    try:
        yield
    except NotFinite as fault:
        last = training.saved[0] if training.saved else None
        if isinstance(training.storage, DiskStorage):
            last = training.storage.last_step  # a save in the background may have failed
        known = "there is no checkpoint yet"
        if last is not None:
            known = f"the last checkpoint is that of step {last}"
        raise NotFinite(f"{fault}; {known}") from None


def _make_result(training: Training, recipe: Recipe, folder: RunFolder, tell: Tell) -> RunResult:
    """Give the model its best weights, and sum up the run."""
    state, step, model = training.state, training.state.step, training.model
    if recipe.training.parallel == "fsdp":
        if training.group.rank == 0:
            model, step = _load_whole(training, recipe, folder, tell)
    elif state.best_step not in (None, step):
        step = training.group.ask_first(lambda: _load_best(training, folder, tell))
        training.group.copy_first(list(model.state_dict().values()))
    run = Run(folder, recipe, training.task.predictor, model.eval(), step, state)
    vars(run)["task"] = training.task  # a cached property: the data are not read again
    return sum_up(run, with_sample=training.group.can_sample or training.group.rank == 0)


def _load_best(training: Training, folder: RunFolder, tell: Tell) -> int:
    """Give the model its best weights, if they can be read; returns the step of its weights."""
    state = training.state
    assert state.best_step is not None
    best = load_best(folder.checkpoints, folder.identity, state.best_step, tell)
    if best is None:
        return state.step
    load_weights(training.model, best.model)
    return best.step


def _load_whole(
    training: Training, recipe: Recipe, folder: RunFolder, tell: Tell
) -> tuple[Model, int]:
    """A whole model with the best weights of one that is divided among processes; their step."""
    del training.optimizer  # its memory is needed
    where, step = (folder.checkpoints, folder.identity), training.state.best_step
    found = None if step is None else load_best(*where, step, tell)
    found = found or load_newest(*where, tell, with_optimizer=False)
    assert found is not None, "it was saved a moment ago"
    model = training.task.build(recipe.model)
    load_weights(model, found.model)
    return model, found.step


def sum_up(run: Run, *, with_sample: bool = True) -> RunResult:
    """The outcome of a run that is loaded."""
    state, path = run.state, run.folder.path
    return RunResult(
        path,
        state.step,
        state.seconds,
        state.best_step,
        state.best_metrics,
        sample=run.task.sample(run.model) if with_sample else None,
        next_command=run.task.next_command(path),
        trained=run,
    )
