"""Named tensors in one file: the safetensors format, checked before anything is allocated.

    8 bytes      n, the length of the header, little-endian
    n bytes      JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …},
                 padded with spaces; "__metadata__" may hold strings by name
    the rest     the numbers, row by row, little-endian; offsets count from here

The offsets must cover the rest exactly, without a hole or an overlap, and each length must follow
from shape and dtype, so a header that passes describes the file and nothing else. The limits: 8 MB
of header, 20 000 tensors, 8 axes, 8 GB.

Our own reader, because the safetensors library is less strict: it accepts NaN and headers of 100
MB, and it maps the file, so that a file cut short later kills the process. Ours copies tensors into
memory, which takes as long as the library's `load_file` and a copy.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import Tensor

from clearhead.config import find_nearest
from clearhead.files.reading import BadFile, open_regular, quote
from clearhead.files.strict_json import parse_json
from clearhead.files.writing import replace_file
from clearhead.shapes import all_finite

MAX_FILE = 8 << 30
MAX_HEADER = 8 << 20
MAX_TENSORS = 20_000
MAX_PARTS = 20 * MAX_TENSORS  # of the header: an entry has up to 18 commas, colons and brackets
MAX_AXES = 8
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
METADATA = "__metadata__"


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's entry in the header; its bytes are start … stop − 1 of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: str | os.PathLike[str]) -> dict[str, TensorInfo]:
    """Name → dtype, shape and bytes of every tensor; no tensor is allocated."""
    with open_regular(path, MAX_FILE) as file:
        return _read_header(file, quote(path))


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings that a file holds by name beside its tensors; its header is checked first."""
    with open_regular(path, MAX_FILE) as file:
        _read_header(file, quote(path))
        file.seek(0)
        text = file.read(int.from_bytes(file.read(8), "little"))
    found: dict[str, str] = json.loads(text).get(METADATA, {})
    return found


def read_tensors(
    path: str | os.PathLike[str], names: Iterable[str] | None = None, *, finite: bool = True
) -> dict[str, Tensor]:
    """Name → tensor for all tensors, or those named; NaN and infinities only if finite=False."""
    name = quote(path)
    with open_regular(path, MAX_FILE) as file:
        header = _read_header(file, name)
        wanted = list(header) if names is None else list(names)
        for key in (key for key in wanted if key not in header):
            near = find_nearest(str(key), header)
            hint = f"; the nearest is {near!r}" if near else ""
            raise BadFile(f"{name} holds no tensor {key!r:.80}{hint}")
        tensors = {key: _read_tensor(file, header[key], f"{key!r:.80} in {name}") for key in wanted}
    if finite:
        for key, tensor in tensors.items():
            _check_finite(tensor, f"{name}: tensor {key!r:.80}")
    return tensors


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors by name; the file is replaced whole or not at all.

    Tensors that share memory are written as copies. The widest dtypes come first, so that each
    number is aligned to its size.
    """
    for key, tensor in tensors.items():
        _check_writable(key, tensor)
    order = sorted(tensors, key=lambda key: -tensors[key].element_size())
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    stop = 0
    for key in order:
        tensor = tensors[key]
        start, stop = stop, stop + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[key] = {"dtype": CODES[tensor.dtype], "shape": shape, "data_offsets": [start, stop]}
    text = _format_header(header)
    _parse_header(text, f"the header for {quote(path)}", stop)  # else it could not be read back
    with replace_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for key in order:
            dense = tensors[key].detach().cpu().clone(memory_format=torch.contiguous_format)
            file.write(_view_bytes(dense))


# The header


def _read_header(file: BinaryIO, name: str) -> dict[str, TensorInfo]:
    size = os.fstat(file.fileno()).st_size
    if size < 8:
        raise BadFile(f"{name} has {size} bytes, too few for a file of tensors")
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER:
        raise BadFile(
            f"{name} claims a header of {length:,} bytes; at most {MAX_HEADER:,} are read"
        )
    if length < 2 or 8 + length > size:
        raise BadFile(
            f"{name} claims a header of {length:,} bytes, but {size - 8:,} bytes follow; "
            "it is cut short or not a file of tensors"
        )
    return _parse_header(file.read(length), name, size - 8 - length)


def _parse_header(data: bytes, name: str, n_bytes: int) -> dict[str, TensorInfo]:
    """The tensors a header describes, with n_bytes of numbers after it."""
    if not data.startswith(b"{"):
        raise BadFile(f"{name} is not a file of tensors: its header does not begin with {{")
    where = f"{name}: its header"
    entries = parse_json(data, where, max_bytes=MAX_HEADER, max_parts=MAX_PARTS)
    metadata = entries.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise BadFile(f"{name}: {METADATA} must hold strings by name")
    if len(entries) > MAX_TENSORS:
        raise BadFile(f"{name} names {len(entries):,} tensors; at most {MAX_TENSORS:,} are read")
    offset = 8 + len(data)
    header = {
        key: _parse_entry(entry, offset, f"{name}: {key!r:.80}") for key, entry in entries.items()
    }
    _check_cover(header, name, offset, offset + n_bytes)
    return header


def _parse_entry(entry: Any, offset: int, name: str) -> TensorInfo:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BadFile(f"{name} must have exactly dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise BadFile(f"{name} has the dtype {code!r:.40}; supported are {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > MAX_AXES:
        raise BadFile(f"{name} has the shape {shape!r:.80}, not up to {MAX_AXES} whole numbers ≥ 0")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise BadFile(f"{name} has the offsets {offsets!r:.80}, not two whole numbers ≥ 0")
    dtype, (start, stop) = DTYPES[code], offsets
    # An axis of 0 hides the others: (0, 2⁶⁰) has no numbers, yet no tensor has this shape.
    if math.prod(max(axis, 1) for axis in shape) * dtype.itemsize > MAX_FILE:
        raise BadFile(f"{name} has the shape {tuple(shape)}, larger than any file that is read")
    n_bytes = math.prod(shape) * dtype.itemsize
    if stop - start != n_bytes:
        raise BadFile(
            f"{name} has {n_bytes:,} bytes by shape {tuple(shape)} and dtype {code}, "
            f"but its offsets {start}, {stop} are {stop - start:,} apart"
        )
    return TensorInfo(dtype, tuple(shape), offset + start, offset + stop)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_cover(header: Mapping[str, TensorInfo], name: str, start: int, stop: int) -> None:
    """The tensors fill the bytes from start to stop without a hole or an overlap."""
    for key, info in sorted(header.items(), key=lambda item: (item[1].start, item[1].stop)):
        if info.start != start:
            fault = "leaves a hole before it" if info.start > start else "overlaps another"
            raise BadFile(f"{name}: tensor {key!r:.80} {fault}")
        start = info.stop
    if start != stop:
        words = "are missing: it is cut short" if start > stop else "at the end belong to no tensor"
        raise BadFile(f"{name}: {abs(stop - start):,} bytes {words}")


def _format_header(header: Mapping[str, Any]) -> bytes:
    """The header as JSON, padded so that the numbers begin at a multiple of 8."""
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise BadFile("a name holds half a surrogate pair, which is not a character") from None
    return text + b" " * (-len(text) % 8)


# The numbers


def _read_tensor(file: BinaryIO, info: TensorInfo, name: str) -> Tensor:
    tensor = torch.empty(info.shape, dtype=info.dtype)
    memory = _view_bytes(tensor)
    file.seek(info.start)
    n_read = 0
    while n_read < len(memory):
        n_new = file.readinto(memory[n_read:])  # type: ignore[attr-defined]
        if not n_new:
            raise BadFile(f"{name} ended early: the file was cut while it was read")
        n_read += n_new
    if info.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
        raise BadFile(f"{name} holds booleans, but some bytes are neither 0 nor 1")
    return tensor


def _view_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a dense tensor, without a copy."""
    if sys.byteorder != "little":
        raise BadFile("files of tensors are little-endian, and this machine is not")
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _check_finite(tensor: Tensor, name: str) -> None:
    is_eight_bits = tensor.is_floating_point() and tensor.element_size() == 1
    values = tensor.float() if is_eight_bits else tensor  # torch compares no 8-bit floats
    if not all_finite(values):
        flat = values.reshape(-1)
        index = int((~flat.isfinite()).int().argmax())
        raise BadFile(f"{name} has {flat[index].item()} at its number {index}")


def _check_writable(key: str, tensor: Tensor) -> None:
    if not isinstance(key, str) or key == METADATA:
        raise BadFile(f"a tensor cannot be named {key!r:.80}")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{key!r:.80} must be a tensor, got {type(tensor).__name__}")
    if tensor.dtype not in CODES or tensor.layout != torch.strided or tensor.is_meta:
        raise BadFile(
            f"tensor {key!r:.80} ({tensor.dtype}, {tensor.layout}, {tensor.device}) cannot be "
            f"written; dense {', '.join(CODES.values())} can"
        )
