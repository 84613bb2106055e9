"""The one training loop.

    result = train(substring(), "runs")             a new run, or the unfinished one of this recipe
    result.metrics["val_accuracy"]

A step takes `accumulate` batches, averages their gradients and updates the weights. Which batches
they are depends on (seed, epoch, place) alone, and what is drawn at random inside a step, such as
dropout, on (seed, step) alone. So all that a run must remember is its weights, what the optimizer
keeps, and its place: a run that was killed goes on to the same numbers, bit for bit.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from clearhead.data.batch import IGNORE, Batch
from clearhead.files.reading import prefix_errors
from clearhead.files.strict_json import hash_json
from clearhead.models.model import Model
from clearhead.runtime import pick_device, set_threads
from clearhead.shapes import check_positive
from clearhead.training.checkpoint import Checkpoint, load_newest, remove_old, save
from clearhead.training.finite import check_step, check_tensors, finite_only
from clearhead.training.learner import Learner, check_workers
from clearhead.training.place import Place, Plans, Progress, RunResult, Tell, seed_torch
from clearhead.training.recipe import Recipe
from clearhead.training.run import checkpoint_of, fill
from clearhead.training.run_folder import RunFolder, environment, new_run
from clearhead.training.starting import adopt, check_same, find_run, threads_of, unfinished_run
from clearhead.training.stopping import Interrupted, Signals, Stop
from clearhead.training.tasks.task import Plan, Task

Values = Mapping[str, Any]


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
    """Run a recipe in a folder below `out`, or go on with its unfinished run.

    resume: "last" or the path of a run. overfit: learn this many examples by heart. threads:
    "auto" measures which number is faster, and a run that goes on keeps its own. force: go on
    although training settings, threads or versions differ. tell: is given all news.
    """
    asked = hash_json({**recipe.to_dict(), "overfit": overfit})
    task = recipe.data.open()
    if overfit is not None:
        check_positive(overfit=overfit)
        task = task.overfit(overfit)
    if task.n_examples < 1:
        raise ValueError("there are no examples to learn from; look at what data.… says")
    recipe = dataclasses.replace(recipe, model=task.complete(recipe.model))
    config = {**recipe.to_dict(), "overfit": overfit, "examples": task.fingerprint, "asked": asked}
    if resume is None:
        folder = unfinished_run(Path(out), recipe.name, asked, tell)
    else:
        folder = find_run(Path(out), resume, recipe.name)
    check_workers(recipe.model, recipe.training.workers)
    if recipe.training.compile:
        _check_compile(task)
    where = pick_device(device)
    set_threads(threads_of(folder, threads, recipe.training.workers))
    here = environment(torch.get_num_threads(), where.type)
    if folder is None:
        folder = new_run(Path(out), recipe.name, lambda new: _describe(new, task, config, here))
    with folder.locked():
        different = check_same(folder, config, here, force)
        training = Training(recipe, task, folder, where, tell)
        return training.run(lambda: adopt(folder, config, here, different, tell))


def _describe(folder: RunFolder, task: Task, config: Values, environment: Values) -> None:
    """All that a new run folder holds before the first step."""
    task.save(folder.path)
    folder.write(config, environment)


class Training:
    """A run in progress."""

    def __init__(
        self, recipe: Recipe, task: Task, folder: RunFolder, device: torch.device, tell: Tell
    ) -> None:
        c = self.config = recipe.training
        self.task, self.folder, self.device, self.tell = task, folder, device, tell
        seed_torch(torch.device("cpu"), c.seed, "weights", 0)
        self.model: Model = task.prepared(task.build(recipe.model)).to(device)
        compiled = torch.compile(self.model) if c.compile else None
        self.learner = Learner(self.model, task.loss, workers=c.workers, compiled=compiled)
        self.optimizer, self.schedule = c.optimizer_for(self.model), c.make_schedule()
        self.place, self.plans = Place(), Plans(task, c.seed, c.batch_size)
        self.eval_every = c.eval_every or self.plans.steps_in_epoch(c.accumulate)
        self.signals = Signals()
        self.saved: tuple[int, int] | None = None  # step and told of what the disk has
        self.n_units, self.learning = 0, 0.0  # and the seconds for them, in this process
        self.began, self.before = time.perf_counter(), 0.0

    def run(self, restored: Callable[[], object] = lambda: None) -> RunResult:
        """From where the run stands to its end. restored: called when it stands there."""
        with self.signals.heard():
            self.restore()
            restored()
            try:
                while not self.is_done:
                    self.advance()
            except Stop:
                self.save()
                raise Interrupted(self.signals.number or 0, self.folder.path) from None
        place, path = self.place, self.folder.path
        if self.signals.number is not None:
            raise Interrupted(self.signals.number, path, finished=True)
        if place.best_step not in (None, place.step):
            fill(self.model, checkpoint_of(self.folder, "best", self.tell).model)
        sample, then = self.task.sample(self.model), self.task.next_command(path)
        return RunResult(
            path, place.step, place.seconds, place.best_step, place.best_metrics, sample, then
        )

    @property
    def is_done(self) -> bool:
        """All steps are made, or it got no better for too long; and that is written down."""
        place, c = self.place, self.config
        tired = c.patience is not None and place.stale >= c.patience
        return place.told == place.step and (place.step >= c.steps or tired)

    def advance(self) -> None:
        """One step and its account."""
        if self.place.told == self.place.step:  # else an evaluation was broken off
            if self.signals.number is not None:
                raise Stop
            self.step()
        self.account()

    # One step

    def step(self) -> None:
        """One update."""
        began, place, c = time.perf_counter(), self.place, self.config
        seed_torch(self.device, c.seed, "step", place.step)
        plans = [self.plans.next(place) for _ in range(c.accumulate)]
        losses = self.learner.learn([self._batch(plan) for plan in plans])
        gradients = [p.grad for p in self.optimizer.parameters if p.grad is not None]
        length = get_total_norm(gradients)
        check_step(losses, length, plans, self.model.named_parameters(), self._where())
        if c.clip is not None and float(length) > c.clip:
            clip_grads_with_norm_(self.optimizer.parameters, c.clip, length)
        self.optimizer.step(self.schedule(place.step + 0.5))
        place.loss_sum += float(torch.stack(losses).mean())
        place.loss_steps += 1
        place.step += 1
        self.learning += time.perf_counter() - began

    def _batch(self, plan: Plan) -> Batch:
        """The examples of a plan, where they are needed."""
        batch = self.task.batch(plan)
        self.n_units += _units(batch, self.task.unit)
        return self.task.changed(batch.to(self.device))

    # What is measured and kept

    def account(self) -> None:
        """Evaluate and write the line of this step if it is time, then save if it is time."""
        place, c = self.place, self.config
        last, better = place.step == c.steps, False
        values: dict[str, float] = {}
        sample: str | None = None
        if place.step % c.log_every == 0 or last:
            values["loss"] = place.loss_sum / place.loss_steps
            values["lr"] = c.lr * self.schedule(place.step - 0.5)
        if place.step % self.eval_every == 0 or last:
            with self.signals.breaking():
                measures, sample = self.task.evaluate(self.model), self.task.sample(self.model)
            values |= finite_only(measures)
            better = self._note_best(measures)
            if sample:
                self.folder.add_sample(place.step, sample)
        if values:
            self.folder.add_metrics({"step": place.step, **values})
            self.tell(self._progress(values))
            if sample and self.task.writes and not last:  # the last one is part of the result
                self.tell(sample)
        if "loss" in values:
            place.loss_sum, place.loss_steps = 0.0, 0
        place.told = place.step
        if place.step % c.save_every == 0 or better or self.is_done:
            self.save()

    def _note_best(self, measures: dict[str, float]) -> bool:
        place, known = self.place, finite_only(measures)
        for name in measures.keys() - known.keys():
            self.tell(f"{name} is {measures[name]} at step {place.step}; it is not written down")
        if self.task.best_by not in known or not self.task.is_better(known, place.best):
            place.stale += 1
            return False
        place.best, place.best_step, place.stale = known[self.task.best_by], place.step, 0
        place.best_metrics = known
        return True

    def save(self) -> None:
        """Write a checkpoint, unless this very place is saved."""
        place = self.place
        if self.saved == (place.step, place.told):
            return
        model, optimizer = self.model.state_dict(), self.optimizer.tensors()
        check_tensors({**model, **optimizer}, self._where())
        place.seconds = self.before + time.perf_counter() - self.began
        place.sizes, place.finished = self.folder.synced_sizes(), self.is_done
        run, kept = self.folder.identity, place.to_dict()
        save(self.folder.checkpoints, Checkpoint(place.step, run, model, optimizer, kept))
        self.saved = (place.step, place.told)
        keep, best = self.config.keep, place.best_step
        remove_old(self.folder.checkpoints, place.step, keep, best, self.tell)

    def restore(self) -> None:
        """Take up the newest good checkpoint, if there is one."""
        found = load_newest(self.folder.checkpoints, self.folder.identity, self.tell)
        if found is not None:
            with prefix_errors(self.folder.checkpoints):
                self.place = Place.from_dict({**found.state, "step": found.step})
                fill(self.model, found.model)
                self.optimizer.load(found.optimizer)
            self.saved = (found.step, self.place.told)
            self.tell(self._standing())
        self.folder.cut_back(self.place.sizes, self.tell)
        self.began, self.before = time.perf_counter(), self.place.seconds

    def _standing(self) -> str:
        """Where a run that is taken up stands."""
        place, c = self.place, self.config
        if not self.is_done:
            return f"going on after step {place.step} of {c.steps}"
        if place.step >= c.steps:
            return f"all {place.step} steps are made; training.steps={2 * c.steps} would be more"
        return (
            f"it ended after step {place.step}, being no better for {place.stale} evaluations; "
            f"training.patience=none would go on"
        )

    def _where(self) -> str:
        kept = f"that of step {self.saved[0]}" if self.saved else "none yet"
        return f"at step {self.place.step} (the last checkpoint is {kept})"

    def _progress(self, values: dict[str, float]) -> Progress:
        seconds = time.perf_counter() - self.began
        left = (self.before + seconds) / self.place.step * (self.config.steps - self.place.step)
        rate = self.n_units / self.learning if self.n_units else None
        return Progress(self.place.step, self.config.steps, values, rate, self.task.unit, left)


def _check_compile(task: Task) -> None:
    """Whether torch.compile works on this machine, and for this task."""
    if not task.compiles:
        raise ValueError(
            f"training.compile is true, but the loss of a {type(task).__name__} goes through the "
            f"model in pieces, which are not compiled; set training.compile=false"
        )
    try:
        torch.compile(nn.Linear(2, 2))(torch.zeros(1, 2))
    except Exception as fault:
        raise ValueError(
            f"training.compile is true, but torch.compile does not work here "
            f"({type(fault).__name__}); set training.compile=false"
        ) from fault


def _units(batch: Batch, unit: str) -> int:
    """How many tokens are predicted, or how many examples there are."""
    return int((batch.targets != IGNORE).sum()) if unit == "tokens" else len(batch)
