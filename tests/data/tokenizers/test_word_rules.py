"""Words and punctuation: our rules give the tokens of NLTK 3.10.4, the oracle, on every line."""

import random
import time
import unicodedata

import nltk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.tokenizers.word_rules import split_lines, split_words

# Each line is hard for some rule: where quotes open and close, where a sentence ends, what a
# comma, an apostrophe or a bracket stands beside, and which blanks are no spaces.
HARD = [
    "",
    " ",
    "   ",
    "First Citizen:",
    "Before we proceed any further, hear me speak.",
    "We know't, we know't.",
    "Let us kill him, and we'll have corn at our own price.",
    "'Tis warm at 's heart; 'twas so.",
    "You, my good friends,'--this says the belly, mark me,--",
    "One i' the neck, and two i' the thigh,--there's",
    'He said, "I can\'t." Then: "We won\'t."',
    '"Quoted at the start" and "at the end"',
    "''doubled singles'' and ``backticks''",
    "' alone ' and '' two ''",
    "end.",
    "end. ",
    " end.",
    "end.'",
    'end."',
    "end.)",
    "end. )",
    'end. "',
    "end. ' ) ]",
    "end . ) x",
    "Mr. Smith vs. Dr. No.",
    "a.b.c.",
    "...",
    "wait... what..",
    ".",
    " .",
    "x .",
    "x,,y,,,z,,",
    "x::y:: z:,",
    "1,000:30 and 3,a",
    "3,",
    "cannot gonna wanna gotta gimme lemme d'ye more'n whatcha wanna",
    "CANNOT Gonna 'TIS 'TWAS",
    "can not can-not cannot.",
    "isn't ISN'T we'll WE'LL you're I'm I'd I've it's Ann's boys' S' 'S",
    "rock 'n' roll in the '90s",
    "$3.88 50% #1 a@b.c x&y a*b",
    "(a) [b] {c} <d> <pad>",
    '("a") ["b"] {\'\'c} <"d">',
    "“curly” ‘single’ «french» „low”",
    "don’t it’s ’tis",
    "a–b—c―d--e---f",
    "tab\tseparated\tword.",
    "no\u00a0break space, narrow\u202fone.",
    "line\u2028separator \x1c unit \x85 next",
    "trailing blank ",
    "  two  blanks  inside  ",
    "שלום, עולם!",
    "👩‍👩‍👧‍👦 family. 😀!",
    "e\u0301tude e\u0301.",
    "zero\u200bwidth",
    "b's' and 9's'— and l's').",
    "cannot'tis'twas d'ye'tis gonna'twas",
    "²'em 's² 'll½ 'a² e\u0301'em",
    'quote\'\tthen \t x\t"y" end.\t',
    "end.\t)",
    "end. \t",
    "_underscore_ snake_case.",
    "² ٣ ½.",
    "a" * 300 + ".",
    "don't." * 40,
]


def nltk_says(line):
    return nltk.word_tokenize(line, preserve_line=True)


def test_the_oracle_is_the_version_whose_tokens_are_meant():
    assert nltk.__version__ == "3.10.4", "3.8 and 3.9.1 split other tokens"


def test_D6_each_line_is_split_as_nltk_splits_it_whatever_lines_stand_beside_it():
    expected = [nltk_says(line) for line in HARD]
    assert [split_words(line) for line in HARD] == expected
    assert split_lines(HARD[::-1] + HARD) == expected[::-1] + expected
    assert split_lines([]) == []


def test_a_case_worked_by_hand():
    line = '"They won\'t," he said (twice), "will they?"'
    expected = "`` They wo n't , '' he said ( twice ) , `` will they ? ''"
    assert split_lines([line]) == [expected.split()]


# What rules look at, so that generated lines are hard
ATOMS = [
    *"abdsStTnMD019 .,:;!?'\"`()[]{}<>-@#$%&*«»“”‘’„–—_é²א",
    *[" "] * 15,
    *("''", "``", "...", "--", "'s", "n't", "'ll", "'tis", "'twas", "cannot", "wanna", "d'ye"),
    *(
        ". ",
        ".'",
        '."',
        ".)",
        ", ",
        "\t",
        "\r",
        "\xa0",
        "\u2028",
        "\x1c",
        "😀",
        "Mr.",
        "\u0301",
        "Ⓐ",
        "ſ",
        "½",
    ),
    *("more'n", "gonna", "'re", "was", "is", "\u200d", "‿", "\x0b"),
]
LINES = st.lists(st.sampled_from(ATOMS), max_size=14).map("".join)


@settings(max_examples=250)
@given(st.lists(LINES, max_size=5))
def test_D6_any_line_made_of_hard_parts_is_split_as_nltk_splits_it(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


# A line has no line break. NLTK's \w may know characters that are newer than Python's Unicode.
TEXT = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs", "Cn"]), max_size=30)


@given(st.lists(TEXT | TEXT.map(lambda text: "'".join(text)), max_size=4))
def test_D6_any_text_is_split_as_nltk_splits_it(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


def test_a_line_break_inside_a_line_is_a_blank():
    assert split_lines(["one\ntwo.", "three"]) == [["one", "two", "."], ["three"]]


SIGNS = [chr(code) for code in random.Random(0).sample(range(0x21, 0x11000), 3000)]


@pytest.mark.parametrize("frame", ["a{}b", "{}ab", "ab{}", "'{}", "{}'xx", "'s{}", "cannot{} x"])
def test_D6_each_character_is_of_the_kind_that_nltk_takes_it_for(frame):
    lines = [frame.format(sign) for sign in SIGNS if unicodedata.category(sign) not in ("Cs", "Cn")]
    assert split_lines(lines) == [nltk_says(line) for line in lines]


@pytest.mark.slow
@settings(max_examples=5_000)
@given(st.lists(LINES, max_size=5))
def test_D6_many_more_lines_are_split_as_nltk_splits_them(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


def test_what_is_returned_can_be_changed_without_harm():
    first = split_lines(["change me."])
    first[0].append("x")
    assert split_lines(["change me."]) == [["change", "me", "."]]


@pytest.mark.parametrize(
    "piece", ["a", "'", '"', ".", ",", "a.", ". ", "''", "--", "a'", " '", "`"]
)
def test_F17_a_very_long_line_takes_no_longer_than_its_length(piece):
    line = piece * (20_000 // len(piece))
    start = time.process_time()
    found = split_lines([line])[0]
    assert time.process_time() - start < 2
    assert found == nltk_says(line)
