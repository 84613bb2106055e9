"""Byte-pair encoding, the tokenizer of GPT-2 (Radford et al. 2019, section 2.2).

    text → words with the space before them → bytes → pairs merged, in the order of the merges

Every byte is a token, so every text has ids and `decode(encode(text)) == text`. A byte is written
as one visible character, so that a vocabulary can be read: printable bytes as themselves, the
others as the characters from U+0100 on, a space as Ġ.

Words are split as by GPT-2's pattern: the English endings 's 't 're 've 'm 'll 'd, then runs of
letters, of numbers, of other characters, each with one space before it, and runs of white space
without the space that belongs to the next word.

    tokenizer = BytePairTokenizer.train(texts, vocab_size=1000)     a vocabulary of your own

merges.py merges pairs and learns merges. This tokenizer does not use the `tokenizers` library,
because it is 2 to 5 times as fast, measured on a play with 200 merges: the ids of each word are
cached. The ids are equal.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Self

from clearhead.data.tokenizers.merges import learn_merges, merge_pairs, read_merges
from clearhead.data.tokenizers.subword_tokenizer import (
    CharacterTable,
    SubwordTokenizer,
    check_vocabulary,
)
from clearhead.data.tokenizers.tokenizer import MAX_TOKENS, Ids, check_texts
from clearhead.shapes import check_positive, check_whole

PATTERN = re.compile(
    r"'(?:[sdmt]|ll|ve|re)"
    r"| ?[A-Za-z]+"
    r"| ?[0-9]+"
    r"| ?[^ \t-\rA-Za-z0-9]+"
    r"|[ \t-\r]+(?![^ \t-\r])"
    r"|[ \t-\r]+"
)
WORD_END = re.compile(r"[^ \t-\r](?=[ \t-\r])")


def _find_stand_in(character: str) -> str:
    """An ASCII character of the same kind, for characters beyond ASCII.

    Python's regular expressions cannot match Unicode categories; after this translation they need
    not. The stand-ins occur in no ending ('s), and none is a plain space.
    """
    if character.isascii():
        return character
    if character.isspace():
        return "\n"
    return {"L": "L", "N": "0"}.get(unicodedata.category(character)[0], "!")


STAND_INS = CharacterTable(_find_stand_in)


def split_words(text: str) -> list[str]:
    """Split a text into words, spaces included: joined again they are the text."""
    spans = (match.span() for match in PATTERN.finditer(text.translate(STAND_INS)))
    return [text[start:stop] for start, stop in spans]


def find_cut(text: str) -> int:
    """The last place where a text may be cut, so that both parts have the ids of the whole.

    It is before white space that follows another character: there one word always ends, and no
    later character changes how the text before it is split. 0 if there is no such place.

    >>> find_cut("to be,  or")
    6
    """
    size = 1 << 10
    while True:
        start = max(0, len(text) - size)
        places = [match.end() for match in WORD_END.finditer(text[start:].translate(STAND_INS))]
        if places or not start:
            return start + places[-1] if places else 0
        size *= 8


def _list_byte_characters() -> list[str]:
    """The character each byte is written as."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + others.index(byte)) for byte in range(256)]


CHARACTERS = _list_byte_characters()
BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}
ALPHABET = sorted(CHARACTERS)  # the first 256 tokens, in the order of GPT-2
BYTE_IDS = [ALPHABET.index(character) for character in CHARACTERS]
END = "<|endoftext|>"
FEWEST_TOKENS = len(ALPHABET) + 1  # every byte, and END


class BytePairTokenizer(SubwordTokenizer):
    """GPT-2's tokenizer. `encode` adds no special token; <|endoftext|> is both start and end."""

    kind = "byte pairs"
    options = ("merges", "specials")

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], specials: Mapping[str, int]
    ) -> None:
        """merges: "left right", the first merged first; specials: token → id."""
        check_vocabulary(tokens)
        self.merges, self.specials = list(merges), dict(specials)
        for name, i in self.specials.items():
            if type(i) is not int or not 0 <= i < len(tokens) or tokens[i] != name:
                raise ValueError(f"id {i!r:.40} is not the special token {name!r:.40}")
        roles = dict(self.specials)
        if (end := roles.pop(END, None)) is not None:
            roles |= {"start": end, "end": end}
        super().__init__(tokens, roles)
        for byte, character in enumerate(CHARACTERS):
            if character not in self._ids:
                raise ValueError(f"the vocabulary has no token for the byte 0x{byte:02x}")
        special_ids = set(roles.values())
        for i, token in enumerate(tokens):
            if i not in special_ids and not (token and BYTES.keys() >= set(token)):
                raise ValueError(f"token {token!r:.40} is empty or not made of bytes")
        self._ranks = read_merges(self.merges, self._ids)
        self._cached = lru_cache(maxsize=50_000)(self._split_word)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, *, min_count: int = 2) -> Self:
        """Learn a vocabulary: 256 bytes, then merges, the most frequent first, then <|endoftext|>.

        texts: any number of them; no merge joins parts of different texts or words. The
        same texts give the same tokenizer. It has fewer than vocab_size tokens if no pair is left
        that occurs min_count times.

        >>> tokenizer = BytePairTokenizer.train(["low lower lowest"], vocab_size=261)
        >>> tokenizer.merges
        ['l o', 'lo w', 'Ġ low', 'Ġlow e']
        >>> tokenizer.spell(tokenizer.encode("a slow low"))
        ['a', 'Ġ', 's', 'low', 'Ġlow']
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        check_texts(texts)
        check_whole("vocab_size", vocab_size, least=FEWEST_TOKENS, most=MAX_TOKENS)
        check_positive(min_count=min_count)
        words = Counter(word for text in texts for word in split_words(text))
        in_ids = {tuple(BYTE_IDS[byte] for byte in word.encode()): n for word, n in words.items()}
        n_merges = vocab_size - FEWEST_TOKENS
        tokens, merges = list(ALPHABET), []
        for left, right in learn_merges(in_ids, len(ALPHABET), n_merges, min_count):
            merges.append(f"{tokens[left]} {tokens[right]}")
            tokens.append(tokens[left] + tokens[right])
        return cls([*tokens, END], merges, {END: len(tokens)})

    def _split(self, text: str) -> list[int]:
        return [i for word in split_words(text) for i in self._cached(word)]

    def _split_word(self, word: str) -> list[int]:
        characters = [CHARACTERS[byte] for byte in word.encode("utf-8")]
        parts = merge_pairs(characters, lambda left, right: self._ranks.get((left, right)))
        return [self._ids[part] for part in parts]

    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The text of these ids, specials only with specials=True; invalid UTF-8 becomes �."""
        names = set(self.specials) if specials else set()
        parts = [
            token.encode() if token in names else bytes(BYTES[character] for character in token)
            for token in self.spell(ids, specials=specials)
        ]
        return b"".join(parts).decode("utf-8", errors="replace")
