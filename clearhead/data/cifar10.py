"""CIFAR-10 (Krizhevsky 2009) in the three forms in which it is distributed.

Each file holds 10,000 pictures; a picture is 1024 red, 1024 green and 1024 blue bytes, row by row:

    data_batch_1.bin    a byte for the label before each picture
    data_batch_1        a pickled dictionary, read by files/pickles.py, which runs nothing
    data_batch_1.png    one picture of 1024 × 10,000 pixels, a row for each; labels in a JSON list
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.data.images import SPLITS, Pictures
from clearhead.files.pickles import read_byte_table, read_pickle
from clearhead.files.pictures import read_picture
from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.files.strict_json import read_json
from clearhead.shapes import check_choice

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SIDE = 32
PICTURE = 3 * SIDE * SIDE  # bytes
MAX_PICTURES = 10_000  # in a file
MAX_BYTES = 64 << 20  # an official file has half of that

ImagesAndLabels = tuple[Tensor, list[int] | None]  # of one file; a .png has no labels in it


def read_cifar10(folder: str | os.PathLike[str], split: str = "train") -> Pictures:
    """Read the 50,000 pictures of "train" or the 10,000 of "test", whichever form they have."""
    check_choice("split", split, SPLITS)
    batches = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    home, ending = _find_form(Path(folder), batches[0])
    parts = [FORMS[ending](home / f"{batch}{ending}") for batch in batches]
    images = torch.cat([images for images, _ in parts])
    if ending == ".png":
        path = home / f"{split}_lables.json"  # the package's own spelling
        labels = _check_labels(path, read_json(path))
        if len(labels) != len(images):
            raise BadFile(f"{quote(path)} has {len(labels):,} labels for {len(images):,} pictures")
    else:
        labels = [label for _, own in parts for label in own or []]
    return Pictures(images, torch.tensor(labels), CIFAR10_CLASSES)


def _find_form(folder: Path, batch: str) -> tuple[Path, str]:
    """The folder, or the official folder inside it, and the extension of its batches."""
    for home in (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py"):
        for ending in FORMS:
            if (home / f"{batch}{ending}").is_file():
                return home, ending
    raise BadFile(
        f"{quote(folder)} holds no CIFAR-10: it has no {batch}.bin, {batch} or {batch}.png; "
        f"name the folder of your copy, or get one with: clearhead data get cifar10"
    )


def _read_binary(path: Path) -> ImagesAndLabels:
    data = read_bytes(path, MAX_BYTES)
    _check_count(path, len(data), PICTURE + 1)
    records = np.frombuffer(data, np.uint8).reshape(-1, PICTURE + 1)
    return _to_images(records[:, 1:]), _check_labels(path, records[:, 0].tolist())


def _read_python(path: Path) -> ImagesAndLabels:
    name = quote(path)
    batch = read_pickle(read_bytes(path, MAX_BYTES), name)
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= set(batch):
        raise BadFile(f"{name} is not a batch of CIFAR-10: it has no data and labels")
    table = read_byte_table(batch[b"data"], name)
    if table.shape[1] != PICTURE:
        raise BadFile(f"{name} has pictures of {table.shape[1]:,} bytes, not {PICTURE:,}")
    _check_count(path, table.size, PICTURE)
    labels = _check_labels(path, batch[b"labels"])
    if len(labels) != len(table):
        raise BadFile(f"{name} has {len(table):,} pictures but {len(labels):,} labels")
    return _to_images(table), labels


def _read_sprite(path: Path) -> ImagesAndLabels:
    sprite = read_picture(path)  # (3, N, 1024)
    if sprite.shape[2] != SIDE * SIDE:
        raise BadFile(
            f"{quote(path)} is not a sprite of CIFAR-10: a row must hold the {SIDE * SIDE} pixels "
            f"of one picture, got {sprite.shape[2]}"
        )
    _check_count(path, sprite.numel(), PICTURE)
    return sprite.transpose(0, 1).reshape(-1, 3, SIDE, SIDE), None


FORMS: dict[str, Callable[[Path], ImagesAndLabels]] = {
    ".bin": _read_binary,
    "": _read_python,
    ".png": _read_sprite,
}


def _to_images(table: np.ndarray) -> Tensor:
    """Copy bytes (N, 3072) → (N, 3, 32, 32)."""
    return torch.from_numpy(table.reshape(-1, 3, SIDE, SIDE).copy())


def _check_count(path: Path, n_bytes: int, each: int) -> None:
    if n_bytes % each or not 1 <= n_bytes // each <= MAX_PICTURES:
        raise BadFile(
            f"{quote(path)} is not a complete batch of CIFAR-10: 1 to {MAX_PICTURES:,} times "
            f"{each:,} bytes were expected, got {n_bytes:,}"
        )


def _check_labels(path: Path, labels: object) -> list[int]:
    """The labels, if they are a list of class numbers."""
    if not isinstance(labels, list):
        raise BadFile(f"{quote(path)} has labels that are not a list")
    for i, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < len(CIFAR10_CLASSES):
            what = label if type(label) is int else type(label).__name__
            raise BadFile(
                f"{quote(path)} is not a batch of CIFAR-10: label {i:,} is {what}, "
                f"not a number from 0 to {len(CIFAR10_CLASSES) - 1}"
            )
    return labels
