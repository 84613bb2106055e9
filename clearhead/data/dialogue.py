"""The speeches of a play, as batches.

    speeches = read_speeches("play.txt")
    train, validation = split(speeches, seed=0)
    tokenizer = WordTokenizer.of(train, min_count=2, keep_newlines=True)
    data = Dialogue(train, tokenizer, max_len=128)
    for batch in data.batches(32, seed=0, epoch=0):         # or data.packed_batches(256, 8, …)
        batch.input_ids, batch.input_mask                   # (B, T), (B, T)
    for batch in DataLoader(data, 32):                      # PyTorch's loader does as well
        batch["input_ids"], batch["input_mask"]             # (B, T), T that of the longest speech
    DataLoader(data, 32, collate_fn=data.collate)           # the longest of the batch

A play is plain text with blank lines between its speeches:

    First Citizen:
    You are all resolved rather to die than to famish?

    All:
    Resolved. resolved.

The Gutenberg editions write a full stop after the name, and have stage directions in brackets,
headings and a list of persons between the speeches; only_spoken=True leaves these out.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from clearhead.data.batch import Batch, Batches, next_tokens, order, pad_right, plan_batches
from clearhead.data.packing import WINDOW, Examples, check_fit, join_documents, pack
from clearhead.data.randomness import check_integer
from clearhead.data.tokenizers.tokenizer import Tokenizer, check_text
from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text
from clearhead.shapes import check_choice, check_positive

BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
NAME = re.compile(r"[A-Z0-9][^,;!?\[\]]{0,39}")
HEADING = re.compile(r"(ACT|SCENE|PERSONS|DRAMATIS)\b", re.IGNORECASE)
Row = list[int]


def split_speeches(text: str, *, only_spoken: bool = False) -> list[str]:
    """Split a text at blank lines; only_spoken keeps the parts headed by a name."""
    check_text(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = (block.strip("\n") for block in BLANK_LINES.split(f"\n{lines}\n"))
    return [b for b in blocks if b.strip() and (not only_spoken or _has_speaker(b))]


def read_speeches(path: str | os.PathLike[str], *, only_spoken: bool = False) -> list[str]:
    """Read the speeches of a play from a text file."""
    speeches = split_speeches(read_text(path), only_spoken=only_spoken)
    if not speeches:
        raise BadFile(f"{quote(path)} holds no speech; write them with blank lines between them")
    return speeches


def _has_speaker(block: str) -> bool:
    """Whether the first of several lines is a name: short, ending in : or . or in capitals."""
    first, _, rest = (line.strip() for line in block.partition("\n"))
    return bool(
        rest
        and NAME.fullmatch(first)
        and len(first.split()) <= 5
        and (first[-1] in ":." or first.isupper())
        and not HEADING.match(first)
    )


@dataclass(frozen=True, eq=False)
class SpeechBatch(Batch):
    """A batch with the names of the course's loader too, as attributes and as keys."""

    @property
    def input_ids(self) -> Tensor:  # a name fixed by the course's loader
        """The inputs: ids (B, T)."""
        return self.inputs

    @property
    def input_mask(self) -> Tensor:  # a name fixed by the course's loader
        """The token mask: (B, T), True = real."""
        return cast(Tensor, self.token_mask)  # a batch of speeches always has one

    def keys(self) -> tuple[str, str]:
        """For dict(batch)."""
        return ("input_ids", "input_mask")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.keys():
            raise KeyError(name)
        tensor: Tensor = getattr(self, name)
        return tensor


class Dialogue(Examples[SpeechBatch]):
    """Speeches as rows of ids, at most max_len long.

    A longer speech keeps its beginning (long="cut"), or becomes several rows, each with <start>
    first (long="split"). `n_long` counts the longer speeches. `data[i]` is one row, right-padded to
    the longest of all, so that PyTorch's DataLoader can join any of them.
    """

    def __init__(
        self,
        speeches: Sequence[str],
        tokenizer: Tokenizer,
        *,
        max_len: int | None = None,
        long: str = "cut",
    ) -> None:
        check_choice("long", long, ("cut", "split"))
        if not speeches:
            raise ValueError("speeches must hold at least one speech, got none")
        rows = tokenizer.encode_batch(speeches)
        self.tokenizer, self.n_long = tokenizer, 0
        if max_len is not None:
            check_positive(max_len=max_len)
            self.n_long = sum(len(row) > max_len for row in rows)
            rows = [part for row in rows for part in self._shorten(row, max_len, long)]
        self.rows: list[Row] = rows
        super().__init__([len(row) for row in rows])
        self.longest = max(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """One speech: input_ids (T,) and input_mask (T,), True = real; T is that of the longest."""
        i = check_integer("index", index)
        if not -len(self) <= i < len(self):
            raise IndexError(
                f"index is {i}, but there are {len(self)} examples; the last one is {len(self) - 1}"
            )
        inputs, token_mask = pad_right([self.rows[i]], self._pad_id, self.longest)
        return {"input_ids": inputs[0], "input_mask": token_mask[0]}

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> SpeechBatch:
        """A batch of items, padded to the longest of them: the collate_fn of a DataLoader."""
        rows = [item["input_ids"][item["input_mask"]] for item in items]
        return self._pad(rows)

    def batch(self, indices: Sequence[int]) -> SpeechBatch:
        """These speeches, right-padded."""
        return self._pad([self.rows[i] for i in self._check_indices(indices)])

    def _pad(self, rows: Sequence[Row | Tensor]) -> SpeechBatch:
        inputs, token_mask = pad_right(rows, self._pad_id)
        return SpeechBatch(inputs, next_tokens(inputs, token_mask), token_mask)

    def packed_batch(self, rows: Sequence[Sequence[int]], row_length: int) -> SpeechBatch:
        """Rows of speeches, with segments and positions."""
        documents = [[self.rows[i] for i in self._check_indices(row)] for row in rows]
        inputs, segments, positions = join_documents(documents, self._pad_id, row_length)
        token_mask = segments >= 0
        targets = next_tokens(inputs, token_mask, segments)
        return SpeechBatch(inputs, targets, token_mask, segments, positions)

    def packed_batches(
        self, row_length: int, batch_size: int, *, seed: int = 0, epoch: int = 0
    ) -> Batches[list[Row], SpeechBatch]:
        """Each speech once, several in a row of row_length tokens, batch_size rows in a batch."""
        check_fit(self.lengths, row_length)
        filled: list[Row] = []
        for window in order(seed, epoch, len(self)).split(WINDOW):
            near = window.tolist()
            rows = pack([self.lengths[i] for i in near], row_length)
            filled += [[near[i] for i in row] for row in rows]
        batches = plan_batches(len(filled), batch_size, seed=seed, epoch=epoch)
        plans = [[filled[i] for i in batch] for batch in batches]
        return Batches(plans, lambda rows: self.packed_batch(rows, row_length))

    @property
    def _pad_id(self) -> int:
        return self.tokenizer.pad_id or 0  # the mask hides it, so any id will do

    def _shorten(self, row: Row, max_len: int, long: str) -> Iterator[Row]:
        yield row[:max_len]
        if long == "split":
            start = [] if self.tokenizer.start_id is None else [self.tokenizer.start_id]
            step = max_len - len(start)
            check_positive(**{"max_len without <start>": step})
            for first in range(max_len, len(row), step):
                yield start + row[first : first + step]
