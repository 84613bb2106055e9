"""Sentence pairs to translate: from a file, or a generated language with a known alignment.

    pairs = read_pairs("eng-spa.tsv")                   a sentence, a tab, its translation
    pairs = GeneratedPairs("dates").examples(range(20_000))

    the third of march, nineteen eighty-four → 1984-03-03
    march 3rd 1984                           → 1984-03-03       and five other ways to write it

    source, target = pair_tokenizers(pairs)
    for batch in Pairs(pairs, source, target).batches(64, seed=0, epoch=0): ...

A date is a small translation: month and day change places, one word becomes several digits, and a
weekday has no counterpart. One date in ten, in all its forms, is kept for validation.
"""

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batch import IGNORE, Batch, pad_right
from clearhead.data.number_words import (
    ONES,
    TENS,
    format_ordinal,
    spell_number,
    spell_ordinal,
    spell_year,
)
from clearhead.data.packing import Examples
from clearhead.data.randomness import (
    check_indices,
    check_integer,
    choose_below,
    draw_bits,
    is_validation,
)
from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.data.tokenizers.tokenizer import Tokenizer
from clearhead.data.tokenizers.word_rules import VERSION, check_version
from clearhead.data.tokenizers.words import WordTokenizer
from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text
from clearhead.shapes import check_choice

Pair = tuple[str, str]


# From a file


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """Read the first two columns of a tab-separated file, without spaces around them.

    Further columns (author, licence), empty lines and lines that begin with # are left out.
    """
    pairs = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) < 2 or not columns[0] or not columns[1]:
            raise BadFile(
                f"{quote(path)} lacks two sentences with a tab between them in line {number}: "
                f"{line!r:.60}"
            )
        pairs.append((columns[0], columns[1]))
    if not pairs:
        raise BadFile(f"{quote(path)} holds no sentence pair; write a tab between two sentences")
    return pairs


# Generated

FIRST_DAY, LAST_DAY = date(1500, 1, 1).toordinal(), date(2099, 12, 31).toordinal()
MAX_DIGITS = 6
N_FORMS = 1000  # examples that show every form many times
MONTHS = [
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

# The ways to write a date and a number; with reverse=True only the first.
DATES: list[Callable[[date], str]] = [
    lambda d: f"the {spell_ordinal(d.day)} of {_name_month(d)}, {spell_year(d.year)}",
    lambda d: f"{_name_month(d)} the {spell_ordinal(d.day)}, {spell_year(d.year)}",
    lambda d: f"{_name_month(d)} {format_ordinal(d.day)} {d.year}",
    lambda d: f"{d.day} {_name_month(d)} {d.year}",
    lambda d: f"{WEEKDAYS[d.weekday()]}, {format_ordinal(d.day)} of {_name_month(d)} {d.year}",
    lambda d: f"{_name_month(d)[:3]} {d.day}, {d.year}",
    lambda d: f"{d.day}/{d.month}/{d.year}",
]
NUMBERS: list[Callable[[int], str]] = [
    lambda n: spell_number(n),
    lambda n: spell_number(n, joiner=" "),
    lambda n: f"{n:,}",
]


def _name_month(d: date) -> str:
    return MONTHS[d.month - 1]


NUMBER = "|".join((*ONES, *TENS, "oh", "hundred", "thousand"))
# What differs within one way to write: the longer names first, since "may" begins other words.
VARYING = {
    "MONTH": "|".join(MONTHS),
    "MON": "|".join(month[:3] for month in MONTHS),
    "DAY": "|".join(WEEKDAYS),
    "NUMBER": rf"(?:{NUMBER})(?:(?: and |[ -])(?:{NUMBER}))*",
    "ORDINAL": rf"(?:NUMBER-)?(?:{'|'.join(spell_ordinal(n) for n in range(1, 21))}|thirtieth)",
    "RANK": r"\d{1,2}(?:st|nd|rd|th)",
    "0": r"\d",
}


def _find_form(text: str) -> str:
    """The way a text is written: the ORDINAL of MONTH, NUMBER."""
    for name, pattern in VARYING.items():
        text = re.sub(rf"\b(?:{pattern})\b" if len(name) > 1 else pattern, name, text)
    return text


@functools.cache
def _list_forms(kind: str, reverse: bool) -> frozenset[str]:
    """The forms of all sources of a language."""
    sources = GeneratedPairs(kind, reverse=reverse).examples(range(N_FORMS))
    return frozenset(_find_form(source) for source, _ in sources)


@dataclass(frozen=True)
class GeneratedPairs:
    """Endless pairs of words and digits, for dates or numbers: any index from 0 on.

    reverse=True translates digits into words, always in the same form.
    """

    kind: str = "dates"
    seed: int = 0
    part: str = "train"
    reverse: bool = False

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("dates", "numbers"))
        check_choice("part", self.part, ("train", "validation"))
        check_integer("seed", self.seed)

    def __getitem__(self, index: int) -> Pair:
        return self.examples([index])[0]

    def examples(self, indices: Sequence[int]) -> list[Pair]:
        """The sentence pairs of these indices."""
        numbers = np.array(check_indices("indices", indices), dtype=np.int64)
        bits = draw_bits(self.seed, f"forms of {self.kind}", numbers)
        forms = choose_below(len(self._forms), bits)
        return [
            self._write(value, 0 if self.reverse else form)
            for value, form in zip(self._choose(numbers).tolist(), forms.tolist(), strict=True)
        ]

    def has_form_of(self, text: str) -> bool:
        """Whether a text is written in one of the ways of the sources, such as 3 march 1984."""
        return _find_form(text) in _list_forms(self.kind, self.reverse)

    @property
    def _forms(self) -> Sequence[Callable[..., str]]:
        return DATES if self.kind == "dates" else NUMBERS

    def _write(self, number: int, form: int) -> Pair:
        value = date.fromordinal(number) if self.kind == "dates" else number
        words, digits = self._forms[form](value), str(value)  # a date as 1984-03-03
        return (digits, words) if self.reverse else (words, digits)

    def _choose(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """A day or a number of this part for each index; parts do not depend on the seed."""
        found, rows = np.empty_like(indices), np.arange(len(indices))  # rows without a value yet
        attempt = 0
        while len(rows):
            tried = self._draw(indices[rows], attempt)
            fits = is_validation(tried.astype(np.uint64)) == (self.part == "validation")
            found[rows[fits]] = tried[fits]
            rows, attempt = rows[~fits], attempt + 1
        return found

    def _draw(self, indices: NDArray[np.int64], attempt: int) -> NDArray[np.int64]:
        bits = draw_bits(self.seed, self.kind, indices[:, None], attempt, np.arange(2))
        if self.kind == "dates":
            return FIRST_DAY + choose_below(LAST_DAY + 1 - FIRST_DAY, bits[:, 0])
        n_digits = 1 + choose_below(MAX_DIGITS, bits[:, 0])  # short numbers as often as long ones
        return choose_below(10**n_digits, bits[:, 1])


# Tokens and batches


def pair_tokenizers(
    pairs: Sequence[Pair],
    *,
    source: str = "characters",
    target: str = "characters",
    word_rules: int = VERSION,
) -> tuple[Tokenizer, Tokenizer]:
    """Build a tokenizer for each side, of "words" or "characters", with start and end.

    word_rules: the version of the rules that split words.
    """
    check_choice("source", source, ("words", "characters"))
    check_choice("target", target, ("words", "characters"))
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    check_version("word_rules", word_rules)
    sides = ((sources, source), (targets, target))
    one, other = (_build_tokenizer(texts, level, word_rules) for texts, level in sides)
    return one, other


def _build_tokenizer(texts: Sequence[str], level: str, word_rules: int) -> Tokenizer:
    if level == "words":
        return WordTokenizer.of(texts, end=True, rules=word_rules)
    return CharTokenizer.of("".join(texts), cls=None, start=True, pad=True, end=True)


class Pairs(Examples[Batch]):
    """Sentence pairs as ids, in batches for a model that reads the source and writes the target.

    The length of a pair is that of both sentences together. Source and target are padded apart, so
    a batch of max_tokens can have up to twice as many with its padding.
    """

    def __init__(self, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> None:
        if not pairs:
            raise ValueError("pairs must hold at least one sentence pair, got none")
        if target.start_id is None or target.end_id is None:
            raise ValueError("the target's tokenizer needs start and end; use pair_tokenizers")
        self.source, self.target = source, target
        self.source_rows = source.encode_batch([pair[0] for pair in pairs])
        self.target_rows = target.encode_batch([pair[1] for pair in pairs])
        both = zip(self.source_rows, self.target_rows, strict=True)
        super().__init__([len(read) + len(written) for read, written in both])

    @property
    def max_len(self) -> int:
        """The length of the longest sentence on either side."""
        return max(map(len, self.source_rows + self.target_rows))

    def batch(self, indices: Sequence[int]) -> Batch:
        """These pairs: source (B, S), inputs from <start> on (B, T), targets up to <end> (B, T)."""
        chosen = self._check_indices(indices)
        sources = [self.source_rows[i] for i in chosen]
        source, source_mask = pad_right(sources, self.source.pad_id or 0)
        rows = [self.target_rows[i] for i in chosen]
        inputs, token_mask = pad_right([row[:-1] for row in rows], self.target.pad_id or 0)
        targets, _ = pad_right([row[1:] for row in rows], IGNORE)
        return Batch(inputs, targets, token_mask, source=source, source_mask=source_mask)
