"""Text as words and punctuation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import WordTokenizer
from clearhead.data.tokenizers.word_rules import VERSION, split_words

TEXT = "First Citizen:\nWe know't, we know't.\n\nAll:\nSpeak, speak.\n"
FAMILY = "👩‍❤️‍💋‍👨" * 5


def test_D6_encode_puts_start_first_and_decode_joins_with_spaces():
    tokenizer = WordTokenizer.of(TEXT)
    ids = tokenizer.encode("We know't, we speak.")
    assert ids[0] == tokenizer.start_id
    assert tokenizer.decode(ids) == "We know't , we speak ."
    assert tokenizer.decode(ids, specials=True) == "<start> We know't , we speak ."


def test_frequent_words_come_first_and_equal_ones_in_alphabetical_order():
    tokenizer = WordTokenizer.of("d a c a d a b b")
    assert tokenizer.tokens == ("<start>", "<pad>", "<unk>", "a", "b", "d", "c")
    assert tokenizer.encode("c a x") == [0, 6, 3, 2]


def test_an_unknown_word_becomes_unk_and_is_shown_as_such():
    tokenizer = WordTokenizer(["we"])
    ids = tokenizer.encode("we parley we")
    assert ids == [0, 3, tokenizer.unk_id, 3]
    assert tokenizer.decode(ids) == "we <unk> we"


@pytest.mark.parametrize(("min_count", "words"), [(1, "a b c"), (2, "a b"), (3, "a"), (4, "")])
def test_a_word_is_known_from_min_count_on(min_count, words):
    tokenizer = WordTokenizer.of("a b c a b a", min_count=min_count)
    assert list(tokenizer.tokens[3:]) == words.split()


@pytest.mark.parametrize("min_count", [0, -1])
def test_min_count_is_at_least_one(min_count):
    with pytest.raises(ValueError, match="min_count must be at least 1"):
        WordTokenizer.of("a", min_count=min_count)


def test_texts_may_be_one_string_a_list_or_any_iterable():
    lines = TEXT.splitlines()
    assert WordTokenizer.of(TEXT) == WordTokenizer.of(lines) == WordTokenizer.of(iter(lines))


# Lines


def test_newlines_are_tokens_only_when_asked_for():
    kept, dropped = WordTokenizer.of(TEXT, keep_newlines=True), WordTokenizer.of(TEXT)
    assert kept.tokenize("a\n\nb\n") == ["a", "\n", "\n", "b", "\n"]
    assert dropped.tokenize("a\n\nb\n") == ["a", "b"]
    assert kept.tokens[3] == "\n"
    assert "\n" not in dropped.tokens
    assert kept.encode("\n") == [0, 3]
    assert dropped.encode("\n") == [0]


def test_the_newline_is_known_however_rare_it_is():
    tokenizer = WordTokenizer.of("a a", min_count=2, keep_newlines=True)
    assert tokenizer.unk_id not in tokenizer.encode("a\na")


def test_each_line_goes_through_the_rules_alone():
    """A full stop inside a text stays with its word unless its line ends there."""
    tokenizer = WordTokenizer([])
    assert tokenizer.tokenize("So Mr. Smith spoke.\nThen he left.") == [
        *("So", "Mr.", "Smith", "spoke", "."),
        *("Then", "he", "left", "."),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_F17_a_line_may_end_in_any_of_the_three_ways(end):
    tokenizer = WordTokenizer(["a", "b", "."], keep_newlines=True)
    assert tokenizer.encode(f"a.{end}b{end}") == tokenizer.encode("a.\nb\n")


def test_F17_mixed_newlines_are_as_many_as_they_look():
    tokenizer = WordTokenizer(["a", "b"], keep_newlines=True)
    assert tokenizer.tokenize("a\r\nb\rb\n\r\na") == ["a", "\n", "b", "\n", "b", "\n", "\n", "a"]


# Hard texts


@pytest.mark.parametrize("text", ["", " ", " \t \u00a0 ", "\n \n"])
def test_F17_blanks_alone_are_no_words(text):
    tokenizer = WordTokenizer.of(text)
    assert tokenizer.vocab_size == 3
    assert tokenizer.encode(text) == [tokenizer.start_id]
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.detokenize([0]) == ""


@pytest.mark.parametrize(
    "text", ["שלום עולם", FAMILY, f"a {FAMILY} b", "naïve façade", "مرحبا بالعالم", "\U0010fffd x"]
)
def test_F17_words_of_any_script_come_back_exactly(text, tmp_path):
    tokenizer = WordTokenizer.of(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.detokenize(tokenizer.encode(text)) == text
    tokenizer.save(tmp_path / "t.json")
    assert WordTokenizer.load(tmp_path / "t.json").encode(text) == tokenizer.encode(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=4))
def test_F17_decoding_gives_the_tokens_of_every_line(texts):
    tokenizer = WordTokenizer.of(texts, keep_newlines=True)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        expected = [token for line in lines for token in [*split_words(line), "\n"]][:-1]
        assert tokenizer.spell(ids) == expected
        assert tokenizer.decode(ids) == " ".join(expected)
        assert tokenizer.unk_id not in ids
        assert tokenizer.pad_id not in ids


def test_a_literal_special_is_text():
    tokenizer = WordTokenizer.of("a <pad> and a <start> and an <unk>")
    ids = tokenizer.encode("<pad> <start>")
    assert ids.count(tokenizer.start_id) == 1
    assert tokenizer.pad_id not in ids
    assert tokenizer.decode(ids) == "< pad > < start >"
    assert tokenizer.detokenize(ids) == "<pad> <start>"
    assert tokenizer.ids_of(["<pad>", "<start>"]) == [tokenizer.unk_id] * 2


# Its file


def test_the_file_names_the_version_of_the_rules_and_an_older_file_names_none():
    tokenizer = WordTokenizer.of(TEXT, keep_newlines=True)
    values = tokenizer.to_dict()
    assert values["rules"] == VERSION == 1
    older = {name: value for name, value in values.items() if name != "rules"}
    assert WordTokenizer.from_dict(older) == WordTokenizer.from_dict(values) == tokenizer


@pytest.mark.parametrize("rules", [2, 0, "1", True, None])
def test_words_of_other_rules_are_refused(rules):
    values = {**WordTokenizer(["a"]).to_dict(), "rules": rules}
    with pytest.raises(
        ValueError, match=f"split by rules of version {rules!r}, but this clearhead"
    ):
        WordTokenizer.from_dict(values)


# Batches


def test_rows_of_a_batch_may_hold_padding_which_is_not_read_back():
    tokenizer = WordTokenizer(["a", "b"], end=True)
    rows = torch.tensor([[0, 4, 5, 3], [0, 4, 3, 1]])
    assert tokenizer.decode_batch(rows) == ["a b", "a"]
    assert tokenizer.encode_batch(["a b", "a"]) == [[0, 4, 5, 3], [0, 4, 3]]
