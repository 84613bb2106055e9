"""Augmentation by its laws, by hand, and against loops that write out what is meant."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.augmentation import (
    cutout,
    flip,
    mixup,
    random_cutout,
    random_flip,
    random_mixup,
    random_patches,
    random_shift,
    shift,
    step_generator,
)
from clearhead.data.images import Pictures

B, CHANNELS, HEIGHT, WIDTH, C = 4, 3, 6, 7, 5
KINDS = [torch.uint8, torch.float32, torch.float64]
WHOLE = torch.arange(1, 10).view(1, 1, 3, 3)


def pictures(kind=torch.uint8, b=B):
    """No number is 0, so that what padding brings in can be told apart."""
    return torch.randint(1, 256, (b, CHANNELS, HEIGHT, WIDTH)).to(kind)


def rows(x):
    return x[0, 0].tolist()


def looked_up(picture, down, right, padding):
    """The shifted picture, pixel by pixel."""
    result = torch.zeros_like(picture)
    for y in range(HEIGHT):
        for x in range(WIDTH):
            from_y, from_x = y - down, x - right
            if padding == "reflect":
                from_y, from_x = abs(from_y), abs(from_x)
                from_y = HEIGHT - 1 - abs(HEIGHT - 1 - from_y)
                from_x = WIDTH - 1 - abs(WIDTH - 1 - from_x)
            if 0 <= from_y < HEIGHT and 0 <= from_x < WIDTH:
                result[:, y, x] = picture[:, from_y, from_x]
    return result


# Flip


def test_flip_by_hand():
    assert rows(flip(WHOLE, torch.tensor([True]))) == [[3, 2, 1], [6, 5, 4], [9, 8, 7]]
    assert rows(flip(WHOLE, torch.tensor([False]))) == rows(WHOLE)


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_twice_is_as_before_and_only_the_chosen_are_flipped(kind):
    images, chosen = pictures(kind), torch.tensor([True, False, False, True])
    once = flip(images, chosen)
    assert torch.equal(flip(once, chosen), images)
    assert torch.equal(once[1:3], images[1:3])
    assert torch.equal(once[[0, 3]], images[[0, 3]].flip(-1))
    assert once.dtype == kind


def test_half_of_the_pictures_are_flipped():
    images = torch.arange(2).repeat(1000, 1, 1, 1)
    flipped = random_flip(images, step_generator(0, 0))[:, 0, 0, 0].sum()
    assert 430 < flipped < 570


# Shift


def test_shift_by_hand():
    def moved(down, right, padding="zero"):
        return rows(shift(WHOLE, torch.tensor([down]), torch.tensor([right]), 2, padding=padding))

    assert moved(0, 0) == rows(WHOLE)
    assert moved(1, 0) == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert moved(0, -1) == [[2, 3, 0], [5, 6, 0], [8, 9, 0]]
    assert moved(-2, 1) == [[0, 7, 8], [0, 0, 0], [0, 0, 0]]
    assert moved(1, 0, "reflect") == [[4, 5, 6], [1, 2, 3], [4, 5, 6]]
    assert moved(0, -2, "reflect") == [[3, 2, 1], [6, 5, 4], [9, 8, 7]]


@pytest.mark.parametrize("padding", ["zero", "reflect"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_picture_is_shifted_by_its_own_numbers(kind, padding):
    images = pictures(kind)
    down, right = torch.tensor([0, 3, -3, 2]), torch.tensor([1, -3, 0, 3])
    y = shift(images, down, right, 3, padding=padding)
    expected = [
        looked_up(*case, padding)
        for case in zip(images, down.tolist(), right.tolist(), strict=True)
    ]
    assert torch.equal(y, torch.stack(expected))
    assert y.dtype == kind


@given(st.integers(-4, 4), st.integers(-4, 4), st.sampled_from(["zero", "reflect"]))
def test_every_pixel_that_stays_inside_keeps_its_value(down, right, padding):
    images = pictures(b=1)
    y = shift(images, torch.tensor([down]), torch.tensor([right]), 4, padding=padding)
    back = shift(y, torch.tensor([-down]), torch.tensor([-right]), 4)
    top, bottom = max(0, -down), HEIGHT - max(0, down)
    left, end = max(0, -right), WIDTH - max(0, right)
    assert torch.equal(back[..., top:bottom, left:end], images[..., top:bottom, left:end])
    if padding == "zero":
        assert (y != 0).sum() == CHANNELS * (bottom - top) * (end - left)
    else:
        assert torch.isin(y, images).all()


def test_random_shifts_reach_every_place_and_no_other():
    images = torch.zeros(3000, 1, 5, 5)
    images[:, 0, 2, 2] = 1
    places = random_shift(images, 2, step_generator(0, 1)).nonzero()[:, 2:]
    counts = torch.bincount(places[:, 0] * 5 + places[:, 1], minlength=25)
    assert len(places) == 3000
    assert counts.min() > 60
    assert counts.max() < 190


# Cutout


def test_cutout_by_hand():
    def cut(top, left, size):
        return rows(cutout(WHOLE, torch.tensor([top]), torch.tensor([left]), size))

    assert cut(0, 1, 2) == [[1, 0, 0], [4, 0, 0], [7, 8, 9]]
    assert cut(-1, -1, 2) == [[0, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert cut(2, -1, 3) == [[1, 2, 3], [4, 5, 6], [0, 0, 9]]
    assert cut(3, 0, 2) == rows(WHOLE)


@pytest.mark.parametrize("kind", KINDS)
@given(top=st.integers(-4, 8), left=st.integers(-4, 8), size=st.integers(1, 9))
def test_exactly_the_square_is_zero_as_far_as_it_lies_inside(kind, top, left, size):
    images = pictures(kind)
    tops, lefts = torch.tensor([top, 0, 1, 2]), torch.tensor([left, 3, 0, 1])
    y = cutout(images, tops, lefts, size)
    expected = images.clone()
    for i in range(B):
        t, s = int(tops[i]), int(lefts[i])
        expected[i, :, max(t, 0) : max(t + size, 0), max(s, 0) : max(s + size, 0)] = 0
    assert torch.equal(y, expected)
    assert y.dtype == kind


def test_a_random_square_is_centred_on_a_pixel_of_the_picture():
    images = torch.ones(500, 1, 6, 8)
    holes = (random_cutout(images, 3, step_generator(3, 0)) == 0).squeeze(1)
    sizes = holes.sum((1, 2))
    assert set(sizes.tolist()) == {4, 6, 9}  # in a corner, at an edge, inside
    assert holes.any(0).all()  # every pixel is hit at some time
    assert (random_cutout(images, 1, step_generator(3, 1)) == 0).sum() == 500


# Mixup


def test_mixup_by_hand():
    images = torch.tensor([0.0, 10.0]).view(2, 1, 1, 1)
    targets = torch.eye(2)
    partner, weight = torch.tensor([1, 0]), torch.tensor([0.75, 0.5])
    mixed, mixed_targets = mixup(images, targets, partner, weight)
    assert mixed.flatten().tolist() == [2.5, 5.0]
    assert mixed_targets.tolist() == [[0.75, 0.25], [0.5, 0.5]]


@given(st.integers(0, 1000), st.floats(0.05, 4))
def test_targets_sum_to_one_and_pictures_mix_as_their_targets(seed, alpha):
    images = pictures(torch.float64)
    labels = torch.tensor([0, 1, 2, 4])
    mixed, targets = random_mixup(images, labels, C, alpha, step_generator(seed, 0))
    assert torch.allclose(targets.sum(1), torch.ones(B, dtype=torch.float64))
    assert (targets >= 0).all()
    # All labels differ, so the targets say what was mixed.
    expected = (targets[:, labels, None, None, None] * images).sum(1)
    assert torch.allclose(mixed, expected, rtol=0, atol=1e-9)


def test_weight_one_changes_nothing_and_weight_zero_exchanges():
    images, targets = pictures(torch.float32), torch.rand(B, C)
    partner = torch.tensor([2, 0, 3, 1])
    same = mixup(images, targets, partner, torch.ones(B))
    assert torch.equal(same[0], images)
    assert torch.equal(same[1], targets)
    other = mixup(images, targets, partner, torch.zeros(B))
    assert torch.equal(other[0], images[partner])
    assert torch.equal(other[1], targets[partner])


def test_a_small_alpha_leaves_most_pictures_nearly_alone():
    images, labels = torch.rand(2000, 1, 2, 2), torch.arange(2000)
    for alpha, low, high in ((0.05, 0.8, 1.0), (20.0, 0.0, 0.02)):
        _, targets = random_mixup(images, labels, 2000, alpha, step_generator(0, 0))
        weight = targets.diagonal()
        nearly = ((weight < 0.05) | (weight > 0.95)).float().mean()
        assert low <= nearly <= high
        assert abs(weight.mean() - 0.5) < 0.05


# All of them

RANDOM = {
    "flip": random_flip,
    "shift": lambda images, generator: random_shift(images, 2, generator),
    "reflect": lambda images, generator: random_shift(images, 2, generator, padding="reflect"),
    "cutout": lambda images, generator: random_cutout(images, 3, generator),
    "mixup": lambda images, generator: random_mixup(
        images, torch.arange(len(images)), len(images) + 1, 0.4, generator
    )[0],
}


@pytest.mark.parametrize("name", RANDOM)
def test_what_happens_is_decided_by_seed_and_step_alone(name):
    images = pictures(torch.float32, b=20)

    def run(seed, step):
        return RANDOM[name](images, step_generator(seed, step))

    first = run(7, 3)
    torch.rand(5)
    assert torch.equal(run(7, 3), first)
    assert not torch.equal(run(7, 4), first)
    assert not torch.equal(run(8, 3), first)
    assert not torch.equal(run(3, 7), first)


@pytest.mark.parametrize("name", RANDOM)
def test_the_given_pictures_stay_as_they_are_and_any_layout_will_do(name):
    images = pictures(torch.float32, b=9)
    before, expected = images.clone(), RANDOM[name](images, step_generator(1, 1))
    for laid_out in (
        images.contiguous(memory_format=torch.channels_last),
        images.mT.contiguous().mT,
        torch.stack((images, images), dim=-1)[..., 0],
    ):
        assert torch.equal(RANDOM[name](laid_out, step_generator(1, 1)), expected)
    assert torch.equal(images, before)
    assert expected.data_ptr() != images.data_ptr()


@pytest.mark.parametrize("name", RANDOM)
def test_N23_an_empty_batch_stays_one(name):
    images = torch.zeros(0, CHANNELS, HEIGHT, WIDTH)
    assert RANDOM[name](images, step_generator(0, 0)).shape == images.shape


@pytest.mark.parametrize("name", RANDOM)
def test_what_is_no_batch_of_pictures_is_refused(name):
    with pytest.raises(ValueError, match=r"\(B, channels, height, width\), got \(3, 6, 7\); one"):
        RANDOM[name](torch.zeros(3, 6, 7), step_generator(0, 0))


def test_numbers_without_meaning_are_refused():
    images, four, coins = pictures(), torch.zeros(B).long(), torch.zeros(B).bool()
    generator = step_generator(0, 0)
    with pytest.raises(TypeError, match=r"chosen must be boolean.* got torch\.int64"):
        flip(images, four)
    with pytest.raises(ValueError, match=r"chosen must have one number for each of the 4 images"):
        flip(images, coins[:3])
    with pytest.raises(ValueError, match=r"down must lie between -2 and 2, got \[3, 3, 3, 3\]"):
        shift(images, four + 3, four, 2)
    with pytest.raises(ValueError, match="right must have one number for each of the 4 images"):
        shift(images, four, four[:1], 2)
    with pytest.raises(TypeError, match="down must hold integers"):
        shift(images, four.float(), four, 2)
    with pytest.raises(ValueError, match="most must be less than the side of the images, 6, got 6"):
        random_shift(images, 6, generator)
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        random_shift(images, 0, generator)
    with pytest.raises(ValueError, match="padding must be one of 'zero', 'reflect', got 'wrap'"):
        random_shift(images, 2, generator, padding="wrap")
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        random_cutout(images, 0, generator)
    with pytest.raises(ValueError, match="top must have one number for each"):
        cutout(images, four[:2], four, 2)
    with pytest.raises(TypeError, match=r"images must be a torch\.Tensor, got list"):
        random_flip([1], generator)


def test_N29_mixup_refuses_what_it_cannot_mix():
    images, labels, generator = pictures(torch.float32), torch.arange(B), step_generator(0, 0)
    with pytest.raises(TypeError, match=r"images must hold floating-point numbers, got torch\.ui"):
        random_mixup(pictures(), labels, C, 0.2, generator)
    with pytest.raises(ValueError, match=r"labels\[3\] is 3, but classes go from 0 to 2"):
        random_mixup(images, labels, 3, 0.2, generator)
    with pytest.raises(ValueError, match=r"labels\[0\] is -1, but classes go from 0 to 4"):
        random_mixup(images, labels - 1, C, 0.2, generator)
    with pytest.raises(ValueError, match=r"partner must lie between 0 and 3, got \[-1, 0, 1, 2\]"):
        mixup(images, torch.rand(B, C), labels - 1, torch.rand(B))
    with pytest.raises(ValueError, match="partner must lie between 0 and 3, got"):
        mixup(images, torch.rand(B, C), labels + 1, torch.rand(B))
    for weight in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=f"weight must lie between 0 and 1, got .*{weight}"):
            mixup(images, torch.rand(B, C), labels, torch.tensor([0, 1, 0.5, weight]).double())
    with pytest.raises(ValueError, match="targets must have a row for each of the 4 images, got 2"):
        mixup(images, torch.rand(2, C), labels, torch.rand(B))
    with pytest.raises(ValueError, match="weight must have one number for each"):
        mixup(images, torch.rand(B, C), labels, torch.rand(2))


@pytest.mark.parametrize("alpha", [0, -1, float("inf"), float("nan"), 1e308])
def test_N29_an_alpha_without_weights_is_refused(alpha):
    images, labels = pictures(torch.float32), torch.arange(B)
    with pytest.raises(
        ValueError, match=r"alpha must be above 0 and at most 1,000,000, got .*; for"
    ):
        random_mixup(images, labels, C, alpha, step_generator(0, 0))


@pytest.mark.parametrize("alpha", [1e-300, 1e6])
def test_N29_the_outermost_alphas_give_weights(alpha):
    images, labels = torch.ones(50, 1, 1, 1), torch.arange(50)
    _, targets = random_mixup(images, labels, 50, alpha, step_generator(0, 0))
    assert torch.allclose(targets.sum(1), torch.ones(50))
    if alpha > 1:
        mixed = targets.diagonal()[targets.diagonal() != 1]  # but who is his own partner
        assert (mixed - 0.5).abs().max() < 0.002


@pytest.mark.parametrize("kind", [torch.long, torch.float32])
def test_one_hot_rows_are_no_labels(kind):
    rows = torch.eye(B, C).to(kind)
    words = r"labels must be numbers of classes, shape \(4,\), got \(4, 5\); .* labels.argmax\(-1\)"
    with pytest.raises(ValueError, match=words):
        random_mixup(pictures(torch.float32), rows, C, 0.2, step_generator(0, 0))
    with pytest.raises(ValueError, match=words):
        Pictures(pictures(), rows, tuple("abcde"))


def test_labels_and_whole_one_hot_rows_are_no_targets():
    images, partner, weight = pictures(torch.float32), torch.arange(B), torch.rand(B)
    for targets, told in (
        (torch.eye(B, C).long(), r"torch.int64 \(4, 5\)"),
        (torch.arange(B), r"torch.int64 \(4,\)"),
        (torch.rand(B), r"torch.float32 \(4,\)"),
        (torch.rand(B, C, 2), r"torch.float32 \(4, 5, 2\)"),
        ([0, 1], r"\[0, 1\]"),
    ):
        with pytest.raises(
            TypeError,
            match=rf"targets must be rows of floating-point .*, got {told}; .* use one_hot\(",
        ):
            mixup(images, targets, partner, weight)


def test_small_whole_numbers_mean_what_they_say():
    images, targets = pictures(torch.float32), torch.rand(B, C)
    partner, weight = torch.tensor([2, 0, 3, 1]), torch.rand(B)
    expected = mixup(images, targets, partner, weight)
    found = mixup(images, targets, partner.to(torch.uint8), weight)  # no mask
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    down = torch.tensor([1, 2, 0, 2])
    expected = shift(images, down, down, 2)
    assert torch.equal(shift(images, down.to(torch.uint8), down.to(torch.uint8), 2), expected)
    with pytest.raises(ValueError, match="down must lie between -2 and 2, got"):
        shift(images, torch.full((B,), -128, dtype=torch.int8), down, 2)  # whose abs is -128


def test_N23_pictures_without_a_pixel_are_refused():
    with pytest.raises(ValueError, match=r"images must have pixels, got shape \(2, 3, 0, 7\)"):
        random_cutout(torch.zeros(2, 3, 0, 7), 2, step_generator(0, 0))


def test_a_step_is_a_count():
    assert step_generator(0, np.int64(3)).initial_seed() == step_generator(0, 3).initial_seed()
    for step, error in ((-1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="step must"):
            step_generator(0, step)


def test_every_patch_is_kept_equally_often_and_none_twice():
    kept = random_patches(6000, 5, 3, step_generator(1, 0))
    assert kept.shape == (6000, 3)
    assert all(len(set(row)) == 3 for row in kept.tolist())
    shares = kept.flatten().bincount(minlength=5) / 6000
    assert (shares - 3 / 5).abs().max() < 0.03  # five standard deviations
    assert sorted(random_patches(1, 4, 4, step_generator(1, 0))[0].tolist()) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="n_kept must be at most n_patches, 4, got 5"):
        random_patches(1, 4, 5, step_generator(1, 0))
    with pytest.raises(ValueError, match="n_kept must be"):
        random_patches(1, 4, 0, step_generator(1, 0))
