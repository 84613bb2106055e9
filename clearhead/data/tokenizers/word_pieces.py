"""Word pieces, the tokenizer of BERT (Wu et al. 2016; Devlin et al. 2019).

    text → cleaned, lower case, accents removed → words and single punctuation marks → pieces

A word is split from the left into the longest pieces in the vocabulary; a piece inside a word is
written with ## before it. A word that cannot be split, or is too long, is [UNK]. Case, accents and
spaces are lost: `decode` gives words, not the original text.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from clearhead.data.tokenizers.subword_tokenizer import (
    CharacterTable,
    SubwordTokenizer,
    check_vocabulary,
)
from clearhead.data.tokenizers.tokenizer import Ids, check_switches

ROLES = {"unk": "[UNK]", "start": "[CLS]", "end": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
INSIDE = "##"
IDEOGRAPH = re.compile(  # Chinese characters, each of which is a word
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)


def _clean(character: str) -> str:
    """White space becomes a space; control, format and private characters and U+FFFD vanish."""
    if character in "\t\n\r":
        return " "
    vanishes = character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co")
    return "" if vanishes else character


def _remove_accent(character: str) -> str:
    return "" if unicodedata.category(character) == "Mn" else character


def _separate_mark(character: str) -> str:
    """Put spaces around punctuation, and in ASCII around symbols such as $ and + too."""
    is_ascii_mark = character.isascii() and character.isprintable() and not character.isalnum()
    is_mark = is_ascii_mark or unicodedata.category(character).startswith("P")
    return f" {character} " if is_mark else character


CLEAN, REMOVE_ACCENTS = CharacterTable(_clean), CharacterTable(_remove_accent)
SEPARATE_MARKS = CharacterTable(_separate_mark)


class WordPieceTokenizer(SubwordTokenizer):
    """BERT's tokenizer. `encode` puts [CLS] first and [SEP] last."""

    kind = "word pieces"
    options = ("lower", "strip_accents", "split_ideographs", "longest_word")

    def __init__(
        self,
        tokens: Sequence[str],
        *,
        lower: bool = True,
        strip_accents: bool = True,
        split_ideographs: bool = True,
        longest_word: int = 100,
    ) -> None:
        check_vocabulary(tokens)
        roles = {role: tokens.index(name) for role, name in ROLES.items() if name in tokens}
        for role in ("unk", "start", "end"):
            if role not in roles:
                raise ValueError(f"the vocabulary has no {ROLES[role]}")
        super().__init__(tokens, roles)
        for name in ROLES.values():
            if name in self._ids:
                raise ValueError(f"token {name} occurs twice")
        check_switches(lower=lower, strip_accents=strip_accents, split_ideographs=split_ideographs)
        if type(longest_word) is not int or longest_word < 1:
            raise ValueError(f"longest_word must be at least 1, got {longest_word!r:.40}")
        self.lower, self.strip_accents = lower, strip_accents
        self.split_ideographs, self.longest_word = split_ideographs, longest_word
        self._longest_piece = max(map(len, self._ids), default=0)
        self._cached = lru_cache(maxsize=50_000)(self._split_word)

    def words(self, text: str) -> list[str]:
        """The words and single marks of a text, in the form of the vocabulary."""
        text = text.translate(CLEAN)
        if self.split_ideographs:
            text = IDEOGRAPH.sub(r" \g<0> ", text)
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text).translate(REMOVE_ACCENTS)
        if self.lower:
            # At the end of a word Python lowers Σ to ς; the vocabularies have σ.
            text = text.replace("Σ", "σ").lower()
        return text.translate(SEPARATE_MARKS).split()

    def _split(self, text: str) -> list[int]:
        inner = [i for word in self.words(text) for i in self._cached(word)]
        return [self._special_ids["start"], *inner, self._special_ids["end"]]

    def _split_word(self, word: str) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(word) <= self.longest_word:
            stop = min(len(word), start + self._longest_piece)
            while start < stop and self._piece(word, start, stop) not in self._ids:
                stop -= 1
            if start == stop:
                break
            ids.append(self._ids[self._piece(word, start, stop)])
            start = stop
        return ids if start == len(word) else [self._special_ids["unk"]]

    def _piece(self, word: str, start: int, stop: int) -> str:
        return INSIDE + word[start:stop] if start else word[:stop]

    def decode(self, ids: Ids, *, specials: bool = False) -> str:
        """The words of these ids joined with spaces, but without one before . , ! and ?."""
        text = ""
        for token in self.spell(ids, specials=specials):
            glued = token.startswith(INSIDE) or token in (".", ",", "!", "?")
            text += token.removeprefix(INSIDE) if glued else f" {token}"
        return text.removeprefix(" ")
