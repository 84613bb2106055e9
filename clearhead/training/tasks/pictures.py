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
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import one_hot

from clearhead.data.augmentation import flip, random_cutout, random_mixup, random_shift
from clearhead.data.batch import Batch, plan_batches
from clearhead.data.cifar10 import read_cifar10
from clearhead.data.digits import draw_digits
from clearhead.data.fetching.catalogue import find_data
from clearhead.data.images import Pictures, compute_mean_and_std
from clearhead.data.mnist import read_mnist
from clearhead.data.randomness import draw_bits
from clearhead.layers import ConvolutionStem
from clearhead.models import VisionTransformer, ViTConfig
from clearhead.models.model import at_rest
from clearhead.shapes import check_choice, check_count, check_positive
from clearhead.training.answerers.pictures import PictureAnswerer
from clearhead.training.losses import class_loss
from clearhead.training.tasks.task import DataConfig, Task

EVALUATED = 500  # pictures at once
WHITENED = 1000  # training pictures whose patches the whitening is made from
EXAMPLE = "example.png"


@dataclass(frozen=True)
class PictureData(DataConfig):
    """Which pictures, and how they are changed in training.

    pictures: "digits", drawn here; "mnist" or "cifar10", in the folder `path`, or as `clearhead
    data get` brings them. size, n_train, n_test and seed: of drawn digits. held_out: so many of the
    last training pictures are not learned from, and the run is judged by them instead of the test
    pictures; settings are chosen so, without looking at the test pictures. shift: pixels at most;
    cutout: the side of its square; mixup: its alpha; each is left out if it is 0.
    """

    pictures: str = "digits"
    path: str | None = None
    size: int = 28
    n_train: int = 10_000
    n_test: int = 2_000
    seed: int = 0
    held_out: int = 0
    mirror: bool = False
    shift: int = 0
    cutout: int = 0
    mixup: float = 0.0
    smoothing: float = 0.0

    def check(self) -> None:
        check_choice("pictures", self.pictures, ("digits", "mnist", "cifar10"))
        check_positive(size=self.size, n_train=self.n_train, n_test=self.n_test)
        check_count(held_out=self.held_out, shift=self.shift, cutout=self.cutout)
        if self.mixup < 0:
            raise ValueError(f"mixup must not be negative, got {self.mixup}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and less than 1, got {self.smoothing}")
        if self.path is not None and self.pictures == "digits":
            raise ValueError("digits are drawn; leave data.path out, or set data.pictures=mnist")

    def open(self) -> "PictureTask":
        train = self.read("train")
        if not self.held_out:
            return PictureTask(self, train, self.read("test"))
        if self.held_out >= len(train):
            raise ValueError(
                f"data.held_out is {self.held_out}, but there are {len(train)} training pictures, "
                f"of which some must be left to learn from; hold out fewer"
            )
        return PictureTask(self, *_cut(train, len(train) - self.held_out))

    def read(self, split: str) -> Pictures:
        """The pictures of "train" or of "test"."""
        if self.pictures == "digits":
            n, start = (self.n_train, 0) if split == "train" else (self.n_test, self.n_train)
            return draw_digits(n, seed=self.seed, start=start, size=self.size)
        read = {"mnist": read_mnist, "cifar10": read_cifar10}[self.pictures]
        return read(self.path or find_data(self.pictures), split)

    @property
    def decided(self) -> dict[str, Any]:
        sides = {"digits": self.size, "mnist": 28, "cifar10": 32}
        return {"image_size": sides[self.pictures]}

    def answerer(self, folder: Path) -> PictureAnswerer:
        return PictureAnswerer.load(folder)


class PictureTask(Task):
    """Classification of pictures by a VisionTransformer."""

    answerer: PictureAnswerer
    config_type = ViTConfig
    best_by = "val_accuracy"

    def __init__(self, data: PictureData, train: Pictures, validation: Pictures) -> None:
        self.data, self.train, self.validation = data, train, validation
        self.class_names = train.class_names
        self.answerer = PictureAnswerer(self.class_names, *compute_mean_and_std(train.images))
        self.n_examples = len(train)
        self.fingerprint = _fingerprint(train, validation)

    @property
    def learned_from(self) -> str:
        data = self.data
        changed = data.mirror or data.shift or data.cutout or data.mixup
        return f"{self.n_examples:,} pictures" + (", changed a little each time" if changed else "")

    @property
    def measured_on(self) -> str:
        n = f"{len(self.validation):,}"
        if self.data.held_out:
            return f"{n} training pictures that were held out: it did not learn from them"
        return f"the {n} test pictures, which it did not learn from"

    def sizes(self, config: ViTConfig) -> dict[str, Any]:
        height, width = self.train.images.shape[-2:]
        return {"image_size": height if height == width else (height, width)}

    def overfit(self, n: int) -> Self:
        """Pictures learned by heart are not changed."""
        self.data = dataclasses.replace(
            self.data, mirror=False, shift=0, cutout=0, mixup=0.0, smoothing=0.0
        )
        self.train, _ = _cut(self.train, n)
        self.validation, self.n_examples = self.train, len(self.train)
        return self

    # Training

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Numbers of pictures; those from n_examples on are the same pictures in a mirror."""
        n = self.n_examples
        batches = plan_batches(n, batch_size, seed=seed, epoch=epoch)
        if not self.data.mirror:
            return batches
        coins = draw_bits(seed, "mirror", np.arange(n)) + np.uint64(epoch)
        place = (np.arange(n) + n * (coins % 2).astype(np.int64)).tolist()
        return [[place[i] for i in batch] for batch in batches]

    def batch(self, plan: Sequence[int]) -> Batch:
        """The pictures as bytes, mirrored or not."""
        numbers = torch.tensor(plan)
        rows = numbers % self.n_examples
        images, labels = self.train.images[rows], self.train.labels[rows]
        return Batch(flip(images, numbers >= self.n_examples), labels)

    def loss(self, model: VisionTransformer, batch: Batch) -> Tensor:
        return class_loss(model(batch.inputs), batch.targets)

    def prepared(self, model: VisionTransformer) -> VisionTransformer:
        """A new model whose stem is whitened with the training pictures."""
        stem = model.patches
        if isinstance(stem, ConvolutionStem) and not stem.is_whitened:
            images = self.answerer.normalised(self.train.images[:WHITENED])
            stem.whiten(images.to(stem.whitening.device))
        return model

    def changed(self, batch: Batch) -> Batch:
        """Pictures for the model and probabilities (B, C) of their classes."""
        data, images, chance = self.data, batch.inputs, torch.default_generator
        if data.shift:
            images = random_shift(images, data.shift, chance, padding="reflect")
        x = self.answerer.normalised(images)
        if data.cutout:
            x = random_cutout(x, data.cutout, chance)  # 0 is the mean picture now
        if data.mixup:
            x, targets = random_mixup(x, batch.targets, len(self.class_names), data.mixup, chance)
        else:
            targets = one_hot(batch.targets, len(self.class_names)).to(x.dtype)
        return Batch(x, (1 - data.smoothing) * targets + data.smoothing / len(self.class_names))

    # Measures

    def evaluate(self, model: VisionTransformer) -> dict[str, float]:
        """Loss without smoothing and accuracy on all validation pictures."""
        total, right = 0.0, 0
        for logits, labels in self._answers(model):
            total += float(class_loss(logits, labels)) * len(labels)
            right += int((logits.argmax(-1) == labels).sum())
        n = len(self.validation)
        return {"val_loss": total / n, "val_accuracy": right / n}

    def confusion(self, model: VisionTransformer) -> Tensor:
        """How many pictures of each class (row) are taken for each class (column), (C, C)."""
        C = len(self.class_names)
        table = torch.zeros(C, C, dtype=torch.long)
        for logits, labels in self._answers(model):
            pairs = labels * C + logits.argmax(-1)
            table += pairs.bincount(minlength=C * C).view(C, C).cpu()
        return table

    def _answers(self, model: VisionTransformer) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels of the validation pictures, part by part."""
        device = model.device
        images, labels = self.validation.images, self.validation.labels
        parts = zip(images.split(EVALUATED), labels.split(EVALUATED), strict=True)
        for images, labels in parts:
            with at_rest(model):
                logits = model(self.answerer.normalised(images.to(device)))
            yield logits, labels.to(device)

    def examples(self, n: int = 10) -> Pictures:
        """n validation pictures: the first of each class, then the second of each, and so on."""
        labels = self.validation.labels
        nth = one_hot(labels, len(self.class_names)).cumsum(0)[torch.arange(len(labels)), labels]
        rows = (nth * len(self.class_names) + labels).argsort(stable=True)[:n]
        return Pictures(self.validation.images[rows], labels[rows], self.class_names)

    def sample(self, model: VisionTransformer) -> str:
        shown, lines = self.examples(3), []
        for image, label in zip(shown.images, shown.labels.tolist(), strict=True):
            right, (answer, p) = self.class_names[label], self.answerer.name_of(model, image)
            word = "right" if answer == right else f"taken for {answer}"
            lines.append(f"{right:10} {word} ({p:.3f})")
        return "\n".join(lines)

    def next_command(self, run: Path) -> str:
        folder, picture = (shlex.quote(str(path)) for path in (run, run / EXAMPLE))
        return f"clearhead predict {folder} {picture}"

    def save(self, folder: Path) -> None:
        """Also a validation picture to try."""
        super().save(folder)
        pixels = self.validation.images[0].expand(3, -1, -1).permute(1, 2, 0).contiguous()
        Image.fromarray(pixels.numpy()).save(folder / EXAMPLE)


def _cut(pictures: Pictures, n: int) -> tuple[Pictures, Pictures]:
    """The first n and the others."""
    images, labels, names = pictures.images, pictures.labels, pictures.class_names
    return Pictures(images[:n], labels[:n], names), Pictures(images[n:], labels[n:], names)


def _fingerprint(*parts: Pictures) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.images.contiguous().numpy().data)
        digest.update(part.labels.contiguous().numpy().data)
    return digest.hexdigest()
