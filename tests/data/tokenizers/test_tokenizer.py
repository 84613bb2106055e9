"""What all tokenizers have in common: one table of cases for characters and words."""

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import CharTokenizer, WordTokenizer, load_tokenizer
from clearhead.data.tokenizers.tokenizer import MAX_TOKENS, check_text
from clearhead.files import BadFile

TOKENIZERS = {
    "characters": CharTokenizer(),
    "characters with start, pad and end": CharTokenizer(
        "ba c", cls=False, start=True, pad=True, end=True
    ),
    "plain characters": CharTokenizer('ab\n\0é😀"\\', cls=False),
    "words": WordTokenizer(["b", "a", "don", "n't", '"', "\\"]),
    "words with newlines and end": WordTokenizer(["b", "a"], keep_newlines=True, end=True),
    "no words": WordTokenizer([]),
}


@pytest.fixture(params=TOKENIZERS.values(), ids=TOKENIZERS.keys())
def tokenizer(request):
    return request.param


# Specials


def test_specials_come_first_and_absent_ones_are_none(tokenizer):
    spelled = {
        tokenizer.cls_id: "[CLS]",
        tokenizer.start_id: "<start>",
        tokenizer.pad_id: "<pad>",
        tokenizer.unk_id: "<unk>",
        tokenizer.end_id: "<end>",
    }
    spelled.pop(None, None)
    assert sorted(spelled) == list(range(len(spelled)))
    assert [tokenizer.tokens[i] for i in spelled] == list(spelled.values())
    assert len(tokenizer.tokens) == tokenizer.vocab_size


def test_no_text_can_spell_a_special():
    words = WordTokenizer(["pad", "<", ">", "[", "]", "CLS"], end=True)
    specials = {words.start_id, words.pad_id, words.unk_id, words.end_id}
    for text in ("<pad>", "<start>", "<end>", "<unk>", "[CLS]", "a<pad>b", " <pad> "):
        found = words.encode(text)
        assert found[0] == words.start_id
        assert found[-1] == words.end_id
        assert not set(found[1:-1]) & (specials - {words.unk_id})
        characters = CharTokenizer.of(text, cls=False, start=True, pad=True, end=True)
        assert len(characters.encode(text)) == len(text) + 2
        assert characters.pad_id not in characters.encode(text)


def test_a_word_spelled_like_a_special_is_refused():
    with pytest.raises(ValueError, match="token '<pad>' occurs twice"):
        WordTokenizer(["<pad>"])


# Ids


def test_a_batch_is_its_texts_one_by_one(tokenizer):
    texts = ["ab", "", "a"] if tokenizer.vocab_size > 3 else ["", ""]
    rows = tokenizer.encode_batch(texts)
    assert rows == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(rows) == [tokenizer.decode(row) for row in rows]
    assert tokenizer.encode_batch([]) == []


def test_ids_may_be_a_list_a_tuple_a_tensor_or_an_array(tokenizer):
    ids = list(range(tokenizer.vocab_size))
    expected = tokenizer.decode(ids)
    for form in (tuple(ids), torch.tensor(ids), np.array(ids), [np.int64(i) for i in ids]):
        assert tokenizer.decode(form) == expected
    assert tokenizer.decode_batch(torch.tensor([ids, ids])) == [expected] * 2
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode(torch.zeros(0, dtype=torch.long)) == ""


def test_specials_are_shown_when_asked_for(tokenizer):
    ids = list(range(tokenizer.vocab_size))
    assert tokenizer.spell(ids, specials=True) == list(tokenizer.tokens)
    hidden = {"[CLS]", "<start>", "<pad>", "<end>"}
    assert tokenizer.spell(ids) == [token for token in tokenizer.tokens if token not in hidden]


@pytest.mark.parametrize(
    ("offset", "shown"), [(0, "is {n}"), (-100, "is -{m}"), (10**30, "is 1000")]
)
def test_N27_an_id_out_of_range_is_named_with_its_place(tokenizer, offset, shown):
    n = tokenizer.vocab_size
    words = rf"ids\[1\] {shown.format(n=n, m=100 - n)}\d*, but the ids .* go from 0 to {n - 1}"
    with pytest.raises(ValueError, match=words):
        tokenizer.decode([0, n + offset])


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([0.0], r"ids\[0\] must be a whole number, got 0.0"),
        (["0"], r"ids\[0\] must be a whole number"),
        ([True], r"ids\[0\] must be a whole number, got True"),
        ([[0]], r"got \[0\]; for several rows use decode_batch"),
        (torch.zeros(1, 1, dtype=torch.long), "for several rows use decode_batch"),
        (torch.zeros(1), r"ids\[0\] must be a whole number"),
        (torch.tensor(0), "must be a list or a 1-D tensor"),
        (0, "must be a list or a 1-D tensor"),
        ("00", "must be a list or a 1-D tensor"),
    ],
)
def test_N27_ids_of_another_type_are_refused(tokenizer, ids, words):
    with pytest.raises(TypeError, match=words):
        tokenizer.decode(ids)


@pytest.mark.parametrize("text", [None, 3, b"ab", ["a"]])
def test_a_text_that_is_no_string_is_refused(tokenizer, text):
    with pytest.raises(TypeError, match=r"texts\[0\] must be a string, got"):
        tokenizer.encode(text)


def test_one_string_is_no_batch(tokenizer):
    with pytest.raises(TypeError, match=r"texts must be a list of strings.*for one use encode"):
        tokenizer.encode_batch("ab")


@pytest.mark.parametrize("half", ["\ud800", "\udc80\ud800"])
def test_F17_half_a_surrogate_pair_is_refused_with_its_place(tokenizer, half):
    with pytest.raises(ValueError, match=r"texts\[0\] has half a surrogate pair at index 2"):
        tokenizer.encode(f"ab{half}")
    with pytest.raises(ValueError, match="half a surrogate pair"):
        CharTokenizer(half)
    with pytest.raises(ValueError, match="half a surrogate pair"):
        CharTokenizer.of(half)
    with pytest.raises(ValueError, match="half a surrogate pair"):
        WordTokenizer([half])
    with pytest.raises(ValueError, match="half a surrogate pair"):
        WordTokenizer.of(half)


def test_a_whole_pair_is_a_character():
    check_text("\U0001f600")


# The file


def test_what_is_saved_is_loaded(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    for again in (type(tokenizer).load(path), load_tokenizer(path)):
        assert again == tokenizer
        assert hash(again) == hash(tokenizer)
        assert again.tokens == tokenizer.tokens
        assert (again.start_id, again.pad_id) == (tokenizer.start_id, tokenizer.pad_id)
    other = tmp_path / "again.json"
    again.save(other)
    assert other.read_bytes() == path.read_bytes()


def test_tokenizers_that_differ_are_not_equal():
    different = list(TOKENIZERS.values())
    assert all(a != b for a in different for b in different if a is not b)
    assert CharTokenizer() != "abc|"


def test_saving_that_fails_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        CharTokenizer("xyz").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]


def file_with(tmp_path, tokenizer, changes):
    values = tokenizer.to_dict()
    values.update(changes)
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))
    return path


WORDS, CHARACTERS = WordTokenizer(["a", "b"]), CharTokenizer()


@pytest.mark.parametrize(
    ("tokenizer", "changes", "words"),
    [
        (WORDS, {"tokens": ["a", "b", "a"]}, "token 'a' occurs twice"),
        (WORDS, {"tokens": ["a", None]}, r"words\[1\] is None, but a word is a string"),
        (WORDS, {"tokens": ["a", 3]}, r"words\[1\] is 3"),
        (WORDS, {"tokens": ["a", ""]}, r"words\[1\] is ''"),
        (WORDS, {"tokens": ["a b"]}, r"words\[0\] is 'a b', but a word is a string without spaces"),
        (WORDS, {"tokens": ["\n"]}, r"words\[0\] is"),
        (WORDS, {"tokens": ["<unk>"]}, "token '<unk>' occurs twice"),
        (WORDS, {"tokens": {"a": 0, "b": 2}}, "words must be a list of words, got"),
        (WORDS, {"tokens": 7}, "words must be a list of words, got 7"),
        (WORDS, {"tokens": "ab"}, "words must be a list of words, got"),
        (WORDS, {"tokens": ["a"] * (MAX_TOKENS + 1)}, "at most 1,000,000 tokens, got 1,000,001"),
        (WORDS, {"tokens": ...}, "missing or unknown: 'tokens'"),
        (WORDS, {"merges": []}, "missing or unknown: 'merges'"),
        (WORDS, {"keep_newlines": 1}, "keep_newlines must be true or false, got 1"),
        (WORDS, {"keep_newlines": None}, "true or false"),
        (WORDS, {"format": 2}, "format must be 1"),
        (WORDS, {"format": True}, "format must be 1"),
        (WORDS, {"tokenizer": "characters"}, "its kind must be 'words', got 'characters'"),
        (WORDS, {"tokenizer": ["words"]}, "its kind must be 'words'"),
        (CHARACTERS, {"tokens": "aab"}, "token 'a' occurs twice"),
        (CHARACTERS, {"tokens": ""}, "alphabet must have at least one character"),
        (CHARACTERS, {"tokens": ["a", "bc"]}, "alphabet must be a string"),
        (CHARACTERS, {"start": True}, "cls and start both come first"),
        (CHARACTERS, {"tokenizer": "words"}, "its kind must be 'characters', got 'words'"),
    ],
)
def test_F18_a_wrong_vocabulary_is_refused(tmp_path, tokenizer, changes, words):
    path = file_with(tmp_path, tokenizer, changes)
    with pytest.raises(BadFile, match=words) as caught:
        type(tokenizer).load(path)
    assert "vocabulary.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "content", ["[]", "3", '"words"', "null", "{}", "", "{", '{"a": 1, "a": 1}']
)
def test_F18_a_file_that_is_no_tokenizer_is_refused(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    for load in (CharTokenizer.load, WordTokenizer.load, load_tokenizer):
        with pytest.raises(BadFile, match=r"x\.json"):
            load(path)


def test_F18_ten_million_entries_are_refused_at_once(tmp_path):
    path = tmp_path / "large.json"
    with open(path, "wb") as file:
        file.truncate(90 << 20)
    with pytest.raises(BadFile, match=r"large\.json"):
        WordTokenizer.load(path)
    with pytest.raises(ValueError, match="at most 1,000,000 tokens, got 10,000,000"):
        WordTokenizer(["a"] * 10_000_000)


def test_the_largest_vocabulary_can_be_saved_and_loaded(tmp_path):
    words = WordTokenizer([f"{i:x}" for i in range(MAX_TOKENS)])
    words.save(tmp_path / "w.json")
    assert WordTokenizer.load(tmp_path / "w.json").vocab_size == MAX_TOKENS + 3


@given(st.data())
def test_F10_a_changed_file_is_refused_or_still_a_tokenizer(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "t.json"
    WordTokenizer(["a", "b", "é"], keep_newlines=True).save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(bytes(content))
    try:
        loaded = load_tokenizer(path)
    except BadFile as fault:
        told = str(fault)
    else:
        told = f"t.json {loaded.decode(range(loaded.vocab_size), specials=True)}"
    assert "t.json" in told


@pytest.mark.parametrize("values", [["a", "b"], "words", None, 7])
def test_F18_values_that_are_no_mapping_are_named(values):
    with pytest.raises(ValueError, match=re.escape(f"its kind must be 'words', got {values!a}")):
        WordTokenizer.from_dict(values)
