"""Sentences are split before words: the tokens of NLTK's word_tokenize for whole texts.

word_tokenize.json holds 272 texts, sentences of our own and speeches of Shakespeare's plays, each
with the tokens that nltk.word_tokenize 3.10.4 gives with its Punkt model for English. The table
takes 70 KB and no network; the smallest package that carries the model's data is a wheel of 12 MB.
Where NLTK finds its data (`nltk.download("punkt_tab")`), it is asked again.
"""

import json
import time
from pathlib import Path

import nltk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import WordTokenizer
from clearhead.data.tokenizers.sentences import BREAK, END, mark_sentences
from clearhead.data.tokenizers.word_rules import split_lines, split_texts

TABLE = json.loads(Path(__file__).with_name("word_tokenize.json").read_text("utf-8"))


def sentences(text):
    return [sentence.strip() for sentence in mark_sentences(text).split(BREAK)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I am here. You are there.", ["I am here.", "You are there."]),
        ("I am here. you are there.", ["I am here.", "you are there."]),
        ("Why? Go! Now", ["Why?", "Go!", "Now"]),
        ("Mr. Smith met Mrs. Ford.", ["Mr. Smith met Mrs. Ford."]),
        ("He met Mr. The dog barked.", ["He met Mr.", "The dog barked."]),
        ("J. Bach, C. Bach.", ["J. Bach, C. Bach."]),
        ("Let b. In it, 2-D. (So)", ["Let b.", "In it, 2-D. (So)"]),
        ("So am I. You too.", ["So am I.", "You too."]),
        ("So am I. London calls.", ["So am I. London calls."]),
        ("So am I. the king", ["So am I. the king"]),
        ("the 2. and the 3. Then", ["the 2. and the 3.", "Then"]),
        ("1.5. Then", ["1.5.", "Then"]),
        ('He said "Go." She went.', ['He said "Go."', "She went."]),
        ("(He left.) Go. ) Then", ["(He left.)", "Go. )", "Then"]),
        ("'Why?' he asked.", ["'Why?'", "he asked."]),
        ("What?!--Go. Now", ["What?!--Go.", "Now"]),
        ("What!'--Mr. Smith", ["What!'--Mr.", "Smith"]),
        ("He waits... She comes.", ["He waits... She comes."]),
        ("a.b", ["a.b"]),
        ("end.", ["end."]),
        ("end. ", ["end."]),
        ("ex-gov. vice-sen. Lee", ["ex-gov.", "vice-sen. Lee"]),
    ],
)
def test_D6_a_case_worked_by_hand(text, expected):
    assert sentences(text) == expected


def test_D6_full_stops_inside_a_text_are_tokens_of_their_own():
    tokenize = WordTokenizer([]).tokenize
    assert " ".join(tokenize("I am here. You are there.")) == "I am here . You are there ."
    assert " ".join(tokenize("I can't. You can.")) == "I ca n't . You can ."
    assert tokenize("can't.") == ["ca", "n't", "."]
    assert " ".join(tokenize('He said "Go." She went.')) == "He said `` Go . '' She went ."
    assert " ".join(tokenize("Mr. Smith.\nGo.\nNow")) == "Mr. Smith . Go . Now"


def test_D6_each_text_of_the_table_is_split_as_nltk_split_it():
    expected = [tokens.split() for _, tokens in TABLE]
    assert len(TABLE) == 272
    assert split_texts([text for text, _ in TABLE]) == expected
    assert [split_texts([text])[0] for text, _ in TABLE] == expected


def test_D6_the_table_holds_what_nltk_says_today():
    try:
        nltk.data.find("tokenizers/punkt_tab/english/")
    except LookupError:
        pytest.skip("NLTK does not find its data for sentences")
    assert [nltk.word_tokenize(text) for text, _ in TABLE] == [t.split() for _, t in TABLE]


def test_the_table_shows_what_sentences_are_for():
    """At least a third of its texts have other tokens if their sentences are not split."""
    whole = split_lines([text for text, _ in TABLE])
    n_differ = sum(a != tokens.split() for a, (_, tokens) in zip(whole, TABLE, strict=True))
    assert n_differ > len(TABLE) // 3


# Laws

PARTS = ["I", "Mr", "a", "go", "Go", "5", ".", ".", "?", "!", "'", '"', ")", "-", "--", ",", "é"]
PARTS += [" ", " ", " ", "\n", "\t", "..", "U.S", "the", "The", "\r\n", "n't", "cannot"]
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), max_size=5)


@given(TEXTS)
def test_breaks_are_added_and_nothing_else_is_changed(texts):
    joined = END.join(text.replace("\n", "\x0b") for text in texts)
    marked = mark_sentences(joined)
    assert marked.replace(BREAK, "") == joined
    assert mark_sentences(marked.replace(BREAK, "")) == marked


@given(TEXTS)
def test_a_text_is_split_in_the_same_way_whatever_texts_stand_beside_it(texts):
    for keep in (False, True):
        alone = [split_texts([text], keep_newlines=keep)[0] for text in texts]
        assert split_texts(texts, keep_newlines=keep) == alone


@given(TEXTS, st.sampled_from([1, 2]))
def test_the_tokens_are_the_same_with_and_without_line_breaks(texts, version):
    kept = split_texts(texts, keep_newlines=True, version=version)
    plain = split_texts(texts, version=version)
    assert [[token for token in row if token != "\n"] for row in kept] == plain
    n_lines = [len(text.replace("\r\n", "\n").split("\n")) for text in texts]
    assert [row.count("\n") + 1 for row in kept] == n_lines


@given(TEXTS)
def test_only_full_stops_and_quotes_depend_on_sentences(texts):
    def letters(rows):
        return ["".join(row).replace("``", '"').replace("''", '"') for row in rows]

    one_line = [text.replace("\r\n", " ").replace("\n", " ") for text in texts]
    assert letters(split_texts(texts)) == letters(split_lines(one_line))


@given(TEXTS)
def test_the_first_version_splits_each_line_by_itself(texts):
    rows = split_texts(texts, version=1)
    lines = [text.replace("\r\n", "\n").split("\n") for text in texts]
    assert rows == [[token for line in split_lines(own) for token in line] for own in lines]


@pytest.mark.parametrize("piece", ["a", ".", ". ", "a.", "a. ", "?'", "I. ", '." ', "Mr.-", "1."])
def test_F17_a_very_long_text_takes_no_longer_than_its_length(piece):
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    mark_sentences(text)
    assert time.process_time() - start < 2
