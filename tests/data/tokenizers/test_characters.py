"""Text as characters: nothing is lost."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import CharTokenizer

FAMILY = "👩‍❤️‍💋‍👨" * 5
WHOLE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


def test_A1_three_letters_the_separator_and_cls_are_five_ids():
    tokenizer = CharTokenizer()
    assert tokenizer.vocab_size == 5
    assert tokenizer.tokens == ("[CLS]", "a", "b", "c", "|")
    assert tokenizer.encode("abca|ca") == [0, 1, 2, 3, 1, 4, 3, 1]


def test_A1_one_hot_has_a_row_for_cls_and_one_for_each_character():
    tokenizer = CharTokenizer()
    rows = tokenizer.one_hot("ca|b")
    assert rows.shape == (5, 5)
    assert rows.dtype == torch.float32
    assert rows.tolist() == [
        [1, 0, 0, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 1, 0, 0],
    ]
    assert rows.argmax(dim=1).tolist() == tokenizer.encode("ca|b")


def test_A1_without_cls_the_vocabulary_and_all_ids_stay_the_same():
    tokenizer = CharTokenizer(cls=False)
    assert tokenizer.tokens == CharTokenizer().tokens
    assert tokenizer.encode("ab|b") == CharTokenizer().encode("ab|b")[1:] == [1, 2, 4, 2]
    assert tokenizer.one_hot("ab|b").shape == (4, 5)
    assert torch.equal(tokenizer.one_hot("ab|b"), CharTokenizer().one_hot("ab|b")[1:])
    assert tokenizer.encode_batch(["a", ""]) == [[1], []]
    assert tokenizer.decode([0, 1, 4]) == "a|"
    assert CharTokenizer.of("ba", cls=False, end=True).encode("ab") == [2, 3, 1]


def test_cls_none_is_a_vocabulary_without_it():
    tokenizer = CharTokenizer(cls=None)
    assert (tokenizer.vocab_size, tokenizer.cls_id) == (4, None)
    assert tokenizer.encode("ab") == [0, 1]
    assert tokenizer.one_hot("ab").shape == (2, 4)
    both = CharTokenizer("ab", cls=False, start=True), CharTokenizer("ab", cls=None, start=True)
    assert both[0] == both[1]
    assert both[0].tokens == ("<start>", "a", "b")


@pytest.mark.parametrize(
    ("written", "cls", "ids"), [(True, True, [0, 2]), (False, None, [1]), ("unused", False, [2])]
)
def test_a_file_says_whether_cls_is_in_the_vocabulary_and_earlier_files_keep_their_ids(
    written, cls, ids, tmp_path
):
    switches = {"cls": written, "start": False, "pad": False, "end": False}
    values = {"tokenizer": "characters", "format": 1, **switches, "tokens": "ab"}
    tokenizer = CharTokenizer.from_dict(values)
    assert tokenizer == CharTokenizer("ab", cls=cls)
    assert tokenizer.encode("b") == ids
    assert tokenizer.to_dict() == values
    tokenizer.save(tmp_path / "t.json")
    assert CharTokenizer.load(tmp_path / "t.json").encode("b") == ids


@pytest.mark.parametrize("cls", [None, 0, 1, "used", []])
def test_a_file_says_nothing_else_about_cls(cls):
    with pytest.raises(TypeError, match="cls must be true or false, got"):
        CharTokenizer.from_dict({**CharTokenizer().to_dict(), "cls": cls})


@pytest.mark.parametrize("cls", [0, 1, "used"])
def test_cls_is_true_false_or_none(cls):
    with pytest.raises(TypeError, match="cls must be true or false, got"):
        CharTokenizer(cls=cls)


def test_the_empty_text_is_cls_alone_or_nothing():
    assert CharTokenizer().encode("") == [0]
    assert CharTokenizer().one_hot("").shape == (1, 5)
    assert CharTokenizer(cls=False).encode("") == []
    assert CharTokenizer(cls=False).one_hot("").shape == (0, 5)
    assert CharTokenizer().decode([0]) == ""


def test_start_and_end_stand_around_the_text():
    tokenizer = CharTokenizer("ab", cls=False, start=True, pad=True, end=True)
    assert tokenizer.tokens == ("<start>", "<pad>", "<end>", "a", "b")
    assert tokenizer.encode("ba") == [0, 4, 3, 2]
    assert tokenizer.decode([0, 4, 3, 2, 1, 1]) == "ba"
    assert tokenizer.decode([0, 4, 2, 1], specials=True) == "<start>b<end><pad>"


@pytest.mark.parametrize(
    "text",
    ["a\r\nb\rc\n", " \t ", "שלום, world", FAMILY, "e\u0301é", "\0\u2028\ufeff", "\U0010ffff"],
)
def test_F17_text_comes_back_exactly(text, tmp_path):
    tokenizer = CharTokenizer.of(text, cls=False)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    tokenizer.save(tmp_path / "t.json")
    again = CharTokenizer.load(tmp_path / "t.json")
    assert again.encode(text) == tokenizer.encode(text)


@given(WHOLE, st.sampled_from([True, False, None]), st.booleans())
def test_F17_any_text_comes_back_exactly(text, cls, end):
    tokenizer = CharTokenizer.of(text, cls=cls, end=end, pad=True)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text) + bool(cls) + end
    assert tokenizer.decode(torch.tensor(ids)) == text


def test_the_alphabet_of_a_text_is_sorted_and_does_not_depend_on_its_order():
    assert CharTokenizer.of("cabba\n").alphabet == "\nabc"
    assert CharTokenizer.of("abc\n") == CharTokenizer.of("cba\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abcz|a", r"text has 'z' at index 3, which is not in the alphabet 'abc\|'"),
        ("A", r"text has 'A' at index 0"),
        ("ab\n", r"text has '\\n' at index 2"),
        ("ab😀d", r"text has '😀' at index 2"),
        ("[CLS]", r"text has '\[' at index 0"),
    ],
)
def test_A1_an_unknown_character_is_named_with_its_place(text, words):
    with pytest.raises(ValueError, match=words):
        CharTokenizer().encode(text)
    with pytest.raises(ValueError, match=words):
        CharTokenizer().one_hot(text)


def test_wrong_alphabets_are_refused():
    with pytest.raises(ValueError, match="token 'a' occurs twice"):
        CharTokenizer("abca")
    with pytest.raises(ValueError, match="alphabet must have at least one character"):
        CharTokenizer("")
    with pytest.raises(ValueError, match="alphabet must have at least one character"):
        CharTokenizer.of("")
    with pytest.raises(TypeError, match="alphabet must be a string of characters"):
        CharTokenizer(["a", "b"])
    with pytest.raises(ValueError, match="cls and start both come first; choose one"):
        CharTokenizer(start=True)
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    with pytest.raises(ValueError, match="at most 1,000,000 tokens, got 1,112,064"):
        CharTokenizer(every)
