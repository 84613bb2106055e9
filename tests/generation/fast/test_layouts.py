"""Products for few rows: every layout is F.linear; 8 bits are as exact as rounding allows."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import linear

from clearhead.generation.fast.layouts import (
    InputMajor,
    Int8Product,
    OutputMajor,
    choose_layout,
    round_to_int8,
)

SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (5, 4), (33, 19), (64, 64), (100, 65)]
FLOATS = [torch.float32, torch.float64]


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Layouts


@pytest.mark.parametrize("kind", [OutputMajor, InputMajor])
@pytest.mark.parametrize(("out", "width"), SHAPES)
@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_layout_is_linear(kind, out, width, n, with_bias):
    for dtype, limit in zip(FLOATS, (1e-5, 1e-13), strict=True):
        weight, x = numbers(out, width, dtype=dtype), numbers(n, width, seed=1, dtype=dtype)
        bias = numbers(out, seed=2, dtype=dtype) if with_bias else None
        y = kind(weight, bias)(x)
        assert y.shape == (n, out)
        assert y.dtype == dtype
        assert torch.allclose(y, linear(x, weight, bias), rtol=0, atol=limit)


def test_one_layout_copies_and_the_other_does_not():
    weight = numbers(5, 4)
    assert OutputMajor(weight, None).weight.data_ptr() == weight.data_ptr()
    copied = InputMajor(weight, None)
    before, x = copied(numbers(2, 4)), numbers(2, 4)
    weight.zero_()
    assert torch.equal(copied(x), before)


@pytest.mark.parametrize("n_rows", [1, 3])
def test_lay_out_gives_a_product_for_each_pair_in_their_order(n_rows):
    pairs = [(numbers(6, 5, seed=i), numbers(6, seed=9 + i) if i else None) for i in range(4)]
    products = choose_layout(pairs, n_rows)
    assert len(products) == 4
    assert len({type(product) for product in products}) == 1
    for rows in (1, n_rows, 7):
        x = numbers(rows, 5, seed=50)
        for product, (weight, bias) in zip(products, pairs, strict=True):
            assert torch.allclose(product(x), linear(x, weight, bias), rtol=0, atol=1e-5)


# Eight bits


tables = st.tuples(
    st.integers(1, 6), st.integers(1, 9), st.integers(-30, 30), st.integers(0, 2**20)
)


@given(tables)
def test_each_row_is_rounded_to_half_a_step_of_its_own(table):
    n, width, exponent, seed = table
    x = numbers(n, width, seed=seed).mul_(10.0**exponent)
    x[0, 0] *= 1000
    whole, scale = round_to_int8(x)
    assert whole.dtype == torch.int8
    assert whole.shape == x.shape
    assert scale.shape == (n, 1)
    assert int(whole.abs().max()) <= 127
    assert bool((scale > 0).all())
    half = scale.double() * (0.5 + 1e-4)  # and float32 rounds the quotient
    assert bool(((x.double() - scale.double() * whole).abs() <= half).all())


def test_zeros_stay_zeros_and_the_largest_is_kept():
    whole, scale = round_to_int8(torch.tensor([[0.0, 0.0], [-3.0, 1.5], [1e-44, 0.0]]))
    assert whole[0].tolist() == [0, 0]
    assert whole[1, 0] == -whole[1].abs().max()
    assert float(scale[1] * whole[1, 0]) == pytest.approx(-3.0, rel=1e-6)
    assert bool((scale > 0).all())
    assert bool((scale * whole).isfinite().all())
    assert bool((Int8Product(torch.zeros(3, 2), None)(torch.ones(1, 2)) == 0).all())


@pytest.mark.parametrize(("out", "width"), SHAPES)
@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_error_in_8_bits_is_what_rounding_can_do(out, width, n, dtype):
    weight, x = numbers(out, width, dtype=dtype), numbers(n, width, seed=1, dtype=dtype)
    bias = numbers(out, seed=2, dtype=dtype)
    product = Int8Product(weight, bias)
    y = product(x)
    assert y.dtype == dtype
    assert y.shape == (n, out)
    # x·w − x̂·ŵ = (x − x̂)·w + x̂·(w − ŵ): half a step of x for each number of w, and the reverse.
    step_x, step_w = round_to_int8(x)[1].double(), product.scale.double()  # (N, 1), (1, out)
    near_x = round_to_int8(x)[0].double() * step_x
    of_x, of_w = weight.double().abs().sum(-1), near_x.abs().sum(-1, keepdim=True)
    bound = step_x / 2 * of_x + step_w / 2 * of_w
    exact = linear(x.double(), weight.double(), bias.double())
    assert bool(((y.double() - exact).abs() <= bound * 1.001 + 1e-6).all())


@pytest.mark.parametrize(("out", "width"), SHAPES)
def test_numbers_of_one_size_are_multiplied_without_any_error(out, width):
    """Every whole number is then the largest or 0: sums are as large as they can be."""
    signs = torch.randint(-1, 2, (out + 4, width), generator=torch.Generator().manual_seed(0))
    signs[:, 0] = 1
    weight, x = 3.0 * signs[:out], 0.5 * signs[out:]
    assert torch.allclose(Int8Product(weight, None)(x), linear(x, weight), rtol=1e-6, atol=1e-5)
    for sign in (1, -1):
        y = Int8Product(torch.full((out, width), -2.0), None)(torch.full((1, width), sign * 7.0))
        assert torch.allclose(y, torch.tensor(-14.0 * sign * width), rtol=1e-6)


@pytest.mark.parametrize(("out", "width"), SHAPES)
def test_a_row_in_8_bits_does_not_depend_on_the_others(out, width):
    product, x = Int8Product(numbers(out, width), numbers(out, seed=2)), numbers(9, width, seed=1)
    together = product(x)
    x[4] *= 1000
    assert torch.equal(product(x)[:4], together[:4])
    for i in (0, 4, 8):
        assert torch.equal(product(x)[i], product(x[i : i + 1])[0])


def test_every_output_has_a_scale_of_its_own():
    weight = numbers(3, 16)
    weight[1] *= 1000
    product, x = Int8Product(weight, None), numbers(2, 16, seed=1)
    assert torch.allclose(product(x)[:, [0, 2]], linear(x, weight)[:, [0, 2]], rtol=0, atol=0.2)


PROGRAM = """
import torch
from torch.nn.functional import linear
from clearhead.generation.fast.best_word import BestWord
from clearhead.generation.fast.layouts import Int8Product, round_to_int8
torch.manual_seed(0)
for width in (2, 7, 64, 768):
    weight, x = torch.randn(300, width), torch.randn(4, width)
    weight[0], weight[1], x[0] = 1.0, -1.0, 1.0
    steps = [round_to_int8(z)[1] for z in (x, weight)]
    bound = steps[0] * weight.abs().sum(-1) + steps[1].mT * x.abs().sum(-1, keepdim=True)
    assert bool(((Int8Product(weight, None)(x) - linear(x, weight)).abs() <= bound).all()), width
    assert torch.equal(BestWord(weight)(x), linear(x, weight).argmax(-1)), width
print("right")
"""


def test_8_bits_are_right_on_a_processor_without_instructions_for_them():
    """Sums of two 8-bit products do not fit 16 bits, where older processors keep them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.stdout.strip() == "right", done.stderr.splitlines()[-1:]
