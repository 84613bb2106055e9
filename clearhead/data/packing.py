"""No work on padding: rows of like length in one batch, or several documents in one row.

    bucketed    the cat .  |  a dog ?          |  where does the old dog sleep ?
    packed      the cat . a dog ? it sleeps .     one row, nothing to fill up
    segments     0   0  0 1  1  1 2    2    2     which document a token is of, −1 for none
    positions    0   1  2 0  1  2 0    1    2     where it stands in it

With `Mask.causal() & Mask.segments(segments)` and these positions each document gets the numbers it
would get alone. Of random batches of 32 speeches three quarters are padding; sorted into buckets a
few per cent are, packed hardly anything.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import chain

from torch import Tensor

from clearhead.data.batch import order, pad_right
from clearhead.shapes import check_positive

__all__ = ["buckets", "pack", "packed"]

WINDOW = 4096  # examples sorted together: buckets stay nearly full, and differ in each epoch


def buckets(
    lengths: Sequence[int],
    *,
    batch_size: int | None = None,
    max_tokens: int | None = None,
    seed: int,
    epoch: int,
) -> list[list[int]]:
    """Batches of examples of like length: each example once, the batches in random order.

    A batch has batch_size examples, or as many as fit max_tokens with their padding. Lengths are
    sorted within windows of the shuffled data, so an example has other neighbours in each epoch.
    """
    _check_one_limit(lengths, batch_size, max_tokens)
    batches: list[list[int]] = []
    for window in order(seed, epoch, len(lengths)).split(WINDOW):
        batch: list[int] = []
        for i in sorted(window.tolist(), key=lambda i: lengths[i]):  # the longest comes last
            full = batch_size is not None and len(batch) == batch_size
            if full or (max_tokens is not None and (len(batch) + 1) * lengths[i] > max_tokens):
                batches.append(batch)
                batch = []
            batch.append(i)
        batches += [batch] if batch else []
    return [batches[i] for i in order(seed, epoch, len(batches), purpose="batches").tolist()]


def pack(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Which documents share a row of row_length tokens; each stands in one row, whole.

    Best-fit decreasing: the longest first, each into the row where it leaves the least room.
    """
    check_positive(row_length=row_length)
    for i, length in enumerate(lengths):
        if not 0 < length <= row_length:
            raise ValueError(
                f"lengths[{i}] is {length}, but a row holds 1 to {row_length} tokens; "
                f"cut the document or take row_length={length}"
            )
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # (room left, row), sorted
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = bisect_left(rooms, (lengths[i], -1))
        if fitting == len(rooms):
            rows.append([])
            room, row = row_length, len(rows) - 1
        else:
            room, row = rooms.pop(fitting)
        rows[row].append(i)
        if room > lengths[i]:
            insort(rooms, (room - lengths[i], row))
    return rows


def packed(
    rows: Sequence[Sequence[Sequence[int]]], pad_id: int, row_length: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of documents as tokens, segments and positions, each (B, T).

    T is row_length, or the longest row. Padding has the segment −1 and the position 0.
    """
    lengths = [[len(document) for document in row] for row in rows]
    joined = [list(chain.from_iterable(row)) for row in rows]
    numbered = [list(chain.from_iterable([i] * n for i, n in enumerate(row))) for row in lengths]
    counted = [list(chain.from_iterable(map(range, row))) for row in lengths]
    tokens, _ = pad_right(joined, pad_id, row_length)
    segments, _ = pad_right(numbered, -1, row_length)
    positions, _ = pad_right(counted, 0, row_length)
    return tokens, segments, positions


def _longest(lengths: Sequence[int]) -> int:
    return max(range(len(lengths)), key=lambda i: lengths[i])


def _check_one_limit(
    lengths: Sequence[int], batch_size: int | None, max_tokens: int | None
) -> None:
    if (batch_size is None) == (max_tokens is None):
        raise ValueError("give either batch_size or max_tokens, which limit a batch in two ways")
    if batch_size is not None:
        check_positive(batch_size=batch_size)
    if max_tokens is not None:
        check_positive(max_tokens=max_tokens)
        if lengths and max(lengths) > max_tokens:
            raise ValueError(
                f"lengths[{_longest(lengths)}] is {max(lengths)}, more than max_tokens="
                f"{max_tokens}; cut it or take max_tokens={max(lengths)}"
            )
