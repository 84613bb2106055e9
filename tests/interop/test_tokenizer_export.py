"""Our tokenizers in the files of `tokenizers`: equal ids there, the same tokenizer when read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)
from clearhead.data.tokenizers.sentence_pieces import format_byte
from clearhead.interop import export, find_tokenizer, load
from clearhead.interop.tokenizer_export import describe_tokenizer, write_tokenizer
from clearhead.models import GPT, GPTConfig

TEXT = "Once upon a time,\n there was a little girl. Größe 東京 😀\t12  34!"
PIECES = [" ", "a", "b", "ab", " ab", "aba"]
TOKENIZERS = {
    "byte pairs": BytePairTokenizer.train([TEXT] * 2, 290),
    "characters": CharTokenizer.of(TEXT, cls=None),
    "characters, [CLS]": CharTokenizer.of(TEXT),
    "characters, [CLS] unused": CharTokenizer.of(TEXT, cls=False, end=True),
    "characters, framed": CharTokenizer.of(TEXT, cls=None, start=True, pad=True, end=True),
    "sentence pieces": SentencePieceTokenizer(
        ["<unk>", "<s>", "</s>", *map(format_byte, range(256)), *PIECES],
        merges=["a b", "▁ ab", "ab a"],
    ),
    "word pieces": WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "once", "up", "##on", "a", ","], longest_word=30
    ),
}
LETTERS = st.text(st.sampled_from(TEXT))


@pytest.mark.parametrize("case", TOKENIZERS)
def test_our_own_reader_gives_the_same_tokenizer(case, tmp_path):
    write_tokenizer(tmp_path, TOKENIZERS[case], 8)
    assert find_tokenizer(tmp_path) == TOKENIZERS[case]


@pytest.mark.parametrize("case", TOKENIZERS)
@given(text=LETTERS)
def test_tokenizers_gives_equal_ids_and_texts(case, text):
    library = pytest.importorskip("tokenizers", reason="the extra clearhead[hf] is not installed")
    ours = TOKENIZERS[case]
    theirs = library.Tokenizer.from_str(json.dumps(describe_tokenizer(ours)))
    ids = ours.encode(text)
    assert theirs.encode(text).ids == ids
    if case != "word pieces":  # whose words are joined by rules that differ at punctuation
        assert theirs.decode(ids) == ours.decode(ids) == text


def test_the_file_of_three_characters_by_hand():
    """What tokenizers 0.23 was seen to read with the ids of ours, stored: no library is needed."""
    values = describe_tokenizer(CharTokenizer("ab|"))
    assert values["model"] == {
        "type": "WordLevel",
        "vocab": {"[CLS]": 0, "a": 1, "b": 2, "|": 3},
        "unk_token": "<unk>",
    }
    assert values["pre_tokenizer"]["pattern"] == {"Regex": "[\\s\\S]"}
    assert [token["content"] for token in values["added_tokens"]] == ["[CLS]"]
    assert values["post_processor"]["single"] == [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    assert (values["normalizer"], values["decoder"]) == (None, {"type": "Fuse"})


def build_gpt(vocab_size):
    return GPT(GPTConfig(vocab_size, 64, 8, n_layers=1, n_heads=2))


@pytest.mark.parametrize("case", ["byte pairs", "characters, framed"])
def test_transformers_reads_the_exported_folder(case, transformers, tmp_path):
    ours = TOKENIZERS[case]
    export(build_gpt(ours.vocab_size), tmp_path / "folder", tokenizer=ours)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    short = TEXT[:30]
    assert theirs(short)["input_ids"] == ours.encode(short)
    assert theirs.decode(ours.encode(short), skip_special_tokens=True) == short
    assert (theirs.bos_token_id, theirs.eos_token_id) == (ours.start_id, ours.end_id)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "folder")
    assert config.eos_token_id == ours.end_id


def test_an_exported_folder_is_whole(tmp_path):
    ours = TOKENIZERS["byte pairs"]
    export(build_gpt(300), tmp_path / "folder", tokenizer=ours)
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == names
    assert load(tmp_path / "folder").tokenizer == ours


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        (WordTokenizer.of("We know't."), "a tokenizer of words cannot be written"),
        (
            SentencePieceTokenizer(
                ["<unk>", "<s>", "</s>", *map(format_byte, range(256)), "a"], [0.0] * 260
            ),
            "a tokenizer of scored pairs cannot be written",
        ),
        (TOKENIZERS["sentence pieces"], "265 tokens but the model has 264; they do not belong"),
        ("gpt2", "tokenizer must be a Tokenizer, got str"),
    ],
)
def test_a_tokenizer_that_cannot_be_exported_is_refused_before_anything_is_written(
    tokenizer, words, tmp_path
):
    with pytest.raises((ValueError, TypeError), match=words):
        export(build_gpt(264), tmp_path / "folder", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []
