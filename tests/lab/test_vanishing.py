"""What is left of the first input: computed again from powers of W_h and from the weights."""

import math

import numpy as np
import pytest
import torch
from findings import Between, check_numbers

from clearhead import lab
from clearhead.lab.tools.finding import format_cell
from clearhead.lab.vanishing import (
    MARK,
    NAMES,
    RADII,
    STRENGTH,
    D,
    attention,
    experiment,
    influences,
    linear_rnn,
)

SHOWN = [10, 50, 100, 200]
T_MAX = 200


@pytest.fixture(scope="module")
def finding():
    return experiment()


def drawn(seed=0):
    """The inputs and the matrices W_x, W_y, W_h of the experiment, as NumPy arrays."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T_MAX, D, generator=generator, dtype=torch.float64)
    x[:, MARK] = 0.0
    x[0, MARK] = 1.0
    matrices = torch.randn(3, D, D, generator=generator, dtype=torch.float64)
    return x.numpy(), *matrices.numpy()


def rnn_norms(radius, seed=0):
    """‖W_y W_h^n W_x‖ for n = 0 … T−1, by one product after the other."""
    _, w_x, w_y, w_h = drawn(seed)
    w_h = w_h * radius / np.abs(np.linalg.eigvals(w_h)).max()
    norms, reached = [], w_x
    for _ in range(T_MAX):
        norms.append(math.sqrt(((w_y @ reached) ** 2).sum()))
        reached = w_h @ reached
    return norms


def attention_norms(strength, T, seed=0):
    """‖weight_k (W_v + (v_k − y) strength·e_markᵀ)‖ for k = 1 … T, one k at a time."""
    x, w_v, _, _ = drawn(seed)
    scores = [strength] + [0.0] * (T - 1)
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total for score in scores]
    y = sum(weight * (w_v @ x[k]) for k, weight in enumerate(weights))
    norms = []
    for k, weight in enumerate(weights):
        jacobian = w_v.copy()
        jacobian[:, MARK] += strength * (w_v @ x[k] - y)
        norms.append(weight * math.sqrt((jacobian**2).sum()))
    return norms


def expected_numbers(seed=0):
    expected = {}
    for model, radius in RADII.items():
        c = rnn_norms(radius, seed)
        expected[f"left_{model}"] = [c[T - 1] / c[0] for T in SHOWN]
        expected[f"share_{model}"] = [c[T - 1] / sum(c[:T]) for T in SHOWN]
    for model, strength in (("attention_even", 0.0), ("attention_asked", STRENGTH)):
        norms = {T: attention_norms(strength, T, seed) for T in (1, *SHOWN)}
        expected[f"left_{model}"] = [norms[T][0] / norms[1][0] for T in SHOWN]
        expected[f"share_{model}"] = [norms[T][0] / sum(norms[T]) for T in SHOWN]
    return {name: pytest.approx(values, rel=1e-9) for name, values in expected.items()}


@pytest.mark.parametrize("seed", [0, 3])
def test_every_number_is_that_of_powers_and_weights(seed):
    finding = experiment(seed=seed)
    expected = expected_numbers(seed) | {
        "growth_per_step": pytest.approx(list(RADII.values()), rel=5e-3),
        "steps_minus_closed_form": pytest.approx([0.0, 0.0, 0.0], abs=1e-12),
    }
    check_numbers(finding, expected)


def test_the_growth_is_the_slope_of_the_logarithm(finding):
    """Least squares by hand, over the lengths from the middle on."""
    lengths = range(T_MAX // 2, T_MAX + 1, T_MAX // 20)
    for radius, growth in zip(RADII.values(), finding.numbers["growth_per_step"], strict=True):
        c = rnn_norms(radius)
        logs = [math.log(c[T - 1]) for T in lengths]
        middle, mean = sum(lengths) / len(lengths), sum(logs) / len(logs)
        upper = sum((T - middle) * (y - mean) for T, y in zip(lengths, logs, strict=True))
        slope = upper / sum((T - middle) ** 2 for T in lengths)
        assert growth == pytest.approx(math.exp(slope), rel=1e-9)


def test_with_even_scores_every_input_has_an_equal_share(finding):
    assert finding.numbers["share_attention_even"] == pytest.approx([1 / T for T in SHOWN])
    assert finding.numbers["left_attention_even"] == pytest.approx([1 / T for T in SHOWN])


def test_only_the_rnn_vanishes_and_explodes(finding):
    numbers = finding.numbers
    assert numbers["left_rnn_0.9"][-1] < 1e-8
    assert numbers["left_rnn_1.1"][-1] > 1e7
    assert numbers["left_rnn_1.0"][-1] == Between(0.1, 2.0)
    for model in ("attention_even", "attention_asked"):
        left = zip(SHOWN, numbers[f"left_{model}"], strict=True)
        assert all(length * of_first > 0.999999 for length, of_first in left)
    assert min(numbers["share_attention_asked"]) > 0.8


@pytest.mark.parametrize("radius", RADII.values())
def test_the_largest_eigenvalue_is_the_one_asked_for(radius):
    matrices = torch.randn(3, D, D, dtype=torch.float64)
    rnn = linear_rnn(radius, matrices)
    assert torch.linalg.eigvals(rnn.hidden.weight).abs().max().item() == pytest.approx(radius)
    assert rnn.input.weight.equal(matrices[0])
    assert rnn.output.weight.equal(matrices[1])


def test_influences_are_the_norms_of_the_blocks_of_the_jacobian():
    """Of a read-out written by hand: x_1 by a matrix of norm 5, x_2 by 2, x_3 not at all."""
    matrix = torch.tensor([[3.0, 0.0], [0.0, 4.0]])

    def read(x):
        return matrix @ x[0] + torch.stack([2.0 * x[1, 1], torch.zeros(())])

    assert influences(read, torch.randn(3, 2)).tolist() == pytest.approx([5.0, 2.0, 0.0])


def test_the_marked_input_has_the_weight_of_its_score():
    """With W_v = 1 the weight of x_1 can be read from the output, where only x_1 is marked."""
    read = attention(STRENGTH, torch.eye(D, dtype=torch.float64))
    x = torch.zeros(7, D, dtype=torch.float64)
    x[0, MARK] = 1.0
    loud = math.exp(STRENGTH)
    assert read(x)[MARK].item() == pytest.approx(loud / (loud + 6), rel=1e-12)


def test_the_same_seed_gives_the_same_numbers(finding):
    again = lab.run("vanishing")
    assert again.numbers == finding.numbers
    assert again.text == finding.text
    assert experiment(seed=1).numbers != finding.numbers


def test_the_tables_contain_the_numbers(finding):
    left, share, rnn = (table.rows for table in finding.tables)
    for rows, prefix in ((left, "left"), (share, "share")):
        assert [row[0] for row in rows] == list(NAMES.values())
        for row, model in zip(rows, NAMES, strict=True):
            assert row[1:] == finding.numbers[f"{prefix}_{model}"]
    for row, growth in zip(rnn, finding.numbers["growth_per_step"], strict=True):
        assert row[1] == f"{growth:.4f}"
    for row, apart in zip(rnn, finding.numbers["steps_minus_closed_form"], strict=True):
        assert row[2] == f"{apart:.1e}"


def test_the_text_contains_the_numbers(finding):
    numbers, words = finding.numbers, finding.seen.replace("\n", " ")
    small, one, large = (numbers[f"left_{model}"][-1] for model in RADII)
    assert f"has {small:.1e} of its influence" in words
    assert f"eigenvalue 0.9, {one:.2f} with 1.0 and {large:.1e} with 1.1." in words
    assert "share is 1/200 when all scores are even" in words
    assert f"{numbers['share_attention_asked'][-1]:.2f} when it is what the query asks" in words
    assert format_cell(small) in finding.text
    assert max(map(len, finding.text.splitlines())) <= 100
    assert len(finding.claim) <= 100


def test_the_picture_has_two_panels_of_all_five_models(finding, tmp_path):
    path = finding.picture.save(tmp_path / "vanishing.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "first input" in finding.picture.description
    for axes, prefix in zip(finding.picture.figure.axes, ("left", "share"), strict=True):
        assert axes.get_yscale() == "log"
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_title()
        for line, (model, name) in zip(axes.lines, NAMES.items(), strict=True):
            assert line.get_label() == name
            assert line.get_ydata()[-1] == finding.numbers[f"{prefix}_{model}"][-1]


@pytest.mark.slow
def test_the_full_experiment_reads_five_times_as_many_inputs():
    finding = experiment(full=True)
    assert finding.tables[0].columns[-1] == "T = 1000"
    assert finding.numbers["share_attention_even"][-1] == pytest.approx(1e-3)
    assert finding.numbers["left_rnn_0.9"][-1] < 1e-40
