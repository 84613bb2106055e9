"""Tokenizer files beside the weights of other projects.

tokenizer.json              every kind; see tokenizer_json.py
vocab.json, merges.txt      GPT-2
vocab.txt                   BERT, one piece per line
tokenizer.bin               llama2.c: int32, the length of the longest token; then for each
                            token float32 score, int32 length, bytes
"""

import os
import struct
from pathlib import Path
from typing import Any

from clearhead.data.tokenizers.byte_pairs import END, BytePairTokenizer
from clearhead.data.tokenizers.library import LibraryTokenizer
from clearhead.data.tokenizers.sentence_pieces import (
    FIRST_BYTE,
    FIRST_PIECE,
    SentencePieceTokenizer,
    format_byte,
)
from clearhead.data.tokenizers.subword_tokenizer import sort_by_id
from clearhead.data.tokenizers.tokenizer import MAX_BYTES, MAX_TOKENS, Tokenizer
from clearhead.data.tokenizers.word_pieces import WordPieceTokenizer
from clearhead.files import read_json, read_text
from clearhead.files.reading import prefix_errors, read_bytes
from clearhead.interop.tokenizer_json import UnsupportedTokenizer, read_tokenizer_json


def find_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer | None:
    """Read the tokenizer of a folder from the files it holds; None if it holds none of these."""
    folder = Path(folder)
    if (folder / "tokenizer.json").exists():
        return _read_by_us_or_library(folder / "tokenizer.json")
    if (folder / "vocab.json").exists():
        return _read_vocab_json(folder)
    if (folder / "vocab.txt").exists():
        return _read_vocab_txt(folder)
    if (folder / "tokenizer.bin").exists():
        return read_tokenizer_bin(folder / "tokenizer.bin")
    return None


def _read_by_us_or_library(path: Path) -> Tokenizer:
    """Read a tokenizer.json; the library is asked only for a pipeline that we do not compute."""
    try:
        return read_tokenizer_json(path)
    except UnsupportedTokenizer as reason:
        with prefix_errors(reason):
            return LibraryTokenizer.read_json(read_text(path, max_bytes=MAX_BYTES))


def read_tokenizer_bin(path: str | os.PathLike[str]) -> SentencePieceTokenizer:
    """Read the tokenizer of llama2.c."""
    data = read_bytes(path, MAX_BYTES)
    with prefix_errors(path):
        tokens, scores = _read_entries(data)
        # Newer files write a byte as <0x0A>, the first ones as the character of that number.
        for byte, token in enumerate(tokens[FIRST_BYTE:FIRST_PIECE]):
            if token not in (format_byte(byte), chr(byte)):
                raise ValueError(f"id {FIRST_BYTE + byte} must be the byte {format_byte(byte)}")
            tokens[FIRST_BYTE + byte] = format_byte(byte)
        return SentencePieceTokenizer(tokens, scores)


def _read_entries(data: bytes) -> tuple[list[str], list[float]]:
    if len(data) < 4:
        raise ValueError(f"it has {len(data)} bytes, too few for a tokenizer")
    longest, start = struct.unpack_from("<i", data)[0], 4
    tokens: list[str] = []
    scores: list[float] = []
    while start < len(data):
        if len(tokens) == MAX_TOKENS:
            raise ValueError(f"it has more than {MAX_TOKENS:,} tokens")
        if start + 8 > len(data):
            raise ValueError(f"it ends within token {len(tokens)}")
        score, length = struct.unpack_from("<fi", data, start)
        start += 8
        if not 0 <= length <= longest or start + length > len(data):
            raise ValueError(f"token {len(tokens)} claims {length} bytes")
        try:
            tokens.append(data[start : start + length].decode("utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"token {len(tokens)} is not UTF-8") from None
        scores.append(score)
        start += length
    return tokens, scores


def _read_vocab_json(folder: Path) -> BytePairTokenizer:
    """GPT-2, from the files used before tokenizer.json."""
    ids = read_json(folder / "vocab.json", max_bytes=MAX_BYTES)
    lines = read_text(folder / "merges.txt", max_bytes=MAX_BYTES).split("\n")
    with prefix_errors(folder / "vocab.json"):
        tokens = sort_by_id(ids)
        specials = {END: ids[END]} if END in ids else {}
    with prefix_errors(f"{folder / 'vocab.json'} and merges.txt"):
        merges = [line for line in lines if line and not line.startswith("#version")]
        return BytePairTokenizer(tokens, merges, specials)


def _read_vocab_txt(folder: Path) -> WordPieceTokenizer:
    """BERT, from the files used before tokenizer.json."""
    tokens = read_text(folder / "vocab.txt", max_bytes=MAX_BYTES).removesuffix("\n").split("\n")
    options_file = folder / "tokenizer_config.json"
    options = read_json(options_file) if options_file.exists() else {}
    with prefix_errors(folder / "vocab.txt"):
        lower = _get_option(options, "do_lower_case", True)
        return WordPieceTokenizer(
            tokens,
            lower=lower,
            strip_accents=_get_option(options, "strip_accents", lower),
            split_ideographs=_get_option(options, "tokenize_chinese_chars", True),
        )


def _get_option(values: Any, name: str, default: bool) -> Any:
    value = values.get(name) if isinstance(values, dict) else None
    return default if value is None else value
