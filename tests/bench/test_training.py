"""What we measure of training: the real loop and its bare form do the same work."""

import json
import sys
import time
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from small_runs import small_recipe

from clearhead.bench import training
from clearhead.bench.cases import CASES
from clearhead.timing import measure_seconds
from clearhead.training import find_recipe, with_changes
from clearhead.training.tasks import CharacterTask, SubstringTask

# of the shakespeare-char recipe
SMALL_TEXT = ["data.context=9", "model.d_model=8", "model.n_heads=2", "model.n_layers=1"]
# Every step is as long as the first, so that bare steps learn what those of the loop do.
LEVEL = ["training.schedule=stable", "training.warmup=0", "training.cooldown=0"]
LEVEL += ["training.clip=none", "training.steps=50", "training.batch_size=3"]


@pytest.fixture
def begun(monkeypatch):
    """Small models on few data, each way once; all runs that were begun."""
    small = {
        "substring": small_recipe(*LEVEL),
        "shakespeare-char": with_changes(find_recipe("shakespeare-char"), [*SMALL_TEXT, *LEVEL]),
    }
    runs, begin = [], training._prepare_run

    def noted(*given):
        runs.append(begin(*given))
        runs[-1].first = deepcopy(runs[-1].model.state_dict())
        return runs[-1]

    monkeypatch.setattr(training, "find_recipe", small.__getitem__)
    monkeypatch.setattr(training, "N_CHARACTERS", 700)
    monkeypatch.setattr(training, "best_seconds", seconds_of_one_call)
    monkeypatch.setattr(training, "_prepare_run", noted)
    return runs


def seconds_of_one_call(works, **_):
    return {name: measure_seconds(work) for name, work in works.items()}


def test_the_command_line_knows_both_cases():
    assert {name: CASES[name] for name in ("loop", "start")} == {
        "loop": training.loop,
        "start": training.start,
    }


def test_each_recipe_has_a_row_for_the_loop_and_one_for_the_data(begun):
    rows = training.loop(0.0)
    assert [row.what for row in rows] == [
        f"{name}, {part}"
        for name in ("substring", "shakespeare-char")
        for part in ("a step of the loop", "making its batch")
    ]
    for row in rows:
        assert row.ours > 0
        assert row.theirs > 0
        assert "aim" in row.aim


def test_the_bare_steps_learn_from_the_batches_of_the_loop(begun):
    training.loop(0.0)
    for ours, bare in (begun[:2], begun[2:]):
        assert ours.state.step == training.STEPS
        learned = ours.model.state_dict()
        assert any(not torch.equal(learned[name], ours.first[name]) for name in learned)
        for name, weight in bare.model.state_dict().items():
            assert torch.equal(weight, learned[name]), name


def test_a_second_round_takes_the_same_batches(begun, monkeypatch):
    taken = []
    batch = SubstringTask.batch

    def noted(task, plan):
        taken.append(tuple(plan))
        return batch(task, plan)

    def two_rounds(works, **_):
        taken.clear()
        for _ in range(2):
            for name, work in works.items():
                if name.startswith("loop"):
                    work()
        return dict.fromkeys(works, 1.0)

    monkeypatch.setattr(SubstringTask, "batch", noted)
    monkeypatch.setattr(training, "RECIPES", ("substring",))
    monkeypatch.setattr(training, "best_seconds", two_rounds)
    training.loop(0.0)
    assert len(taken) == 2 * training.STEPS
    assert taken[: training.STEPS] == taken[training.STEPS :]


def test_the_line_of_a_step_is_counted_but_no_evaluation_and_no_checkpoint(begun, monkeypatch):
    lines = []

    def fail(*_):
        raise AssertionError("this is no part of a step")

    for task in (CharacterTask, SubstringTask):
        monkeypatch.setattr(task, "evaluate", fail)
    monkeypatch.setattr(training.Training, "save", fail)
    monkeypatch.setattr(
        training.DiskStorage, "add_metrics", lambda _, values: lines.append(values["step"])
    )
    training.loop(0.0)
    assert lines == [training.STEPS] * len(training.RECIPES)


def test_times_are_those_of_one_step_with_its_share_of_the_epoch(begun, monkeypatch):
    each = {"loop": 5.0, "bare": 4.0, "batch": 1.0, "epoch": 60.0}
    monkeypatch.setattr(
        training,
        "best_seconds",
        lambda works, **_: {name: each[name.split()[0]] for name in works},
    )
    monkeypatch.setattr(training, "RECIPES", ("substring",))
    loop, data = training.loop(0.0)
    n_batches = -(-64 // 3)  # of an epoch of the small recipe
    assert loop.ours == pytest.approx(5 + 60 / n_batches)
    assert data.ours == pytest.approx(1 + 60 / n_batches)
    assert loop.theirs == data.theirs == pytest.approx(4)


def test_every_epoch_is_a_new_one(monkeypatch):
    seen = []
    monkeypatch.setattr(SubstringTask, "batch", lambda task, plan: seen.append(plan[0] // 64))
    work = training._make_epochs(small_recipe())
    for _ in range(3):
        work()
    assert seen == [0, 1, 2]


def test_the_text_is_the_same_each_time_and_has_as_many_characters_as_shakespeare():
    text = training.draw_text(5000)
    assert text == training.draw_text(5000)
    assert len(text) == 5000
    assert len(set(text)) == 65
    assert text.isascii()
    assert text.isprintable()


# The start

TRAINS = """
import json, pathlib, sys, time
words = sys.argv[1:]
run = pathlib.Path(words[words.index("--out") + 1]) / "substring-0001"
pathlib.Path({told!r}).write_text(json.dumps(words))
run.mkdir()
(run / "metrics.jsonl").write_text("first line")
time.sleep(60)
"""


def test_a_training_is_ended_after_its_first_step_and_leaves_nothing(tmp_path, monkeypatch):
    program = TRAINS.format(told=str(tmp_path / "told"))
    monkeypatch.setattr(training, "COMMAND", (sys.executable, "-c", program))
    start = time.perf_counter()
    training._train_until_first_step()
    assert time.perf_counter() - start < 30  # the program would go on for a minute
    words = json.loads((tmp_path / "told").read_text())
    assert words[:3] == ["train", "substring", "training.log_every=1"]
    assert not Path(words[words.index("--out") + 1]).exists()


def test_a_training_that_ends_too_soon_is_no_time(monkeypatch):
    monkeypatch.setattr(training, "COMMAND", (sys.executable, "-c", ""))
    with pytest.raises(RuntimeError, match="before its first step"):
        training._train_until_first_step()


def test_the_start_is_held_against_its_aims(monkeypatch):
    monkeypatch.setattr(training, "best_seconds", lambda works, **_: dict.fromkeys(works, 1.5))
    rows = training.start(0.0)
    assert [(row.what.split()[0], row.theirs) for row in rows] == [
        ("first", 6.0),
        ("first", 1.5),
        ("clearhead", 0.3),
        ("clearhead", 1.5),
    ]
    assert all(row.ours == 1.5 for row in rows)


@pytest.mark.slow
def test_the_real_commands_start(monkeypatch):
    monkeypatch.setattr(training, "best_seconds", seconds_of_one_call)
    for row in training.start(0.0):
        assert 0 < row.ours < 120
