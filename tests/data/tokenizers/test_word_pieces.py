"""BERT's tokenizer against `tokenizers`: cleaning, words, pieces; its files and what is refused."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from clearhead.files import BadFile
from clearhead.interop import WordPieceTokenizer, find_tokenizer
from clearhead.interop.tokenizer_json import read_tokenizer_json

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["the", "un", "##aff", "##able", "##a", "##b", "a", "b", "ab", ",", ".", "!", "?", "'"]
PIECES += ["$", "東", "京", "##c", "##ab", "cafe", "s", "##s", "##σ", "α", "(", ")", "-", "й", "и"]
TOKENS = SPECIALS + PIECES


def assigned_long_ago(sign):
    """Of Unicode 3.2 and unchanged since: on newer ones two tables of Unicode may differ."""
    return unicodedata.ucd_3_2_0.category(sign) == unicodedata.category(sign) not in ("Cn", "Cs")


OLD = [c for code in range(0x30000) if assigned_long_ago(c := chr(code))]
ANY = st.text(st.sampled_from(OLD))
LIKELY = st.text(st.sampled_from(list(" \t\n\xa0abcsABCéÉàσΣ東京,.!?'$+[]\u0301\u200b\ufffdİǅﬁй")))


def make(lower=True, strip=None, split=True):
    """The same vocabulary in the pipeline of `tokenizers`."""
    ids = {token: i for i, token in enumerate(TOKENS)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=9))
    made.normalizer = normalizers.BertNormalizer(
        lowercase=lower, strip_accents=strip, handle_chinese_chars=split
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    made.decoder = decoders.WordPiece()
    return made


ORACLES = {
    "uncased": (make(), {}),
    "cased": (make(lower=False), {"lower": False, "strip_accents": False}),
    "lower with accents": (make(strip=False), {"strip_accents": False}),
    "upper without": (make(lower=False, strip=True), {"lower": False}),
    "whole ideographs": (make(split=False), {"split_ideographs": False}),
}
OURS = {
    name: WordPieceTokenizer(TOKENS, longest_word=9, **options)
    for name, (_, options) in ORACLES.items()
}


@given(ANY | LIKELY, st.sampled_from(list(ORACLES)))
def test_words_and_ids_are_those_of_the_oracle(text, case):
    oracle, ours = ORACLES[case][0], OURS[case]
    cleaned = oracle.normalizer.normalize_str(text)
    words = [word for word, _ in oracle.pre_tokenizer.pre_tokenize_str(cleaned)]
    assert ours.words(text) == words
    assert ours.encode(text) == oracle.encode(text).ids


@pytest.mark.parametrize("case", ORACLES)
def test_every_character_is_cleaned_and_cut_as_by_the_oracle(case):
    oracle, ours = ORACLES[case][0], OURS[case]
    text = " ".join(f"a{sign}b" for sign in (OLD if case == "uncased" else OLD[::7]))
    assert len(OLD) > 90_000
    cleaned = oracle.normalizer.normalize_str(text)
    words = [word for word, _ in oracle.pre_tokenizer.pre_tokenize_str(cleaned)]
    assert ours.words(text) == words


@given(st.lists(st.integers(5, len(TOKENS) - 1), max_size=12))
def test_ids_decode_as_by_the_oracle(ids):
    ids = [5, *ids]  # a text begins with the beginning of a word
    assert OURS["uncased"].decode(ids) == ORACLES["uncased"][0].decode(ids)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("  \n", []),
        ("The unaffable", ["the", "un", "##aff", "##able"]),
        ("Café!", ["cafe", "!"]),
        ("東京", ["東", "京"]),
        ("ab,ab", ["ab", ",", "ab"]),
        ("$a", ["$", "a"]),
        ("the\x00 a\u200bb", ["the", "ab"]),
        ("unz the", ["[UNK]", "the"]),
        ("abababab", ["ab", "##ab", "##ab", "##ab"]),
        ("ababababab", ["[UNK]"]),  # ten letters, one too many
        ("[SEP]", ["[UNK]", "[UNK]", "[UNK]"]),
        ("αΣ", ["α", "##σ"]),
    ],
)
def test_by_hand(text, tokens):
    ids = OURS["uncased"].encode(text)
    assert [TOKENS[i] for i in ids] == ["[CLS]", *tokens, "[SEP]"]


def test_decoding():
    ours = OURS["uncased"]
    assert ours.decode(ours.encode("The café, unaffable!")) == "the cafe, unaffable!"
    assert ours.decode(ours.encode("zz")) == "[UNK]"
    assert ours.decode(ours.encode("the"), specials=True) == "[CLS] the [SEP]"
    assert ours.decode([]) == ""


def test_the_specials():
    ours = OURS["uncased"]
    assert (ours.pad_id, ours.unk_id, ours.start_id, ours.end_id) == (0, 1, 2, 3)
    assert ours.encode("[PAD][MASK] [CLS]").count(0) == 0
    assert ours.vocab_size == len(TOKENS)


def test_a_word_of_a_million_letters_takes_no_time():
    assert OURS["uncased"].encode("a" * 1_000_000) == [2, 1, 3]
    long = WordPieceTokenizer(TOKENS, longest_word=10**6)
    assert len(long.encode("a" * 100_000)) == 100_002


# Files


@pytest.mark.parametrize("case", ORACLES)
def test_tokenizer_json(case, tmp_path):
    ORACLES[case][0].save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer_json(tmp_path / "tokenizer.json") == OURS[case]


def test_tokenizer_json_with_the_older_frame_and_padding(tmp_path):
    values = json.loads(ORACLES["uncased"][0].to_str())
    values["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    values["padding"] = {"strategy": {"Fixed": 128}, "pad_id": 0}
    values["truncation"] = {"max_length": 4}
    values["added_tokens"] = [{"id": 4, "content": "[MASK]", "special": True}]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    assert find_tokenizer(tmp_path) == OURS["uncased"]


@pytest.mark.parametrize(
    ("told", "options"),
    [
        (None, {}),
        ({"do_lower_case": True}, {}),
        ({"do_lower_case": False}, {"lower": False, "strip_accents": False}),
        ({"do_lower_case": True, "strip_accents": False}, {"strip_accents": False}),
        ({"tokenize_chinese_chars": False}, {"split_ideographs": False}),
    ],
)
def test_vocab_txt(told, options, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    if told is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    assert find_tokenizer(tmp_path) == WordPieceTokenizer(TOKENS, **options)


def test_what_save_wrote_load_reads(tmp_path):
    for ours in OURS.values():
        ours.save(tmp_path / "own.json")
        assert WordPieceTokenizer.load(tmp_path / "own.json") == ours


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    assert find_tokenizer(tmp_path) is None


def change(values, path, value):
    *inner, last = path.split(".")
    for name in inner:
        values = values[name]
    values[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("normalizer.clean_text", False, "normalizer is "),
        ("normalizer.lowercase", "yes", "lower must be true or false, got 'yes'"),
        ("normalizer", None, "normalizer is None"),
        ("pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer is {'type': 'Whitespace'}"),
        ("post_processor", None, "a text is encoded as ['A']"),
        ("post_processor.single", [], "a text is encoded as []"),
        ("post_processor.single", [{"Sequence": {"id": "A"}}], "a text is encoded as ['A']"),
        ("post_processor.single", 7, "a text is encoded as []"),
        ("model.unk_token", "<unk>", "unk_token is '<unk>'"),
        ("model.continuing_subword_prefix", "@@", "continuing_subword_prefix is '@@'"),
        ("model.max_input_chars_per_word", 0, "longest_word must be at least 1, got 0"),
        ("model.vocab", {"[UNK]": 0}, "the vocabulary has no [CLS]"),
        ("model.vocab", {"a": 0, "b": 0}, "'a' and 'b' have the same id, 0"),
        ("model.vocab", {"a": 0, "b": 5}, "no token has the id 1, but ids go up to 5"),
        ("model.vocab", None, "vocab must hold names and values"),
    ],
)
def test_a_tokenizer_json_that_is_not_berts_is_refused(tmp_path, path, value, words):
    values = json.loads(ORACLES["uncased"][0].to_str())
    change(values, path, value)
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(BadFile, match=r"tokenizer.json: ") as error:
        read_tokenizer_json(tmp_path / "tokenizer.json")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([*TOKENS, "ab"], "token 'ab' occurs twice, as 13 and as 34"),
        ([*TOKENS, "[UNK]"], "token [UNK] occurs twice"),
        (PIECES, "the vocabulary has no [UNK]"),
        ([""], "the vocabulary has no [UNK]"),
    ],
)
def test_F18_a_vocab_txt_that_is_none_is_refused(tmp_path, lines, words):
    (tmp_path / "vocab.txt").write_text("\n".join(lines))
    with pytest.raises(BadFile, match=r"vocab.txt: ") as error:
        find_tokenizer(tmp_path)
    assert words in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"model": 3}'])
def test_a_tokenizer_json_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(BadFile, match=r"tokenizer.json"):
        find_tokenizer(tmp_path)
