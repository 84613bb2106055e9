"""The fast form gives NLTK's own tokens, on every line."""

import subprocess
import sys
import time

import nltk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.tokenizers import word_rules
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
    "\ue000 private \ue000.",
    "a \ue000 b",
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


def test_D6_one_line_is_split_as_nltk_splits_it():
    assert [split_words(line) for line in HARD] == [nltk_says(line) for line in HARD]


def test_D6_many_lines_at_once_are_split_as_nltk_splits_each():
    assert split_lines(HARD) == [nltk_says(line) for line in HARD]


def test_a_line_does_not_depend_on_the_lines_beside_it_or_on_what_came_before():
    expected = [nltk_says(line) for line in HARD]
    assert [split_lines([line])[0] for line in reversed(HARD)] == expected[::-1]
    assert split_lines(HARD[::-1] + HARD) == expected[::-1] + expected


def test_a_case_worked_by_hand():
    line = '"They won\'t," he said (twice), "will they?"'
    expected = "`` They wo n't , '' he said ( twice ) , `` will they ? ''"
    assert split_lines([line]) == [expected.split()]


# What rules look at, so that generated lines are hard
ATOMS = [
    *"abdsStTnMD019 .,:;!?'\"`()[]{}<>-@#$%&*«»“”‘’„–—_é²א",
    *[" "] * 15,
    *("''", "``", "...", "--", "'s", "n't", "'ll", "'tis", "'twas", "cannot", "wanna", "d'ye"),
    *(". ", ".'", '."', ".)", ", ", "\t", "\r", "\xa0", "\u2028", "\x1c", "\ue000", "😀", "Mr."),
]
LINES = st.lists(st.sampled_from(ATOMS), max_size=14).map("".join)
WITHIN = st.lists(st.sampled_from(ATOMS[:-13]), max_size=12).map("".join)  # seldom seen as a whole


@settings(max_examples=250)
@given(st.lists(LINES, max_size=5))
def test_D6_any_line_made_of_hard_parts_is_split_as_nltk_splits_it(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


@settings(max_examples=250)
@given(st.lists(st.tuples(st.sampled_from("aZ0 "), WITHIN).map("".join), max_size=5))
def test_D6_any_line_that_begins_plainly_is_split_as_nltk_splits_it(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


@given(st.lists(st.text(max_size=30), max_size=4))
def test_D6_any_text_is_split_as_nltk_splits_it(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


@pytest.mark.slow
@settings(max_examples=5_000)
@given(st.lists(LINES, max_size=5))
def test_D6_many_more_lines_are_split_as_nltk_splits_them(lines):
    assert split_lines(lines) == [nltk_says(line) for line in lines]


def test_few_lines_need_nltk_as_a_whole():
    """Else the fast form would be right and slow."""
    plain = ["Speak, speak.", "I' the market-place; 'tis so!", "O, sir--", "  indented (so)?"]
    assert all(word_rules._chunks(line) is not None for line in plain)


def test_chunks_known_before_are_not_asked_again(monkeypatch):
    lines = ["known before, twice.", "known twice, before."]
    expected = split_lines(lines)
    monkeypatch.setattr(word_rules, "_nltk", lambda: pytest.fail("asked again"))
    assert split_lines(lines) == expected


def test_memory_stays_within_its_limit(monkeypatch):
    monkeypatch.setattr(word_rules, "MOST_KNOWN", 10)
    monkeypatch.setattr(word_rules, "_known", {})
    for start in range(0, 60, 5):
        words = [f"w{i}" for i in range(start, start + 5)]
        assert split_lines([" ".join(words)]) == [words]
        assert len(word_rules._known) <= 10
    assert split_lines([" ".join(f"v{i}" for i in range(30))])[0][29] == "v29"
    assert len(word_rules._known) <= 10


def test_what_is_returned_can_be_changed_without_harm():
    first = split_lines(["change me."])
    first[0].append("x")
    assert split_lines(["change me."]) == [["change", "me", "."]]


def test_nltk_is_imported_only_when_words_are_split():
    code = (
        "import sys; from clearhead.data import WordTokenizer; WordTokenizer(['a']);"
        "assert 'nltk' not in sys.modules;"
        "from clearhead.data.tokenizers.word_rules import split_words;"
        "split_words('a'); assert 'nltk' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "piece", ["a", "'", '"', ".", ",", "a.", ". ", "''", "--", "a'", " '", "`"]
)
def test_F17_a_very_long_line_takes_no_longer_than_its_length(piece):
    line = piece * (20_000 // len(piece))
    start = time.process_time()
    found = split_lines([line])[0]
    assert time.process_time() - start < 2
    assert found == nltk_says(line)
