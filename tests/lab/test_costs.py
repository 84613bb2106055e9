"""What reading T inputs costs: work and memory by hand, times by a clock that is known."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from findings import Between, check_numbers

from clearhead.lab import costs
from clearhead.lab.costs import COMMON, NAMES, RANGES, D, experiment, make_forms

# By hand, for T inputs of width D. Linear attention has D features, and beside the values 16 ones.
PRODUCTS = {
    "rnn": lambda T: 3 * T * D**2,
    "softmax": lambda T: 3 * T * D**2 + 2 * T**2 * D,
    "pairwise": lambda T: 3 * T * D**2 + T**2 * D + T * D,
    "rearranged": lambda T: 2 * T * D**2 + D**2 + 2 * T * D,
    "linear": lambda T: 3 * T * D**2 + 2 * T * D * (D + 16),
}
# Numbers alive at once, of four bytes each; of linear attention only bounds are known.
ALIVE = {
    "rnn": lambda T: 4 * T * D,  # W_x x, every state, all states together, outputs
    "softmax": lambda T: 3 * T**2 + 3 * T * D,  # scores, filled, weights; q, k, v
    "pairwise": lambda T: T**2 + 2 * T * D,
    "rearranged": lambda T: 2 * T * D + 2 * T + 2 * D,
}
# A clock that can be calculated with, in milliseconds.
CLOCK = {
    "rnn": lambda T: 0.006 * T,
    "softmax": lambda T: 1e-5 * T**2,
    "pairwise": lambda T: 2e-6 * T**2,
    "rearranged": lambda T: 1e-4 * T,
    "linear": lambda T: 5e-4 * T,
}


@dataclass(frozen=True)
class Each:
    """Equal to a list whose numbers all lie from low to high."""

    low: float
    high: float

    def __eq__(self, other):
        return all(self.low <= number <= self.high for number in other)


def known_times(works, device, *, seconds):
    return {(form, T): CLOCK[form](T) for form, T in works}


@pytest.fixture(scope="module")
def finding():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "best_milliseconds", known_times)
        return experiment()


def lengths(form):
    """Four for each doubling, from the beginning of the range to its end."""
    low, high = RANGES[form]
    return [
        low * 2**n * m // 4 for n in range(9) for m in (4, 5, 6, 7) if low * 2**n * m // 4 <= high
    ]


QUANTILES = {9: 2.365, 13: 2.201}  # of Student's distribution, by the number of lengths


def exponent(form, cost):
    """The slope of log cost over log T and its interval, by NumPy."""
    x, y = np.log(lengths(form)), np.log([cost(T) for T in lengths(form)])
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    return slope, QUANTILES[len(x)] * covariance[0, 0] ** 0.5


def counted_numbers():
    """All that does not depend on a clock."""
    numbers = {"pairwise_minus_rearranged": Each(0.0, 1e-12)}
    for form in NAMES:
        numbers[f"products_{form}"] = [PRODUCTS[form](T) for T in COMMON]
        numbers[f"exponent_products_{form}"] = pytest.approx(
            exponent(form, PRODUCTS[form]), abs=1e-9
        )
    for form, alive in ALIVE.items():
        numbers[f"megabytes_{form}"] = pytest.approx([4e-6 * alive(T) for T in COMMON], rel=0.01)
        numbers[f"exponent_megabytes_{form}"] = pytest.approx(exponent(form, alive), abs=0.01)
    q_k_v = 12e-6 * D
    numbers["megabytes_linear"] = Each(COMMON[0] * q_k_v, 3 * COMMON[1] * q_k_v)
    numbers["exponent_megabytes_linear"] = pytest.approx([1.0, 0.01], abs=0.05)
    numbers["steps_rnn"] = pytest.approx(COMMON, abs=6)  # and a few before and after
    return numbers | {f"steps_{form}": Each(3, 20) for form in list(NAMES)[1:]}


def test_every_number_is_as_computed_by_hand(finding):
    numbers = counted_numbers()
    for form, clock in CLOCK.items():
        numbers[f"milliseconds_{form}"] = pytest.approx([clock(T) for T in COMMON])
        power = 2.0 if form in ("softmax", "pairwise") else 1.0
        numbers[f"exponent_milliseconds_{form}"] = pytest.approx([power, 0.0], abs=1e-6)
    ratio = [CLOCK["softmax"](T) / CLOCK["rnn"](T) for T in COMMON]
    numbers["softmax_over_rnn_milliseconds"] = pytest.approx(ratio)
    check_numbers(finding, numbers)


@pytest.mark.slow
def test_real_times_grow_as_the_work_does():
    numbers = counted_numbers()
    for form in NAMES:
        power = 2.0 if form in ("softmax", "pairwise") else 1.0
        numbers[f"milliseconds_{form}"] = Each(0.01, 1000.0)
        numbers[f"exponent_milliseconds_{form}"] = Each(0.0, power + 0.7)
    numbers["softmax_over_rnn_milliseconds"] = Each(0.01, 100.0)
    measured = experiment()
    check_numbers(measured, numbers)
    for form in NAMES:
        slope = measured.numbers[f"exponent_milliseconds_{form}"][0]
        power = 2.0 if form in ("softmax", "pairwise") else 1.0
        assert slope == Between(power - 0.5, power + 0.7)


def test_only_the_steps_of_the_rnn_grow_with_the_length(finding):
    short, long = COMMON
    for form in NAMES:
        steps = finding.numbers[f"steps_{form}"]
        assert steps[1] - steps[0] == (long - short if form == "rnn" else 0)


def test_both_arrangements_of_summed_attention_give_the_same_numbers():
    forms = make_forms(torch.randn(3, D, D, dtype=torch.float64))
    x = torch.randn(1, 300, D, dtype=torch.float64)
    for T in (1, 2, 7, 300):
        pairwise, rearranged = (forms[form](x[:, :T]) for form in ("pairwise", "rearranged"))
        torch.testing.assert_close(pairwise, rearranged, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("form", "shape"), [("rnn", (1, 5, D)), ("pairwise", (1, D))])
def test_a_form_gives_an_output_for_each_input_or_one_for_all(form, shape):
    forms = make_forms(torch.randn(3, D, D))
    assert forms[form](torch.randn(1, 5, D)).shape == shape


def test_softmax_attention_is_the_equation():
    w_q, w_k, w_v = matrices = torch.randn(3, D, D, dtype=torch.float64)
    x = torch.randn(7, D, dtype=torch.float64)
    scores = (x @ w_q.mT) @ (x @ w_k.mT).mT / D**0.5
    expected = scores.softmax(-1) @ x @ w_v.mT
    torch.testing.assert_close(make_forms(matrices)["softmax"](x[None])[0], expected)


def test_the_rnn_takes_its_matrices_in_order():
    w_x, w_h, w_y = matrices = torch.randn(3, D, D, dtype=torch.float64) / 10
    x = torch.randn(1, 2, D, dtype=torch.float64)
    expected = (x[0, 0] @ w_x.mT @ w_h.mT + x[0, 1] @ w_x.mT) @ w_y.mT
    torch.testing.assert_close(make_forms(matrices)["rnn"](x)[0, 1].detach(), expected)


def test_the_tables_contain_the_numbers(finding):
    exponents, compared = finding.tables
    for row, (form, name) in zip(exponents.rows, NAMES.items(), strict=True):
        low, high = RANGES[form]
        assert row[:2] == [name, f"{low}–{high}"]
        for cell, kind in zip(row[2:], ("milliseconds", "megabytes", "products"), strict=True):
            slope, uncertain = finding.numbers[f"exponent_{kind}_{form}"]
            assert cell == f"{slope:.2f} ± {uncertain:.2f}"
    for row, form in zip(compared.rows, NAMES, strict=True):
        assert row[1:3] == finding.numbers[f"milliseconds_{form}"]
        assert row[3] == finding.numbers[f"megabytes_{form}"][1]
        assert row[4:] == finding.numbers[f"steps_{form}"]
    assert f"{finding.numbers['pairwise_minus_rearranged'][0]:.1e}" in compared.caption


def test_the_text_contains_the_numbers(finding):
    words = finding.seen.replace("\n", " ")
    assert "T^1.00 for the RNN, T^2.00 for softmax attention and T^1.00 for linear" in words
    rnn, softmax = (finding.numbers[f"steps_{form}"] for form in ("rnn", "softmax"))
    assert f"the RNN takes {rnn[0]:.0f} and {rnn[1]:.0f} steps" in words
    assert f"softmax attention {softmax[0]:.0f} and {softmax[1]:.0f};" in words
    assert "its time is 0.43 and 1.7 times that of the RNN." in words
    assert max(map(len, finding.text.splitlines())) <= 100


@pytest.mark.slow
def test_counted_costs_are_the_same_in_every_run(finding, monkeypatch):
    monkeypatch.setattr(costs, "best_milliseconds", known_times)
    assert experiment().numbers == finding.numbers


def test_the_picture_has_a_line_for_each_fit_and_marks_for_each_measurement(finding, tmp_path):
    path = finding.picture.save(tmp_path / "costs.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "Time, memory and sequential steps" in finding.picture.description
    time, memory, steps = finding.picture.figure.axes
    for axes in (time, memory, steps):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_title()
    labels = [text.get_text() for text in time.get_legend().get_texts()]
    assert labels == ["T$^{1.00}$", "T$^{2.00}$", "T$^{2.00}$", "T$^{1.00}$", "T$^{1.00}$"]
    for form, marks, line in zip(NAMES, time.lines[::3], time.lines[1::3], strict=True):
        assert list(line.get_xdata()) == list(RANGES[form])
        assert list(line.get_ydata()) == pytest.approx([CLOCK[form](T) for T in RANGES[form]])
        assert marks.get_ydata()[-1] == CLOCK[form](RANGES[form][1])
    assert len(steps.lines) == len(NAMES)
    assert [text.get_text() for text in steps.get_legend().get_texts()] == list(NAMES.values())


@pytest.mark.slow
def test_the_full_experiment_reads_four_times_as_many_inputs(monkeypatch):
    monkeypatch.setattr(costs, "best_milliseconds", known_times)
    ranges = [row[1] for row in experiment(full=True).tables[0].rows]
    assert ranges == ["256–8192", "256–1024", "512–2048", "4096–131072", "4096–65536"]
