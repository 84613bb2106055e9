"""Tables as text, and numbers as they are written."""

import pytest

from clearhead.lab.tools.finding import Table, format_cell


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (0.0, "0.00"),
        (1.0, "1.00"),
        (0.99999, "1.00"),
        (9.999, "10.0"),
        (12.345, "12.3"),
        (-0.0123, "-0.0123"),
        (4567.8, "4,568"),
        (123456.0, "1.2e+05"),
        (0.00012, "1.2e-04"),
        (1234, "1,234"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        ("λ = 1", "λ = 1"),
    ],
)
def test_numbers_have_three_significant_digits(cell, text):
    assert format_cell(cell) == text


def test_a_table_has_its_first_column_to_the_left_and_the_others_to_the_right():
    table = Table("Widths", ["d", "variance"], [[4, 3.96], ["all of 1024", 1021.0]])
    assert table.text.splitlines() == [
        "Widths",
        "",
        "d            variance",
        "4                3.96",
        "all of 1024     1,021",
    ]


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 columns"):
        Table("", ["a", "b"], [[1]])
