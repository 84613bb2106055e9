"""The substring task: does the needle occur in the haystack?

    abccab|cca → 1          abccab|bb → 0

    task = Substrings(alphabet="abc", haystack=(4, 10), needle=(1, 3), seed=0)
    task[17]                        the text and label of example 17
    task.batch(range(64))           64 examples as ids, [CLS] first, with labels

Example i is a function of (seed, i). The label is i mod 2, so every other one is a 1, and lengths
are drawn before it is looked at, so they tell nothing. Into a random haystack the needle of a 1 is
copied; around that of a 0 the haystack is written letter by letter, leaving out the one letter that
would complete the needle. A hash of the text alone decides whether it belongs to training or to
validation: no seed and no setting can bring a text of one into the other.
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
MOST_TRIES = 10_000  # of texts that turn out to be of the other part
FEW, TRIES = 256, 128  # where so few texts exist, so many are tried to see if both labels do

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bits = NDArray[np.uint64]


@dataclass(frozen=True)
class Substrings:
    """Examples of the task, of one part, without end: any index from 0 on.

    haystack and needle are the shortest and the longest length, or one number for both.
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
            object.__setattr__(self, name, _range(name, getattr(self, name)))
        (shortest, longest), (least, most) = self._lengths
        if least > shortest or most > longest:
            raise ValueError(
                f"needle lengths {least} to {most} do not go with haystack lengths {shortest} to "
                f"{longest}: a needle longer than its haystack never occurs; lengthen the haystack"
            )
        if not len(self._pairs):
            raise ValueError(
                f"there are too few texts of letters {self.alphabet!a:.40}, haystack lengths "
                f"{self.haystack} and needle lengths {self.needle} for {self.part} examples of "
                f"both labels; take longer ones"
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
        rows = self._codes(numbers).tolist()
        texts = ["".join(letters[code] for code in row if code >= 0) for row in rows]
        return texts, (numbers % 2).tolist()

    def batch(self, indices: Sequence[int], *, one_hot: bool = False) -> Batch:
        """These examples, [CLS] first, as ids (B, T) or as one-hot rows (B, T, V); targets (B,).

        Shorter texts are filled up with id 0, or rows of 0, which token_mask tells apart.
        """
        numbers = np.array(check_indices("indices", indices), dtype=np.int64)
        codes = torch.from_numpy(self._codes(numbers))
        codes = codes[:, : int((codes >= 0).sum(dim=1).max()) if len(numbers) else 0]
        first = torch.zeros(len(numbers), 1, dtype=torch.long)
        tokens = torch.cat([first, (codes + 1).clamp(min=0)], dim=1)  # [CLS] 0, letters from 1 on
        token_mask = torch.cat([first == 0, codes >= 0], dim=1)
        inputs = _one_hot(tokens, token_mask, len(self.alphabet) + 2) if one_hot else tokens
        return Batch(inputs, torch.from_numpy(numbers % 2), token_mask)

    @property
    def _lengths(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.haystack, self.needle  # type: ignore[return-value]  # made pairs at the start

    def _codes(self, indices: Codes) -> Codes:
        """The letters of each example by their place in alphabet + separator; −1 fills up."""
        codes = np.empty((len(indices), self.max_len - 1), dtype=np.int64)
        h, m = self._pairs[
            choose_below(len(self._pairs), draw_bits(self.seed, "lengths", indices))
        ].T
        rows = np.arange(len(indices))  # those still to be found
        for attempt in range(MOST_TRIES):
            if not len(rows):
                return codes
            numbers = self._draws(self.seed, indices[rows], attempt)
            tried = self._written(indices[rows] % 2 == 1, h[rows], m[rows], numbers)
            fits = self._fits(tried)
            codes[rows[fits]] = tried[fits]
            rows = rows[~fits]
        raise ValueError(f"no {self.part} example {indices[rows[0]]} found; take longer texts")

    @cached_property
    def _pairs(self) -> Codes:
        """The pairs of lengths of which this part has texts of both labels."""
        (shortest, longest), (least, most) = self._lengths
        both = product(range(shortest, longest + 1), range(least, most + 1))
        pairs = np.array([(h, m) for h, m in both if m <= h])
        A = len(self.alphabet)
        few = pairs[:, 0] * np.log2(A) < np.log2(FEW)  # A^h < FEW, which no long h overflows
        doubtful = few | ((A == 2) & (pairs[:, 1] == 1))
        kept = ~doubtful
        kept[doubtful] = self._have_both(pairs[doubtful])
        return pairs[kept]

    def _have_both(self, pairs: Codes) -> Flags:
        """Whether some texts of each pair of lengths are of this part, of either label."""
        h, m = pairs.repeat(2 * TRIES, axis=0).T
        numbers = self._draws(0, np.arange(len(h)), 0)
        fits = self._fits(self._written(np.arange(len(h)) % 2 == 1, h, m, numbers))
        return np.all(np.any(fits.reshape(len(pairs), TRIES, 2), axis=1), axis=1)

    def _draws(self, seed: int, indices: Codes, attempt: int) -> Bits:
        (_, longest), (_, most) = self._lengths
        slots = np.arange(1 + most + longest)
        return draw_bits(seed, "substrings", indices[:, None], attempt, slots)

    def _fits(self, codes: Codes) -> Flags:
        points = np.array([*map(ord, self.alphabet + SEPARATOR), -1])
        return is_validation(hash_rows(points[codes])) == (self.part == "validation")

    def _written(self, occurs: Flags, h: Codes, m: Codes, numbers: Bits) -> Codes:
        """Texts with these lengths and labels, of whichever part."""
        (_, longest), (_, most) = self._lengths
        n_letters = len(self.alphabet)
        needle = choose_below(n_letters, numbers[:, 1 : 1 + most])
        haystack = _without(needle, m, numbers[:, 1 + most :], n_letters, free=occurs)
        place = (
            np.arange(longest) - choose_below(h - m + 1, numbers[:, 0])[:, None]
        )  # in the needle
        copied = occurs[:, None] & (place >= 0) & (place < m[:, None])
        haystack = np.where(copied, _letters(needle, place), haystack)
        return _joined(haystack, h, needle, m, n_letters)


def _without(needle: Codes, m: Codes, numbers: Bits, n: int, free: Flags) -> Codes:
    """Haystacks in which the needle does not occur, but where they are free to hold it."""
    most, longest = needle.shape[1], numbers.shape[1]
    # Needles end at the right edge; before a shorter one stand −1, which go with any letter.
    place = np.arange(most) - (most - m[:, None])
    right = np.where(place < 0, -1, _letters(needle, place))
    haystack = np.full((len(needle), most - 1 + longest), -2)
    for t in range(longest):
        before = haystack[:, t : t + most - 1]
        completes = ((before == right[:, :-1]) | (right[:, :-1] < 0)).all(axis=1) & ~free
        letter = choose_below(n - completes, numbers[:, t])
        haystack[:, most - 1 + t] = letter + (completes & (letter >= right[:, -1]))
    return haystack[:, most - 1 :]


def _joined(haystack: Codes, h: Codes, needle: Codes, m: Codes, separator: int) -> Codes:
    """haystack | needle, each with its own length, filled up with −1."""
    wide = np.pad(haystack, ((0, 0), (0, 1 + needle.shape[1])))
    place = np.arange(wide.shape[1]) - h[:, None] - 1  # in the needle
    parts = [place < -1, place == -1, place < m[:, None]]
    return np.select(parts, [wide, np.asarray(separator), _letters(needle, place)], default=-1)


def _letters(needle: Codes, place: Codes) -> Codes:
    """The letters of each needle at these places, any letter beyond its ends."""
    return np.take_along_axis(needle, np.clip(place, 0, needle.shape[1] - 1), axis=1)


def _one_hot(tokens: Tensor, token_mask: Tensor, vocab_size: int) -> Tensor:
    rows = torch.nn.functional.one_hot(tokens, vocab_size).float()
    return rows * token_mask.unsqueeze(-1)


def _range(name: str, lengths: tuple[int, int] | int) -> tuple[int, int]:
    pair = lengths if isinstance(lengths, tuple | list) else (lengths, lengths)
    if len(pair) != 2:
        raise TypeError(f"{name} must be a length or (shortest, longest), got {lengths!r:.80}")
    low, high = (check_integer(f"a length of {name}", length) for length in pair)
    check_positive(**{f"the shortest {name}": low, f"the longest {name}": high})
    if low > high:
        raise ValueError(f"{name} lengths must go up, from shortest to longest, got {lengths}")
    return low, high


def _check_alphabet(alphabet: str) -> None:
    check_text(alphabet, "alphabet")
    if len(alphabet) < 2 or len(set(alphabet)) < len(alphabet) or SEPARATOR in alphabet:
        raise ValueError(
            f"alphabet must have at least 2 different letters, each once, and not the separator "
            f"{SEPARATOR!r}, got {alphabet!a:.80}"
        )
