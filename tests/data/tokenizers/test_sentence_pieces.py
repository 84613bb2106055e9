"""Llama's tokenizer: as llama2.c cuts a text and as `tokenizers` does; its files, good and bad."""

import json
import random
import re
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, processors

from clearhead.files import BadFile
from clearhead.interop import SentencePieceTokenizer, find_tokenizer
from clearhead.interop.tokenizer_json import read_tokenizer_json

BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = [" ", *"abcdeé東😀"]


def vocabulary(seed=0):
    """Pieces of two and more letters, some made of others, and the letters themselves; by an odd
    seed, no blank follows another sign in them, as in the vocabulary of Llama."""
    draw = random.Random(seed)
    made = list(LETTERS)
    while len(made) < 60:
        piece = draw.choice(made) + draw.choice(made)
        if piece not in made and len(piece) < 7 and not (seed % 2 and re.search("[^ ] ", piece)):
            made.append(piece)
    pieces = made[len(LETTERS) :] + LETTERS
    return ["<unk>", "<s>", "</s>", *BYTE_NAMES, *pieces]


TOKENS = vocabulary()
SCORES = [0.0] * 259 + [-float(i) for i in range(len(TOKENS) - 259)]
OURS = SentencePieceTokenizer(TOKENS, SCORES)
TEXTS = st.text(st.sampled_from([*LETTERS, "z", "ñ", "\n", "\x00"])) | st.text()


def written(tokens, scores, *, old=False):
    """A tokenizer.bin; the old files have the character of a byte's number in its place."""
    entries = []
    for i, (token, score) in enumerate(zip(tokens, scores, strict=True)):
        if old and 3 <= i < 259:
            token = chr(i - 3)
        data = {1: b"\n<s>\n", 2: b"\n</s>\n"}.get(i, token.encode())
        entries.append((score, data))
    longest = max(len(data) for _, data in entries)
    return struct.pack("<i", longest) + b"".join(
        struct.pack("<fi", score, len(data)) + data for score, data in entries
    )


def ids_as_llama2c(text, tokens, scores):
    """run.c: look up each character or its bytes, then join the best pair, the first of equals."""
    ids, pieces = [1], {token: i for i, token in enumerate(tokens) if i >= 259}
    inner = []
    for character in f" {text}" if text else "":
        inner += [pieces[character]] if character in pieces else [3 + b for b in character.encode()]
    while True:
        best = None
        for i in range(len(inner) - 1):
            if inner[i] < 259 or inner[i + 1] < 259:
                continue
            union = pieces.get(tokens[inner[i]] + tokens[inner[i + 1]])
            if union is not None and (best is None or scores[union] > scores[best[1]]):
                best = (i, union)
        if best is None:
            return ids + inner
        inner[best[0] : best[0] + 2] = [best[1]]


def in_their_words(tokens):
    return [token.replace(" ", "▁") if i >= 259 else token for i, token in enumerate(tokens)]


def merges_by_score():
    """Every way to make a piece of two others, the best score first."""
    pieces = dict(zip(TOKENS[259:], SCORES[259:], strict=True))
    ways = [
        (-score, piece[:i].replace(" ", "▁"), piece[i:].replace(" ", "▁"))
        for piece, score in pieces.items()
        for i in range(1, len(piece))
        if piece[:i] in pieces and piece[i:] in pieces
    ]
    return [(left, right) for _, left, right in sorted(ways)]


@pytest.fixture(scope="module")
def oracle():
    """The same vocabulary in the pipeline of Llama 2."""
    ids = {token: i for i, token in enumerate(in_their_words(TOKENS))}
    model = models.BPE(ids, merges_by_score(), byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made


@given(TEXTS)
def test_ids_are_those_of_llama2c(text):
    assert OURS.encode(text) == ids_as_llama2c(text, TOKENS, SCORES)


@given(st.integers(0, 20), st.text(st.sampled_from(LETTERS)), st.integers(1, 4))
def test_ids_are_those_of_llama2c_if_scores_are_equal(seed, text, n):
    tokens = vocabulary(seed)
    scores = [float(i % n) for i in range(len(tokens))]
    ours = SentencePieceTokenizer(tokens, scores)
    assert ours.encode(text) == ids_as_llama2c(text, tokens, scores)


@given(text=TEXTS)
def test_ids_are_those_of_tokenizers(text, oracle):
    if "▁" not in text:  # which theirs takes for a blank
        assert OURS.encode(text) == oracle.encode(text).ids
        assert OURS.decode(OURS.encode(text)) == oracle.decode(OURS.encode(text))


@given(TEXTS | st.text(st.sampled_from("▁ a<s>0x0A")))
def test_every_text_comes_back(text):
    assert OURS.decode(OURS.encode(text)) == text


@given(st.text(st.sampled_from([*LETTERS, "z", " "])))
def test_ids_are_those_of_llama2c_word_by_word(text):
    tokens = vocabulary(seed=1)
    ours = SentencePieceTokenizer(tokens, SCORES)
    assert any("  " in token for token in tokens)
    assert ours.encode(text) == ids_as_llama2c(text, tokens, SCORES)


def test_by_hand():
    tokens = [*TOKENS[:259], " ", "a", "b", "ab", " ab", "ba"]
    ours = SentencePieceTokenizer(tokens, [0.0] * 259 + [-9, -9, -9, -2, -3, -1])
    assert ours.encode("ab") == [1, 263]  # ab, then blank and ab
    assert ours.encode("bab") == [1, 259, 264, 261]  # ba is best, so that ab is not made
    assert ours.encode("é") == [1, 259, 3 + 0xC3, 3 + 0xA9]
    assert ours.encode("") == [1]
    assert ours.decode([1, 263, 263]) == "ab ab"
    assert ours.decode([1, 263, 2], specials=True) == "<s> ab</s>"
    assert ours.decode([3 + 0xC3]) == "�"


def test_the_specials():
    assert (OURS.unk_id, OURS.start_id, OURS.end_id, OURS.pad_id) == (0, 1, 2, None)
    assert OURS.vocab_size == len(TOKENS)
    assert OURS.encode("<s></s>")[1:] == [i for i in OURS.encode("<s></s>") if i > 2]
    assert OURS.encode("<0x0A>")[1] >= 259  # the text, not the byte
    assert OURS.decode_batch([OURS.encode("ab"), torch.tensor(OURS.encode("c d"))]) == ["ab", "c d"]


# Files


@pytest.mark.parametrize("old", [False, True])
def test_tokenizer_bin_of_llama2c(tmp_path, old):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(written(TOKENS, SCORES, old=old))
    ours = find_tokenizer(tmp_path)
    assert ours.tokens[3:] == OURS.tokens[3:]
    assert ours.scores == OURS.scores
    assert ours.encode("ab cab é z") == OURS.encode("ab cab é z")


def test_tokenizer_json_of_llama2(oracle, tmp_path):
    oracle.save(str(tmp_path / "tokenizer.json"))
    ours = read_tokenizer_json(tmp_path / "tokenizer.json")
    assert ours.tokens == OURS.tokens
    for text in ("", "ab cab", "a  b ☃\n", " e d c"):
        assert ours.encode(text) == oracle.encode(text).ids == OURS.encode(text)
        assert ours.decode(ours.encode(text)) == text


@given(text=TEXTS)
def test_merges_decide_as_in_tokenizers_even_if_some_are_left_out(text, oracle):
    values = json.loads(oracle.to_str())
    kept = values["model"]["merges"][::2]
    ours = SentencePieceTokenizer(TOKENS, merges=[" ".join(pair) for pair in kept])
    values["model"]["merges"] = kept
    if "▁" not in text:
        assert ours.encode(text) == Tokenizer.from_str(json.dumps(values)).encode(text).ids


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("normalizer", None, "normalizer is None"),
        ("normalizer", {"type": "Replace"}, "normalizer is {'type': 'Replace'}"),
        ("pre_tokenizer", {"type": "Metaspace"}, "pre_tokenizer is {'type': 'Metaspace'}"),
        ("post_processor", None, "a text is encoded as ['A']"),
        ("post_processor", {"type": "TemplateProcessing", "single": []}, "a text is encoded as []"),
    ],
)
def test_a_tokenizer_json_that_is_not_llamas_is_refused(oracle, tmp_path, name, value, words):
    values = json.loads(oracle.to_str()) | {name: value}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(BadFile, match=r"tokenizer.json: ") as error:
        read_tokenizer_json(tmp_path / "tokenizer.json")
    assert words in str(error.value)


@pytest.mark.parametrize(
    "made", [OURS, SentencePieceTokenizer(TOKENS, merges=[" ".join(m) for m in merges_by_score()])]
)
def test_what_save_wrote_load_reads(made, tmp_path):
    made.save(tmp_path / "own.json")
    back = SentencePieceTokenizer.load(tmp_path / "own.json")
    assert back == made
    assert back.encode("ab cab é z") == made.encode("ab cab é z")


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [
        (TOKENS[:200], {"scores": [0] * 200}, "id 200 must be the byte <0xC5>"),
        (TOKENS[:3] + TOKENS[4:], {"scores": SCORES[1:]}, "id 3 must be the byte <0x00>"),
        ([*TOKENS, "a"], {"scores": [*SCORES, 0]}, "token 'a' occurs twice, as"),
        ([*TOKENS, ""], {"scores": [*SCORES, 0]}, "is empty"),
        (TOKENS, {"scores": SCORES[1:]}, "there are 319 tokens but 318 scores"),
        (TOKENS, {"scores": [*SCORES[1:], float("nan")]}, "score of token 318 must be a finite"),
        (TOKENS, {"scores": [*SCORES[1:], "1"]}, "score of token 318 must be a finite"),
        (TOKENS, {}, "either scores or merges"),
        (TOKENS, {"scores": SCORES, "merges": []}, "either scores or merges"),
        (TOKENS, {"merges": ["x y"]}, "merge 'x y' joins or makes an unknown token"),
    ],
)
def test_F18_a_vocabulary_that_is_none_is_refused(tokens, options, words):
    with pytest.raises(ValueError, match=r".") as error:
        SentencePieceTokenizer(tokens, **options)
    assert words in str(error.value)


def test_a_tokenizer_bin_cut_within_a_token_is_refused(tmp_path):
    path, data = tmp_path / "tokenizer.bin", written(TOKENS, SCORES)
    n_last = 8 + len(TOKENS[-1].encode())
    for n_lost in range(1, n_last):
        path.write_bytes(data[:-n_lost])
        with pytest.raises(BadFile, match=r"tokenizer.bin: (it ends within )?token 318"):
            find_tokenizer(tmp_path)
    for length in range(0, len(written(TOKENS[:259], SCORES[:259])), 13):  # within the bytes
        path.write_bytes(data[:length])
        with pytest.raises(BadFile, match=r"tokenizer.bin: "):
            find_tokenizer(tmp_path)


def test_a_tokenizer_bin_cut_between_tokens_is_a_shorter_one(tmp_path):
    """The file does not say how many it has; `load` compares with its model."""
    (tmp_path / "tokenizer.bin").write_bytes(written(TOKENS[:-1], SCORES[:-1]))
    assert find_tokenizer(tmp_path).tokens[3:] == OURS.tokens[3:-1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too few"),
        (b"\1\0\0", "too few"),
        (struct.pack("<i", 9), "1 to 1,000,000 tokens"),
        (struct.pack("<ifi", 9, 0.0, 10), "token 0 claims 10 bytes"),
        (struct.pack("<ifi", 9, 0.0, -1), "token 0 claims -1 bytes"),
        (struct.pack("<ifi", 9, 0.0, 2) + b"\xff\xff", "token 0 is not UTF-8"),
        (struct.pack("<ifi", 9, 0.0, 1) + b"a", "id 3 must be the byte"),
        (struct.pack("<i", -1) + bytes(80), "token 0 claims 0 bytes"),
        (struct.pack("<i", 9) + bytes(8 * 300), "id 3 must be the byte"),
        (written(TOKENS, [float("inf")] * len(TOKENS)), "must be a finite number"),
    ],
)
def test_a_tokenizer_bin_that_is_none_is_refused(tmp_path, data, words):
    (tmp_path / "tokenizer.bin").write_bytes(data)
    with pytest.raises(BadFile, match=r"tokenizer.bin: ") as error:
        find_tokenizer(tmp_path)
    assert words in str(error.value)


def test_F18_ten_million_tokens_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.interop.tokenizer_files.MAX_TOKENS", 300)
    (tmp_path / "tokenizer.bin").write_bytes(written(TOKENS, SCORES))
    with pytest.raises(BadFile, match="it has more than 300 tokens"):
        find_tokenizer(tmp_path)
