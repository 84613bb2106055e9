"""How we measure, by a clock that only moves when a competitor works."""

import pytest

from clearhead.bench import Row, best_seconds, timing


class Clock:
    """Stands still until someone works; each call of `work` takes the next of its seconds."""

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


def test_rounds_go_on_until_the_time_is_over(clock):
    best_seconds({"a": clock.work("a", 0.25)}, seconds=2.0, rounds=1)
    assert len(clock.order) == 1 + 8


def test_there_are_enough_rounds_even_when_the_time_is_over(clock):
    best_seconds({"a": clock.work("a", 10.0)}, seconds=1.0, rounds=4)
    assert len(clock.order) == 1 + 4


def test_the_ratio_is_ours_by_theirs():
    assert Row("ours", 3.0, "theirs", 2.0).ratio == 1.5
    assert Row("ours", 2.0, "theirs", 8.0).ratio == 0.25


def test_a_row_is_printed_in_milliseconds_with_its_ratio_and_aim():
    text = Row("attention", 0.0012, "fused", 0.001, "aim ≤ 1.3×").text()
    assert text.split("  ", 1)[0] == "attention"
    assert " 1.200 ms" in text
    assert " 1.000 ms" in text
    assert "fused" in text
    assert "1.20×" in text
    assert text.endswith("aim ≤ 1.3×")


def test_from_twice_better_on_a_row_says_how_many_times_less():
    assert "4.0× less" in Row("ours", 2.0, "theirs", 8.0).text()
    assert "0.60×" in Row("ours", 3.0, "theirs", 5.0).text()


def test_memory_is_printed_in_megabytes():
    text = Row("peak", 3e6, "matrix", 12e6, unit="MB").text()
    assert " 3.000 MB" in text
    assert "12.000 MB" in text


def test_columns_of_different_rows_stand_below_each_other():
    rows = [Row("short", 1.0, "x", 2.0, "aim"), Row("a longer name", 0.5, "another", 3.0, "aim")]
    assert len({row.text().index("aim") for row in rows}) == 1
