"""load: a model, its tokenizer and the report, from whatever lies at a path."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch

from clearhead.data.tokenizers.byte_pairs import CHARACTERS
from clearhead.files import BadFile
from clearhead.interop import Loaded, SentencePieceTokenizer, WordPieceTokenizer, load

LLAMA2C = struct.pack("<7i", 4, 2, 1, 2, 2, 300, 3)
LLAMA2C += bytes(4 * (300 * 4 + (8 + 4 * 16 + 3 * 8) + 4 + 3 * 2))


def tokenizer_bin(n):
    """A llama2.c tokenizer of n tokens."""
    names = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(f"<0x{i:02X}>".encode() for i in range(256))]
    names += [chr(0x4E00 + i).encode() for i in range(n - len(names))]
    entries = (struct.pack("<fi", -float(i), len(name)) + name for i, name in enumerate(names))
    return struct.pack("<i", 8) + b"".join(entries)


def test_a_llama2c_file_with_its_tokenizer_beside_it(tmp_path):
    (tmp_path / "stories.bin").write_bytes(LLAMA2C)
    assert load(tmp_path / "stories.bin").tokenizer is None
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bin(300))
    for path in (tmp_path / "stories.bin", str(tmp_path)):
        loaded = load(path)
        assert isinstance(loaded, Loaded)
        assert isinstance(loaded.tokenizer, SentencePieceTokenizer)
        assert loaded.report.kind == "llama2.c"
        assert repr(loaded).startswith("GPT, tokenizer SentencePieceTokenizer\nllama2.c from ")
        assert loaded._repr_html_().startswith("<pre>GPT, tokenizer")
        tokens = torch.tensor([loaded.tokenizer.encode("")])
        assert loaded.model(tokens).shape == (1, 1, 300)


def test_a_tokenizer_with_more_or_fewer_tokens_than_the_model_is_refused(tmp_path):
    (tmp_path / "stories.bin").write_bytes(LLAMA2C)
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bin(301))
    with pytest.raises(BadFile, match="its tokenizer has 301 tokens but the model has 300"):
        load(tmp_path)
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bin(299))
    with pytest.raises(BadFile, match=r"tokenizer.bin has 299 tokens but the model of stories.bin"):
        load(tmp_path)


def test_two_models_in_a_folder_are_not_guessed_between(tmp_path):
    (tmp_path / "a.bin").write_bytes(LLAMA2C)
    (tmp_path / "b.bin").write_bytes(LLAMA2C)
    with pytest.raises(BadFile, match=r"nor exactly one llama2.c model"):
        load(tmp_path)


def test_a_broken_tokenizer_is_not_passed_over(tmp_path):
    (tmp_path / "a.bin").write_bytes(LLAMA2C)
    (tmp_path / "tokenizer.bin").write_bytes(b"\1")
    with pytest.raises(BadFile, match=r"tokenizer.bin"):
        load(tmp_path)


@pytest.fixture
def folder(oracles, tmp_path):
    def copy(case):
        shutil.copytree(oracles[case].folder, tmp_path / "model")
        return tmp_path / "model"

    return copy


def test_bert_with_its_vocabulary(folder):
    path = folder("bert")
    (path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n##s\n")
    loaded = load(path)
    assert isinstance(loaded.tokenizer, WordPieceTokenizer)
    ids = loaded.tokenizer.encode("Words!")
    assert ids == [2, 5, 6, 1, 3]
    assert loaded.model.sentence(torch.tensor([ids])).shape == (1, 12)


def test_gpt2_with_its_vocabulary_that_is_too_large_for_this_one(folder):
    path = folder("gpt2")
    (path / "vocab.json").write_text(json.dumps({c: i for i, c in enumerate(CHARACTERS)}))
    (path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(BadFile, match="its tokenizer has 256 tokens but the model has 23"):
        load(path)


def test_a_picture_model_has_no_tokenizer(folder):
    path = folder("vit")
    (path / "tokenizer.json").write_text("not even JSON")
    assert load(path).tokenizer is None


def test_what_was_loaded_does_not_change(tmp_path):
    (tmp_path / "a.bin").write_bytes(LLAMA2C)
    loaded = load(tmp_path / "a.bin")
    with pytest.raises(AttributeError):
        loaded.model = None


def test_the_name_of_a_data_set_is_looked_up_and_a_folder_of_that_name_comes_first(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadFile, match="run clearhead data get stories15m"):
        load("stories15m")
    (tmp_path / "stories15m").mkdir()
    (tmp_path / "stories15m" / "a.bin").write_bytes(LLAMA2C)
    assert load("stories15m").model.config.vocab_size == 300


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("storis15m", r"^storis15m is not there; did you mean stories15m\?$"),
        ("nothing", "^nothing is not there; give a folder .*, or stories15m or minilm$"),
        ("mnist", "^mnist is a data set, not a model; the models are stories15m and minilm$"),
    ],
)
def test_a_name_that_is_no_model_is_answered_with_what_would_be_one(
    tmp_path, monkeypatch, name, words
):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadFile, match=words):
        load(name)


def test_C01_a_path_that_may_not_be_looked_at_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(BadFile, match="cannot be opened: file name too long"):
        load(tmp_path / ("x" * 5000))

    def refuse(_):  # the tests may run as root, who may look at all
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(BadFile, match="secret cannot be opened: permission denied"):
        load(tmp_path / "secret")
