"""The substring task: does the needle occur in the haystack?

    abccab|cca → 1          abccab|bb → 0

    task = Substrings(alphabet="abc", haystack=(4, 10), needle=(1, 3), seed=0)
    task[17]                        the text and label of example 17
    task.batch(range(64))           64 examples as ids, [CLS] first, with labels

Example i is a function of (seed, i). Its label is i mod 2. Lengths are drawn independently of the
label, so they tell nothing about it. For label 1 the needle is copied into a random haystack; for
label 0 the haystack is written letter by letter without the letter that would complete the needle.
A hash of the text alone decides whether it is for training or validation: no seed and no setting
can move a text from one to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.data.randomness import (
    check_indices,
    check_integer,
    choose_below,
    draw_bits,
    hash_rows,
    is_validation,
)
from clearhead.data.tokenizers.characters import CharTokenizer
from clearhead.data.tokenizers.tokenizer import check_text
from clearhead.shapes import check_choice, check_positive

SEPARATOR = "|"
PARTS = ("train", "validation")
MAX_ATTEMPTS = 10_000  # to draw a text of the wanted part
FEW = 256  # with fewer texts than this, a pair of lengths may lack a label in one part
TRIES = 128  # texts of each label that are drawn to find out

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bits = NDArray[np.uint64]


@dataclass(frozen=True)
class Substrings:
    """Endless examples of one part, "train" or "validation": any index from 0 on.

    haystack and needle are (shortest, longest) lengths, or one number for both.
    """

    alphabet: str = "abc"
    haystack: tuple[int, int] | int = (4, 10)
    needle: tuple[int, int] | int = (1, 3)
    seed: int = 0
    part: str = "train"

    def __post_init__(self) -> None:
        check_choice("part", self.part, PARTS)
        check_integer("seed", self.seed)
        _check_alphabet(self.alphabet)
        for name in ("haystack", "needle"):
            object.__setattr__(self, name, _check_range(name, getattr(self, name)))
        (shortest, longest), (least, most) = self._lengths
        if least > shortest or most > longest:
            raise ValueError(
                f"needle lengths {least} to {most} do not go with haystack lengths {shortest} to "
                f"{longest}: a needle longer than its haystack never occurs; lengthen the haystack"
            )
        if not len(self._pairs):
            raise ValueError(
                f"there are too few texts of letters {self.alphabet!r:.40}, haystack lengths "
                f"{self.haystack} and needle lengths {self.needle} for {self.part} examples of "
                f"both labels; use longer ones"
            )

    @property
    def tokenizer(self) -> CharTokenizer:
        """The alphabet, the separator, and [CLS]."""
        return CharTokenizer(self.alphabet + SEPARATOR)

    @property
    def max_len(self) -> int:
        """Tokens of the longest example, [CLS] included."""
        (_, longest), (_, most) = self._lengths
        return 1 + longest + 1 + most

    def __getitem__(self, index: int) -> tuple[str, int]:
        """The text and label of one example."""
        (text,), (label,) = self.examples([index])
        return text, label

    def examples(self, indices: Sequence[int]) -> tuple[list[str], list[int]]:
        """The texts and labels of these examples."""
        numbers = np.array(check_indices("indices", indices), dtype=np.int64)
        letters = self.alphabet + SEPARATOR
        rows = self._build_codes(numbers).tolist()
        texts = ["".join(letters[code] for code in row if code >= 0) for row in rows]
        return texts, (numbers % 2).tolist()

    def batch(self, indices: Sequence[int], *, one_hot: bool = False) -> Batch:
        """These examples, [CLS] first, as ids (B, T) or as one-hot rows (B, T, V); targets (B,).

        Shorter texts are padded with id 0, or rows of 0; token_mask is False there.
        """
        numbers = np.array(check_indices("indices", indices), dtype=np.int64)
        codes = torch.from_numpy(self._build_codes(numbers))
        codes = codes[:, : int((codes >= 0).sum(dim=1).max()) if len(numbers) else 0]
        first = torch.zeros(len(numbers), 1, dtype=torch.long)
        tokens = torch.cat([first, (codes + 1).clamp(min=0)], dim=1)  # [CLS] 0, letters from 1 on
        token_mask = torch.cat([first == 0, codes >= 0], dim=1)
        inputs = _one_hot(tokens, token_mask, len(self.alphabet) + 2) if one_hot else tokens
        return Batch(inputs, torch.from_numpy(numbers % 2), token_mask)

    @property
    def _lengths(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.haystack, self.needle  # type: ignore[return-value]  # by __post_init__

    def _build_codes(self, indices: Codes) -> Codes:
        """The letters of each example as indices into alphabet + separator, padded with −1."""
        codes = np.empty((len(indices), self.max_len - 1), dtype=np.int64)
        drawn = choose_below(len(self._pairs), draw_bits(self.seed, "lengths", indices))
        h, m = self._pairs[drawn].T  # the lengths of haystack and needle
        rows = np.arange(len(indices))  # those without a text yet
        for attempt in range(MAX_ATTEMPTS):
            if not len(rows):
                return codes
            bits = self._draw(self.seed, indices[rows], attempt)
            tried = self._compose(indices[rows] % 2 == 1, h[rows], m[rows], bits)
            fits = self._is_in_part(tried)
            codes[rows[fits]] = tried[fits]
            rows = rows[~fits]
        raise ValueError(f"no {self.part} example {indices[rows[0]]} found; use longer texts")

    @cached_property
    def _pairs(self) -> Codes:
        """The pairs of lengths with texts of both labels in this part."""
        (shortest, longest), (least, most) = self._lengths
        both = product(range(shortest, longest + 1), range(least, most + 1))
        pairs = np.array([(h, m) for h, m in both if m <= h])
        A = len(self.alphabet)
        few = pairs[:, 0] * np.log2(A) < np.log2(FEW)  # A^h < FEW, without its overflow
        # Of two letters, a haystack without a one-letter needle is the other letter repeated.
        doubtful = few | ((A == 2) & (pairs[:, 1] == 1))
        kept = ~doubtful
        kept[doubtful] = self._have_both(pairs[doubtful])
        return pairs[kept]

    def _have_both(self, pairs: Codes) -> Flags:
        """Whether this part has texts of both labels, for each pair of lengths."""
        h, m = pairs.repeat(2 * TRIES, axis=0).T
        bits = self._draw(0, np.arange(len(h)), 0)
        fits = self._is_in_part(self._compose(np.arange(len(h)) % 2 == 1, h, m, bits))
        return np.all(np.any(fits.reshape(len(pairs), TRIES, 2), axis=1), axis=1)

    def _draw(self, seed: int, indices: Codes, attempt: int) -> Bits:
        (_, longest), (_, most) = self._lengths
        slots = np.arange(1 + most + longest)
        return draw_bits(seed, "substrings", indices[:, None], attempt, slots)

    def _is_in_part(self, codes: Codes) -> Flags:
        points = np.array([*map(ord, self.alphabet + SEPARATOR), -1])
        return is_validation(hash_rows(points[codes])) == (self.part == "validation")

    def _compose(self, occurs: Flags, h: Codes, m: Codes, bits: Bits) -> Codes:
        """Texts with these lengths and labels, of either part."""
        (_, longest), (_, most) = self._lengths
        n_letters = len(self.alphabet)
        needle = choose_below(n_letters, bits[:, 1 : 1 + most])
        haystack = _avoid_needle(needle, m, bits[:, 1 + most :], n_letters, free=occurs)
        start = choose_below(h - m + 1, bits[:, 0])
        index = np.arange(longest) - start[:, None]  # in the needle
        is_copied = occurs[:, None] & (index >= 0) & (index < m[:, None])
        haystack = np.where(is_copied, _look_up(needle, index), haystack)
        return _join(haystack, h, needle, m, n_letters)


def _avoid_needle(needle: Codes, m: Codes, bits: Bits, n: int, free: Flags) -> Codes:
    """Random haystacks that do not contain their needle, except where `free`: there they may."""
    most, longest = needle.shape[1], bits.shape[1]
    # Needles are aligned at the right; a shorter one is preceded by −1, which matches any letter.
    index = np.arange(most) - (most - m[:, None])
    right = np.where(index < 0, -1, _look_up(needle, index))
    haystack = np.full((len(needle), most - 1 + longest), -2)
    for t in range(longest):
        before = haystack[:, t : t + most - 1]
        completes = ((before == right[:, :-1]) | (right[:, :-1] < 0)).all(axis=1) & ~free
        letter = choose_below(n - completes, bits[:, t])
        haystack[:, most - 1 + t] = letter + (completes & (letter >= right[:, -1]))
    return haystack[:, most - 1 :]


def _join(haystack: Codes, h: Codes, needle: Codes, m: Codes, separator: int) -> Codes:
    """haystack | needle, each with its own length, padded with −1."""
    wide = np.pad(haystack, ((0, 0), (0, 1 + needle.shape[1])))
    index = np.arange(wide.shape[1]) - h[:, None] - 1  # in the needle
    parts = [index < -1, index == -1, index < m[:, None]]
    return np.select(parts, [wide, np.asarray(separator), _look_up(needle, index)], default=-1)


def _look_up(needle: Codes, index: Codes) -> Codes:
    """The letters of each needle at these indices; beyond its ends, any letter."""
    return np.take_along_axis(needle, np.clip(index, 0, needle.shape[1] - 1), axis=1)


def _one_hot(tokens: Tensor, token_mask: Tensor, vocab_size: int) -> Tensor:
    rows = torch.nn.functional.one_hot(tokens, vocab_size).float()
    return rows * token_mask.unsqueeze(-1)


def _check_range(name: str, lengths: tuple[int, int] | int) -> tuple[int, int]:
    pair = lengths if isinstance(lengths, tuple | list) else (lengths, lengths)
    if len(pair) != 2:
        raise TypeError(f"{name} must be a length or (shortest, longest), got {lengths!r:.80}")
    low, high = (check_integer(f"a length of {name}", length) for length in pair)
    check_positive(**{f"the shortest {name}": low, f"the longest {name}": high})
    if low > high:
        raise ValueError(f"{name} lengths must be (shortest, longest), got {lengths}")
    return low, high


def _check_alphabet(alphabet: str) -> None:
    check_text(alphabet, "alphabet")
    if len(alphabet) < 2 or len(set(alphabet)) < len(alphabet) or SEPARATOR in alphabet:
        raise ValueError(
            f"alphabet must have at least 2 different letters, each once, and not the separator "
            f"{SEPARATOR!r}, got {alphabet!r:.80}"
        )
