"""Text as words and punctuation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import WordTokenizer, load_tokenizer
from clearhead.data.tokenizers.word_rules import VERSION, split_texts
from clearhead.files.strict_json import write_json

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


def test_sentences_are_split_across_lines_and_each_line_alone_by_the_first_rules():
    text = "So Mr. Smith spoke. Then\nhe left.\nWhy"
    new, old = WordTokenizer([]), WordTokenizer([], rules=1)
    assert " ".join(new.tokenize(text)) == "So Mr. Smith spoke . Then he left . Why"
    assert " ".join(old.tokenize(text)) == "So Mr. Smith spoke. Then he left . Why"
    assert WordTokenizer.of("a. b", rules=1).tokens[3:] == ("a.", "b")
    assert WordTokenizer.of("go. b").tokens[3:] == (".", "b", "go")


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
        expected = split_texts([text], keep_newlines=True)[0]
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


def test_the_file_names_the_version_of_the_rules_and_an_older_file_has_the_first():
    tokenizer = WordTokenizer.of(TEXT, keep_newlines=True)
    values = tokenizer.to_dict()
    assert values["rules"] == tokenizer.rules == VERSION == 2
    assert WordTokenizer.from_dict(values) == tokenizer
    unnamed = {name: value for name, value in values.items() if name != "rules"}
    for older in (unnamed, {**values, "rules": 1}):
        old = WordTokenizer.from_dict(older)
        assert old.rules == old.to_dict()["rules"] == 1
        assert old != tokenizer
        assert old.tokens == tokenizer.tokens
        assert old.tokenize("All speak. We") == ["All", "speak.", "We"]


def test_a_tokenizer_saved_by_an_earlier_release_gives_the_ids_it_gave(tmp_path):
    """As release 0.1 wrote it, without rules, and as 0.2 did, with rules 1."""
    for rules in ({}, {"rules": 1}):
        head = {"tokenizer": "words", "format": 1, "keep_newlines": True, "end": False}
        write_json(tmp_path / "t.json", head | rules | {"tokens": ["We", "go.", "go", "."]})
        tokenizer = load_tokenizer(tmp_path / "t.json")
        assert tokenizer.encode("We go. We go.\nWe") == [0, 4, 5, 4, 6, 7, 3, 4]
        tokenizer.save(tmp_path / "again.json")
        assert load_tokenizer(tmp_path / "again.json") == tokenizer


@pytest.mark.parametrize("rules", [3, 0, "1", True, None])
def test_words_of_unknown_rules_are_refused(rules):
    values = {**WordTokenizer(["a"]).to_dict(), "rules": rules}
    words = f"rules must be a version of the word rules from 1 to 2, got {rules!r}; a newer"
    with pytest.raises(ValueError, match=words):
        WordTokenizer.from_dict(values)
    with pytest.raises(ValueError, match=words):
        WordTokenizer(["a"], rules=rules)
    with pytest.raises(ValueError, match=words):
        WordTokenizer.of("a", rules=rules)


# Batches


def test_rows_of_a_batch_may_hold_padding_which_is_not_read_back():
    tokenizer = WordTokenizer(["a", "b"], end=True)
    rows = torch.tensor([[0, 4, 5, 3], [0, 4, 3, 1]])
    assert tokenizer.decode_batch(rows) == ["a b", "a"]
    assert tokenizer.encode_batch(["a b", "a"]) == [[0, 4, 5, 3], [0, 4, 3]]
