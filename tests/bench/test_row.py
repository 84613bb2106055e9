"""A line of the speed table."""

import pytest

from clearhead.bench import Row


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


def test_the_ratio_of_what_is_too_small_to_measure_is_unknown():
    for ours, theirs in ((0.0, 2.0), (2.0, 0.0), (0.0, 0.0)):
        assert Row("ours", ours, "theirs", theirs).ratio is None


@pytest.mark.parametrize("unit", ["ms", "MB"])
@pytest.mark.parametrize(("ours", "theirs"), [(0.0, 3.0), (3.0, 0.0), (0.0, 0.0)])
def test_a_zero_is_printed_as_a_dash_and_divides_nothing(ours, theirs, unit):
    text = Row("peak", ours, "matrix", theirs, "aim ≤ 1×", unit=unit).text()
    assert text.endswith("–            below what can be measured")
    assert text.count("–") == 1 + (ours, theirs).count(0.0)
    whole = Row("peak", 1.0, "matrix", 1.0, "aim", unit=unit).text()
    assert text.index("matrix") == whole.index("matrix")
    assert text.index("below") == whole.index("aim")


def test_columns_of_different_rows_stand_below_each_other():
    rows = [Row("short", 1.0, "x", 2.0, "aim"), Row("a longer name", 0.5, "another", 3.0, "aim")]
    assert len({row.text().index("aim") for row in rows}) == 1
