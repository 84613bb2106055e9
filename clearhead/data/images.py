"""Labelled pictures as bytes.

    pictures = read_cifar10("cifar-10-batches-bin", "test")
    pictures.images             # (10000, 3, 32, 32) bytes from 0 to 255
    pictures.labels             # (10000,) whole numbers: pictures.class_names[label]
    to_float(pictures.images)   # float32 from −1 to 1

cifar10.py and mnist.py read the files; digits.py draws pictures that need no file.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from clearhead.shapes import all_finite, can_read_values, check_int_tensor, format_shape

SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures of one size, each with the number of its class."""

    images: Tensor  # (N, channels, height, width), uint8
    labels: Tensor  # (N,), long
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.images, Tensor):
            raise TypeError(f"images must be a torch.Tensor, got {type(self.images).__name__}")
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(
                f"images must be bytes (N, channels, height, width), "
                f"got {self.images.dtype} {format_shape(self.images)}"
            )
        check_labels(self.labels, len(self.images), len(self.class_names))

    def __len__(self) -> int:
        return len(self.images)

    def split_at(self, n: int) -> tuple["Pictures", "Pictures"]:
        """The first n pictures, and the others."""
        first, rest = (
            Pictures(self.images[part], self.labels[part], self.class_names)
            for part in (slice(n), slice(n, None))
        )
        return first, rest

    def choose_examples(self, n: int) -> list[int]:
        """The indices of n pictures: the first of each class, then the second of each, …"""
        labels, C = self.labels, len(self.class_names)
        nth = one_hot(labels, C).cumsum(0)[torch.arange(len(self)), labels]
        chosen: list[int] = (nth * C + labels).argsort(stable=True)[:n].tolist()
        return chosen


def hash_pictures(*parts: Pictures) -> str:
    """The SHA-256 of all pictures and labels, in hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        for tensor in (part.images, part.labels):
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def check_labels(labels: Tensor, n_images: int, n_classes: int) -> None:
    """labels (N,) holds the number of a class for each picture, not one-hot rows."""
    if isinstance(labels, Tensor) and labels.ndim == 2:
        raise ValueError(
            f"labels must be numbers of classes, shape ({n_images},), got {format_shape(labels)}; "
            f"for one-hot rows use labels.argmax(-1)"
        )
    check_int_tensor("labels", labels)
    if labels.shape != (n_images,):
        raise ValueError(
            f"labels must have one number for each of the {n_images} images, "
            f"got shape {format_shape(labels)}"
        )
    if not can_read_values(labels):
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
    centre, scale = (
        _expand_by_channel(name, x, images) for name, x in (("mean", mean), ("std", std))
    )
    if not (scale > 0).all():
        raise ValueError(f"std must be positive, got {std}")
    return images.float().div_(255).sub_(centre).div_(scale)


def _expand_by_channel(name: str, value: float | Sequence[float], images: Tensor) -> Tensor:
    """A scalar stays one; a number for each channel becomes (channels, 1, 1)."""
    numbers = torch.as_tensor(value, dtype=torch.float32, device=images.device)
    if numbers.ndim and numbers.shape != images.shape[-3:-2]:
        raise ValueError(
            f"{name} must be one number or one for each channel of images {format_shape(images)}, "
            f"got {value}"
        )
    if not all_finite(numbers):
        raise ValueError(f"{name} must be finite, got {value}")
    return numbers[:, None, None] if numbers.ndim else numbers


def compute_mean_and_std(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, divided by 255, as `to_float` takes them.

    images: bytes (N, channels, height, width). A constant channel gets the standard deviation 1.
    """
    total = torch.zeros(2, images.size(1), dtype=torch.float64)
    for part in images.split(2000):
        x = part.float().movedim(1, 0).flatten(1)  # (channels, pixels)
        total += torch.stack([y.sum(1, dtype=torch.float64) for y in (x, x.square())])
    mean, square = total / (images.numel() / images.size(1))
    std = (square - mean**2).clamp(min=0).sqrt()
    return (mean / 255).tolist(), torch.where(std > 0, std / 255, 1.0).tolist()
