"""Texts in pieces: the ids of the whole text, whatever the pieces; nothing half-written."""

import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import (
    BytePairTokenizer,
    CharTokenizer,
    TokenFile,
    WordTokenizer,
    pack_texts,
    pack_tokens,
)
from clearhead.data.pack_tokens import choose_tokenizer, cut_pieces
from clearhead.data.token_encoders import make_encoder
from clearhead.files import BadFile

TEXT = (
    "Speak, speak. You're all resolved rather to die than to famish?\n\n  Größe 東京 1234 😀!\r\n"
    * 3
)
PLAIN = TEXT.replace("\r\n", "\n")
LIKELY = st.text(st.sampled_from(list("abel l' \n\t1é東!\u3000")), min_size=1)
PAIRS = BytePairTokenizer.train([TEXT, "l'abel bell b'elle"], 330)
BYTES = BytePairTokenizer.train([], 257)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "play.txt").write_bytes(TEXT.encode())
    return tmp_path / "play.txt"


def ids_of(tokens):
    return tokens.read(0, len(tokens)).tolist()


# The ids are those of the whole text


@given(LIKELY, st.integers(1, 12), st.sampled_from(["char", "bytes", "byte-pairs"]))
def test_pieces_have_the_ids_of_the_whole_text(tmp_path_factory, text, chunk, kind):
    path = tmp_path_factory.mktemp("text") / "play.txt"
    path.write_bytes(text.encode())
    char = CharTokenizer.of(text, cls=None)
    tokenizer = {"char": char, "bytes": BYTES, "byte-pairs": PAIRS}[kind]
    encoder = make_encoder(tokenizer)
    pieces = list(cut_pieces([path], encoder, chunk=chunk))
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.starts_file for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    found = np.concatenate([encoder.encode(piece.text) for piece in pieces])
    assert found.tolist() == tokenizer.encode(text)


@pytest.mark.parametrize("kind", ["char", "bytes", "byte-pairs"])
def test_a_packed_file_decodes_to_its_text(text, tmp_path, kind):
    tokens = pack_texts([text], tmp_path / "play.tokens", tokenizer=kind)
    tokenizer = tokens.load_tokenizer()
    assert tokenizer.decode(ids_of(tokens)) == PLAIN
    assert ids_of(tokens) == tokenizer.encode(PLAIN)
    expected = {
        "char": CharTokenizer.of(PLAIN, cls=None),
        "bytes": BYTES,
        "byte-pairs": BytePairTokenizer.train([PLAIN], 4096),
    }
    assert tokenizer == expected[kind]


def test_files_follow_each_other_and_the_end_token_stands_between_them(text, tmp_path):
    (tmp_path / "more.txt").write_text("speak")
    (tmp_path / "none.txt").write_text("")
    files = [text, tmp_path / "none.txt", tmp_path / "more.txt"]
    chars = pack_texts(files, tmp_path / "c.tokens", tokenizer="char")
    assert chars.load_tokenizer().decode(ids_of(chars)) == PLAIN + "speak"
    pairs = pack_texts(files, tmp_path / "p.tokens", vocab_size=300)
    tokenizer = pairs.load_tokenizer()
    assert tokenizer.vocab_size == 300
    whole = [*tokenizer.encode(PLAIN), tokenizer.end_id, *tokenizer.encode("speak")]
    assert ids_of(pairs) == whole


def test_a_saved_tokenizer_gives_its_own_ids(text, tmp_path):
    PAIRS.save(tmp_path / "tokenizer.json")
    tokens = pack_texts([text], tmp_path / "x.tokens", tokenizer=tmp_path / "tokenizer.json")
    assert tokens.load_tokenizer() == PAIRS
    assert ids_of(tokens) == PAIRS.encode(PLAIN)


def test_merges_are_learned_from_an_equal_share_of_each_file(tmp_path, monkeypatch):
    monkeypatch.setattr(pack_tokens, "SAMPLE", 40)
    for name, words in (("a.txt", "ab " * 7 + "xy " * 99), ("b.txt", "cd " * 99)):
        (tmp_path / name).write_text(words)
    files, told = [tmp_path / "a.txt", tmp_path / "b.txt"], []
    made = choose_tokenizer("byte-pairs", files, 300, lambda *news: told.append(news))
    assert {"a b", "c d"} <= set(made.merges)
    assert not any("x" in merge for merge in made.merges)
    assert told == [("learning byte pairs from the first 0.0 MB of each file", 0, 0)]


def test_the_sample_may_be_several_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(pack_tokens, "CHUNK", 20)
    monkeypatch.setattr(pack_tokens, "SAMPLE", 60)
    (tmp_path / "a.txt").write_text("ab ab ab ab ab ab ab\n" * 2 + "cd" * 8 + "\n" + "xy" * 99)
    made = choose_tokenizer("byte-pairs", [tmp_path / "a.txt"], 300)
    assert {"a b", "c d"} <= set(made.merges)
    assert not any("x" in merge for merge in made.merges)


def test_progress_counts_the_bytes_of_all_files(text, tmp_path):
    told = []
    files = [text, text]
    pack_texts(
        files,
        tmp_path / "x.tokens",
        tokenizer="char",
        tell=lambda *news: told.append(news),
    )
    n = text.stat().st_size
    words = ["finding the characters", "encoding"]
    assert told == [(word, done, 2 * n) for word in words for done in (n, 2 * n)]


def test_memory_does_not_grow_with_the_text(tmp_path):
    peaks = []
    for n in (4, 24):
        with open(tmp_path / f"{n}.txt", "w") as file:
            for _ in range(n):
                file.write("All the world's a stage. \n" * 40_000)  # 1 MB
        tracemalloc.start()
        pack_texts([tmp_path / f"{n}.txt"], tmp_path / f"{n}.tokens", tokenizer="char")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (2 << 20)


# What is refused, and that nothing stays


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"abc\xff", {"tokenizer": "bytes"}, r"play\.txt is not UTF-8: byte 3 is 0xff"),
        (b"abc\xff", {"tokenizer": "char"}, r"play\.txt is not UTF-8: byte 3 is 0xff"),
        (b"ab\0", {"tokenizer": "bytes"}, "it has a NUL at byte 2"),
        (b"", {"tokenizer": "char"}, r"play\.txt is empty"),
        (b"", {"tokenizer": "bytes"}, r"play\.txt is empty; give a text"),
        (b"abc", {"tokenizer": "char", "vocab_size": 300}, "vocab_size is for byte-pairs"),
        (b"abc", {"vocab_size": 10}, "vocab_size must be at least 257, got 10"),
        (b"abc", {"workers": 0}, "workers must be at least 1, got 0"),
        (b"abc", {"tokenizer": "none.json"}, r"none\.json is not there"),
    ],
)
def test_a_mistake_is_a_sentence_and_leaves_nothing(tmp_path, content, options, words):
    (tmp_path / "play.txt").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        pack_texts([tmp_path / "play.txt"], tmp_path / "x.tokens", **options)
    assert os.listdir(tmp_path) == ["play.txt"]


def test_no_file_and_a_name_without_the_ending_are_refused(text, tmp_path):
    with pytest.raises(ValueError, match="files must name at least one text file"):
        pack_texts([], tmp_path / "x.tokens")
    with pytest.raises(ValueError, match=r"must end with \.tokens"):
        pack_texts([text], tmp_path / "x")


def test_a_character_that_a_saved_alphabet_lacks_is_named_with_its_file(text, tmp_path):
    CharTokenizer("abc", cls=None).save(tmp_path / "tokenizer.json")
    with pytest.raises(BadFile, match=r"play\.txt: the character 'S' is not in the alphabet"):
        pack_texts([text], tmp_path / "x.tokens", tokenizer=tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "tokenizer",
    [
        WordTokenizer.of("Speak, speak."),
        CharTokenizer("abc"),
        CharTokenizer("abc", cls=None, end=True),
        CharTokenizer("abc", cls=None, start=True),
        CharTokenizer("abc", cls=False),
    ],
)
def test_tokenizers_that_add_tokens_to_each_text_are_refused(tokenizer, text, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="texts are packed by characters without special tokens"):
        pack_texts([text], tmp_path / "x.tokens", tokenizer=tmp_path / "tokenizer.json")


def test_a_text_without_a_place_to_cut_is_refused_before_it_fills_the_memory(tmp_path):
    (tmp_path / "play.txt").write_text("a b" + "x" * 100)
    pieces = cut_pieces([tmp_path / "play.txt"], make_encoder(PAIRS), chunk=7, longest=50)
    with pytest.raises(BadFile, match=r"play\.txt has 50 characters without a space after a word"):
        list(pieces)
    whole = cut_pieces([tmp_path / "play.txt"], make_encoder(PAIRS), chunk=7, longest=102)
    assert [piece.text for piece in whole] == ["a", " b" + "x" * 100]


def test_a_token_file_of_a_play_is_open_when_it_is_packed(text, tmp_path):
    tokens = pack_texts([text], tmp_path / "x.tokens", tokenizer="char", shard_tokens=50)
    assert len(tokens.header.shards) == -(-len(PLAIN) // 50)
    assert TokenFile(tmp_path / "x.tokens").fingerprint == tokens.fingerprint
