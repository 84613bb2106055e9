"""Factors between 0 and 1 for every step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.training.recipe import TrainingConfig
from clearhead.training.schedule import (
    SCHEDULES,
    WarmupCosine,
    WarmupLinear,
    WarmupStable,
    make_schedule,
)


def test_A7_up_to_one_at_warmup_down_to_zero_at_the_end_zero_after():
    schedule = WarmupLinear(warmup=100, max_steps=2000)
    expected = {0: 0, 1: 0.01, 50: 0.5, 99: 0.99, 100: 1, 1050: 0.5, 1999: 1 / 1900, 2000: 0}
    for step, factor in {**expected, 2001: 0, 10**9: 0}.items():
        assert schedule(step) == pytest.approx(factor, abs=1e-15), step


def test_A7_without_a_warmup_it_starts_at_one():
    schedule = WarmupLinear(0, 10)
    assert [schedule(step) for step in (0, 5, 10)] == [1, 0.5, 0]


def test_a_cosine_is_at_half_in_the_middle_and_ends_at_the_lowest():
    schedule = WarmupCosine(4, 24)
    assert [schedule(s) for s in (2, 4, 14)] == pytest.approx([0.5, 1, 0.5])
    assert schedule(9) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert WarmupCosine(0, 10, lowest=0.2)(9.999999) == pytest.approx(0.2)


def test_stable_is_level_and_then_goes_down_over_the_cooldown():
    schedule = WarmupStable(4, 24, cooldown=8)
    assert [schedule(s) for s in (2, 4, 10, 16, 20, 23, 24)] == [0.5, 1, 1, 1, 0.5, 0.125, 0]


def test_stable_without_a_cooldown_is_level_to_the_last_update():
    assert WarmupStable(0, 10)(9.5) == 1


counts = st.integers(0, 300)


@given(kind=st.sampled_from(SCHEDULES), warmup=counts, level=counts, cooldown=counts)
def test_the_laws_of_every_schedule(kind, warmup, level, cooldown):
    steps = warmup + level + cooldown
    schedule = make_schedule(kind, warmup, steps, cooldown=cooldown)
    factors = [schedule(step / 2) for step in range(2 * steps + 4)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert factors[: 2 * warmup + 1] == sorted(factors[: 2 * warmup + 1]) or steps == warmup
    assert factors[2 * warmup :] == sorted(factors[2 * warmup :], reverse=True)
    assert factors[-4:] == [0] * 4
    assert schedule(-1) == 0
    if warmup:
        assert factors[0] == 0
    if steps > warmup:
        assert schedule(warmup) == 1


@given(steps=st.integers(1, 400), warmup=st.floats(0, 1), share=st.floats(0, 1))
def test_shares_of_the_steps_always_make_a_schedule(steps, warmup, share):
    for kind in SCHEDULES:
        config = TrainingConfig(
            steps, schedule=kind, warmup=warmup, cooldown=min(share, max(0.0, 1 - warmup - 1e-12))
        )
        assert 0 <= config.make_schedule()(steps / 2) <= 1


def test_shares_are_rounded_to_steps():
    schedule = TrainingConfig(200, warmup=0.1, schedule="stable", cooldown=0.25).make_schedule()
    assert schedule == WarmupStable(20, 200, 50)
    halves = TrainingConfig(3, warmup=0.5, schedule="stable", cooldown=0.5)
    assert halves.make_schedule() == WarmupStable(2, 3, 1)  # both would be rounded up
    assert TrainingConfig(10, warmup=0.2, schedule="cosine").make_schedule() == WarmupCosine(2, 10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: WarmupLinear(11, 10),
            "warmup must not be longer than the run of 10 steps, got 11",
        ),
        (lambda: WarmupLinear(-1, 10), "warmup must not be negative, got -1"),
        (lambda: WarmupLinear(0, -2), "max_steps must not be negative, got -2"),
        (lambda: WarmupStable(5, 10, 6), "warmup and cooldown must fit the run of 10 steps"),
        (lambda: WarmupStable(5, 10, -1), "cooldown must not be negative"),
        (lambda: WarmupCosine(0, 10, 1.5), "lowest must be a factor from 0 to 1, got 1.5"),
        (lambda: make_schedule("step", 0, 1), "schedule must be one of 'linear'"),
    ],
)
def test_wrong_numbers_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_half_a_step_of_warmup_is_refused():
    with pytest.raises(TypeError, match="warmup must be a whole number"):
        WarmupLinear(0.5, 10)
