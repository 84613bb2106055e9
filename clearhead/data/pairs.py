"""Sentence pairs to translate: from a file, or a generated language with real alignment to see.

    pairs = read_pairs("eng-spa.tsv")                   a sentence, a tab, its translation
    pairs = GeneratedPairs("dates").examples(range(20_000))

    the third of march, nineteen eighty-four → 1984-03-03
    march 3rd 1984                           → 1984-03-03       and five other ways to write it

    source, target = pair_tokenizers(pairs)
    for batch in Pairs(pairs, source, target).batches(64, seed=0, epoch=0): ...

A date is a small translation: month and day change places, one word becomes several digits, and a
weekday has no counterpart. One date in ten, in all its forms, is kept for validation.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batch import IGNORE, Batch, pad_right
from clearhead.data.number_words import number_words, ordinal, ordinal_words, year_words
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
from clearhead.data.tokenizers.words import WordTokenizer
from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text
from clearhead.shapes import check_choice

Pair = tuple[str, str]


# From a file


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """The first two columns of a tab-separated file, without blanks around them.

    Further columns (whose sentence it is, its licence) are left out, and so are empty lines and
    lines that begin with #.
    """
    pairs = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) < 2 or not columns[0] or not columns[1]:
            raise BadFile(
                f"{quote(path)} has no two sentences with a tab between them in line {number}: "
                f"{line!a:.60}"
            )
        pairs.append((columns[0], columns[1]))
    if not pairs:
        raise BadFile(f"{quote(path)} holds no sentence pair; write a tab between two sentences")
    return pairs


# Generated

FIRST_DAY, LAST_DAY = date(1500, 1, 1).toordinal(), date(2099, 12, 31).toordinal()
MOST_DIGITS = 6
MONTHS = [
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

# All ways to write a date and a number; the first is the one that is translated into.
DATES: list[Callable[[date], str]] = [
    lambda d: f"the {ordinal_words(d.day)} of {_month(d)}, {year_words(d.year)}",
    lambda d: f"{_month(d)} the {ordinal_words(d.day)}, {year_words(d.year)}",
    lambda d: f"{_month(d)} {ordinal(d.day)} {d.year}",
    lambda d: f"{d.day} {_month(d)} {d.year}",
    lambda d: f"{WEEKDAYS[d.weekday()]}, {ordinal(d.day)} of {_month(d)} {d.year}",
    lambda d: f"{_month(d)[:3]} {d.day}, {d.year}",
    lambda d: f"{d.day}/{d.month}/{d.year}",
]
NUMBERS: list[Callable[[int], str]] = [
    lambda n: number_words(n),
    lambda n: number_words(n, joiner=" "),
    lambda n: f"{n:,}",
]


def _month(d: date) -> str:
    return MONTHS[d.month - 1]


@dataclass(frozen=True)
class GeneratedPairs:
    """Dates or numbers in words and in digits, without end: any index from 0 on.

    reverse translates digits into words, of which there is then one way.
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
        forms = choose_below(
            len(self._forms), draw_bits(self.seed, f"forms of {self.kind}", numbers)
        )
        return [
            self._pair(meaning, 0 if self.reverse else form)
            for meaning, form in zip(self._meanings(numbers).tolist(), forms.tolist(), strict=True)
        ]

    @property
    def _forms(self) -> Sequence[Callable[..., str]]:
        return DATES if self.kind == "dates" else NUMBERS

    def _pair(self, meaning: int, form: int) -> Pair:
        value = date.fromordinal(meaning) if self.kind == "dates" else meaning
        words, digits = self._forms[form](value), str(value)  # a date as 1984-03-03
        return (digits, words) if self.reverse else (words, digits)

    def _meanings(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """A day or a number for each index; whose part it is does not depend on the seed."""
        found, open_rows = np.empty_like(indices), np.arange(len(indices))
        attempt = 0
        while len(open_rows):
            tried = self._tried(indices[open_rows], attempt)
            fits = is_validation(tried.astype(np.uint64)) == (self.part == "validation")
            found[open_rows[fits]] = tried[fits]
            open_rows, attempt = open_rows[~fits], attempt + 1
        return found

    def _tried(self, indices: NDArray[np.int64], attempt: int) -> NDArray[np.int64]:
        numbers = draw_bits(self.seed, self.kind, indices[:, None], attempt, np.arange(2))
        if self.kind == "dates":
            return FIRST_DAY + choose_below(LAST_DAY + 1 - FIRST_DAY, numbers[:, 0])
        limit = 10 ** (
            1 + choose_below(MOST_DIGITS, numbers[:, 0])
        )  # short numbers as often as long ones
        return choose_below(limit, numbers[:, 1])


# Tokens and batches


def pair_tokenizers(
    pairs: Sequence[Pair], *, source: str = "characters", target: str = "characters"
) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer for each side of these pairs, of "words" or "characters", with start and end."""
    check_choice("source", source, ("words", "characters"))
    check_choice("target", target, ("words", "characters"))
    sides = ([pair[0] for pair in pairs], source), ([pair[1] for pair in pairs], target)
    first, second = (_tokenizer(texts, level) for texts, level in sides)
    return first, second


def _tokenizer(texts: Sequence[str], level: str) -> Tokenizer:
    if level == "words":
        return WordTokenizer.of(texts, end=True)
    return CharTokenizer.of("".join(texts), cls=False, start=True, pad=True, end=True)


class Pairs(Examples[Batch]):
    """Sentence pairs as ids, in batches for a model that listens to the source as it writes.

    A pair is as long as its two sentences together. Where long sources meet long targets of other
    pairs, a batch of max_tokens can have up to twice as many with its padding.
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
        super().__init__([len(listened) + len(written) for listened, written in both])

    @property
    def max_len(self) -> int:
        """Tokens of the longest sentence of either side."""
        return max(map(len, self.source_rows + self.target_rows))

    def batch(self, indices: Sequence[int]) -> Batch:
        """These pairs: source (B, S), inputs from <start> on (B, T), targets up to <end> (B, T)."""
        chosen = self._chosen(indices)
        listened = [self.source_rows[i] for i in chosen]
        source, source_mask = pad_right(listened, self.source.pad_id or 0)
        rows = [self.target_rows[i] for i in chosen]
        inputs, token_mask = pad_right([row[:-1] for row in rows], self.target.pad_id or 0)
        targets, _ = pad_right([row[1:] for row in rows], IGNORE)
        return Batch(inputs, targets, token_mask, source=source, source_mask=source_mask)
