"""Pipelines that only the `tokenizers` library reads: its ids, our promises, and its absence."""

import json
import sys

import pytest

from clearhead.data.tokenizers import load_tokenizer
from clearhead.data.tokenizers.library import LibraryTokenizer
from clearhead.files import BadFile
from clearhead.interop import find_tokenizer

# In the manner of Llama 3: words by an expression of its own, merges ignored for known words.
PIPELINE = {
    "version": "1.0",
    "added_tokens": [
        {"id": 6, "content": "<|begin_of_text|>", "special": True},
        {"id": 7, "content": "<|end_of_text|>", "special": True},
    ],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"Regex": "[a-z]|\\s"},
        "behavior": "Isolated",
        "invert": False,
    },
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|begin_of_text|>": {
                "id": "<|begin_of_text|>",
                "ids": [6],
                "tokens": ["<|begin_of_text|>"],
            }
        },
    },
    "decoder": {"type": "Fuse"},
    "model": {
        "type": "WordLevel",
        "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, " ": 4, "<": 5},
        "unk_token": "?",
    },
}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
for token in PIPELINE["added_tokens"]:
    token |= FLAGS


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(PIPELINE))
    return tmp_path


def test_a_file_that_only_the_library_reads_is_refused_without_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
    with pytest.raises(BadFile, match="normalizer is") as error:
        find_tokenizer(folder)
    assert str(error.value).endswith(
        "the tokenizers library, which may read it, is not installed; "
        'install it: pip install "clearhead[hf]"'
    )


def test_our_own_files_need_no_library(tmp_path, monkeypatch):
    from clearhead.data.tokenizers import BytePairTokenizer
    from clearhead.interop.tokenizer_export import write_tokenizer

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ours = BytePairTokenizer.train(["low lower lowest"], 260)
    write_tokenizer(tmp_path, ours, 8)
    assert find_tokenizer(tmp_path) == ours


def test_the_library_gives_ids_and_texts(folder, tmp_path):
    library = pytest.importorskip("tokenizers", reason="the extra clearhead[hf] is not installed")
    ours = find_tokenizer(folder)
    theirs = library.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert isinstance(ours, LibraryTokenizer)
    assert ours.encode("ab ba") == theirs.encode("ab ba").ids == [6, 1, 2, 4, 2, 1]
    assert (ours.vocab_size, ours.start_id, ours.end_id) == (8, 6, 7)
    assert ours.decode([6, 1, 4, 2, 7]) == "a b"
    assert ours.decode([6, 1, 7], specials=True) == "<|begin_of_text|>a<|end_of_text|>"
    assert ours.spell([6, 1]) == ["a"]
    ours.save(tmp_path / "own.json")
    assert load_tokenizer(tmp_path / "own.json") == ours


def test_no_text_spells_a_special_token(folder):
    pytest.importorskip("tokenizers", reason="the extra clearhead[hf] is not installed")
    assert 7 not in find_tokenizer(folder).encode("a<|end_of_text|>b")


def test_a_file_that_the_library_refuses_is_refused(folder):
    pytest.importorskip("tokenizers", reason="the extra clearhead[hf] is not installed")
    values = PIPELINE | {"normalizer": {"type": "Nothing"}}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(BadFile, match=r"json: .*: the tokenizers library cannot read it: "):
        find_tokenizer(folder)


def test_tokens_of_another_pipeline_are_refused():
    pytest.importorskip("tokenizers", reason="the extra clearhead[hf] is not installed")
    with pytest.raises(ValueError, match="tokens are not those of the pipeline"):
        LibraryTokenizer(["a"], json.dumps(PIPELINE))
