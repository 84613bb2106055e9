"""Rows of unequal length become tensors.

    where does the old dog sleep ?          every row is padded to the longest,
    the cat . _ _ _ _                       and token_mask is True for real tokens

The order of the data is a function of (seed, epoch), so a run can resume at any batch. packing.py
shows how to pad less, or not at all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from clearhead.data.randomness import check_index, check_integer, draw_bits
from clearhead.shapes import check_int_tensor, check_positive, format_shape, read_token_mask

IGNORE = -100  # a target that does not count; PyTorch's own choice in its cross-entropy

PlanType = TypeVar("PlanType")
BatchType = TypeVar("BatchType")


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs of a model and its targets. Masks are True for real tokens."""

    inputs: Tensor  # ids (B, T), one-hot rows (B, T, V) or pictures (B, channels, height, width)
    targets: Tensor  # classes (B,) or the id after each token (B, T), IGNORE where there is none
    token_mask: Tensor | None = None  # (B, T)
    segments: Tensor | None = None  # (B, T), the document of each token, −1 for padding
    positions: Tensor | None = None  # (B, T), of each token in its document, or of kept patches
    source: Tensor | None = None  # ids (B, S) of the sequence attended to
    source_mask: Tensor | None = None  # (B, S)

    def __len__(self) -> int:
        return self.inputs.size(0)

    def to(self, device: torch.device | str) -> Self:
        """The same batch on another device."""
        return self._map(lambda x: x.to(device))

    def select(self, rows: Sequence[int] | Tensor) -> Self:
        """The examples with these numbers."""
        chosen = rows if isinstance(rows, Tensor) else torch.tensor(list(rows), dtype=torch.long)
        return self._map(lambda x: x[chosen])

    def split(self, n: int) -> tuple[Self, Self]:
        """The first n examples, and all others."""
        return self.select(range(n)), self.select(range(n, len(self)))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every tensor of the batch; those that are None stay None."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: Any = {name: x if x is None else change(x) for name, x in given.items()}
        return type(self)(**changed)


class Batches(Sequence[BatchType], Generic[PlanType, BatchType]):
    """The batches of an epoch, each built from its plan when used; `batches[500:]` skips 500."""

    def __init__(self, plans: Sequence[PlanType], make: Callable[[PlanType], BatchType]) -> None:
        self.plans, self.make = plans, make

    def __len__(self) -> int:
        return len(self.plans)

    @overload
    def __getitem__(self, index: int) -> BatchType: ...
    @overload
    def __getitem__(self, index: slice) -> "Batches[PlanType, BatchType]": ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Batches(self.plans[index], self.make)
        return self.make(self.plans[check_integer("index", index)])

    def __iter__(self) -> Iterator[BatchType]:
        return map(self.make, self.plans)


# Padding


def pad_right(
    rows: Sequence[Sequence[int] | Tensor], pad_id: int, length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Pad rows at their end: tokens (B, T) and token_mask (B, T), True = real.

    T is `length`, or the longest row. Ids and pad_id may be any whole numbers, so that targets can
    be padded with IGNORE; no rows give (0, T), a row of no tokens is all padding.
    """
    lengths, flat = _flatten(rows)
    T = max(lengths, default=0) if length is None else check_index("length", length)
    if max(lengths, default=0) > T:
        raise ValueError(
            f"rows[{lengths.index(max(lengths))}] has {max(lengths)} tokens, more than length={T}"
        )
    token_mask = torch.arange(T) < torch.tensor(lengths).view(-1, 1)
    return _fill(token_mask, flat, pad_id), token_mask


def pad_left(rows: Sequence[Sequence[int] | Tensor], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad rows at their start, as for generation: the last column holds each row's last token.

    Otherwise as pad_right.
    """
    lengths, flat = _flatten(rows)
    longest = max(lengths, default=0)
    token_mask = torch.arange(longest) >= longest - torch.tensor(lengths).view(-1, 1)
    return _fill(token_mask, flat, pad_id), token_mask


def next_tokens(
    tokens: Tensor, token_mask: Tensor | None = None, segments: Tensor | None = None
) -> Tensor:
    """The id after each token (B, T), IGNORE where no token of the same document follows.

    token_mask (B, T): True = real; segments (B, T): the document of each token, negative = padding.
    """
    check_int_tensor("tokens", tokens)
    if tokens.ndim != 2:
        raise ValueError(f"tokens must have shape (B, T), got {format_shape(tokens)}")
    tokens = tokens.long()
    follows = torch.ones_like(tokens[:, 1:], dtype=torch.bool)
    if token_mask is not None:
        real = read_token_mask(token_mask, tokens.shape)
        follows = follows & real[:, :-1] & real[:, 1:]
    if segments is not None:
        check_int_tensor("segments", segments)
        if segments.shape != tokens.shape:
            raise ValueError(
                f"segments must have the shape of tokens, {format_shape(tokens)}, "
                f"got {format_shape(segments)}"
            )
        follows = follows & (segments[:, :-1] == segments[:, 1:]) & (segments[:, 1:] >= 0)
    targets = torch.full_like(tokens, IGNORE)
    targets[:, :-1] = torch.where(follows, tokens[:, 1:], IGNORE)
    return targets


# Order


def order(seed: int, epoch: int, n: int, *, purpose: str = "order") -> Tensor:
    """Shuffle the numbers 0 … n − 1 as a function of (seed, epoch) and the purpose alone."""
    indices = np.arange(check_index("n", n))
    bits = draw_bits(seed, purpose, check_index("epoch", epoch), indices)
    return torch.from_numpy(np.argsort(bits, kind="stable"))


def plan_batches(n: int, batch_size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """The numbers 0 … n − 1 once each, in random batches; the last may be smaller."""
    check_positive(batch_size=batch_size)
    parts = order(seed, epoch, n).split(int(batch_size))
    return [part.tolist() for part in parts if len(part)]


def _flatten(rows: Sequence[Sequence[int] | Tensor]) -> tuple[list[int], Tensor]:
    """The length of each row, and all rows one after the other."""
    lists = [_as_list(row) for row in rows]
    flat = list(chain.from_iterable(lists))
    if not set(map(type, flat)) <= {int}:  # one check for all ids: this runs for every batch
        flat = [check_integer("each id in rows", value) for value in flat]
    if flat:
        _check_64_bits("each id in rows", min(flat), max(flat))
    return [len(row) for row in lists], torch.tensor(flat, dtype=torch.long)


def _as_list(row: Any) -> list[int]:
    values = row.tolist() if hasattr(row, "tolist") else row
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"each row must be a list or a 1-D tensor of ids, got {row!r:.80}")
    return list(values)


def _fill(token_mask: Tensor, flat: Tensor, pad_id: int) -> Tensor:
    """Tokens (B, T): the flat ids where the mask is True, row by row, and pad_id elsewhere."""
    padding = check_integer("pad_id", pad_id)
    _check_64_bits("pad_id", padding)
    return torch.full(token_mask.shape, padding).masked_scatter_(token_mask, flat)


def _check_64_bits(name: str, *numbers: int) -> None:
    for number in numbers:
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError(f"{name} must fit 64 bits, got {number}")
