"""Tokens on a disk, more of them than fit into memory.

A token file is a folder:

    corpus.tokens/
        tokens-00000.bin    ids one after the other, uint16 or uint32, little-endian
        tokens-00001.bin    … and so on: shards, so that no file becomes too large
        tokenizer.json      what the ids mean
        header.json         dtype, vocab_size, the length and SHA-256 of each shard

The files are mapped into memory: only the parts that are used are read from the disk, and the
system may drop them again. token_writing.py writes them.

The files may come from anywhere, so they are checked: the header and all sizes when a token file is
opened, every id when it is read. The SHA-256 of 20 GB takes a minute, so only `verify` computes it.
"""

import hashlib
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearhead.data.token_header import DTYPES, HEADER, TOKENIZER, Header, name_shard
from clearhead.data.tokenizers import Tokenizer, load_tokenizer
from clearhead.data.tokenizers.tokenizer import MAX_BYTES
from clearhead.files.reading import (
    ANY_SIZE,
    BadFile,
    open_regular,
    prefix_errors,
    quote,
    read_bytes,
)
from clearhead.files.strict_json import hash_json, read_json

BLOCK = 1 << 20  # bytes that `verify` reads at a time
WINDOW_BYTES = 64 << 10  # bytes that one window may map: the system maps 16 pages at once
MAPPED_BYTES = 64 << 20  # after so many bytes, tell the system that they are not needed

Ids = NDArray[np.int64]
Tell = Callable[[str, int, int], None]  # words, bytes done, bytes in all


class TokenFile:
    """A token file, open for reading.

    tokens = TokenFile("corpus.tokens")
    len(tokens), tokens.vocab_size
    tokens.read(1000, 20)                   20 ids from place 1000 on
    tokens.read_windows([0, 512], 64)       (2, 64)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        values = read_json(self.path / HEADER)
        with prefix_errors(self.path / HEADER):
            self.header = Header.from_dict(values)
        self._dtype = np.dtype(DTYPES[self.header.dtype])
        self._ends = list(accumulate(shard.n_tokens for shard in self.header.shards))
        self._maps = [self._map(number) for number in range(len(self._ends))]
        self._n_mapped = 0

    def __len__(self) -> int:
        return self._ends[-1]

    @property
    def vocab_size(self) -> int:
        """All ids are below this."""
        return self.header.vocab_size

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the header, which holds that of every shard and of the tokenizer."""
        return hash_json(self.header.to_dict())

    @property
    def n_bytes(self) -> int:
        """The size of all shards."""
        return len(self) * self._dtype.itemsize

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer that made these ids."""
        path = self.path / TOKENIZER
        if _hash(read_bytes(path, MAX_BYTES)) != self.header.tokenizer_sha256:
            raise BadFile(f"{quote(path)} does not have the SHA-256 in {HEADER}; {REPLACE}")
        tokenizer = load_tokenizer(path)
        if tokenizer.vocab_size != self.vocab_size:
            raise BadFile(
                f"{quote(path)} has {tokenizer.vocab_size:,} tokens, but {HEADER} says that "
                f"vocab_size is {self.vocab_size:,}; {REPLACE}"
            )
        return tokenizer

    def read(self, start: int, length: int) -> Ids:
        """The ids from place `start` on: (length,)."""
        return self.read_windows([start], length)[0]

    def read_windows(self, starts: Sequence[int], length: int) -> Ids:
        """The ids from each of these places on: (len(starts), length)."""
        ids = np.empty((len(starts), length), np.int64)
        for start, row in zip(starts, ids, strict=True):
            if not 0 <= start <= len(self) - length:
                raise ValueError(
                    f"start must be from 0 to {len(self) - length:,}, so that {length:,} tokens "
                    f"follow, got {start:,}"
                )
            self._copy(int(start), row)
        self._forget_pages(ids)
        if ids.size and int(ids.max()) >= self.vocab_size:
            row, column = np.argwhere(ids >= self.vocab_size)[0]
            raise BadFile(
                f"{quote(self.path)} holds the id {ids[row, column]:,} at place "
                f"{int(starts[row]) + int(column):,}, but its ids go from 0 to "
                f"{self.vocab_size - 1:,}; {REPLACE}"
            )
        return ids

    def _copy(self, start: int, row: Ids) -> None:
        """Fill the row with the ids from `start` on, across the ends of shards."""
        number, done = bisect_right(self._ends, start), 0
        while done < len(row):
            shard = self._view(number)
            first = self._ends[number] - len(shard)  # the place of its first token
            part = shard[start + done - first :][: len(row) - done]
            row[done : done + len(part)] = part
            number, done = number + 1, done + len(part)

    def _view(self, number: int) -> NDArray[Any]:
        """A shard as an array. Reading beyond the end of a file would kill us by SIGBUS."""
        mapped = self._maps[number]
        if mapped.size() < len(mapped):
            raise BadFile(f"{quote(self.path / name_shard(number))} was cut off while in use")
        return np.frombuffer(mapped, self._dtype)

    def _map(self, number: int) -> mmap.mmap:
        """Map a shard into memory, if it has the size that the header says."""
        n_bytes = self.header.shards[number].n_tokens * self._dtype.itemsize
        with _open_shard(self.path, number, n_bytes) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # The places are random. Without this the system reads ahead: measured on 2,000 windows of
        # 512 bytes in 2 GB, 1,980 MB instead of 9 MB, and 8 times as long.
        _advise(mapped, "MADV_RANDOM")
        return mapped

    def _forget_pages(self, ids: Ids) -> None:
        """Now and then unload what was read, or it would count as memory of this process."""
        self._n_mapped += len(ids) * WINDOW_BYTES + ids.size * self._dtype.itemsize
        if self._n_mapped > MAPPED_BYTES:
            for mapped in self._maps:
                _advise(mapped, "MADV_DONTNEED")
            self._n_mapped = 0


REPLACE = "copy the folder again, or write it again with clearhead data pack"


def _open_shard(folder: Path, number: int, n_bytes: int) -> BinaryIO:
    """Open a shard that must have so many bytes."""
    path = folder / name_shard(number)
    file = open_regular(path, ANY_SIZE)
    size = os.fstat(file.fileno()).st_size
    if size != n_bytes:
        file.close()
        raise BadFile(f"{quote(path)} has {size:,} bytes, but {HEADER} says {n_bytes:,}; {REPLACE}")
    return file


def _advise(mapped: mmap.mmap, advice: str) -> None:
    """Tell the system how a file is used, where that is possible."""
    if hasattr(mmap, advice):
        mapped.madvise(getattr(mmap, advice))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def verify(path: str | os.PathLike[str], tell: Tell = lambda words, done, total: None) -> None:
    """Compare each shard and the tokenizer with its SHA-256, and each id with vocab_size."""
    tokens, done = TokenFile(path), 0
    tokens.load_tokenizer()
    dtype = np.dtype(DTYPES[tokens.header.dtype])
    for number, shard in enumerate(tokens.header.shards):
        digest = hashlib.sha256()
        name = quote(tokens.path / name_shard(number))
        with _open_shard(tokens.path, number, shard.n_tokens * dtype.itemsize) as file:
            while block := file.read(BLOCK):
                digest.update(block)
                done += len(block)
                tell(name, done, tokens.n_bytes)
                if np.frombuffer(block, dtype).max() >= tokens.vocab_size:
                    raise BadFile(f"{name} holds an id above {tokens.vocab_size - 1:,}; {REPLACE}")
        if digest.hexdigest() != shard.sha256:
            raise BadFile(f"{name} has changed: its SHA-256 is not that in {HEADER}; {REPLACE}")
