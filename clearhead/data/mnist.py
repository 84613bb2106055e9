"""MNIST, the handwritten digits (LeCun et al. 1998), from its IDX files.

    00 00, type of number, number of axes, length of each axis (4 bytes, big-endian), the numbers

The lengths are compared with the size of the file before they are used.
"""

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.data.images import SPLITS, Pictures
from clearhead.files.reading import BadFile, open_regular, quote, read_bytes
from clearhead.shapes import check_choice

MAX_BYTES = 64 << 20  # the largest of the four files has 47 MB


def read_mnist(folder: str | os.PathLike[str], split: str = "train") -> Pictures:
    """Read the 60,000 digits of "train" or the 10,000 of "test", (N, 1, 28, 28); also from .gz."""
    check_choice("split", split, SPLITS)
    if not Path(folder).is_dir():
        raise BadFile(
            f"{quote(folder)} is not a folder; name the folder of your copy of MNIST, "
            f"or get one with: clearhead data get mnist"
        )
    stem = "train" if split == "train" else "t10k"
    images = read_idx(_find_file(Path(folder), f"{stem}-images-idx3-ubyte"), 3)
    path = _find_file(Path(folder), f"{stem}-labels-idx1-ubyte")
    labels = read_idx(path, 1)
    if len(labels) != len(images):
        raise BadFile(f"{quote(path)} has {len(labels):,} labels for {len(images):,} pictures")
    if int(labels.max()) > 9:
        raise BadFile(f"{quote(path)} has the label {int(labels.max())}; digits go from 0 to 9")
    return Pictures(images.unsqueeze(1), labels.long(), tuple("0123456789"))


def _find_file(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() and not (folder / name).is_file() else folder / name


def read_idx(path: str | os.PathLike[str], n_axes: int) -> Tensor:
    """Read an IDX file of bytes with this many axes, none of length 0."""
    data = _unzip(path) if os.fspath(path).endswith(".gz") else read_bytes(path, MAX_BYTES)
    header = 4 + 4 * n_axes
    if data[:4] != bytes((0, 0, 8, n_axes)):
        raise BadFile(
            f"{quote(path)} is not an IDX file of bytes with {n_axes} axes: "
            f"it begins with {data[:4].hex(' ')}, not 00 00 08 {n_axes:02x}"
        )
    if len(data) < header:
        raise BadFile(f"{quote(path)} is cut short: it ends before the lengths of its axes")
    shape = tuple(int(n) for n in np.frombuffer(data[4:header], ">u4"))
    if math.prod(shape) != len(data) - header or 0 in shape:
        raise BadFile(
            f"{quote(path)} says that it holds {' × '.join(f'{n:,}' for n in shape)} bytes, "
            f"but {len(data) - header:,} follow"
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy())


def _unzip(path: str | os.PathLike[str]) -> bytes:
    """The content of a .gz file, up to MAX_BYTES."""
    try:
        with open_regular(path, MAX_BYTES) as file, gzip.GzipFile(fileobj=file) as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as reason:
        raise BadFile(f"{quote(path)} is not a complete .gz file: {str(reason).lower()}") from None
    if len(data) > MAX_BYTES:
        raise BadFile(f"{quote(path)} unpacks to more than the {MAX_BYTES:,} bytes read here")
    return data
