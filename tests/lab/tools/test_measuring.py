"""How the laboratory measures: counts worked by hand, a clock that is fair, a fit that is known."""

import math
import time

import numpy as np
import pytest
import torch

from clearhead.lab.tools.measuring import T_QUANTILES, Count, best_milliseconds, fit_slope

# Counting


def test_memory_is_the_most_that_is_alive_at_once():
    x = torch.zeros(10, 10)  # 400 bytes that were there before
    with Count() as count:
        first = x + 1
        del first  # so the next may take its place
        second = x + 2
        third = second + 3
        del second, third
    assert count.bytes == 800


def test_a_view_holds_no_memory_but_keeps_what_it_looks_at():
    x = torch.zeros(10, 10)
    with Count() as count:
        y = x.mT[2:5].unsqueeze(0)
        assert count.bytes == 0
        made = x + 1
        part = made[:1]
        del made
        x + y.sum()  # 4 bytes for the sum
    assert part.numel() == 10
    assert count.bytes == 804


def test_what_is_changed_in_place_takes_no_new_memory():
    x = torch.zeros(10, 10)
    with Count() as count:
        (x + 1).exp_().add_(2)
    assert count.bytes == 400
    assert count.steps == 3


def test_steps_are_the_longest_chain_not_the_number_of_operations():
    x = torch.ones(3)
    with Count() as count:
        parts = [x + n for n in range(20)]  # one beside the other
        assert count.steps == 1
        total = parts[0]
        for part in parts[1:]:  # one after the other
            total = total + part
    assert count.steps == 20


def test_a_change_in_place_lengthens_the_chain_of_its_views():
    x = torch.ones(4)
    with Count() as count:
        y = x + 1
        y[:2].mul_(2)
        y.view(2, 2).sum()
    assert count.steps == 3


def test_a_tensor_of_the_same_kind_waits_for_nothing():
    with Count() as count:
        (torch.ones(3) + 1).exp().new_zeros(7).add_(1)
    assert count.steps == 3  # ones, +, exp: the zeros begin anew


def test_work_is_the_multiplications_of_all_products():
    a, b = torch.ones(2, 3), torch.ones(3, 5)
    with Count() as count:
        a @ b
        torch.addmm(torch.zeros(2, 5), a, b)
        torch.ones(7, 2, 3) @ torch.ones(7, 3, 5)
    assert count.products == 2 * 3 * 5 * (1 + 1 + 7)


# The clock


def test_each_round_runs_all_in_turn():
    ran = []

    def named(name):
        def work():
            ran.append(name)
            time.sleep(0.002)
            return torch.ones(1)

        return work

    best = best_milliseconds({"a": named("a"), "b": named("b")}, seconds=0.0, rounds=3)
    assert best.keys() == {"a", "b"}
    turns = [name for name, before in zip(ran, [None, *ran], strict=False) if name != before]
    assert turns == ["a", "b"] * (1 + 3)  # the first round only warms up


def test_time_in_which_another_computes_is_not_counted():
    def asleep():
        time.sleep(0.05)
        return torch.ones(1)

    assert best_milliseconds({"asleep": asleep}, seconds=0.0)["asleep"] < 25


def test_the_number_of_threads_is_one_inside_and_as_before_after():
    before, seen = torch.get_num_threads(), []

    def work():
        seen.append(torch.get_num_threads())
        return torch.ones(1)

    torch.set_num_threads(2)
    try:
        best_milliseconds({"work": work}, seconds=0.0, rounds=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


# The fit


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_of_an_exact_power_the_exponent_is_sure(power):
    slope, uncertain = fit_slope({T: 0.3 * T**power for T in (8, 16, 32, 100)})
    assert slope == pytest.approx(power, abs=1e-12)
    assert uncertain == pytest.approx(0.0, abs=1e-6)


def test_three_points_by_hand():
    """log₂ T = 0, 1, 2 and log₂ cost = 0, 2, 1: slope 1/2, residuals −½, 1, −½."""
    slope, uncertain = fit_slope({1: 1.0, 2: 4.0, 4: 2.0})
    assert slope == pytest.approx(0.5)
    assert uncertain == pytest.approx(12.706 * math.sqrt(1.5 / 1 / 2))


def test_nineteen_of_twenty_intervals_hold_the_exponent():
    draws, lengths = np.random.default_rng(0), [64, 96, 128, 192, 256, 384, 512]
    held = 0
    for _ in range(2000):
        noise = np.exp(0.1 * draws.standard_normal(len(lengths)))
        costs = {T: T**1.5 * factor for T, factor in zip(lengths, noise, strict=True)}
        slope, uncertain = fit_slope(costs)
        held += abs(slope - 1.5) <= uncertain
    assert 0.935 < held / 2000 < 0.965


@pytest.mark.parametrize("free", range(1, len(T_QUANTILES) + 1))
def test_the_quantiles_leave_two_and_a_half_percent_above(free):
    """Student's density integrated from 0 to the quantile, by the trapezium rule."""
    t = np.linspace(0, T_QUANTILES[free - 1], 200_001)
    density = (1 + t**2 / free) ** (-(free + 1) / 2)
    density *= math.gamma((free + 1) / 2) / math.gamma(free / 2) / math.sqrt(math.pi * free)
    area = (density[1:] + density[:-1]).sum() / 2 * (t[1] - t[0])
    assert area == pytest.approx(0.475, abs=5e-5)


@pytest.mark.parametrize("n", [0, 2, 23])
def test_too_few_or_too_many_points_are_refused(n):
    with pytest.raises(ValueError, match=f"costs must be given at 3 to 22 lengths, got {n}"):
        fit_slope(dict.fromkeys(range(1, n + 1), 1.0))
