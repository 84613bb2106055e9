"""Pictures changed in ways that keep their meaning, a whole batch at once.

    flip        mirrored, left becomes right
    shift       moved by some pixels, filled with zeros or with the picture reflected at its edge
    cutout      a square set to zero (DeVries & Taylor 2017)
    patches     only some patches of the picture are read (Liu et al. 2023)
    mixup       λ · picture + (1 − λ) · another, and the same mixture of their classes
                (Zhang et al. 2018)

Each is a function of the pictures and of the change to each; its random_… counterpart draws the
changes from a generator. With `step_generator(seed, step)` every training step is repeatable by
itself. Flips, shifts and cutouts accept bytes and floating-point numbers; bytes are up to three
times as fast.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from clearhead.data.images import check_labels
from clearhead.data.randomness import check_index, draw_bits
from clearhead.shapes import (
    can_read_values,
    check_choice,
    check_float_tensor,
    check_int_tensor,
    check_positive,
    format_shape,
)

MAX_ALPHA = 1e6  # gives weights of 0.5 ± 0.002; a far larger one overflows


def step_generator(seed: int, step: int) -> torch.Generator:
    """A generator that is a function of (seed, step) alone."""
    word = draw_bits(seed, "augmentation", check_index("step", step))
    return torch.Generator().manual_seed(int(word[0] >> np.uint64(1)))


def flip(images: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the chosen pictures: images (B, channels, height, width), chosen (B,) boolean."""
    _check_images(images)
    if chosen.dtype != torch.bool:
        raise TypeError(f"chosen must be boolean, one for each picture, got {chosen.dtype}")
    _check_one_each("chosen", chosen, images)
    both = torch.cat((images, images.flip(-1)))  # choosing rows is faster than torch.where
    rows = torch.arange(len(images), device=images.device)
    return both.index_select(0, rows + len(images) * chosen)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each picture with probability ½."""
    _check_images(images)
    coins = torch.randint(2, (len(images),), generator=generator).bool()
    return flip(images, coins.to(images.device))


def alternate_flips(n: int, *, seed: int, epoch: int) -> list[bool]:
    """Which of n pictures to mirror: each in every second epoch; a coin decides in which."""
    coins = draw_bits(seed, "mirror", np.arange(n)) + np.uint64(epoch)
    flags: list[bool] = (coins % 2 == 1).tolist()
    return flags


def shift(
    images: Tensor, down: Tensor, right: Tensor, most: int, *, padding: str = "zero"
) -> Tensor:
    """Move each picture by its own numbers of pixels, down and right (B,), each −most … most.

    padding: "zero", or "reflect" to mirror the picture at its edge.
    """
    _check_images(images)
    check_choice("padding", padding, ("zero", "reflect"))
    check_positive(most=most)
    for name, numbers in (("down", down), ("right", right)):
        _check_moves(name, numbers, most, images)
    if images.numel() == 0:
        return images.clone()
    padded = _pad(images, most, padding).contiguous()
    B, channels, height, width = images.shape
    # Each row of the result is a run of `width` numbers in the padded memory, so runs are copied.
    stride, device = padded.stride(), images.device
    # Where in its padded plane each result begins: a move down reads from further up.
    corner = (most - down.long()) * stride[2] + most - right.long()
    planes = torch.arange(B * channels, device=device).view(B, channels, 1) * stride[1]
    rows = torch.arange(height, device=device) * stride[2]
    runs = padded.flatten().unfold(0, width, 1)
    return runs.index_select(0, (planes + corner[:, None, None] + rows).flatten()).view_as(images)


def random_shift(
    images: Tensor, most: int, generator: torch.Generator, *, padding: str = "zero"
) -> Tensor:
    """Move each picture by up to `most` pixels in each direction, every distance as likely."""
    _check_images(images)
    check_positive(most=most)
    moves = torch.randint(-most, most + 1, (2, len(images)), generator=generator)
    down, right = moves.to(images.device)
    return shift(images, down, right, most, padding=padding)


def cutout(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Zero a square of each picture: rows top … top + size − 1, columns likewise, (B,) each.

    Parts of the square outside the picture have no effect.
    """
    _check_images(images)
    check_positive(size=size)
    for name, numbers in (("top", top), ("left", left)):
        check_int_tensor(name, numbers)
        _check_one_each(name, numbers, images)
    rows = _select_run(top, size, images.size(-2))
    columns = _select_run(left, size, images.size(-1))
    square = rows[:, None, :, None] & columns[:, None, None, :]  # (B, 1, height, width)
    return images.masked_fill(square, 0)


def random_cutout(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Zero a square around a random pixel of each picture."""
    _check_images(images)
    check_positive(size=size)
    B, _, height, width = images.shape
    top = torch.randint(height, (B,), generator=generator) - size // 2
    left = torch.randint(width, (B,), generator=generator) - size // 2
    return cutout(images, top.to(images.device), left.to(images.device), size)


def random_patches(n: int, n_patches: int, n_kept: int, generator: torch.Generator) -> Tensor:
    """n_kept different patches for each of n pictures: their numbers (n, n_kept), in any order."""
    check_positive(n_kept=n_kept)
    if n_kept > n_patches:
        raise ValueError(f"n_kept must be at most n_patches, {n_patches}, got {n_kept}")
    return torch.rand(n, n_patches, generator=generator).topk(n_kept, dim=1).indices


def mixup(
    images: Tensor, targets: Tensor, partner: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """weight · each picture + (1 − weight) · its partner, and the same for the targets.

    images (B, channels, height, width) and targets (B, C) are floating-point; partner (B,) is the
    index of the picture that is mixed in; weight (B,), from 0 to 1.
    """
    _check_images(images)
    check_float_tensor("images", images)
    _check_target_rows(targets, images)
    check_int_tensor("partner", partner)
    check_float_tensor("weight", weight)
    for name, numbers, most in (("partner", partner, len(images) - 1), ("weight", weight, 1)):
        _check_one_each(name, numbers, images)
        _check_between(name, numbers, 0, most)
    other = partner.long()  # uint8 would index as a mask
    mixed = torch.lerp(images[other], images, weight[:, None, None, None].to(images.dtype))
    return mixed, torch.lerp(targets[other], targets, weight[:, None].to(targets.dtype))


def random_mixup(
    images: Tensor, labels: Tensor, n_classes: int, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mix each picture with one of the batch; labels (B,) → targets (B, n_classes), rows sum to 1.

    Weights are drawn from Beta(alpha, alpha): a small alpha leaves most pictures nearly unchanged.
    """
    _check_images(images)
    if not 0 < alpha <= MAX_ALPHA:  # refuses NaN too
        raise ValueError(
            f"alpha must be above 0 and at most {MAX_ALPHA:,.0f}, got {alpha}; "
            f"for no mixing leave mixup out"
        )
    check_positive(n_classes=n_classes)
    check_labels(labels, len(images), n_classes)
    partner = torch.randperm(len(images), generator=generator).to(images.device)
    # torch cannot draw Beta numbers from a given generator, so NumPy does, seeded from it.
    seed = int(torch.randint(2**62, (), generator=generator))
    weight = torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, len(images)))
    targets = one_hot(labels.long(), int(n_classes)).to(images.dtype)
    return mixup(images, targets, partner, weight.to(images))


def _pad(images: Tensor, most: int, padding: str) -> Tensor:
    """Add `most` pixels on each side."""
    if padding == "zero":
        return pad(images, (most, most, most, most))
    for axis in (-1, -2):
        # pad(mode="reflect") does not take bytes.
        first = images.narrow(axis, 1, most).flip(axis)
        last = images.narrow(axis, images.size(axis) - 1 - most, most).flip(axis)
        images = torch.cat((first, images, last), dim=axis)
    return images


def _select_run(first: Tensor, size: int, length: int) -> Tensor:
    """True for the indices first … first + size − 1 of each row: (B,) → (B, length)."""
    offset = torch.arange(length, device=first.device) - first[:, None]
    return (offset >= 0) & (offset < size)


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a torch.Tensor, got {type(images).__name__}")
    if images.ndim != 4:
        raise ValueError(
            f"images must have shape (B, channels, height, width), got {format_shape(images)}; "
            f"one picture is images[None]"
        )
    if 0 in images.shape[1:]:
        raise ValueError(f"images must have pixels, got shape {format_shape(images)}")


def _check_one_each(name: str, numbers: Tensor, images: Tensor) -> None:
    if numbers.shape != images.shape[:1]:
        raise ValueError(
            f"{name} must have one number for each of the {len(images)} images, "
            f"got shape {format_shape(numbers)}"
        )


def _check_target_rows(targets: Tensor, images: Tensor) -> None:
    right = isinstance(targets, Tensor) and targets.is_floating_point() and targets.ndim == 2
    if not right:
        given = (
            f"{targets.dtype} {format_shape(targets)}" if isinstance(targets, Tensor) else targets
        )
        raise TypeError(
            f"targets must be rows of floating-point numbers, one for each class, (B, C), got "
            f"{given!s:.80}; for numbers of classes use one_hot(targets, n_classes).float()"
        )
    if len(targets) != len(images):
        raise ValueError(
            f"targets must have a row for each of the {len(images)} images, got {len(targets)}"
        )


def _check_between(name: str, numbers: Tensor, least: int, most: int) -> None:
    """Each number lies between the two; unsigned numbers are widened to compare with negatives."""
    if not can_read_values(numbers):
        return
    wide = numbers if numbers.is_floating_point() else numbers.long()
    if not ((wide >= least) & (wide <= most)).all():  # also refuses NaN
        raise ValueError(f"{name} must lie between {least} and {most}, got {numbers.tolist()}")


def _check_moves(name: str, numbers: Tensor, most: int, images: Tensor) -> None:
    check_int_tensor(name, numbers)
    _check_one_each(name, numbers, images)
    shortest = min(images.shape[-2:])
    if most >= shortest:
        raise ValueError(f"most must be less than the side of the images, {shortest}, got {most}")
    _check_between(name, numbers, -most, most)
