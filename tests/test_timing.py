"""How long something takes, by a clock that only moves when there is work."""

import pytest

from clearhead import timing
from clearhead.timing import Timer, best_seconds, format_duration, measure_seconds


class Clock:
    """Stands still until there is work; each call of `work` takes the next of its seconds."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.order = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def work(self, name, *seconds):
        left = list(seconds)

        def take_time():
            self.order.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return take_time


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_competitors_take_turns_after_one_call_to_warm_up(clock):
    best_seconds({"a": clock.work("a", 1.0), "b": clock.work("b", 2.0)}, seconds=0.0, rounds=3)
    assert clock.order == ["a", "b"] * (1 + 3)


def test_the_best_round_of_each_counts_and_the_first_call_does_not(clock):
    ours = clock.work("ours", 0.001, 5.0, 3.0, 4.0)  # the call to warm up is not measured
    theirs = clock.work("theirs", 0.001, 7.0, 9.0, 6.0)
    best = best_seconds({"ours": ours, "theirs": theirs}, seconds=0.0, rounds=3)
    assert best == {"ours": pytest.approx(3.0), "theirs": pytest.approx(6.0)}


def test_rounds_are_repeated_until_the_time_is_over(clock):
    best_seconds({"a": clock.work("a", 0.25)}, seconds=2.0, rounds=1)
    assert len(clock.order) == 1 + 8


def test_there_are_enough_rounds_even_when_the_time_is_over(clock):
    best_seconds({"a": clock.work("a", 10.0)}, seconds=1.0, rounds=4)
    assert len(clock.order) == 1 + 4


def test_the_given_clock_is_the_one_that_counts(clock):
    ticks = iter(range(100))
    best = best_seconds(
        {"a": clock.work("a", 5.0)}, seconds=0.0, rounds=2, clock=lambda: float(next(ticks))
    )
    assert best == {"a": 1.0}


def test_only_short_work_is_repeated_at_once_and_its_better_time_counts(clock):
    short = clock.work("short", 0.5, 0.25, 0.125, 0.75, 0.375)
    long = clock.work("long", 2.0)
    works = {"short": short, "long": long}
    assert best_seconds(works, seconds=0.0, rounds=2, repeat_below=1.0) == {
        "short": 0.125,
        "long": 2.0,
    }
    assert clock.order == ["short", "long", *["short", "short", "long"] * 2]


def test_a_timer_counts_from_the_moment_it_is_made(clock):
    timer = Timer()
    assert timer.seconds == 0.0
    clock.work("a", 1.5)()
    assert timer.seconds == 1.5
    assert Timer().seconds == 0.0


def test_one_call_is_measured_alone(clock):
    assert measure_seconds(clock.work("a", 0.75)) == 0.75
    assert clock.order == ["a"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (1.26, "1.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds, words):
    assert format_duration(seconds) == words
