"""Numbers, years and days as English words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.number_words import format_ordinal, spell_number, spell_ordinal, spell_year

UNITS = {spell_number(n): n for n in range(100)}


def value_of(words):
    """Read number words back, by other means than they are written."""
    total = part = 0
    for word in words.replace(" and ", " ").split():
        if word == "thousand":
            total, part = part * 1000, 0
        elif word == "hundred":
            part *= 100
        else:
            part += UNITS[word]
    return total + part


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (84, "eighty-four"),
        (100, "one hundred"),
        (101, "one hundred and one"),
        (1000, "one thousand"),
        (1005, "one thousand and five"),
        (3421, "three thousand four hundred and twenty-one"),
        (20_019, "twenty thousand and nineteen"),
        (
            999_999,
            "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        ),
    ],
)
def test_numbers_written_out(n, words):
    assert spell_number(n) == words
    assert spell_number(n, joiner=" ") == words.replace(" and ", " ")


@given(st.integers(0, 999_999))
def test_number_words_are_read_back(n):
    assert value_of(spell_number(n)) == value_of(spell_number(n, joiner=" ")) == n


def test_no_two_small_numbers_have_the_same_words():
    assert len({spell_number(n) for n in range(3000)}) == 3000


@pytest.mark.parametrize(
    ("year", "words"),
    [
        (1000, "one thousand"),
        (1066, "ten sixty-six"),
        (1500, "fifteen hundred"),
        (1905, "nineteen oh five"),
        (1984, "nineteen eighty-four"),
        (2000, "two thousand"),
        (2005, "two thousand and five"),
        (2010, "twenty ten"),
        (2099, "twenty ninety-nine"),
        (2100, "twenty-one hundred"),
    ],
)
def test_years_are_written_as_they_are_said(year, words):
    assert spell_year(year) == words


def test_no_two_years_have_the_same_words():
    assert len({spell_year(year) for year in range(1000, 3000)}) == 2000


def test_the_days_of_a_month():
    words = [spell_ordinal(n) for n in range(1, 32)]
    assert words[:5] == ["first", "second", "third", "fourth", "fifth"]
    assert words[7:13] == ["eighth", "ninth", "tenth", "eleventh", "twelfth", "thirteenth"]
    assert words[18:23] == [
        "nineteenth",
        "twentieth",
        "twenty-first",
        "twenty-second",
        "twenty-third",
    ]
    assert words[28:] == ["twenty-ninth", "thirtieth", "thirty-first"]
    assert [format_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 111, 101)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th"),
        *("111th", "101st"),
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: spell_number(-1), "n must not be negative, got -1"),
        (lambda: spell_number(1_000_000), "n must be from 0 to 999,999"),
        (lambda: spell_year(999), "year must be from 1000 to 2999, got 999"),
        (lambda: format_ordinal(0), "n must be at least 1"),
        (lambda: spell_ordinal(0), "n must be at least 1"),
    ],
)
def test_what_has_no_words_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("n", [3.0, True, "3", None])
def test_only_whole_numbers_have_words(n):
    for words_of in (spell_number, spell_year, format_ordinal, spell_ordinal):
        with pytest.raises(TypeError, match="must be a whole number, got"):
            words_of(n)
