"""Numbers, years and days in English words, for the pairs of pairs.py.

    1984    one thousand nine hundred and eighty-four       as a year: nineteen eighty-four
       3    three                                           as a day:  third, 3rd

Numbers go up to 999,999, years from 1000 to 2999.
"""

from clearhead.shapes import check_count, check_positive

ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ODD_ORDINALS = {
    **{"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"},
    **{"nine": "ninth", "twelve": "twelfth"},
}


def spell_number(n: int, *, joiner: str = " and ") -> str:
    """A whole number from 0 to 999,999 in words, with " and " or " " before the last part."""
    check_count(n=n)
    if n >= 1_000_000:
        raise ValueError(f"n must be from 0 to 999,999, got {n}")
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")
    size, name = (1000, "thousand") if n >= 1000 else (100, "hundred")
    head, rest = f"{spell_number(n // size, joiner=joiner)} {name}", n % size
    if not rest:
        return head
    return head + (joiner if rest < 100 else " ") + spell_number(rest, joiner=joiner)


def spell_year(year: int) -> str:
    """A year from 1000 to 2999 as it is spoken: nineteen eighty-four, nineteen oh five."""
    check_count(year=year)
    if not 1000 <= year < 3000:
        raise ValueError(f"year must be from 1000 to 2999, got {year}")
    century, rest = divmod(year, 100)
    if century % 10 == 0 and rest < 10:
        return spell_number(year)  # two thousand and five
    if rest == 0:
        return f"{spell_number(century)} hundred"
    return f"{spell_number(century)} {'oh ' if rest < 10 else ''}{spell_number(rest)}"


def spell_ordinal(n: int) -> str:
    """first, second, … twenty-first."""
    check_positive(n=n)
    words = spell_number(n)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last in ODD_ORDINALS:
        return words[:start] + ODD_ORDINALS[last]
    return words[:start] + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def format_ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, … 11th."""
    check_positive(n=n)
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
