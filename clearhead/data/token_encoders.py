"""Text → ids, piece by piece; together they are the ids that the tokenizer gives to the whole text.

    encoder = make_encoder(tokenizer)
    encoder.find_cut(text)          the last place where the text may be cut
    encoder.encode(text)            its ids, an array

Characters and bytes may be cut anywhere, and a table looks up a whole piece at once: measured
11 times as fast as a loop over characters. Byte pairs are cut only between words.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.tokenizers import BytePairTokenizer, CharTokenizer, Tokenizer
from clearhead.data.tokenizers.byte_pairs import CHARACTERS, find_cut

N_CODES = 0x110000  # Unicode code points, used or not
Ids = NDArray[np.uint32]


class Encoder(ABC):
    """Encodes pieces of a text."""

    def find_cut(self, text: str) -> int:
        """The last place where a text may be cut; 0 if there is none."""
        return len(text)

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """The ids of a piece."""


def make_encoder(tokenizer: Tokenizer) -> Encoder:
    """The encoder for a tokenizer; a tokenizer without one is refused."""
    if isinstance(tokenizer, BytePairTokenizer):
        return PairEncoder(tokenizer) if tokenizer.merges else ByteEncoder(tokenizer)
    if isinstance(tokenizer, CharTokenizer) and tokenizer.encode(tokenizer.alphabet[0]) == [0]:
        return CharEncoder(tokenizer)
    raise ValueError(
        f"texts are packed by characters without special tokens, by bytes or by byte pairs, "
        f"got a tokenizer of {tokenizer.kind}; take char, bytes or byte-pairs"
    )


class CharEncoder(Encoder):
    """One id for each character."""

    def __init__(self, tokenizer: CharTokenizer) -> None:
        self.table = np.full(N_CODES, N_CODES, np.uint32)  # N_CODES: not in the alphabet
        self.table[list_codes(tokenizer.alphabet)] = np.arange(tokenizer.vocab_size)

    def encode(self, text: str) -> Ids:
        codes = list_codes(text)
        ids: Ids = self.table[codes]
        if ids.max(initial=0) == N_CODES:
            unknown = chr(codes[ids.argmax()])
            raise ValueError(
                f"the character {unknown!r} is not in the alphabet of the tokenizer; "
                f"take --tokenizer char, which learns the alphabet of the text, or bytes"
            )
        return ids


class ByteEncoder(Encoder):
    """One id for each byte of the UTF-8 text: byte pairs without merges."""

    def __init__(self, tokenizer: BytePairTokenizer) -> None:
        self.table = np.array([tokenizer.tokens.index(c) for c in CHARACTERS], np.uint32)

    def encode(self, text: str) -> Ids:
        ids: Ids = self.table[np.frombuffer(text.encode(), np.uint8)]
        return ids


class PairEncoder(Encoder):
    """One id for each merged part of a word."""

    def __init__(self, tokenizer: BytePairTokenizer) -> None:
        self.tokenizer = tokenizer

    def find_cut(self, text: str) -> int:
        return find_cut(text)

    def encode(self, text: str) -> Ids:
        return np.array(self.tokenizer.encode(text), np.uint32)


def list_codes(text: str) -> NDArray[Any]:
    """The code point of each character."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
