"""The training loop.

    training = Training(recipe, recipe.data.open())
    training.run()                                  in memory; clearhead/runs does it on a disk
    training.storage.metrics                        [{"step": 20, "loss": …}, …]

A step updates the weights by the mean gradient of `accumulate` batches. A plan lists the examples
of a batch, and depends on (seed, epoch, cursor) alone. Random numbers within a step, such as those
of dropout, depend on (seed, step) alone. So weights, optimizer and state are the whole run: loaded
from a snapshot of these three, it continues to the same numbers, bit for bit.

Several processes can train one run: group.py lists what they must do together, and the loop is the
same for one of them as for many.

Signals, locks, disks and damaged files are handled around the loop, in clearhead/runs: a storage
saves and restores snapshots, and a signal calls `stop`.
"""

import math
import threading
from collections.abc import Sequence

import torch
from torch.nn.utils import clip_grads_with_norm_

from clearhead.data.batch import Batch
from clearhead.models.model import Model, load_weights
from clearhead.training.gradient import check_finite_step
from clearhead.training.group import Group, Stop
from clearhead.training.progress import Clock, Tell
from clearhead.training.recipe import Recipe
from clearhead.training.state import DataOrder, State, seed_torch, seed_weights
from clearhead.training.storage import Memory, Snapshot, Storage
from clearhead.training.tasks.task import Plan, Task

Metrics = dict[str, float]


class Training:
    """A run in progress: its model, its optimizer and its state."""

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        storage: Storage | None = None,
        *,
        device: torch.device | str = "cpu",
        tell: Tell = lambda news: None,
        group: Group | None = None,
    ) -> None:
        """storage: None keeps metrics in memory; tell: called with each report and each notice;
        group: the processes that train this run together, None for this one alone."""
        c = self.config = recipe.training
        self.task, self.storage, self.tell = task, storage or Memory(), tell
        self.group = group or Group()
        self.device = torch.device(device)
        seed_weights(task, c.seed)
        model = task.build(task.complete(recipe.model))
        self.model: Model = self.group.prepare(task.initialise(model), self.device)
        self.gradients = self.group.make_gradients(self.model, task, c)
        self.optimizer = self.group.make_optimizer(self.model, c)
        self.schedule = c.make_schedule()
        self.state, self.order = State(), DataOrder(task, c.seed, c.batch_size)
        self.eval_every = c.eval_every or self.order.steps_per_epoch(c.accumulate)
        self.clock = Clock(task.unit)
        # (step, logged) of the last snapshot. A step whose evaluation is interrupted is saved
        # before it is logged; it is saved again after the evaluation is repeated.
        self.saved: tuple[int, int] | None = None
        self.is_stopped = False
        self._evaluating_thread: int | None = None

    def run(self) -> State:
        """Train from the current state to the last step, or until `stop` is called."""
        try:
            while not self.is_done:
                if self.group.any(self.is_stopped):
                    raise Stop
                self.advance()
        except Stop:
            self.is_stopped = True
        self.save()
        self.storage.finish()
        return self.state

    def advance(self) -> None:
        """Make a step, then evaluate, log and save, each if it is due."""
        state, c = self.state, self.config
        if state.is_logged:  # else the evaluation of this step was interrupted, and is repeated
            with self.clock.learning():
                loss = self.update(self.next_plans())
            state.add_step(loss)
        metrics, sample = self.evaluate() if self.is_due(self.eval_every) else ({}, None)
        if not c.log_mean:
            self.log_single_loss()
        elif self.is_due(c.log_every):
            metrics = {**self.training_metrics(), **metrics}
        self.log(metrics, sample)
        if self.is_due(c.save_every) or state.best_step == state.step:
            self.save()

    @property
    def is_done(self) -> bool:
        """Whether all steps are made or the patience is used up, and the last step is logged."""
        state, c = self.state, self.config
        out_of_patience = c.patience is not None and state.stale >= c.patience
        return state.is_logged and (state.step >= c.steps or out_of_patience)

    def is_due(self, every: int) -> bool:
        """Whether the step just made is a multiple of `every`, or the last one."""
        return self.state.step % every == 0 or self.state.step == self.config.steps

    # A step

    def next_plans(self) -> list[Plan]:
        """Which examples the next step learns from: a function of (seed, epoch, cursor)."""
        return [self.order.next(self.state) for _ in range(self.config.accumulate)]

    def update(self, plans: Sequence[Plan]) -> float:
        """Update the weights by the mean gradient of these batches; returns their mean loss."""
        step, clip = self.state.step, self.config.clip
        seed_torch(self.device, self.config.seed, "step", step)  # for augmentation and dropout
        parts = self.gradients.split(plans)
        self.clock.count_step(parts)
        loss = self.gradients.learn(parts, self.make_batch, step)
        norm = self.gradients.norm()
        check_finite_step(loss.losses, norm, parts, self._name_not_finite, step)
        if clip is not None and float(norm) > clip:
            clip_grads_with_norm_(self.optimizer.parameters, clip, norm)
        factor = self.schedule(step + 0.5)  # ½: the middle of this step
        self.group.update(self.optimizer, factor)
        return float(loss.mean)

    def _name_not_finite(self) -> str | None:
        """The name of a parameter whose gradient is not finite."""
        bad = self.gradients.find_not_finite()
        return next((name for name, p in self.model.named_parameters() if p is bad), None)

    def make_batch(self, plan: Plan) -> Batch:
        """The examples of a plan, on the device, with the random changes of the task."""
        batch = self.task.batch(plan)
        self.clock.count(batch, len(plan))
        progress = self.state.step / self.config.steps
        return self.task.augment(batch.to(self.device), progress)

    # After a step

    def training_metrics(self) -> Metrics:
        """The mean loss since it was last logged, and the learning rate of the step just made."""
        lr = self.config.lr * self.schedule(self.state.step - 0.5)
        return {"loss": self.state.take_mean_loss(), "lr": lr}

    def log_single_loss(self) -> None:
        """If the step just made is due, counted from 0, log its loss, from before its update."""
        step, metrics = self.state.step - 1, self.training_metrics()
        if step % self.config.log_every == 0:
            self.storage.add_metrics({"step": step, **metrics})
            self.tell(self.clock.progress(step, self.config.steps, metrics))

    def evaluate(self) -> tuple[Metrics, str | None]:
        """The finite validation metrics, and a sample; the best metrics go into the state."""
        found, sample = self.group.measure(self._measure)
        metrics = {name: value for name, value in found.items() if math.isfinite(value)}
        for name in found.keys() - metrics.keys():
            self.tell(f"{name} is {found[name]} at step {self.state.step}; it is not logged")
        self.note_best(metrics)
        return metrics, sample

    def _measure(self) -> tuple[Metrics, str | None]:
        """All validation metrics, and a sample where one can be written; `stop` may end this."""
        self._evaluating_thread = threading.get_ident()
        try:
            if self.is_stopped and self.group.can_interrupt:
                raise Stop
            found = self.task.evaluate(self.model)
            metrics = {name: float(value) for name, value in found.items()}
            return metrics, self.task.sample(self.model) if self.group.can_sample else None
        finally:
            self._evaluating_thread = None

    def note_best(self, metrics: Metrics) -> None:
        """Keep these metrics if they are the best so far, else count one more stale evaluation."""
        state, by = self.state, self.task.best_by
        loss = state.best_metrics.get("val_loss")
        if by in metrics and self.task.is_better(metrics, state.best, best_loss=loss):
            state.best, state.best_step, state.best_metrics = metrics[by], state.step, metrics
            state.stale = 0
        else:
            state.stale += 1

    def log(self, metrics: Metrics, sample: str | None) -> None:
        """Store and report what was measured at this step, if anything was."""
        step, steps = self.state.step, self.config.steps
        if sample:
            self.storage.add_sample(step, sample)
        if metrics:
            self.storage.add_metrics({"step": step, **metrics})
            self.tell(self.clock.progress(step, steps, metrics))
        if sample and self.task.has_text_samples and step < steps:  # RunResult has the last one
            self.tell(sample)
        self.state.logged = step

    # Stop, save, resume

    def stop(self) -> None:
        """End the run after this step; a signal handler may call this.

        An evaluation may take long, so it ends at once if `stop` is called in its own thread, as a
        signal handler does; resuming repeats it.
        """
        self.is_stopped = True
        if self._evaluating_thread == threading.get_ident() and self.group.can_interrupt:
            raise Stop

    def save(self) -> None:
        """Save a snapshot in the storage, unless the last one is of this same state."""
        state = self.state
        if self.saved == (state.step, state.logged):
            return
        state.seconds, state.finished = self.clock.seconds, self.is_done
        self.group.collect(self.optimizer)
        self.storage.save(Snapshot(state, self.model.state_dict(), self.optimizer.tensors()))
        self.saved = (state.step, state.logged)

    def load(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot."""
        load_weights(self.model, snapshot.model)
        self.optimizer.load(self.model.translate_names(snapshot.optimizer))
        self.state = snapshot.state
        self.saved = (self.state.step, self.state.logged)
        self.clock = Clock(self.task.unit, self.state.seconds)
        self.tell(self.describe_resume())

    def join(self) -> None:
        """Continue from the state, the weights and the optimizer of the group's first process."""
        state, saved = self.group.ask_first(lambda: (self.state.to_dict(), self.saved))
        self.state, self.saved = State.from_dict(state), saved and (saved[0], saved[1])
        tensors = [*self.model.state_dict().values(), *self.optimizer.tensors().values()]
        self.group.copy_first(tensors)

    def describe_resume(self) -> str:
        """Where a resumed run continues, in words."""
        state, steps = self.state, self.config.steps
        if not self.is_done:
            return f"resuming after step {state.step} of {steps}"
        if state.step >= steps:
            more = f"training.steps={2 * steps} would continue the run"
            return f"all {state.step} steps are made; {more}"
        return (
            f"the run ended after step {state.step}, with no improvement for {state.stale} "
            f"evaluations; training.patience=none would continue it"
        )
