"""Write a token file piece by piece; token_file.py describes and reads it.

The folder is filled under a temporary name, the header last. Then it is forced to the disk and
renamed, so a folder with the final name is complete. Only one part at a time is in memory.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from clearhead.data.token_header import (
    DTYPES,
    HEADER,
    TOKENIZER,
    Header,
    Shard,
    is_token_file,
    name_shard,
)
from clearhead.data.tokenizers import Tokenizer
from clearhead.data.tokenizers.tokenizer import MAX_BYTES
from clearhead.files.reading import quote, read_bytes
from clearhead.files.strict_json import write_json
from clearhead.files.writing import create_folder
from clearhead.shapes import check_positive

SHARD_TOKENS = 500_000_000  # 1 GB of uint16


def write_token_file(
    path: str | os.PathLike[str],
    tokenizer: Tokenizer,
    parts: Iterable[Any],
    *,
    shard_tokens: int = SHARD_TOKENS,
) -> None:
    """Write ids that come in parts: lists or arrays of whole numbers below vocab_size."""
    check_name(path)
    with create_folder(path) as folder:
        fill_folder(folder, tokenizer, parts, shard_tokens=shard_tokens)


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name without the suffix .tokens, by which data.path=… recognises a token file."""
    if not is_token_file(path):
        raise ValueError(f"the name of a token file must end with .tokens, got {quote(path)}")


def fill_folder(
    folder: Path, tokenizer: Tokenizer, parts: Iterable[Any], *, shard_tokens: int = SHARD_TOKENS
) -> None:
    """Write the tokenizer, the shards and, last, the header."""
    check_positive(shard_tokens=shard_tokens)
    tokenizer.save(folder / TOKENIZER)
    digest = hashlib.sha256(read_bytes(folder / TOKENIZER, MAX_BYTES)).hexdigest()
    dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    with _Shards(folder, np.dtype(DTYPES[dtype]), shard_tokens) as shards:
        for part in parts:
            shards.add(_check_ids(part, tokenizer.vocab_size))
    if not shards.written:
        raise ValueError("there are no tokens to write; give a text that is not empty")
    header = Header(dtype, tokenizer.vocab_size, digest, tuple(shards.written))
    write_json(folder / HEADER, header.to_dict())


def _check_ids(part: Any, vocab_size: int) -> NDArray[Any]:
    """The ids of a part as an array, if all are below vocab_size."""
    ids = np.asarray(part)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TypeError(f"each part must be a list of whole numbers, got {part!r:.80}")
    if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(
            f"ids must be from 0 to {vocab_size - 1:,}, got {ids.min():,} to {ids.max():,}; "
            f"give the tokenizer that made them"
        )
    return ids


class _Shards:
    """Writes ids into files of shard_tokens each; the last may be shorter."""

    def __init__(self, folder: Path, dtype: np.dtype[Any], shard_tokens: int) -> None:
        self.folder, self.dtype, self.shard_tokens = folder, dtype, shard_tokens
        self.written: list[Shard] = []
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()

    def add(self, ids: NDArray[Any]) -> None:
        """Write ids, into several shards if they do not fit into this one."""
        while len(ids):
            if self._file is None:
                path = self.folder / name_shard(len(self.written))
                self._file = open(path, "xb")  # noqa: SIM115  # `_finish` closes it
                self._digest, self._room = hashlib.sha256(), self.shard_tokens
            part, ids = ids[: self._room], ids[self._room :]
            data = part.astype(self.dtype).tobytes()
            self._file.write(data)
            self._digest.update(data)
            self._room -= len(part)
            if not self._room:
                self._finish()

    def _finish(self) -> None:
        """Force the open shard to the disk and close it."""
        if self._file is None:
            return
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        self._file = None
        self.written.append(Shard(self.shard_tokens - self._room, self._digest.hexdigest()))
