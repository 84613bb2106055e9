"""Weights set by hand: right on every sequence, and no further from the ideal than they say."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from clearhead.models.smallest import NumpyTransformer, TorchTransformer, designs

MAX_LEN = 8
A, B, C, CLS = range(4)

Make = Callable[..., NumpyTransformer]
MAKE: dict[str, Make] = {
    "identity": lambda **kw: designs.identity(**kw),
    "first": lambda **kw: designs.first(MAX_LEN, **kw),
    "unique": lambda **kw: designs.unique(MAX_LEN, **kw),
}


def every_word(n: int) -> torch.Tensor:
    """All 3^n sequences of the letters A, B, C: (3^n, n)."""
    return torch.cartesian_prod(*[torch.arange(3)] * n).reshape(-1, n)


def question(name: str, words: torch.Tensor) -> torch.Tensor:
    """One-hot rows, for unique with the CLS row first."""
    if name != "unique":
        return torch.eye(3, dtype=torch.float64)[words]
    cls = torch.full((len(words), 1), CLS)
    return torch.eye(4, dtype=torch.float64)[torch.cat([cls, words], dim=1)]


def ideal(name: str, words: torch.Tensor) -> torch.Tensor:
    if name == "unique":
        times = (words[:, :, None] == words[:, None, :]).sum(-1)
        sign = torch.where(times == 1, 1.0, -1.0).double()
        return torch.cat([torch.ones(len(words), 1).double(), sign], dim=1)[..., None]
    chosen = words if name == "identity" else words[:, :1].expand_as(words)
    return torch.eye(3, dtype=torch.float64)[chosen]


def answer(design: NumpyTransformer, rows: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return TorchTransformer.from_numpy(design)(rows)


# The examples of the task


def one_hot(word: str, width: int = 3) -> np.ndarray:
    return np.eye(width)[["ABC".index(c) if c in "ABC" else CLS for c in word]]


@pytest.mark.parametrize("word", ["ABCC", "CAC", "BBC", "A" * 30])
def test_identity_gives_each_token_back(word: str) -> None:
    np.testing.assert_allclose(designs.identity().forward(one_hot(word)), one_hot(word), atol=1e-15)


@pytest.mark.parametrize(("word", "right"), [("ABCC", "AAAA"), ("CAC", "CCC"), ("BBC", "BBB")])
def test_first_repeats_the_first_token(word: str, right: str) -> None:
    out = designs.first(4).forward(one_hot(word))
    np.testing.assert_allclose(out, one_hot(right), atol=1e-15)


@pytest.mark.parametrize(
    ("word", "right"),
    [("-ABCC", [1, 1, -1, -1]), ("-CAC", [-1, 1, -1]), ("-BBC", [-1, -1, 1]), ("-B", [1])],
)
def test_unique_tells_single_tokens_from_repeated_ones(word: str, right: list[int]) -> None:
    out = designs.unique(4).forward(one_hot(word, 4))
    assert out.shape == (len(word), 1)
    np.testing.assert_allclose(out[1:, 0], right, atol=1e-15)


# Every sequence


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("n", range(1, MAX_LEN + 1))
def test_N30_a_design_is_right_on_every_sequence_of_length(name: str, n: int) -> None:
    words = every_word(n)
    out = answer(MAKE[name](), question(name, words))
    torch.testing.assert_close(out, ideal(name, words), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", MAKE)
def test_N30_so_is_the_numpy_form_up_to_length_5_and_here_and_there_beyond(name: str) -> None:
    design = MAKE[name]()
    for n in range(1, MAX_LEN + 1):
        words = every_word(n)[:: 1 if n <= 5 else 97]
        for rows, right in zip(question(name, words), ideal(name, words), strict=True):
            np.testing.assert_allclose(design.forward(rows), right, rtol=0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
def test_N30_so_is_the_numpy_form_on_every_sequence(name: str) -> None:
    design = MAKE[name]()
    for n in range(6, MAX_LEN + 1):
        words = every_word(n)
        for rows, right in zip(question(name, words), ideal(name, words), strict=True):
            np.testing.assert_allclose(design.forward(rows), right, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", MAKE)
def test_single_precision_is_enough(name: str) -> None:
    words = every_word(6)
    model = TorchTransformer.from_numpy(MAKE[name]()).float()
    with torch.no_grad():
        out = model(question(name, words))
    torch.testing.assert_close(out.double(), ideal(name, words), rtol=0, atol=1e-6)


@pytest.mark.parametrize("max_len", [1, 2, 5])
def test_a_design_serves_its_max_len_and_no_more(max_len: int) -> None:
    designs.first(max_len).forward(np.eye(3)[[0] * max_len])
    designs.unique(max_len).forward(np.eye(4)[[CLS] + [0] * max_len])
    with pytest.raises(ValueError, match=f"length {max_len + 1} but pos has {max_len} rows"):
        designs.first(max_len).forward(np.eye(3)[[0] * (max_len + 1)])
    with pytest.raises(ValueError, match=f"length {max_len + 2} but pos has {max_len + 1} rows"):
        designs.unique(max_len).forward(np.eye(4)[[CLS] + [0] * (max_len + 1)])


# How far from the ideal


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("sharpness", [0.01, 0.5, 1, 2, 4, 8, 16, 25])
def test_the_error_reaches_its_bound_and_never_passes_it(name: str, sharpness: float) -> None:
    design = MAKE[name](sharpness=sharpness)
    for n in range(1, 7):
        words = every_word(n)
        error = (answer(design, question(name, words)) - ideal(name, words)).abs().max().item()
        bound = designs.error_bound(name, sharpness, n)
        assert error <= bound * (1 + 1e-9) + 1e-15
        assert error >= bound * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize(
    ("name", "n", "right"),
    [("identity", 4, 3 / 103), ("first", 4, 3 / 103), ("unique", 4, 8 / 104), ("first", 1, 0)],
)
def test_the_bound_worked_by_hand(name: str, n: int, right: float) -> None:
    assert designs.error_bound(name, math.log(100), n) == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_by_default_the_bound_is_below_the_rounding_of_float64(name: str) -> None:
    assert designs.error_bound(name, designs.SHARPNESS, MAX_LEN) < 1.2e-16
    assert designs.error_bound(name, 1e4, MAX_LEN) == 0


def test_unique_has_the_right_sign_as_soon_as_cls_is_louder_than_all_letters_together() -> None:
    words = every_word(MAX_LEN)
    design = designs.unique(MAX_LEN, sharpness=math.log(MAX_LEN) + 0.01)
    out = answer(design, question("unique", words))
    assert (out * ideal("unique", words) > 0).all()


def test_sharpness_is_the_score_that_the_right_token_gains() -> None:
    identity = designs.identity(sharpness=3).steps(one_hot("AB"))
    np.testing.assert_allclose(identity.scores, [[3, 0], [0, 3]], atol=1e-14)
    first = designs.first(2, sharpness=3).steps(one_hot("AB"))
    np.testing.assert_allclose(first.scores, [[3, 0], [3, 0]], atol=1e-14)
    unique = designs.unique(3, sharpness=3).steps(one_hot("-AAB", 4))
    np.testing.assert_allclose(
        unique.scores, [[3, 0, 0, 0], [3, 0, 6, 0], [3, 6, 0, 0], [3, 0, 0, 0]], atol=1e-14
    )


# What is refused


@pytest.mark.parametrize("sharpness", [0, -1, math.inf, math.nan])
def test_sharpness_is_positive_and_finite(sharpness: float) -> None:
    for make in (*MAKE.values(), lambda sharpness: designs.error_bound("first", sharpness, 3)):
        with pytest.raises(ValueError, match="sharpness must be a finite number above 0, got"):
            make(sharpness=sharpness)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="sharpness must be a number, got 'high'"):
        designs.identity("high")
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        designs.first(0)
    with pytest.raises(ValueError, match="max_len must be at least 1, got 0"):
        designs.unique(0)
    with pytest.raises(ValueError, match="name must be one of 'identity', 'first', 'unique', got"):
        designs.error_bound("last", 40, 3)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        designs.error_bound("first", 40, 0)
