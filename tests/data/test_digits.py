"""Drawn digits: a pure function of seed and number, ten digits, all different, worth learning."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.digits import draw_digits
from clearhead.data.images import to_float


def test_drawn_digits_have_the_shape_asked_for():
    pictures = draw_digits(11)
    assert pictures.images.shape == (11, 1, 28, 28)
    assert pictures.class_names == tuple("0123456789")
    assert draw_digits(2, size=20, channels=3).images.shape == (2, 3, 20, 20)


@given(st.integers(0, 10**12), st.integers(1, 20), st.integers(-5, 2**70))
def test_a_drawing_depends_on_its_seed_and_number_alone(start, n, seed):
    many = draw_digits(n, seed=seed, start=start, size=12)
    alone = draw_digits(1, seed=seed, start=start + n - 1, size=12)
    assert torch.equal(many.images[-1:], alone.images)
    assert torch.equal(many.labels[-1:], alone.labels)


def test_no_two_drawings_are_alike_and_all_digits_come_equally_often():
    pictures = draw_digits(2000, size=8)
    assert len({image.numpy().tobytes() for image in pictures.images}) == 2000
    assert not torch.equal(pictures.images[:9], draw_digits(9, seed=1, size=8).images)
    counts = pictures.labels.bincount(minlength=10)
    assert counts.min() > 150
    assert counts.max() < 250


def test_global_random_numbers_neither_matter_nor_move():
    torch.manual_seed(1)
    np.random.seed(1)
    first = draw_digits(3)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    torch.rand(1)
    assert torch.equal(draw_digits(3).images, first.images)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_digits_can_be_told_apart_by_their_mean_picture():
    """A classifier that compares with the mean of each digit: far above one in ten."""
    seen, fresh = draw_digits(3000, size=16), draw_digits(500, seed=1, size=16)

    def rows(pictures):
        x = to_float(pictures.images).flatten(1)
        return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)

    means = torch.stack([rows(seen)[seen.labels == digit].mean(0) for digit in range(10)])
    accuracy = ((rows(fresh) @ means.mT).argmax(1) == fresh.labels).float().mean()
    assert 0.3 < accuracy < 0.9


def test_ink_covers_a_line_and_fades_over_one_pixel():
    from clearhead.data.digits import _ink

    line = np.array([[[[2.0, 3.5], [6.0, 3.5]]]])  # from (2, 3½) to (6, 3½), across row 3
    ink = _ink(line, np.array([1.0]), 8)[0]
    assert ink[3, 2:6].tolist() == [1, 1, 1, 1]
    assert ink[2, 3] == pytest.approx(0.5)  # one pixel from the middle, at the edge of the stroke
    assert ink[4, 3] == pytest.approx(0.5)
    assert ink[1, 3] == ink[5, 3] == 0
    assert ink[3, 6] == pytest.approx(1)  # half a pixel after the end, inside the round cap
    assert ink[3, 7] == pytest.approx(0)  # 1.5 pixels after it


def test_drawing_refuses_numbers_without_meaning():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        draw_digits(0)
    with pytest.raises(ValueError, match="start must not be negative, got -1"):
        draw_digits(1, start=-1)
    with pytest.raises(TypeError, match="seed must be a whole number"):
        draw_digits(1, seed=1.5)
    for start in (0.5, True, "0"):
        with pytest.raises(TypeError, match="start must be a whole number"):
            draw_digits(1, start=start)


def test_numbers_of_numpy_are_numbers():
    small = draw_digits(np.uint8(9), seed=np.int64(3), start=np.uint8(250), size=np.int32(8))
    expected = draw_digits(9, seed=3, start=250, size=8)
    assert torch.equal(small.images, expected.images)
    assert torch.equal(small.labels, expected.labels)
