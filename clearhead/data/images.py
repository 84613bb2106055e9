"""Labelled pictures as bytes, and CIFAR-10 in the three forms in which people have it.

    pictures = read_cifar10("cifar-10-batches-bin", "test")
    pictures.images         # (10000, 3, 32, 32) bytes from 0 to 255
    pictures.labels         # (10000,) whole numbers: pictures.class_names[label]

CIFAR-10 (Krizhevsky 2009) holds 10,000 pictures in each file, a picture being 1024 red, 1024 green
and 1024 blue bytes, row by row. The forms:

    data_batch_1.bin    a byte for the label before each picture
    data_batch_1        a pickled dictionary, read by inert_pickle.py, which runs nothing
    data_batch_1.png    a sprite with a row of 1024 pixels for each picture; labels in a JSON list
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.data.inert_pickle import byte_array, read_inert
from clearhead.files.pictures import read_picture
from clearhead.files.regular import BadFile, read_bytes, shown
from clearhead.files.strict_json import read_json
from clearhead.shapes import check_choice, check_int_tensor, shape_text, values_at_hand

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SPLITS = ("train", "test")
SIDE = 32
PICTURE = 3 * SIDE * SIDE  # bytes
MOST_PICTURES = 10_000  # in a file
MAX_BYTES = 64 << 20  # an official file has half of that

ImagesAndLabels = tuple[Tensor, list[int] | None]  # of one file; a sprite has no labels in it


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures of one size with the number of the class of each."""

    images: Tensor  # (N, channels, height, width), uint8
    labels: Tensor  # (N,), long
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.images, Tensor):
            raise TypeError(f"images must be a torch.Tensor, got {type(self.images).__name__}")
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(
                f"images must be bytes (N, channels, height, width), "
                f"got {self.images.dtype} {shape_text(self.images)}"
            )
        check_labels(self.labels, len(self.images), len(self.class_names))

    def __len__(self) -> int:
        return len(self.images)


def check_labels(labels: Tensor, n_images: int, n_classes: int) -> None:
    """The number of a class for each picture, (N,); not the one-hot rows of these numbers."""
    if isinstance(labels, Tensor) and labels.ndim == 2:
        raise ValueError(
            f"labels must be numbers of classes, shape ({n_images},), got {shape_text(labels)}; "
            f"of one-hot rows take labels.argmax(-1)"
        )
    check_int_tensor("labels", labels)
    if labels.shape != (n_images,):
        raise ValueError(
            f"labels must have one number for each of the {n_images} images, "
            f"got shape {shape_text(labels)}"
        )
    if not values_at_hand(labels):
        return
    wrong = (labels.long() < 0) | (labels.long() >= n_classes)
    if wrong.any():
        index = int(wrong.nonzero()[0])
        raise ValueError(
            f"labels[{index}] is {int(labels[index])}, but classes go from 0 to {n_classes - 1}"
        )


def to_float(
    images: Tensor, mean: float | Sequence[float] = 0.5, std: float | Sequence[float] = 0.5
) -> Tensor:
    """Bytes (..., channels, height, width) → float32, (images / 255 − mean) / std.

    mean and std: one number, or one for each channel. By default 0 becomes −1 and 255 becomes 1.
    """
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a torch.Tensor of bytes, got {type(images).__name__}")
    if images.dtype != torch.uint8:
        raise TypeError(f"images must hold bytes, torch.uint8, got {images.dtype}")
    centre, scale = (_by_channel(name, x, images) for name, x in (("mean", mean), ("std", std)))
    if not (scale > 0).all():
        raise ValueError(f"std must be positive, got {std}")
    return images.float().div_(255).sub_(centre).div_(scale)


def _by_channel(name: str, value: float | Sequence[float], images: Tensor) -> Tensor:
    """One number, or (channels, 1, 1)."""
    numbers = torch.as_tensor(value, dtype=torch.float32, device=images.device)
    if numbers.ndim and numbers.shape != images.shape[-3:-2]:
        raise ValueError(
            f"{name} must be one number or one for each channel of images {shape_text(images)}, "
            f"got {value}"
        )
    if not numbers.isfinite().all():
        raise ValueError(f"{name} must be finite, got {value}")
    return numbers[:, None, None] if numbers.ndim else numbers


def mean_and_std(images: Tensor) -> tuple[list[float], list[float]]:
    """Of each channel of bytes (N, channels, height, width), as shares of 255: for `to_float`.

    Channels that never change are divided by 1.
    """
    total = torch.zeros(2, images.size(1), dtype=torch.float64)
    for part in images.split(2000):
        x = part.float().movedim(1, 0).flatten(1)  # (channels, pixels)
        total += torch.stack(
            (x.sum(1, dtype=torch.float64), x.square().sum(1, dtype=torch.float64))
        )
    mean, square = total / (images.numel() / images.size(1))
    std = (square - mean**2).clamp(min=0).sqrt()
    return (mean / 255).tolist(), torch.where(std > 0, std / 255, 1.0).tolist()


# CIFAR-10


def read_cifar10(folder: str | os.PathLike[str], split: str = "train") -> Pictures:
    """The 50,000 pictures of "train" or the 10,000 of "test", in whichever form the folder has."""
    check_choice("split", split, SPLITS)
    batches = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    place, ending = _find_form(Path(folder), batches[0])
    parts = [FORMS[ending](place / f"{batch}{ending}") for batch in batches]
    images = torch.cat([images for images, _ in parts])
    if ending == ".png":
        labels = _sprite_labels(place / f"{split}_lables.json", len(images))  # its own spelling
    else:
        labels = [label for _, own in parts for label in own or []]
    return Pictures(images, torch.tensor(labels), CIFAR10_CLASSES)


def _find_form(folder: Path, batch: str) -> tuple[Path, str]:
    """The folder itself or the official folder inside it, and the ending of its batches."""
    for place in (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py"):
        for ending in FORMS:
            if (place / f"{batch}{ending}").is_file():
                return place, ending
    raise BadFile(
        f"{shown(folder)} holds no CIFAR-10: it has no {batch}.bin, {batch} or {batch}.png; "
        f"name the folder of your copy, or get one with: clearhead data get cifar10"
    )


def _read_binary(path: Path) -> ImagesAndLabels:
    data = read_bytes(path, MAX_BYTES)
    _check_count(path, len(data), PICTURE + 1)
    records = np.frombuffer(data, np.uint8).reshape(-1, PICTURE + 1)
    return _as_images(records[:, 1:]), _checked_labels(path, records[:, 0].tolist())


def _read_python(path: Path) -> ImagesAndLabels:
    name = shown(path)
    batch = read_inert(read_bytes(path, MAX_BYTES), name)
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= set(batch):
        raise BadFile(f"{name} is no batch of CIFAR-10: it has no data and labels")
    table = byte_array(batch[b"data"], name)
    if table.shape[1] != PICTURE:
        raise BadFile(f"{name} has pictures of {table.shape[1]:,} bytes, not {PICTURE:,}")
    _check_count(path, table.size, PICTURE)
    labels = _checked_labels(path, batch[b"labels"])
    if len(labels) != len(table):
        raise BadFile(f"{name} has {len(table):,} pictures but {len(labels):,} labels")
    return _as_images(table), labels


def _read_sprite(path: Path) -> ImagesAndLabels:
    sprite = read_picture(path)  # (3, N, 1024)
    if sprite.shape[2] != SIDE * SIDE:
        raise BadFile(
            f"{shown(path)} is no sprite of CIFAR-10: a row must hold the {SIDE * SIDE} pixels of "
            f"one picture, got {sprite.shape[2]}"
        )
    _check_count(path, sprite.numel(), PICTURE)
    return sprite.transpose(0, 1).reshape(-1, 3, SIDE, SIDE), None


FORMS: dict[str, Callable[[Path], ImagesAndLabels]] = {
    ".bin": _read_binary,
    "": _read_python,
    ".png": _read_sprite,
}


def _sprite_labels(path: Path, n: int) -> list[int]:
    labels = _checked_labels(path, read_json(path))
    if len(labels) != n:
        raise BadFile(f"{shown(path)} has {len(labels):,} labels for {n:,} pictures")
    return labels


def _as_images(table: np.ndarray) -> Tensor:
    """(N, 3072) bytes → (N, 3, 32, 32) in memory of its own."""
    return torch.from_numpy(table.reshape(-1, 3, SIDE, SIDE).copy())


def _check_count(path: Path, n_bytes: int, each: int) -> None:
    if n_bytes % each or not 1 <= n_bytes // each <= MOST_PICTURES:
        raise BadFile(
            f"{shown(path)} is no whole batch of CIFAR-10: 1 to {MOST_PICTURES:,} times "
            f"{each:,} bytes were expected, got {n_bytes:,}"
        )


def _checked_labels(path: Path, labels: object) -> list[int]:
    """A list of class numbers."""
    if not isinstance(labels, list):
        raise BadFile(f"{shown(path)} has labels that are no list")
    for i, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < len(CIFAR10_CLASSES):
            what = label if type(label) is int else type(label).__name__
            raise BadFile(
                f"{shown(path)} is no batch of CIFAR-10: label {i:,} is {what}, "
                f"not a number from 0 to {len(CIFAR10_CLASSES) - 1}"
            )
    return labels
