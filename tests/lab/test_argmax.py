"""Argmax attention: the worked example by hand, learning with it, and the telling."""

import dataclasses
import math

import pytest
import torch
from findings import Between, check_numbers, check_page

from clearhead import training
from clearhead.data.batch import Batch
from clearhead.lab import argmax
from clearhead.lab.argmax import KEYS, QUERY, VALUES, experiment, learn, worked_example
from clearhead.lab.tools.finding import format_cell
from clearhead.training.recipes.smallest import first

N_STEPS = 30


@pytest.fixture(scope="module")
def finding():
    """The whole experiment, ten trainings: for slow tests."""
    return experiment()


@pytest.fixture(scope="module")
def recipe():
    """That of the rule `first`, but short."""
    return dataclasses.replace(
        first(), training=dataclasses.replace(first().training, steps=N_STEPS)
    )


@pytest.fixture(scope="module")
def task():
    return first().data.open()


@pytest.fixture(scope="module")
def lessons(task, recipe):
    return {kind: [learn(task, recipe, kind, 0)] for kind in ("softmax", "argmax")}


def close(x):
    return pytest.approx(x, rel=1e-5)


def length(rows):
    return math.sqrt(sum(x * x for row in rows for x in row))


# The worked example


def by_hand():
    """All its numbers, from the equations, in plain Python.

    Of L, the sum of the output, the derivative by a weight w_s is u_s, the sum of the value s; by
    its score (u_s − Σ w u) w_s / √3; by the query Σ_s that k_s, by the key s that q.
    """
    scores = [sum(a * b for a, b in zip(QUERY, key, strict=True)) for key in KEYS]
    exps = [math.exp(score / math.sqrt(3)) for score in scores]
    w = [e / sum(exps) for e in exps]
    sums = [sum(value) for value in VALUES]
    middle = sum(a * b for a, b in zip(w, sums, strict=True))
    slopes = [x * (u - middle) / math.sqrt(3) for x, u in zip(w, sums, strict=True)]
    to_query = [sum(s * key[i] for s, key in zip(slopes, KEYS, strict=True)) for i in range(3)]
    to_keys = [[s * x for x in QUERY] for s in slopes]
    output = [sum(x * value[i] for x, value in zip(w, VALUES, strict=True)) for i in range(3)]
    return {
        "scores": [3.0, 11.0, 5.0, 2.0],
        "weights_argmax": [0.0, 1.0, 0.0, 0.0],
        "output_argmax": [1.0, 4.0, 3.0],
        "gradient_argmax": [0.0, 0.0, close(math.sqrt(3))],
        "weights_softmax": close(w),
        "output_softmax": close(output),
        "gradient_softmax": close(
            [length([to_query]), length(to_keys), length([x, x, x] for x in w)]
        ),
    }


def test_the_example_is_the_one_worked_by_hand():
    numbers, expected = worked_example(), by_hand()
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert numbers[name] == value, name


def test_no_small_change_of_the_query_or_a_key_changes_what_argmax_gives():
    v = torch.tensor(VALUES)
    chance = torch.Generator().manual_seed(0)
    for _ in range(20):
        q = torch.tensor([QUERY]) + 0.1 * torch.randn(1, 3, generator=chance)
        k = torch.tensor(KEYS) + 0.1 * torch.randn(4, 3, generator=chance)
        assert argmax.MECHANISMS["argmax"]()(q, k, v).tolist() == [[1, 4, 3]]
        assert argmax.MECHANISMS["softmax"]()(q, k, v).tolist() != [[1, 4, 3]]


# Learning


def test_a_run_with_softmax_is_that_of_the_training_loop_bit_for_bit(lessons, recipe, tmp_path):
    run = training.train(recipe, tmp_path, threads=torch.get_num_threads(), device="cpu")
    assert lessons["softmax"][0].losses[-1] == run.metrics["val_loss"]


def test_argmax_changes_values_and_positions_but_no_query_and_no_key(lessons):
    moved = lessons["argmax"][0].changes
    assert moved["Qm.weight"] == moved["Km.weight"] == 0.0
    assert moved["Vm.weight"] > 0.05
    assert moved["pos.weight"] > 0.05
    assert min(lessons["softmax"][0].changes.values()) > 0.05


def test_the_loss_is_measured_at_the_start_and_every_ten_steps(lessons):
    for (lesson,) in lessons.values():
        assert len(lesson.losses) == 1 + N_STEPS // 10
        assert lesson.losses[0] == pytest.approx(1 / 3, abs=0.02)  # it says hardly anything yet


def test_both_begin_with_the_same_weights_and_leave_the_generator_alone(task, recipe):
    before = torch.get_rng_state()
    one, same, other = (argmax._build_model(task, recipe, seed) for seed in (4, 4, 5))
    assert torch.get_rng_state().equal(before)
    assert one.Qm.weight.equal(same.Qm.weight)
    assert not one.Qm.weight.equal(other.Qm.weight)


def test_the_same_seed_gives_the_same_training(task, recipe, lessons):
    for kind, (lesson,) in lessons.items():
        assert learn(task, recipe, kind, 0) == lesson
        assert learn(task, recipe, kind, 1) != lesson


def test_no_values_are_better_than_the_best(lessons):
    for (lesson,) in lessons.values():
        assert 0 <= lesson.best_loss <= lesson.train_loss


# The best that values can do

PAIRS = torch.cartesian_prod(torch.arange(3), torch.arange(3))  # AA, AB, … CC
ONE_HOT = torch.eye(3)[PAIRS]  # (9, 2, 3)
EXAMPLES = Batch(ONE_HOT, ONE_HOT[:, :1].expand_as(ONE_HOT), torch.ones(9, 2).bool())


@pytest.mark.parametrize(
    ("weights", "best"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], 0.0),  # a token that attends to the first letter can repeat it
        ([[0.0, 1.0], [0.0, 1.0]], 2 / 9),  # the second says nothing of it: ⅓ ⅓ ⅓ is best
        ([[1.0, 0.0], [0.0, 1.0]], 1 / 6),  # itself: a compromise
    ],
)
def test_the_best_values_for_pairs_of_letters_are_known_by_hand(monkeypatch, weights, best):
    """Each token attends to itself: the right answer is that letter at position 0, where a slope
    of 1 would be right, and unknown at the second, where 0 would be. Values read letter and place
    apart, so one slope serves both, best ½. The letters vary by 2/9: at the first place ¼ of it is
    left; at the second all of what should be said, and ¼ more. (1/18 + 2/9 + 1/18) / 2 = 1/6.
    """
    outputs = torch.full((9, 2, 3), 1 / 3)
    monkeypatch.setattr(
        argmax, "_outputs_and_weights", lambda *_: (outputs, torch.tensor(weights).expand(9, 2, 2))
    )
    found = argmax._learned_and_best(None, EXAMPLES)
    assert found == pytest.approx((argmax.GUESSING, best), abs=1e-7)


# The whole experiment

CHANCE = Between(0.0, 0.9)  # the weight that the first token gets by chance


@pytest.mark.slow
def test_the_numbers_of_the_page_are_those_of_the_experiment(finding):
    check_page("argmax", finding)


@pytest.mark.slow
def test_every_number_is_as_expected(finding):
    five = [1] * 5
    numbers = finding.numbers
    expected = {
        **by_hand(),
        "loss_blind": pytest.approx((4 + 1 + 1) / 9 / 3),
        "loss_softmax": [Between(0, 1e-5) for _ in five],
        "loss_argmax": [Between(0.08, 0.30) for _ in five],
        "learned_argmax": [Between(0.08, 2 / 9) for _ in five],
        "best_argmax": [Between(0.08, learned) for learned in numbers["learned_argmax"]],
        "above_best": [
            pytest.approx(learned / best - 1)
            for learned, best in zip(numbers["learned_argmax"], numbers["best_argmax"], strict=True)
        ],
        "first_before_softmax": [Between(0.1, 0.3) for _ in five],
        "first_after_softmax": [Between(0.999, 1) for _ in five],
        "first_before_argmax": [CHANCE for _ in five],
        "first_after_argmax": [CHANCE for _ in five],
        "moved_softmax": [Between(0.3, 3) for _ in range(4)],
        "moved_argmax": [0.0, 0.0, Between(0.1, 2), Between(0.3, 3)],
    }
    check_numbers(finding, expected)
    assert max(numbers["above_best"]) < 0.02


@pytest.mark.slow
def test_a_run_of_the_experiment_is_that_of_its_seed(finding, task):
    c = dataclasses.replace(first().training, steps=150)
    lesson = learn(task, dataclasses.replace(first(), training=c), "argmax", 2)
    assert finding.numbers["loss_argmax"][2] == lesson.losses[-1]
    assert finding.numbers["first_after_argmax"][2] == lesson.first_after


@pytest.mark.slow
def test_tables_and_sentences_contain_the_numbers(finding):
    numbers, told = finding.numbers, set(finding.text.split())
    for name in ("loss_softmax", "loss_argmax", "learned_argmax", "best_argmax"):
        assert {format_cell(value) for value in numbers[name]} <= told
    assert {"0.955", "0.750", "0.390", "1.66", "1.73"} <= told
    assert "The query (1, 1, 2) gets (0.98, 3.79, 2.99) by softmax and (1, 4, 3)" in finding.text
    seen = finding.seen.replace("\n", " ")
    assert f"the worst ends at a loss of {format_cell(max(numbers['loss_softmax']))};" in seen
    low, high = min(numbers["loss_argmax"]), max(numbers["loss_argmax"])
    assert f"end between {format_cell(low)} and {format_cell(high)}, where ⅓ for every" in seen
    assert "in Qm and Km moved by 0, but the values were learned" in seen
    assert f"no run ends more than {max(numbers['above_best']):.2%} above" in seen
    assert max(map(len, finding.text.splitlines())) <= 100


@pytest.mark.slow
def test_the_picture_is_drawn_and_described(finding, tmp_path):
    path = finding.picture.save(tmp_path / "argmax.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "of which argmax takes the best" in finding.picture.description
    bars, steps, losses = finding.picture.figure.axes
    assert [bar.get_height() for bar in bars.patches] == [3, 11, 5, 2]
    slope, step = (line.get_ydata() for line in steps.lines if len(line.get_ydata()) > 1)
    assert set(step.tolist()) == {0.0, 1.0}
    assert len(set(slope.tolist())) > 700
    assert len(losses.lines) == 11  # five runs with each, and the blind guess
    assert finding.claim.endswith(".")


@pytest.mark.parametrize(("full", "n_runs", "n_steps"), [(False, 5, 150), (True, 20, 500)])
def test_runs_begin_at_the_seed_and_full_takes_more_of_them(
    monkeypatch, lessons, full, n_runs, n_steps
):
    asked = []

    def instead(task, recipe, kind, seed, device):
        asked.append((kind, seed, recipe.training.steps))
        return lessons[kind][0]

    monkeypatch.setattr(argmax, "learn", instead)
    finding = experiment(seed=7, full=full)
    assert asked == [
        (kind, seed, n_steps) for kind in ("softmax", "argmax") for seed in range(7, 7 + n_runs)
    ]
    assert [row[0] for row in finding.tables[2].rows] == list(range(7, 7 + n_runs))
