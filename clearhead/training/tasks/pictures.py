"""What is in the picture? One of the classes, for drawn digits, MNIST and CIFAR-10.

All pictures stay in memory as bytes. In training each is changed a little every time it comes:

    mirrored    in every second epoch; which of the two is a coin toss for each picture
    shifted     by some pixels, the edges reflected
    cutout      a square of it is lost
    mixup       another picture shines through

and a class counts 1 − smoothing plus its share of the rest (Szegedy et al. 2016). Then the mean of
the training pictures is subtracted and their deviation divided by, channel by channel. A picture
that is evaluated is not changed.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, one_hot

from clearhead.data.augmentation import flip, random_cutout, random_mixup, random_shift
from clearhead.data.batch import Batch, in_batches
from clearhead.data.drawings import draw_digits
from clearhead.data.draws import draws
from clearhead.data.fetching.catalogue import path_of
from clearhead.data.images import Pictures, read_cifar10, to_float
from clearhead.data.mnist import read_mnist
from clearhead.files.pictures import read_picture
from clearhead.files.strict_json import write_json
from clearhead.layers import ConvolutionStem
from clearhead.models import VisionTransformer, ViTConfig
from clearhead.models.model import Config, at_rest
from clearhead.shapes import check_choice, check_count, check_positive
from clearhead.training.losses import class_loss
from clearhead.training.tasks.task import DataConfig, Task

__all__ = ["PictureData", "PictureTask"]

EVALUATED = 500  # pictures at once
WHITENED = 1000  # training pictures whose patches the whitening is made from
EXAMPLE = "example.png"
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)


@dataclass(frozen=True)
class PictureData(DataConfig):
    """Which pictures, and how they are changed in training.

    pictures: "digits", drawn here; "mnist" or "cifar10", in the folder `path`, or as `clearhead
    data get` brings them. size, n_train, n_test and seed: of drawn digits. shift: pixels at most;
    cutout: the side of its square; mixup: its alpha; each is left out if it is 0.
    """

    pictures: str = "digits"
    path: str | None = None
    size: int = 28
    n_train: int = 10_000
    n_test: int = 2_000
    seed: int = 0
    mirror: bool = False
    shift: int = 0
    cutout: int = 0
    mixup: float = 0.0
    smoothing: float = 0.0

    def check(self) -> None:
        check_choice("pictures", self.pictures, tuple(READERS))
        check_positive(size=self.size, n_train=self.n_train, n_test=self.n_test)
        check_count(shift=self.shift, cutout=self.cutout)
        if self.mixup < 0:
            raise ValueError(f"mixup must not be negative, got {self.mixup}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and less than 1, got {self.smoothing}")
        if self.path is not None and self.pictures == "digits":
            raise ValueError("digits are drawn; leave data.path out, or set data.pictures=mnist")

    def open(self) -> "PictureTask":
        train, test = READERS[self.pictures](self)
        return PictureTask(self, train, test)


def _digits(data: PictureData) -> tuple[Pictures, Pictures]:
    train = draw_digits(data.n_train, seed=data.seed, size=data.size)
    return train, draw_digits(data.n_test, seed=data.seed, start=data.n_train, size=data.size)


def _mnist(data: PictureData) -> tuple[Pictures, Pictures]:
    folder = data.path or path_of("mnist")
    return read_mnist(folder, "train"), read_mnist(folder, "test")


def _cifar10(data: PictureData) -> tuple[Pictures, Pictures]:
    folder = data.path or path_of("cifar10")
    return read_cifar10(folder, "train"), read_cifar10(folder, "test")


READERS: dict[str, Callable[[PictureData], tuple[Pictures, Pictures]]] = {
    "digits": _digits,
    "mnist": _mnist,
    "cifar10": _cifar10,
}


class PictureTask(Task):
    """Classification of pictures by a VisionTransformer."""

    model_type = VisionTransformer
    best_by = "val_accuracy"

    def __init__(self, data: PictureData, train: Pictures, test: Pictures) -> None:
        self.data, self.train, self.test = data, train, test
        self.class_names = train.class_names
        self.mean, self.std = mean_and_std(train.images)
        self.n_examples = len(train)
        self.fingerprint = _fingerprint(train, test)

    def complete(self, config: Config) -> ViTConfig:
        assert isinstance(config, ViTConfig)
        _, channels, height, width = self.train.images.shape
        size = height if height == width else (height, width)
        return dataclasses.replace(
            config, n_classes=len(self.class_names), channels=channels, image_size=size
        )

    def overfit(self, n: int) -> Self:
        """Pictures learned by heart are not changed."""
        self.data = dataclasses.replace(
            self.data, mirror=False, shift=0, cutout=0, mixup=0.0, smoothing=0.0
        )
        self.train = Pictures(self.train.images[:n], self.train.labels[:n], self.class_names)
        self.test, self.n_examples = self.train, len(self.train)
        return self

    # Training

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Numbers of pictures; those from n_examples on are the same pictures in a mirror."""
        n = self.n_examples
        batches = in_batches(n, batch_size, seed=seed, epoch=epoch)
        if not self.data.mirror:
            return batches
        coins = draws(seed, "mirror", np.arange(n)) + np.uint64(epoch)
        place = (np.arange(n) + n * (coins % 2).astype(np.int64)).tolist()
        return [[place[i] for i in batch] for batch in batches]

    def batch(self, plan: Sequence[int]) -> Batch:
        """The pictures as bytes, mirrored or not; all other changes are made in `loss`."""
        numbers = torch.tensor(plan)
        rows = numbers % self.n_examples
        images, labels = self.train.images[rows], self.train.labels[rows]
        return Batch(flip(images, numbers >= self.n_examples), labels)

    def loss(self, model: VisionTransformer, batch: Batch) -> Tensor:
        """The mean cost for the pictures, changed by chance."""
        images, targets = self.changed(batch)
        return class_loss(model(images), targets)

    def prepared(self, model: VisionTransformer) -> VisionTransformer:
        """A new model whose stem is whitened with the training pictures."""
        stem = model.patches
        if isinstance(stem, ConvolutionStem) and not stem.is_whitened:
            images = self.normalised(self.train.images[:WHITENED])
            stem.whiten(images.to(stem.whitening.device))
        return model

    def changed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Pictures for the model and probabilities (B, C) of their classes.

        Chance is torch's own, which the loop sets anew for each step.
        """
        data, images, chance = self.data, batch.inputs, torch.default_generator
        if data.shift:
            images = random_shift(images, data.shift, chance, padding="reflect")
        x = self.normalised(images)
        if data.cutout:
            x = random_cutout(x, data.cutout, chance)  # 0 is the mean picture now
        if data.mixup:
            x, targets = random_mixup(x, batch.targets, len(self.class_names), data.mixup, chance)
        else:
            targets = one_hot(batch.targets, len(self.class_names)).to(x.dtype)
        return x, (1 - data.smoothing) * targets + data.smoothing / len(self.class_names)

    def normalised(self, images: Tensor) -> Tensor:
        """Bytes (B, channels, height, width) → what the model reads."""
        return to_float(images, self.mean, self.std)

    # Use

    def evaluate(self, model: VisionTransformer) -> dict[str, float]:
        """Loss without smoothing and accuracy on all test pictures."""
        total, right = 0.0, 0
        for logits, labels in self._answers(model):
            total += float(class_loss(logits, labels)) * len(labels)
            right += int((logits.argmax(-1) == labels).sum())
        return {"val_loss": total / len(self.test), "val_accuracy": right / len(self.test)}

    def confusion(self, model: VisionTransformer) -> Tensor:
        """How many test pictures of each class (row) are taken for each class (column), (C, C)."""
        C = len(self.class_names)
        table = torch.zeros(C, C, dtype=torch.long)
        for logits, labels in self._answers(model):
            pairs = labels * C + logits.argmax(-1)
            table += pairs.bincount(minlength=C * C).view(C, C).cpu()
        return table

    def _answers(self, model: VisionTransformer) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels of the test pictures, part by part."""
        device = next(model.parameters()).device
        parts = zip(
            self.test.images.split(EVALUATED), self.test.labels.split(EVALUATED), strict=True
        )
        for images, labels in parts:
            with at_rest(model):
                logits = model(self.normalised(images.to(device)))
            yield logits, labels.to(device)

    def examples(self, n: int = 10) -> Pictures:
        """The first test picture of each class, then the second of each, and so on: n in all."""
        labels = self.test.labels
        nth = one_hot(labels, len(self.class_names)).cumsum(0)[torch.arange(len(labels)), labels]
        rows = (nth * len(self.class_names) + labels).argsort(stable=True)[:n]
        return Pictures(self.test.images[rows], labels[rows], self.class_names)

    def sample(self, model: VisionTransformer) -> str:
        shown, lines = self.examples(3), []
        for image, label in zip(shown.images, shown.labels.tolist(), strict=True):
            right, (answer, p) = self.class_names[label], self._answer(model, image)
            word = "right" if answer == right else f"taken for {answer}"
            lines.append(f"{right:10} {word} ({p:.3f})")
        return "\n".join(lines)

    def predict(self, model: VisionTransformer, text: str) -> dict[str, Any]:
        """text: the path of a PNG or JPEG file, of which the square in the middle is looked at."""
        channels, *size = self.train.images.shape[1:]
        answer, p = self._answer(model, fitted(read_picture(text), channels, size))
        return {"input": text, "answer": answer, "probability": p}

    def _answer(self, model: VisionTransformer, image: Tensor) -> tuple[str, float]:
        """The class of a picture of the right size, and how probable the model thinks it is."""
        device = next(model.parameters()).device
        with at_rest(model):
            p, best = model(self.normalised(image[None].to(device)))[0].softmax(-1).max(-1)
        return self.class_names[int(best)], float(p)

    def next_command(self, run: Path) -> str:
        return f"clearhead predict {run} {run / EXAMPLE}"

    def save(self, folder: Path) -> None:
        """The names of the classes, and a test picture to try."""
        write_json(folder / "classes.json", list(self.class_names))
        pixels = self.test.images[0].expand(3, -1, -1).permute(1, 2, 0).contiguous()
        Image.fromarray(pixels.numpy()).save(folder / EXAMPLE)


def fitted(picture: Tensor, channels: int, size: Sequence[int]) -> Tensor:
    """Any picture (3, height, width) of bytes as the model wants it, (channels, *size).

    The largest part in the middle that has the proportions of `size` is taken and resized, each
    new pixel a weighted mean of those it covers and their neighbours; for one channel colours
    become grey. A picture of the right size stays as it is.
    """
    height, width = picture.shape[-2:]
    rows = max(1, min(height, round(width * size[0] / size[1])))
    columns = max(1, min(width, round(height * size[1] / size[0])))
    top, left = (height - rows) // 2, (width - columns) // 2
    x = picture[None, :, top : top + rows, left : left + columns].float()
    if channels == 1:
        x = (x * torch.tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)
    if (rows, columns) != tuple(size):
        x = interpolate(x, size=tuple(size), mode="bilinear", antialias=True)
    return x[0].round().clamp(0, 255).byte()


def mean_and_std(images: Tensor) -> tuple[list[float], list[float]]:
    """Of each channel of bytes (N, channels, height, width), as shares of 255.

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


def _fingerprint(*parts: Pictures) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.images.contiguous().numpy().data)
        digest.update(part.labels.contiguous().numpy().data)
    return digest.hexdigest()
