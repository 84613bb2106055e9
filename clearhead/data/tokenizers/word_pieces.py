"""Word pieces, the tokenizer of BERT (Wu et al. 2016; Devlin et al. 2019).

    text → cleaned, lower case, accents removed → words and single punctuation marks → pieces

A word is split from the left into the longest pieces in the vocabulary; a piece inside a word is
written with ## before it. A word that cannot be split, or is too long, is [UNK]. Case, accents and
blanks are lost: `decode` gives words, not the original text.
"""

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from clearhead.data.tokenizers.subword_tokenizer import SubwordTokenizer, check_vocabulary
from clearhead.data.tokenizers.tokenizer import Ids, check_switches

ROLES = {"unk": "[UNK]", "start": "[CLS]", "end": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
INSIDE = "##"
IDEOGRAPHS = (  # blocks of Chinese characters, each of which is a word
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _Table(dict[int, str]):
    """A rule for single characters as a table for `str.translate`, filled as it is used."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = self.rule(chr(code))
        return self[code]


def _clean(sign: str) -> str:
    """White space becomes a blank; control, format and private characters and U+FFFD vanish."""
    if sign in "\t\n\r":
        return " "
    nothing = sign == "\ufffd" or unicodedata.category(sign) in ("Cc", "Cf", "Co")
    return "" if nothing else sign


def _separate_ideograph(sign: str) -> str:
    apart = any(first <= ord(sign) <= last for first, last in IDEOGRAPHS)
    return f" {sign} " if apart else sign


def _remove_accent(sign: str) -> str:
    return "" if unicodedata.category(sign) == "Mn" else sign


def _separate_mark(sign: str) -> str:
    """Punctuation, and in ASCII also signs such as $ and +, which Unicode calls symbols."""
    in_ascii = sign.isascii() and sign.isprintable() and not sign.isalnum()
    apart = in_ascii or unicodedata.category(sign).startswith("P")
    return f" {sign} " if apart else sign


CLEAN, SEPARATE_IDEOGRAPHS = _Table(_clean), _Table(_separate_ideograph)
REMOVE_ACCENTS, SEPARATE_MARKS = _Table(_remove_accent), _Table(_separate_mark)


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
                raise ValueError(f"token {name} stands twice")
        check_switches(lower=lower, strip_accents=strip_accents, split_ideographs=split_ideographs)
        if type(longest_word) is not int or longest_word < 1:
            raise ValueError(f"longest_word must be at least 1, got {longest_word!a:.40}")
        self.lower, self.strip_accents = lower, strip_accents
        self.split_ideographs, self.longest_word = split_ideographs, longest_word
        self._longest_piece = max(map(len, self._ids), default=0)
        self._cached = lru_cache(maxsize=50_000)(self._split_word)

    def words(self, text: str) -> list[str]:
        """The words and single marks of a text, in the form of the vocabulary."""
        text = text.translate(CLEAN)
        if self.split_ideographs:
            text = text.translate(SEPARATE_IDEOGRAPHS)
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
        """The words of these ids joined by blanks, without one before . , ! and ?."""
        text = ""
        for token in self.spell(ids, specials=specials):
            glued = token.startswith(INSIDE) or token in (".", ",", "!", "?")
            text += token.removeprefix(INSIDE) if glued else f" {token}"
        return text.removeprefix(" ")
