"""The header of a token file: what it holds, in JSON.

    {"format": 1, "dtype": "uint16", "vocab_size": 65, "tokenizer_sha256": "…",
     "shards": [{"n_tokens": 500000000, "sha256": "…"}, …]}

It is read strictly, because anybody may have written it. It has no file names: shard 3 is always
tokens-00003.bin.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from clearhead.config import check_type, read_dataclass
from clearhead.data.tokenizers.tokenizer import MAX_TOKENS
from clearhead.shapes import check_whole

SUFFIX = ".tokens"  # of the folder's name; data.path=… tells token files from texts by it
HEADER, TOKENIZER = "header.json", "tokenizer.json"
FORMAT = 1
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
MAX_SHARDS = 10_000


def is_token_file(path: str | PathLike[str]) -> bool:
    """Whether this is the name of a token file; it need not exist."""
    return Path(path).suffix == SUFFIX


@dataclass(frozen=True)
class Shard:
    """One file of tokens."""

    n_tokens: int
    sha256: str

    def check(self) -> None:
        check_whole("n_tokens", self.n_tokens, least=1)
        _check_sha256(self.sha256)


@dataclass(frozen=True)
class Header:
    """What header.json says."""

    dtype: str
    vocab_size: int
    tokenizer_sha256: str
    shards: tuple[Shard, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"format": FORMAT, **asdict(self), "shards": [asdict(s) for s in self.shards]}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read the values of `to_dict`: each of its type and range, and no others."""
        names = ("format", *cls.__dataclass_fields__)
        if not isinstance(values, Mapping) or values.keys() != set(names):
            raise ValueError(f"it must hold {', '.join(names)} and nothing else")
        if type(values["format"]) is not int or values["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {values['format']!r:.40}")
        shards = values["shards"]
        if not isinstance(shards, list) or not 1 <= len(shards) <= MAX_SHARDS:
            raise ValueError(f"shards must be a list of 1 to {MAX_SHARDS:,} shards")
        given = {name: values[name] for name in names[1:]}
        header = cls(**{**given, "shards": tuple(read_dataclass(Shard, each) for each in shards)})
        header.check()
        return header

    def check(self) -> None:
        """Refuse values of a wrong type or range."""
        if not isinstance(self.dtype, str) or self.dtype not in DTYPES:
            raise ValueError(f"dtype must be {' or '.join(DTYPES)}, got {self.dtype!r:.40}")
        most = min(MAX_TOKENS, np.iinfo(self.dtype).max + 1)
        check_whole("vocab_size", check_type("vocab_size", self.vocab_size, int), 1, most)
        _check_sha256(self.tokenizer_sha256)
        for shard in self.shards:
            shard.check()


def _check_sha256(text: Any) -> None:
    if not isinstance(text, str) or not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError(f"a SHA-256 has 64 hexadecimal digits, got {text!r:.80}")


def name_shard(number: int) -> str:
    """The file name of a shard."""
    return f"tokens-{number:05d}.bin"
