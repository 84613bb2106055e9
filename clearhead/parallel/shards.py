"""The checkpoint files of a sharded model: for each process two, with the rows it holds.

    model-shard-00001-of-00002.safetensors          rows 0 … 32 of a weight with 65 rows
    optimizer-shard-00001-of-00002.safetensors      the same rows of the optimizer's tensors
    model-shard-00002-of-00002.safetensors          rows 33 … 64
    …

Each is an ordinary safetensors file. Its header says, under "__metadata__", at which row it starts:

    "DCP_SHARDING_INFO": '{"embedding.weight": {"saved_offsets": [33, 0]}, …}'

This is the form of torch.distributed.checkpoint (DCP) with its Hugging Face storage, whose reader
reads these files, too. They are written and read here, by files/tensors.py: DCP exchanges its plans
as pickles, needs the package safetensors, and does not check what a file says.

What is not sharded, such as a buffer, is whole in the first file. Where a tensor has fewer rows
than there are processes, some files have no row of it. A reader with any number of processes puts
the rows together, and refuses files in which rows are missing, appear twice or do not fit.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from clearhead.files.reading import BadFile, quote
from clearhead.files.strict_json import parse_json
from clearhead.files.tensors import (
    MAX_HEADER,
    MAX_PARTS,
    TensorInfo,
    read_header,
    read_metadata,
    read_tensors,
    write_tensors,
)

INFO, OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"  # DCP's names


# Writing


def write_shard(path: Path, tensors: Mapping[str, Tensor], *, is_first: bool) -> None:
    """Write the rows that this process holds; the first one also writes what is not sharded."""
    own: dict[str, Tensor] = {}
    offsets: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            own[name], first = tensor.to_local(), _find_range(tensor)[0]
        elif is_first:
            own[name], first = tensor, 0
        else:
            continue
        offsets[name] = {OFFSETS: [first, *[0] * tensor.ndim][: tensor.ndim]}  # [] without axes
    metadata = {INFO: json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"}
    write_tensors(path, own, metadata=metadata)


def _find_range(tensor: DTensor) -> tuple[int, int]:
    """The numbers of the first row of this process and of the row after its last one.

    The rows are divided as torch.chunk does it.
    """
    n, size, rank = tensor.shape[0], tensor.device_mesh.size(), tensor.device_mesh.get_local_rank()
    most = -(-n // size)
    return min(n, rank * most), min(n, (rank + 1) * most)


# Reading


@dataclass(frozen=True)
class Piece:
    """Some rows of a tensor, in one file."""

    file: Path
    first: int  # the row of the tensor at which the piece starts
    info: TensorInfo

    @property
    def end(self) -> int:
        """The row after the last one; a tensor without axes counts as one row."""
        return self.first + (self.info.shape[0] if self.info.shape else 1)


Pieces = dict[str, list[Piece]]


def read_shapes(files: Sequence[Path]) -> dict[str, Tensor]:
    """Name → the whole tensor on the meta device, where it has a shape and no numbers."""
    found = {}
    for name, pieces in _find_pieces(files).items():
        info = pieces[0].info
        shape = (pieces[-1].end, *info.shape[1:]) if info.shape else ()
        found[name] = torch.empty(shape, dtype=info.dtype, device="meta")
    return found


def read_whole(files: Sequence[Path]) -> dict[str, Tensor]:
    """Name → the whole tensor, from the files of all processes."""
    pieces = _find_pieces(files)
    rows = {name: (0, found[-1].end) for name, found in pieces.items()}
    return _read_rows(files, pieces, rows)


def read_like(files: Sequence[Path], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Name → a tensor, sharded like the one with this name in `like`; all others are whole.

    Only the rows that this process holds are read.
    """
    pieces = _find_pieces(files)
    rows = {name: (0, found[-1].end) for name, found in pieces.items()}
    sharded = {
        name: tensor
        for name, tensor in like.items()
        if isinstance(tensor, DTensor) and name in rows and tensor.shape[0] == rows[name][1]
    }
    rows |= {name: _find_range(tensor) for name, tensor in sharded.items()}
    found = _read_rows(files, pieces, rows)
    return found | {name: _shard(found[name], tensor) for name, tensor in sharded.items()}


def take_rows(whole: Tensor, like: DTensor) -> Tensor:
    """Shard a whole tensor that every process has, like this DTensor; nothing is sent."""
    first, end = _find_range(like)
    return _shard(whole[first:end].clone(), like)


def _shard(rows: Tensor, like: DTensor) -> Tensor:
    """Make a DTensor from the rows of this process."""
    shape = torch.Size((like.shape[0], *rows.shape[1:]))
    return DTensor.from_local(
        rows.to(like.device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=shape,
        stride=torch.empty(shape, device="meta").stride(),
    )


def _find_pieces(files: Iterable[Path]) -> Pieces:
    """Find the pieces of each tensor, in the order of their rows; each row must be there once."""
    found: Pieces = {}
    for file in files:
        header = read_header(file)
        starts = _read_starts(file, header)
        for name, info in header.items():
            found.setdefault(name, []).append(Piece(file, starts[name], info))
    for name, pieces in found.items():
        pieces.sort(key=lambda piece: piece.first)
        end = 0
        for piece in pieces:
            where = f"{quote(piece.file)}: {name!r:.80}"
            if piece.first != end:
                word = "is missing before" if piece.first > end else "is there a second time in"
                raise BadFile(f"{where}: row {min(piece.first, end)} {word} this shard")
            if _describe_row(piece.info) != _describe_row(pieces[0].info):
                raise BadFile(f"{where} does not fit the shard in {quote(pieces[0].file)}")
            end = piece.end
    return found


def _describe_row(info: TensorInfo) -> tuple[torch.dtype, Sequence[int] | None]:
    """The dtype and the shape of a row: the same in all shards; None for a tensor without axes."""
    return info.dtype, info.shape[1:] if info.shape else None


def _read_starts(file: Path, header: Mapping[str, TensorInfo]) -> dict[str, int]:
    """The first row of each tensor of a file; 0 in a file that is no shard."""
    text = read_metadata(file).get(INFO)
    if text is None:
        return dict.fromkeys(header, 0)
    where = f"{quote(file)}: {INFO}"
    entries = parse_json(text.encode(), where, max_bytes=MAX_HEADER, max_parts=MAX_PARTS)
    if not isinstance(entries, dict) or entries.keys() != header.keys():
        raise BadFile(f"{where} must name each tensor of the file, and nothing else")
    starts = {}
    for name, info in header.items():
        entry: Any = entries[name]
        offsets: Any = entry.get(OFFSETS) if isinstance(entry, dict) else None
        n = len(info.shape)
        is_list = isinstance(offsets, list) and all(type(x) is int and x >= 0 for x in offsets)
        if not is_list or len(offsets) != n or any(offsets[1:]):
            raise BadFile(
                f"{where}: {name!r:.80} has the offsets {offsets!r:.80}; expected the number of a "
                f"row, then 0 for each other axis: {n} in all"
            )
        starts[name] = offsets[0] if offsets else 0
    return starts


def _read_rows(
    files: Iterable[Path], pieces: Pieces, rows: Mapping[str, tuple[int, int]]
) -> dict[str, Tensor]:
    """Name → rows of this tensor, read file by file.

    rows: name → the number of the first row to read, and of the row after the last one.
    """
    found: dict[str, Tensor] = {}
    by_file: dict[Path, dict[str, Piece]] = {file: {} for file in files}
    for name, (first, end) in rows.items():
        info = pieces[name][0].info
        shape = (end - first, *info.shape[1:]) if info.shape else ()
        found[name] = torch.empty(shape, dtype=info.dtype)  # takes memory when it is written to
        for piece in pieces[name]:
            if piece.first < end and first < piece.end:
                by_file[piece.file][name] = piece
    for file, wanted in by_file.items():
        for name, tensor in read_tensors(file, wanted).items():
            (first, end), piece = rows[name], wanted[name]
            if (first, end) == (piece.first, piece.end):
                found[name] = tensor
            else:
                a, b = max(first, piece.first), min(end, piece.end)
                found[name][a - first : b - first] = tensor[a - piece.first : b - piece.first]
    return found
