"""What is in the picture? One of the classes, for drawn digits, MNIST and CIFAR-10.

All pictures stay in memory as bytes. In training each is augmented anew every time it is used:

    mirrored    in every second epoch; a coin toss decides in which of the two
    shifted     by some pixels, the edges reflected
    cutout      a square is blanked out
    mixup       blended with another picture
    keep        only this share of the patches is read, which saves time

and the targets are smoothed: the right class gets 1 − smoothing, and smoothing is spread evenly
over all classes (Szegedy et al. 2016). Pictures are normalised by the mean and the standard
deviation of each channel of the training pictures. In evaluation nothing is augmented.
"""

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import one_hot

from clearhead.data import augmentation
from clearhead.data.batch import Batch, plan_batches
from clearhead.data.cifar10 import read_cifar10
from clearhead.data.digits import draw_digits
from clearhead.data.fetching.catalogue import find_data
from clearhead.data.images import Pictures, compute_mean_and_std, hash_pictures
from clearhead.data.mnist import read_mnist
from clearhead.files.pictures import read_picture
from clearhead.layers import ConvolutionStem
from clearhead.layers.patches import read_size
from clearhead.models import VisionTransformer, ViTConfig
from clearhead.models.model import evaluation_mode
from clearhead.shapes import check_choice, check_count, check_positive
from clearhead.training.losses import class_loss
from clearhead.training.metrics import is_right
from clearhead.training.tasks.picture_predictor import EXAMPLE, PicturePredictor
from clearhead.training.tasks.task import DataConfig, Task

EVAL_BATCH = 500  # pictures
N_WHITENING = 1000  # training pictures that whiten the stem


@dataclass(frozen=True)
class PictureData(DataConfig):
    """Which pictures, and how they are augmented in training.

    pictures: "digits", drawn here; "mnist" or "cifar10", in the folder `path`, or as `clearhead
    data get` brings them. size, n_train, n_test and seed are of drawn digits. held_out: this many
    of the last training pictures are validated on instead of the test pictures, so that settings
    can be chosen without looking at these. shift: the most pixels; cutout: the side of its square;
    mixup: its alpha; 0 switches each of the three off. keep: the share of the patches that is read,
    drawn anew each time, until the share keep_until of the steps is made; then all are read.
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
    keep: float = 1.0
    keep_until: float = 0.75

    def check(self) -> None:
        check_choice("pictures", self.pictures, ("digits", "mnist", "cifar10"))
        check_positive(size=self.size, n_train=self.n_train, n_test=self.n_test)
        check_count(held_out=self.held_out, shift=self.shift, cutout=self.cutout)
        if self.mixup < 0:
            raise ValueError(f"mixup must not be negative, got {self.mixup}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and less than 1, got {self.smoothing}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be a share above 0 and at most 1, got {self.keep}")
        if not 0 <= self.keep_until <= 1:
            raise ValueError(f"keep_until must be between 0 and 1, got {self.keep_until}")
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
        return PictureTask(self, *train.split_at(len(train) - self.held_out))

    def read(self, split: str) -> Pictures:
        """The pictures of "train" or of "test"."""
        if self.pictures == "digits":
            n, start = (self.n_train, 0) if split == "train" else (self.n_test, self.n_train)
            return draw_digits(n, seed=self.seed, start=start, size=self.size)
        read = {"mnist": read_mnist, "cifar10": read_cifar10}[self.pictures]
        return read(self.path or find_data(self.pictures), split)

    @property
    def known_sizes(self) -> dict[str, Any]:
        return {"image_size": {"digits": self.size, "mnist": 28, "cifar10": 32}[self.pictures]}

    def load_predictor(self, folder: Path) -> "PicturePredictor":
        return PicturePredictor.load(folder)

    def describe_unfamiliar(
        self, predictor: Any, model: VisionTransformer, text: str
    ) -> str | None:
        height, width = read_size("image_size", model.config.image_size)
        given = tuple(read_picture(text).shape[-2:])
        if given == (height, width):
            return None
        return (
            f"the picture has {given[1]} × {given[0]} pixels, but those of training had "
            f"{width} × {height}; its central square was resized"
        )


class PictureTask(Task):
    """Classification of pictures by a VisionTransformer."""

    predictor: PicturePredictor
    config_type = ViTConfig
    best_by = "val_accuracy"

    def __init__(self, data: PictureData, train: Pictures, validation: Pictures) -> None:
        self.data, self.train, self.validation = data, train, validation
        self.class_names = train.class_names
        self.predictor = PicturePredictor(self.class_names, *compute_mean_and_std(train.images))
        self.n_examples = len(train)
        self.fingerprint = hash_pictures(train, validation)
        is_augmented = data.mirror or data.shift or data.cutout or data.mixup
        augmented = ", changed a little each time" if is_augmented else ""
        self.learned_from = f"{self.n_examples:,} pictures{augmented}"
        n = f"{len(validation):,}"
        self.measured_on = f"the {n} test pictures, which it did not learn from"
        if data.held_out:
            self.measured_on = f"{n} training pictures that were held out and not learned from"

    @property
    def model_sizes(self) -> dict[str, Any]:
        height, width = self.train.images.shape[-2:]
        image_size = height if height == width else (height, width)
        return {**self.predictor.model_sizes, "image_size": image_size}

    def overfit(self, n: int) -> Self:
        """The first n training pictures, without augmentation."""
        self.data = dataclasses.replace(
            self.data, mirror=False, shift=0, cutout=0, mixup=0.0, smoothing=0.0, keep=1.0
        )
        self.train = self.validation = self.train.split_at(n)[0]
        self.n_examples = len(self.train)
        return self

    def initialise(self, model: VisionTransformer) -> VisionTransformer:
        """Whiten the stem of a new model with the training pictures."""
        stem = model.patches
        self.n_patches = stem.n_patches
        if isinstance(stem, ConvolutionStem) and not stem.is_whitened:
            images = self.predictor.normalise(self.train.images[:N_WHITENING])
            stem.whiten(images.to(stem.whitening.device))
        return model

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Numbers of pictures; number n_examples + i is picture i mirrored."""
        n = self.n_examples
        batches = plan_batches(n, batch_size, seed=seed, epoch=epoch)
        if not self.data.mirror:
            return batches
        is_mirrored = augmentation.alternate_flips(n, seed=seed, epoch=epoch)
        return [[i + n * is_mirrored[i] for i in batch] for batch in batches]

    def batch(self, plan: Sequence[int]) -> Batch:
        """The pictures as bytes, mirrored or not."""
        numbers = torch.tensor(plan)
        rows = numbers % self.n_examples
        images, labels = self.train.images[rows], self.train.labels[rows]
        return Batch(augmentation.flip(images, numbers >= self.n_examples), labels)

    def augment(self, batch: Batch, progress: float = 0.0) -> Batch:
        """Normalised pictures, and the probability (B, C) of each class as targets.

        positions: the numbers of the patches that are read, or None for all.
        """
        data, images, generator = self.data, batch.inputs, torch.default_generator
        C = len(self.class_names)
        if data.shift:
            images = augmentation.random_shift(images, data.shift, generator, padding="reflect")
        x = self.predictor.normalise(images)
        if data.cutout:
            x = augmentation.random_cutout(x, data.cutout, generator)  # 0 is the mean picture now
        if data.mixup:
            x, targets = augmentation.random_mixup(x, batch.targets, C, data.mixup, generator)
        else:
            targets = one_hot(batch.targets, C).to(x.dtype)
        kept = None
        if data.keep < 1 and progress < data.keep_until:
            n_kept = max(1, round(data.keep * self.n_patches))
            kept = augmentation.random_patches(len(x), self.n_patches, n_kept, generator)
            kept = kept.to(x.device)
        return Batch(x, (1 - data.smoothing) * targets + data.smoothing / C, positions=kept)

    def loss(self, model: VisionTransformer, batch: Batch) -> Tensor:
        return class_loss(model(batch.inputs, kept=batch.positions), batch.targets)

    def evaluate(self, model: VisionTransformer) -> dict[str, float]:
        """Loss without smoothing and accuracy on all validation pictures."""
        total, n_right, n = 0.0, 0, len(self.validation)
        for logits, labels in self._logits(model):
            total += float(class_loss(logits, labels)) * len(labels)
            n_right += int(is_right(logits, labels).sum())
        return {"val_loss": total / n, "val_accuracy": n_right / n}

    def confusion(self, model: VisionTransformer) -> Tensor:
        C = len(self.class_names)
        table = torch.zeros(C, C, dtype=torch.long)
        for logits, labels in self._logits(model):
            pairs = labels * C + logits.argmax(-1)
            table += pairs.bincount(minlength=C * C).view(C, C).cpu()
        return table

    def find_mistakes(self, model: VisionTransformer, n: int) -> list[int]:
        """Numbers of up to n validation pictures with wrong answers, the surest first."""
        wrong = [pair for _, found in self.find_wrong_answers(model) for pair in found]
        return [number for _, number in sorted(wrong, key=lambda pair: (-pair[0], pair[1]))[:n]]

    def find_wrong_answers(
        self, model: VisionTransformer
    ) -> Iterator[tuple[int, list[tuple[float, int]]]]:
        """After each batch: how many pictures it has seen, and the wrong answers in the batch.

        A wrong answer is its probability and the number of its validation picture.
        """
        n_seen = 0
        for logits, labels in self._logits(model):
            sure, answers = logits.softmax(-1).max(-1)
            wrong = (answers != labels).nonzero().flatten().tolist()
            found = [(float(sure[i]), n_seen + i) for i in wrong]
            n_seen += len(labels)
            yield n_seen, found

    def _logits(self, model: VisionTransformer) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels of the validation pictures, batch by batch."""
        parts = (self.validation.images.split(EVAL_BATCH), self.validation.labels.split(EVAL_BATCH))
        for images, labels in zip(*parts, strict=True):
            with evaluation_mode(model):
                logits = model(self.predictor.normalise(images.to(model.device)))
            yield logits, labels.to(model.device)

    def sample(self, model: VisionTransformer) -> str:
        lines = []
        for i in self.validation.choose_examples(3):
            right = self.class_names[int(self.validation.labels[i])]
            answer, p = self.predictor.classify(model, self.validation.images[i])
            verdict = "right" if answer == right else f"taken for {answer}"
            lines.append(f"{right:10} {verdict} ({p:.3f})")
        return "\n".join(lines)

    def next_command(self, run: Path) -> str:
        return shlex.join(["clearhead", "predict", str(run), str(run / EXAMPLE)])

    def save(self, folder: Path) -> None:
        """Also a validation picture to try."""
        super().save(folder)
        pixels = self.validation.images[0].expand(3, -1, -1).permute(1, 2, 0).contiguous()
        Image.fromarray(pixels.numpy()).save(folder / EXAMPLE)

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        numbers = self.validation.choose_examples(10)
        return [(",".join(map(str, numbers)), "pictures it is measured on")]
