"""No work on padding: rows of similar length in one batch, or several documents in one row.

    bucketed    the cat .  |  a dog ?          |  where does the old dog sleep ?
    packed      the cat . a dog ? it sleeps .     one row without padding
    segments     0   0  0 1  1  1 2    2    2     the document of each token, −1 for padding
    positions    0   1  2 0  1  2 0    1    2     the position of each token in its document

With `Mask.causal() & Mask.segments(segments)` and these positions each document gets the numbers it
would get alone. In random batches of 32 speeches three quarters of the tokens are padding; in
buckets a few per cent; packed hardly any. `Examples` is the base of data sets with such batches.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import chain
from typing import Generic

from torch import Tensor

from clearhead.data.batch import Batches, BatchType, order, pad_right, plan_batches
from clearhead.data.randomness import check_indices
from clearhead.shapes import check_positive

WINDOW = 4096  # examples sorted together: buckets stay nearly full, and differ in each epoch


def bucket(
    lengths: Sequence[int],
    *,
    batch_size: int | None = None,
    max_tokens: int | None = None,
    seed: int,
    epoch: int,
) -> list[list[int]]:
    """Group examples of similar length into batches: each example once, batches in random order.

    A batch has batch_size examples, or as many as fit max_tokens with their padding. Lengths are
    sorted within windows of the shuffled data, so an example has other neighbours in each epoch.
    """
    lengths = check_indices("lengths", lengths)
    _check_one_limit(lengths, batch_size, max_tokens)
    batches: list[list[int]] = []
    for window in order(seed, epoch, len(lengths)).split(WINDOW):
        batch: list[int] = []
        for i in sorted(window.tolist(), key=lambda i: lengths[i]):  # the longest comes last
            is_full = batch_size is not None and len(batch) == batch_size
            if is_full or (max_tokens is not None and (len(batch) + 1) * lengths[i] > max_tokens):
                batches.append(batch)
                batch = []
            batch.append(i)
        batches += [batch] if batch else []
    return [batches[i] for i in order(seed, epoch, len(batches), purpose="batches").tolist()]


def pack(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Choose which documents share a row of row_length tokens; none is cut.

    Best-fit decreasing: the longest first, each into the row where it leaves the least room.
    """
    lengths = check_indices("lengths", lengths)
    check_fit(lengths, row_length)
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # (room left, row), sorted
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = bisect_left(rooms, (lengths[i], -1))
        if fitting == len(rooms):
            rows.append([])
            room, row = int(row_length), len(rows) - 1
        else:
            room, row = rooms.pop(fitting)
        rows[row].append(i)
        if room > lengths[i]:
            insort(rooms, (room - lengths[i], row))
    return rows


def check_fit(lengths: Sequence[int], row_length: int) -> None:
    """Each document has at least one token and fits into a row."""
    check_positive(row_length=row_length)
    for i, length in enumerate(lengths):
        if length == 0:
            raise ValueError(f"lengths[{i}] is 0: a document without a token; leave it out")
        if length > row_length:
            raise ValueError(
                f"lengths[{i}] is {length}, more than row_length={row_length}; "
                f"cut the document or use row_length={length}"
            )


def join_documents(
    rows: Sequence[Sequence[Sequence[int]]], pad_id: int, row_length: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Join the documents of each row: tokens, segments and positions, each (B, T).

    T is row_length, or the longest row. Padding has the segment −1 and the position 0.
    """
    lengths = [[len(document) for document in row] for row in rows]
    ids = [list(chain.from_iterable(row)) for row in rows]
    documents = [list(chain.from_iterable([i] * n for i, n in enumerate(row))) for row in lengths]
    offsets = [list(chain.from_iterable(map(range, row))) for row in lengths]
    tokens, _ = pad_right(ids, pad_id, row_length)
    segments, _ = pad_right(documents, -1, row_length)
    positions, _ = pad_right(offsets, 0, row_length)
    return tokens, segments, positions


class Examples(ABC, Generic[BatchType]):
    """Examples of unequal length that come in batches, each once in an epoch.

    A subclass builds a batch of chosen examples.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths  # tokens of each example

    def __len__(self) -> int:
        return len(self.lengths)

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> BatchType:
        """The examples of these indices, in this order."""

    def batches(
        self, batch_size: int, *, seed: int = 0, epoch: int = 0
    ) -> Batches[list[int], BatchType]:
        """Each example once, in random batches."""
        return Batches(plan_batches(len(self), batch_size, seed=seed, epoch=epoch), self.batch)

    def bucketed_batches(
        self,
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        seed: int = 0,
        epoch: int = 0,
    ) -> Batches[list[int], BatchType]:
        """Each example once, those of similar length in one batch, as `bucket` groups them."""
        plan = bucket(
            self.lengths, batch_size=batch_size, max_tokens=max_tokens, seed=seed, epoch=epoch
        )
        return Batches(plan, self.batch)

    def _check_indices(self, indices: Sequence[int]) -> list[int]:
        """The indices as a list; each must be that of an example."""
        chosen = check_indices("indices", indices)
        for i, index in enumerate(chosen):
            if index >= len(self):
                raise IndexError(
                    f"indices[{i}] is {index}, but there are {len(self)} examples; "
                    f"the last one is {len(self) - 1}"
                )
        return chosen


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
            longest = max(lengths)
            raise ValueError(
                f"lengths[{lengths.index(longest)}] is {longest}, more than max_tokens="
                f"{max_tokens}; cut it or use max_tokens={longest}"
            )
