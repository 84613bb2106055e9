"""GPT-2's tokenizer against `tokenizers`: words, ids, text again; its files and what is refused."""

import json
import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from clearhead.data.tokenizers import load_tokenizer
from clearhead.data.tokenizers.byte_pairs import BYTES, CHARACTERS, find_cut, split_words
from clearhead.data.tokenizers.tokenizer import Tokenizer as OurBase
from clearhead.files import BadFile
from clearhead.interop import BytePairTokenizer, find_tokenizer
from clearhead.interop.tokenizer_json import read_tokenizer_json

END = "<|endoftext|>"
TEXT = """Once upon a time, there was a little girl. She couldn't sleep, and they'd say: "We'll see
what you've got; I'm sure it's 1,234,567 sheep!" Größe, naïve café – élève. 東京 и Москва. 😀😀
    def f(x):
        return x + 1        # indented
"""
ANY = st.text(st.characters(exclude_categories=["Cs", "Cn"]))
LIKELY = st.text(st.sampled_from(list(" \t\n'’sdmtrevl1٣aZéß東!?-_\x1c\x85\xa0\u3000😀")))


@given(ANY | LIKELY)
def test_both_sides_of_a_cut_have_the_words_of_the_whole(text):
    """Wherever a reader stops: what was read is cut, and the rest waits for more."""
    words = split_words(text)
    for n in range(len(text) + 1):
        cut = find_cut(text[:n])
        assert split_words(text[:cut]) + split_words(text[cut:]) == words


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 0),
        ("word", 0),
        ("  word", 0),
        ("word ", 4),
        ("a bc d", 4),
        ("to be,  or", 6),
        ("a\u3000b", 1),  # other white space counts, too
        ("a\x1cb", 0),  # which this is not, as for GPT-2
        ("ab " + "c" * 5000, 2),  # far from the end
        ("ab" + " " * 5000, 2),
        ("c" * 5000, 0),
    ],
)
def test_a_text_is_cut_before_the_last_white_space(text, place):
    assert find_cut(text) == place


@pytest.fixture(scope="module")
def oracle():
    """A byte-level tokenizer of `tokenizers`, trained on a few lines."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    return made


@pytest.fixture(scope="module")
def ours(oracle, tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    oracle.save(str(path))
    return read_tokenizer_json(path)


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("Hello world", ["Hello", " world"]),
        ("I'm they'll 'd", ["I", "'m", " they", "'ll", " '", "d"]),
        ("IT'S", ["IT", "'", "S"]),
        ("a  b", ["a", " ", " b"]),
        ("a \n b ", ["a", " \n", " b", " "]),
        ("abc123 45!?", ["abc", "123", " 45", "!?"]),
        ("x_y", ["x", "_", "y"]),
        ("½²٣", ["½²٣"]),
        ("a\xa0b", ["a", "\xa0", "b"]),
        ("a\x1cb", ["a", "\x1c", "b"]),
    ],
)
def test_words_by_hand(text, words):
    assert split_words(text) == words


def in_bytes(word):
    return "".join(CHARACTERS[byte] for byte in word.encode())


@given(ANY | LIKELY)
def test_words_are_those_of_the_oracle_and_join_to_the_text(text):
    words = split_words(text)
    assert "".join(words) == text
    theirs = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    assert [in_bytes(word) for word in words] == [word for word, _ in theirs]


def test_every_character_is_of_the_oracles_class():
    """Letters, numbers, blanks and the rest: each assigned character between a letter and a 1."""
    characters = (chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000)
    text = " ".join(f"a{c}1" for c in characters if unicodedata.category(c) not in ("Cn", "Co"))
    theirs = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    assert [in_bytes(word) for word in split_words(text)] == [word for word, _ in theirs]


def test_bytes_are_written_as_the_oracle_writes_them():
    assert sorted(CHARACTERS) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert CHARACTERS[ord(" ")] == "Ġ"
    assert CHARACTERS[ord("\n")] == "Ċ"
    assert all(BYTES[character] == byte for byte, character in enumerate(CHARACTERS))


# Ids


@given(text=ANY | LIKELY | st.text(st.sampled_from(list("Once upn tim,herlig.'I'm 1234"))))
def test_ids_are_those_of_the_oracle_and_decode_to_the_text(text, ours, oracle):
    ids = ours.encode(text)
    assert ids == oracle.encode(text).ids
    assert ours.decode(ids) == text == oracle.decode(ids)


def test_a_whole_text(ours, oracle):
    assert ours.encode(TEXT) == oracle.encode(TEXT).ids
    assert len(ours.encode(TEXT)) < len(TEXT) / 2
    assert ours.encode_batch([TEXT, ""]) == [ours.encode(TEXT), []]
    rows = [ours.encode("Once upon"), ours.encode("a time")]
    assert ours.decode_batch(rows) == ["Once upon", "a time"]
    assert ours.decode(torch.tensor(ours.encode(TEXT))) == TEXT


def test_the_specials(ours):
    assert isinstance(ours, OurBase)
    assert ours.end_id == ours.start_id == 0
    assert ours.pad_id is ours.unk_id is None
    assert ours.vocab_size == 400
    assert ours.decode([0, *ours.encode("a"), 0]) == "a"
    assert ours.decode([0, *ours.encode("a"), 0], specials=True) == f"{END}a{END}"


def test_no_text_spells_a_special(ours):
    ids = ours.encode(f"a{END}b")
    assert 0 not in ids
    assert ours.decode(ids) == f"a{END}b"


@given(ids=st.lists(st.integers(1, 399), max_size=20))
def test_any_ids_decode_as_the_oracle_decodes_them(ids, ours, oracle):
    assert ours.decode(ids) == oracle.decode(ids)


def test_half_a_surrogate_and_ids_out_of_range_are_refused(ours):
    with pytest.raises(ValueError, match="half a surrogate pair"):
        ours.encode("a\ud800")
    with pytest.raises(ValueError, match=r"ids\[1\] is 400, but the ids .* go from 0 to 399"):
        ours.decode([3, 400])
    with pytest.raises(TypeError, match="text"):
        ours.encode(7)


# Training


@pytest.fixture(scope="module")
def trained():
    return BytePairTokenizer.train([TEXT, "Once more."], 280)


def test_the_first_ids_are_those_of_gpt2_and_the_last_is_the_end(trained):
    assert trained.tokens[:3] == ("!", '"', "#")
    assert trained.tokens[220] == "Ġ"  # GPT-2's id of a space
    assert trained.vocab_size == 280
    assert trained.start_id == trained.end_id == 279
    assert [merge.replace(" ", "") for merge in trained.merges] == list(trained.tokens[256:279])


@pytest.mark.parametrize("n", [257, 258, 300, 350])
@pytest.mark.parametrize("min_count", [1, 2, 3])
def test_merges_are_those_the_oracle_learns(n, min_count):
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=n - 1,
        min_frequency=min_count,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([TEXT], trainer)
    ours = BytePairTokenizer.train([TEXT], n, min_count=min_count)
    merges = json.loads(theirs.to_str())["model"]["merges"]
    assert ours.merges == [" ".join(pair) for pair in merges]
    assert ours.encode(TEXT) == theirs.encode(TEXT).ids


@given(text=ANY | st.binary().map(lambda data: data.decode("latin-1")))
def test_a_trained_tokenizer_loses_nothing(text, trained):
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert trained.end_id not in ids


def test_the_same_texts_give_the_same_tokenizer_which_a_file_keeps(trained, tmp_path):
    assert BytePairTokenizer.train(iter([TEXT, "Once more."]), 280) == trained
    trained.save(tmp_path / "own.json")
    assert load_tokenizer(tmp_path / "own.json") == trained


def test_no_merge_crosses_from_one_text_to_the_next():
    assert BytePairTokenizer.train(["a", "b"] * 9, 300).merges == []
    assert BytePairTokenizer.train("ab" * 9, 258).merges == ["a b"]


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match="vocab_size must be at least 257, got 256"):
        BytePairTokenizer.train([TEXT], 256)
    with pytest.raises(ValueError, match="vocab_size must be at most 1,000,000"):
        BytePairTokenizer.train([TEXT], 1_000_001)
    with pytest.raises(ValueError, match="min_count must be at least 1, got 0"):
        BytePairTokenizer.train([TEXT], 300, min_count=0)
    with pytest.raises(TypeError, match=r"texts\[1\] must be a string, got b'no text'"):
        BytePairTokenizer.train([TEXT, b"no text"], 300)


# Files


def test_vocab_json_and_merges_txt_are_the_same_tokenizer(ours, oracle, tmp_path):
    oracle.model.save(str(tmp_path))
    vocabulary = json.loads((tmp_path / "vocab.json").read_text()) | {END: 0}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    lines = (tmp_path / "merges.txt").read_text()
    (tmp_path / "merges.txt").write_text(lines.replace("\n", "\r\n"))
    assert find_tokenizer(tmp_path) == ours


def test_what_save_wrote_load_reads(ours, tmp_path):
    ours.save(tmp_path / "own.json")
    back = BytePairTokenizer.load(tmp_path / "own.json")
    assert back == ours
    assert back.encode(TEXT) == ours.encode(TEXT)


def test_old_merges_are_lines_and_new_ones_pairs(ours, oracle, tmp_path):
    values = json.loads(oracle.to_str())
    assert isinstance(values["model"]["merges"][0], list)
    values["model"]["merges"] = [" ".join(pair) for pair in values["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    assert find_tokenizer(tmp_path) == ours


@pytest.mark.parametrize(
    ("vocabulary", "merges", "words"),
    [
        ("[1]", "", "vocab.json: a vocabulary must hold tokens and their ids"),
        ('{"a": 1}', "", "vocab.json: no token has the id 0"),
        (json.dumps({c: i for i, c in enumerate(CHARACTERS)}), "a b", "merge 'a b' joins or makes"),
        ("{}", None, "merges.txt is not there"),
    ],
)
def test_F18_old_files_that_are_none_are_refused(tmp_path, vocabulary, merges, words):
    (tmp_path / "vocab.json").write_text(vocabulary)
    if merges is not None:
        (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(BadFile, match=r".") as error:
        find_tokenizer(tmp_path)
    assert words in str(error.value)


def change(values, path, value):
    """Set values["a"]["b"] for the path "a.b"."""
    *inner, last = path.split(".")
    for name in inner:
        values = values[name]
    values[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("normalizer", {"type": "NFC"}, "normalizer is {'type': 'NFC'}, which is not supported"),
        ("pre_tokenizer", None, "pre_tokenizer is None, which is not supported"),
        ("pre_tokenizer.add_prefix_space", True, "pre_tokenizer is "),
        ("pre_tokenizer.use_regex", False, "pre_tokenizer is "),
        ("pre_tokenizer.odd", 1, "pre_tokenizer is "),
        ("pre_tokenizer.type", "Split", "pre_tokenizer is "),
        ("post_processor", {"type": "TemplateProcessing"}, "post_processor is "),
        ("model.type", "Unigram", "its model is 'Unigram'; WordPiece and BPE are supported"),
        ("model.dropout", 0.1, "dropout is 0.1"),
        ("model.end_of_word_suffix", "</w>", "end_of_word_suffix is '</w>'"),
        ("model.continuing_subword_prefix", "##", "continuing_subword_prefix is '##'"),
        ("model.ignore_merges", True, "ignore_merges is True"),
        ("model.merges", None, "merges must be a list"),
        ("model.merges", ["zz yy"], "merge 'zz yy' joins or makes an unknown token"),
        ("model.merges", [3], "merge 3 joins or makes"),
        ("model.vocab", [], "vocab must hold names and values"),
        ("model.vocab", {"a": 1}, "no token for the byte 0x00"),
        ("model", [], "model must hold names and values"),
        (
            "added_tokens",
            [{"id": 400, "content": "<x>", "special": False}],
            "'<x>' is an added",
        ),
        ("added_tokens", [{"id": 7, "content": END, "special": True}], "has two ids, 0 and 7"),
        ("added_tokens", [{"id": 500, "content": "<x>", "special": True}], "has the id 400"),
        ("added_tokens", [{"id": None, "content": "<x>", "special": True}], "must be a whole"),
        ("added_tokens", [3], "an added token must hold names and values"),
    ],
)
def test_a_tokenizer_json_that_is_not_gpt2s_is_refused(oracle, tmp_path, path, value, words):
    values = json.loads(oracle.to_str())
    change(values, path, value)
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(BadFile, match=r"tokenizer.json: ") as error:
        read_tokenizer_json(tmp_path / "tokenizer.json")
    assert words in str(error.value)
    assert len(str(error.value)) < 600


def broken(**values):
    return {"tokens": list(CHARACTERS), "merges": [], "specials": {}} | values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (broken(tokens=CHARACTERS[:-1]), "no token for the byte 0xff"),
        (broken(tokens=[*CHARACTERS, "a"]), "token 'a' occurs twice, as 97 and as 256"),
        (broken(tokens=[*CHARACTERS, "a b"]), "token 'a b' is empty or not made of bytes"),
        (broken(tokens=[*CHARACTERS, ""]), "token '' is empty or not made of bytes"),
        (broken(tokens=[*CHARACTERS, "\ud800"]), "half a surrogate pair"),
        (broken(tokens=[]), "a vocabulary has 1 to 1,000,000 tokens"),
        (broken(specials={"<x>": 256}), "id 256 is not the special token '<x>'"),
        (broken(specials={"<x>": 3}), "id 3 is not the special token '<x>'"),
        (broken(merges=["a b"]), "merge 'a b' joins or makes an unknown token"),
    ],
)
def test_F18_a_vocabulary_that_is_none_is_refused(values, words):
    with pytest.raises(ValueError, match=r".") as error:
        BytePairTokenizer(**values)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "change_file",
    [
        lambda v: v.update(tokenizer="word pieces"),
        lambda v: v.update(format=2),
        lambda v: v.update(more=1),
        lambda v: v.pop("merges"),
        lambda v: v.update(tokens={"a": 1}),
        lambda v: v.update(tokens="abc"),
        lambda v: v.update(tokens=[1, 2]),
        lambda v: v.update(merges=3),
        lambda v: v.update(specials=[3]),
        lambda v: v.update(specials={END: "0"}),
    ],
)
def test_an_own_file_that_was_changed_is_refused(ours, tmp_path, change_file):
    values = json.loads(json.dumps(ours.to_dict()))
    change_file(values)
    (tmp_path / "own.json").write_text(json.dumps(values))
    with pytest.raises(BadFile, match=r"own.json is not a tokenizer of byte pairs"):
        BytePairTokenizer.load(tmp_path / "own.json")
