"""The training loop, in memory: the same numbers as on a disk, and no disk."""

import copy
import json
import threading

import pytest
import torch
from runs.tiny_runs import memory_folder, poison, run_tiny
from training.tiny_task import TinyTask, tiny

from clearhead.data.batch import IGNORE
from clearhead.training import NotFinite, Optimizer, Progress, tasks
from clearhead.training.gradient import check_trainable
from clearhead.training.loop import Training
from clearhead.training.storage import Memory, Snapshot


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def begin(recipe=None, storage=None, **options):
    recipe = recipe or tiny()
    training = Training(recipe, recipe.data.open(), storage, **options)
    if storage is not None:
        storage.restore(training)
    return training


def run(recipe=None, **options):
    training = begin(recipe, **options)
    training.run()
    return training


class Kept(Memory):
    """A storage that keeps copies of its snapshots, as a disk does."""

    def __init__(self):
        super().__init__()
        self.snapshots = []

    def restore(self, training):
        if self.snapshots:
            training.load(copy.deepcopy(self.snapshots[-1]))

    def save(self, snapshot):
        tensors = ({k: t.clone() for k, t in part.items()} for part in snapshot_parts(snapshot))
        self.snapshots.append(Snapshot(copy.deepcopy(snapshot.state), *tensors))


def snapshot_parts(snapshot):
    return snapshot.model, snapshot.optimizer


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# In memory and on a disk


def test_a_run_in_memory_has_the_metrics_samples_and_weights_of_one_on_a_disk():
    training = run()
    with memory_folder() as folder:
        result = run_tiny(folder)
        lines = (result.run / "metrics.jsonl").read_text().splitlines()
        samples = (result.run / "samples.txt").read_text()
    assert training.storage.metrics == [json.loads(line) for line in lines]
    assert samples == "".join(f"--- step {n}\n{text}\n\n" for n, text in training.storage.samples)
    assert (training.state.step, training.state.best_metrics) == (result.steps, result.metrics)
    assert training.is_done


def test_a_run_in_memory_opens_no_file(monkeypatch):
    training = begin()

    def refused(*_, **__):
        raise AssertionError("a file")

    monkeypatch.setattr("builtins.open", refused)
    monkeypatch.setattr("os.open", refused)
    assert training.run().step == 12


@pytest.mark.parametrize("stop", range(13))
def test_a_run_restored_from_any_snapshot_ends_with_the_same_numbers(stop):
    recipe = tiny(save_every=1)
    whole = begin(recipe, Kept())
    whole.run()
    first = Kept()
    first.snapshots = [s for s in whole.storage.snapshots if s.state.step <= stop]
    resumed = begin(recipe, first)
    resumed.run()
    assert equal(resumed.model.state_dict(), whole.model.state_dict())
    assert equal(resumed.optimizer.tensors(), whole.optimizer.tensors())
    later = [line for line in whole.storage.metrics if line["step"] > stop]
    assert resumed.storage.metrics == later


def test_each_state_is_saved_once():
    storage = Kept()
    begin(tiny(save_every=1), storage).run()
    assert [s.state.step for s in storage.snapshots] == list(range(1, 13))
    assert [s.state.finished for s in storage.snapshots] == [False] * 11 + [True]
    begin(tiny(save_every=1), storage).run()  # restored, and nothing to do
    assert len(storage.snapshots) == 12


# Stopping


def test_a_stop_ends_the_run_after_its_step_and_saves_it():
    storage = Kept()
    training = begin(storage=storage, tell=lambda news: training.stop())
    state = training.run()
    assert (state.step, training.is_done, training.is_stopped) == (2, False, True)
    assert [s.state.step for s in storage.snapshots] == [2]
    again = begin(storage=storage)
    again.run()
    assert equal(again.model.state_dict(), run().model.state_dict())


def test_a_stop_in_an_evaluation_ends_it_at_once_and_resuming_repeats_it(monkeypatch):
    storage, whole = Kept(), run()
    evaluate = TinyTask.evaluate
    training = begin(storage=storage)
    reached = []

    def stopped(self, model):
        training.stop()
        reached.append("the line after it")

    monkeypatch.setattr(TinyTask, "evaluate", stopped)
    state = training.run()
    assert (state.step, state.logged, reached) == (4, 3, [])
    monkeypatch.setattr(TinyTask, "evaluate", evaluate)
    again = begin(storage=storage)
    again.run()
    assert storage.metrics == whole.storage.metrics
    assert equal(again.model.state_dict(), whole.model.state_dict())


def test_a_stop_from_another_thread_raises_nothing_there(monkeypatch):
    training, raised, evaluate = begin(), [], TinyTask.evaluate

    def call():
        try:
            training.stop()
        except BaseException as fault:
            raised.append(fault)

    def slow(self, model):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return evaluate(self, model)

    monkeypatch.setattr(TinyTask, "evaluate", slow)
    state = training.run()
    assert (state.step, state.logged, raised) == (4, 4, [])


def test_an_error_is_no_stop_and_saves_nothing(monkeypatch):
    storage = Kept()
    poison(monkeypatch, "loss", lambda self, before, *given: before(self, *given) * torch.nan)
    with pytest.raises(NotFinite, match="the loss is nan at step 0"):
        begin(storage=storage).run()
    assert storage.snapshots == []


# Steps


@pytest.mark.parametrize("n", range(1, 18))
@pytest.mark.parametrize("accumulate", [1, 3])
def test_T26_every_example_is_learned_from_once_in_an_epoch(monkeypatch, n, accumulate):
    seen = []

    def batch(self, before, plan):
        if not isinstance(plan, range):  # that is an evaluation
            seen.extend(plan)
        return before(self, plan)

    poison(monkeypatch, "batch", batch)
    n_batches = -(-n // 4)
    training = run(tiny(n_batches * 2, n=n, accumulate=accumulate, save_every=100))
    assert training.state.step == n_batches * 2
    epochs = [sorted(seen[i : i + n]) for i in range(0, len(seen), n)]
    assert epochs == [list(range(n))] * (2 * accumulate)


def test_accumulated_batches_are_one_large_batch():
    plain = {"optimizer": "adamw", "dropout": 0.0, "clip": 0.5, "warmup": 0.0}
    two = run(tiny(10, accumulate=2, batch_size=2, **plain)).model.state_dict()
    one = run(tiny(10, accumulate=1, batch_size=4, **plain)).model.state_dict()
    for name in one:
        assert torch.allclose(one[name], two[name], atol=1e-5), name


@pytest.mark.parametrize("clip", [1e-3, 1e3, None])
def test_the_norm_of_a_gradient_is_at_most_clip(monkeypatch, clip):
    step, norms = Optimizer.step, []

    def watched(self, factor):
        gradients = [p.grad.flatten() for p in self.parameters if p.grad is not None]
        norms.append(float(torch.cat(gradients).norm()))
        step(self, factor)

    monkeypatch.setattr(Optimizer, "step", watched)
    run(tiny(5, clip=clip))
    assert len(norms) == 5
    if clip == 1e-3:
        assert norms == pytest.approx([1e-3] * 5, rel=1e-2)
    else:
        assert min(norms) > 1e-2


def test_compile_is_refused_where_it_would_do_nothing(monkeypatch):
    monkeypatch.setattr(TinyTask, "can_compile", False)
    recipe = tiny(compile=True)
    with pytest.raises(ValueError, match="which are not compiled"):
        check_trainable(recipe, recipe.data.open())


def test_compile_that_does_not_work_is_refused_by_a_sentence(monkeypatch):
    def broken(model):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    recipe = tiny(compile=True)
    with pytest.raises(ValueError, match=r"torch\.compile does not work here.*compile=false"):
        check_trainable(recipe, recipe.data.open())


# What is measured and told


def test_without_a_number_it_is_evaluated_once_an_epoch():
    training = run(tiny(10, eval_every=None))  # five batches an epoch, two to a step
    lines = training.storage.metrics
    assert [line["step"] for line in lines if "val_loss" in line] == [3, 6, 9, 10]


def test_the_last_step_is_always_logged_and_evaluated():
    lines = run(tiny(7, log_every=5, eval_every=5)).storage.metrics
    assert [(line["step"], "loss" in line, "val_loss" in line) for line in lines] == [
        (5, True, True),
        (7, True, True),
    ]


def test_single_losses_are_those_of_steps_counted_from_0_before_their_updates():
    everything = run(tiny(7, log_every=1)).storage.metrics  # step 1: the mean of step 0 alone
    lines = run(tiny(7, log_every=3, eval_every=6, log_mean=False)).storage.metrics
    assert [(line["step"], "loss" in line, "val_loss" in line) for line in lines] == [
        (0, True, False),
        (3, True, False),
        (6, False, True),
        (6, True, False),
        (7, False, True),
    ]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert losses == {step: everything[step]["loss"] for step in (0, 3, 6)}


def test_progress_of_single_losses_begins_at_step_0():
    told = []
    run(tiny(5, log_every=2, log_mean=False), tell=told.append)
    assert [news.step for news in told if isinstance(news, Progress)] == [0, 2, 4, 4, 5]


@pytest.mark.parametrize("is_text", [True, False])
def test_samples_of_text_are_told_after_each_evaluation_but_the_last(monkeypatch, is_text):
    monkeypatch.setattr(TinyTask, "has_text_samples", is_text)
    told = []
    samples = run(tell=told.append).storage.samples
    assert [step for step, _ in samples] == [4, 8, 12]
    assert [news for news in told if isinstance(news, str)] == [
        text for step, text in samples if is_text and step != 12
    ]


def test_of_equal_accuracies_the_one_with_the_lower_loss_is_the_best(monkeypatch):
    found = [(0.5, 0.9), (0.75, 0.8), (0.75, 0.7), (0.75, 0.7), (0.75, 0.75), (0.5, 0.1)]
    metrics = iter([{"val_accuracy": accuracy, "val_loss": loss} for accuracy, loss in found])
    monkeypatch.setattr(TinyTask, "best_by", "val_accuracy")
    monkeypatch.setattr(TinyTask, "evaluate", lambda self, model: next(metrics))
    state = run(tiny(6, eval_every=1)).state
    assert (state.best_step, state.best, state.stale) == (3, 0.75, 3)
    assert state.best_metrics == {"val_accuracy": 0.75, "val_loss": 0.7}


def test_progress_tells_how_it_goes():
    told = []
    run(tell=told.append)
    progress = [news for news in told if isinstance(news, Progress)]
    assert [news.step for news in progress] == [2, 4, 6, 8, 10, 12]
    assert progress[-1].seconds_left == 0 < progress[0].seconds_left
    assert all(news.rate > 0 for news in progress)
    assert progress[0].metrics.keys() == {"loss", "lr"}


@pytest.mark.parametrize(("unit", "n_units"), [("examples", [8, 16]), ("tokens", [6, 12])])
def test_progress_says_what_its_rate_counts(monkeypatch, unit, n_units):
    """Examples, or tokens that are predicted: of four in a batch the first is padding here."""
    told, counted, batch, log = [], [], TinyTask.batch, Training.log

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
    run(tiny(2), tell=told.append)
    assert counted == n_units
    assert {news.unit for news in told if isinstance(news, Progress)} == {unit}


def test_language_is_counted_in_tokens_and_the_rest_in_examples():
    found = {"tokens": set(), "examples": set()}
    for kind in (getattr(tasks, name) for name in tasks.__all__):
        if issubclass(kind, tasks.Task) and kind is not tasks.Task:
            found[kind.unit].add(kind.__name__)
    assert found == {
        "tokens": {"CharacterTask", "DialogueTask", "TokenFileTask", "TranslationTask"},
        "examples": {
            *("PictureTask", "PublishedSequenceTask", "SequenceTask", "SubstringTask"),
            "TensorTask",
        },
    }
