"""Each check at a public door: what it lets pass, and the whole sentence it says."""

import math
import re

import pytest
import torch

from clearhead.shapes import (
    all_finite,
    check_above_zero,
    check_at_most,
    check_choice,
    check_count,
    check_divides,
    check_dropout,
    check_float_tensor,
    check_int_tensor,
    check_last_axis,
    check_length,
    check_number,
    check_positive,
    check_qkv,
    check_whole,
    format_shape,
    is_number,
    is_whole,
    read_token_mask,
)

B, H, T, S, Dh, Dv = 2, 3, 5, 7, 4, 6


def refused(error, sentence):
    return pytest.raises(error, match=f"^{re.escape(sentence)}$")


def test_a_shape_is_written_as_people_write_it():
    assert format_shape(torch.zeros(2, 5, 4)) == "(2, 5, 4)"
    assert format_shape(torch.zeros(3)) == "(3,)"
    assert format_shape(torch.zeros(())) == "()"


def test_a_size_is_a_whole_number_of_at_least_one():
    check_positive(d_model=1, n_heads=2**40)
    check_positive()
    with refused(ValueError, "n_heads must be at least 1, got 0"):
        check_positive(d_model=3, n_heads=0)
    with refused(ValueError, "n_heads must be at least 1, got -2"):
        check_positive(n_heads=-2)
    with refused(TypeError, "d_model must be a whole number, got 3.0 of type float"):
        check_positive(d_model=3.0)
    with refused(TypeError, "d_model must be a whole number, got True of type bool"):
        check_positive(d_model=True)
    with refused(TypeError, "d_model must be a whole number, got None of type NoneType"):
        check_positive(d_model=None)
    with refused(TypeError, "d_model must be a whole number, got '4' of type str"):
        check_positive(d_model="4")


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_one_broken_number_anywhere_is_found(dtype, broken):
    x = torch.linspace(-3, 3, 35, dtype=dtype).reshape(5, 7)
    assert all_finite(x)
    for place in (0, 17, 34):
        wrong = x.clone()
        wrong.view(-1)[place] = broken
        assert not all_finite(wrong)
        assert not all_finite(wrong.mT)


def test_the_largest_numbers_whole_numbers_and_nothing_are_finite():
    largest = torch.finfo(torch.float32).max
    assert all_finite(torch.full((9,), largest))  # their sum is not
    assert all_finite(torch.tensor([largest, -largest], requires_grad=True))
    assert all_finite(torch.tensor([2**62, 1]))
    assert all_finite(torch.zeros(0, 3))


def test_a_number_is_an_int_or_a_float_and_a_whole_number_has_an_index():
    values = [1, 2.5, True, "1", None, torch.tensor(3)]
    assert [is_number(value) for value in values] == [True, True, False, False, False, False]
    assert [is_whole(value) for value in values] == [True, False, False, False, False, True]


def test_a_number_lies_between_its_bounds():
    for value in (0, 0.5, 1):
        check_number("share", value, low=0, high=1)
    check_number("share", 1e300, low=0, above=True)
    with refused(ValueError, "share must be a finite number from 0 to 1, got 1.5"):
        check_number("share", 1.5, low=0, high=1)
    with refused(ValueError, "share must be a finite number from 0, got nan"):
        check_number("share", math.nan, low=0)
    with refused(ValueError, "share must be a finite number from 0, got inf"):
        check_number("share", math.inf, low=0)
    with refused(ValueError, "share must be a finite number above 0, got 0; leave it out"):
        check_number("share", 0, low=0, above=True, way_out="; leave it out")
    with refused(TypeError, "share must be a number, got True; leave it out"):
        check_number("share", True, low=0, way_out="; leave it out")


def test_a_part_divides_the_whole():
    check_divides("n_heads", 3, "d_model", 12)
    check_divides("n_heads", 12, "d_model", 12)
    with refused(
        ValueError,
        "d_model is 10, which n_heads=4 does not divide; take d_model=8 or another n_heads",
    ):
        check_divides("n_heads", 4, "d_model", 10)
    with refused(ValueError, "n_heads must be at least 1, got 0"):
        check_divides("n_heads", 0, "d_model", 10)


@pytest.mark.parametrize(("part", "whole"), [(4, 10), (4, 3), (7, 8), (5, 4)])
def test_the_proposed_whole_can_be_divided(part, whole):
    with pytest.raises(ValueError, match="does not divide") as caught:
        check_divides("part", part, "whole", whole)
    proposed = int(re.search(r"take whole=(\d+)", str(caught.value)).group(1))
    assert proposed > 0
    assert proposed % part == 0


def test_a_choice_is_one_of_the_named():
    check_choice("norm", "rms", ("layer", "rms"))
    with refused(ValueError, "norm must be one of 'layer', 'rms', got 'batch'"):
        check_choice("norm", "batch", ("layer", "rms"))
    with refused(ValueError, "norm must be one of 'layer', 'rms', got None"):
        check_choice("norm", None, ("layer", "rms"))


@pytest.mark.parametrize("dropout", [0, 0.0, 0.5, 1, 1.0])
def test_a_dropout_from_zero_to_one_is_legal(dropout):
    check_dropout(dropout)


def test_another_dropout_is_refused():
    with refused(ValueError, "dropout must be a finite number from 0 to 1, got 1.5"):
        check_dropout(1.5)
    with refused(ValueError, "dropout must be a finite number from 0 to 1, got -0.1"):
        check_dropout(-0.1)
    with refused(ValueError, "dropout must be a finite number from 0 to 1, got nan"):
        check_dropout(float("nan"))
    with refused(TypeError, "dropout must be a number, got '0.5'"):
        check_dropout("0.5")
    with refused(TypeError, "dropout must be a number, got True"):
        check_dropout(True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_float_is_a_float_tensor(dtype):
    check_float_tensor("x", torch.zeros(1, dtype=dtype))


def test_what_is_no_float_tensor_is_refused():
    with refused(TypeError, "x must be a torch.Tensor, got list"):
        check_float_tensor("x", [1.0])
    with refused(TypeError, "x must hold floating-point numbers, got torch.int64; use x.float()"):
        check_float_tensor("x", torch.zeros(3, dtype=torch.long))
    with refused(TypeError, "x must hold floating-point numbers, got torch.bool; use x.float()"):
        check_float_tensor("x", torch.zeros(3, dtype=torch.bool))
    with refused(ValueError, "x must have at least 3 axes, got shape (2, 5)"):
        check_float_tensor("x", torch.zeros(2, 5), min_axes=3)
    with refused(ValueError, "x must have at least 1 axes, got shape ()"):
        check_float_tensor("x", torch.zeros(()))


def test_only_integers_are_integers():
    for dtype in (torch.int64, torch.int32, torch.uint8):
        check_int_tensor("tokens", torch.zeros(3, dtype=dtype))
    with refused(TypeError, "tokens must be a torch.Tensor of integers, got int"):
        check_int_tensor("tokens", 3)
    for dtype in (torch.float32, torch.bool, torch.complex64):
        with refused(TypeError, f"tokens must hold integers, got {dtype}; use tokens.long()"):
            check_int_tensor("tokens", torch.zeros(3, dtype=dtype))


def test_the_last_axis_has_the_width_of_the_module():
    check_last_axis("x", torch.zeros(2, 5, 4), "d_model", 4, min_axes=3)
    with refused(
        ValueError,
        "x has width 3 (shape (2, 3)) but d_model is 4; "
        "give it 4 columns or build the module with d_model=3",
    ):
        check_last_axis("x", torch.zeros(2, 3), "d_model", 4)
    with refused(TypeError, "x must be a torch.Tensor, got NoneType"):
        check_last_axis("x", None, "d_model", 4)
    with refused(ValueError, "x must have at least 3 axes, got shape (2, 4)"):
        check_last_axis("x", torch.zeros(2, 4), "d_model", 4, min_axes=3)


def test_a_sequence_is_at_most_as_long_as_the_module():
    check_length("tokens", 256, 256)
    check_length("tokens", 0, 256)
    with refused(
        ValueError,
        "tokens has length 300 but max_len is 256; shorten it or build the module with max_len=300",
    ):
        check_length("tokens", 300, 256)


def test_queries_and_keys_share_batch_width_dtype():
    q, k = torch.zeros(B, H, T, Dh), torch.zeros(B, H, S, Dh)
    check_qkv(q, k)
    check_qkv(q, torch.zeros(B, H, S, Dv), same_width=False)
    with refused(
        ValueError,
        "k must be as wide as q, 4, got 6 (q (2, 3, 5, 4), k (2, 3, 7, 6)); "
        "project both to one width",
    ):
        check_qkv(q, torch.zeros(B, H, S, Dv))
    with refused(
        ValueError,
        "k must have the leading axes of q, (2, 3), got (2, 1) "
        "(q (2, 3, 5, 4), k (2, 1, 7, 4)); use k.expand(...)",
    ):
        check_qkv(q, k[:, :1])
    with refused(
        TypeError, "k must have the dtype of q, torch.float32, got torch.float16; use k.to(q.dtype)"
    ):
        check_qkv(q, k.half())
    with refused(ValueError, "k must be on the device of q, cpu, got meta; use k.to(q.device)"):
        check_qkv(q, k.to("meta"))
    with refused(TypeError, "q must be a torch.Tensor, got int"):
        check_qkv(1, k)
    with refused(TypeError, "k must hold floating-point numbers, got torch.int64; use k.float()"):
        check_qkv(q, k.long())
    with refused(ValueError, "q must have at least 2 axes, got shape (4,)"):
        check_qkv(q[0, 0, 0], k)


def test_values_have_a_row_for_each_key():
    q, k, v = torch.zeros(B, T, Dh), torch.zeros(B, S, Dh), torch.zeros(B, S, Dv)
    check_qkv(q, k, v)
    with refused(ValueError, "v must have one row per key, 7, got 5 (k (2, 7, 4), v (2, 5, 6))"):
        check_qkv(q, k, torch.zeros(B, T, Dv))
    with pytest.raises(ValueError, match=r"v must have the leading axes of q, \(2,\), got \(3,\)"):
        check_qkv(q, k, torch.zeros(3, S, Dv))
    with pytest.raises(TypeError, match="v must have the dtype of q"):
        check_qkv(q, k, v.double())
    with pytest.raises(ValueError, match="k must be as wide as q"):
        check_qkv(q, torch.zeros(B, S, Dv), v)
    check_qkv(q, torch.zeros(B, S, Dv), v, same_width=False)


def test_empty_sizes_are_legal():
    check_qkv(torch.zeros(0, T, Dh), torch.zeros(0, S, Dh), torch.zeros(0, S, Dv))
    check_qkv(torch.zeros(B, 0, Dh), torch.zeros(B, 0, Dh), torch.zeros(B, 0, Dv))


def test_checks_change_nothing():
    q, k, v = torch.randn(T, Dh), torch.randn(S, Dh), torch.randn(S, Dv)
    check_qkv(q, k, v)
    assert q._version == k._version == v._version == 0


def test_N25_every_module_refuses_another_dtype_or_device_in_words():
    from clearhead.attention import MultiHeadAttention, SelfAttention
    from clearhead.layers import Block, FeedForward, LayerNorm, LinearRNN, RMSNorm
    from clearhead.positions import LearnedPositions

    modules = [
        MultiHeadAttention(6, 2),
        SelfAttention(6, 4, 5),
        Block(6, 2),
        FeedForward(6),
        LayerNorm(6),
        RMSNorm(6),
        LinearRNN(6, 4, 5),
        LearnedPositions(9, 6),
    ]
    for module in modules:
        name = type(module).__name__
        with pytest.raises(TypeError, match=r"x must have the dtype of the module, torch.float32"):
            module(torch.zeros(2, 3, 6, dtype=torch.float64)), name
        with pytest.raises(
            ValueError, match="x must be on the device of the module, cpu, got meta"
        ):
            module(torch.zeros(2, 3, 6, device="meta")), name


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_a_token_mask_is_of_booleans_or_of_0_and_1(dtype):
    flags = torch.tensor([[1, 1, 0], [1, 0, 0]])
    found = read_token_mask(flags.to(dtype), (2, 3))
    assert found.dtype == torch.bool
    assert torch.equal(found, flags.bool())


def test_a_token_mask_that_says_something_else_is_refused():
    for wrong, words in (
        ([[True]], "token_mask must be a boolean tensor, True = real, got list"),
        (torch.ones(2, 3), r"got torch\.float32; use token_mask\.bool\(\)"),
        (torch.ones(2, 3, dtype=torch.cfloat), r"got torch\.complex64; use token_mask\.bool\(\)"),
    ):
        with pytest.raises(TypeError, match=words):
            read_token_mask(wrong, (2, 3))
    for number in (2, -1):
        with pytest.raises(
            ValueError, match=f"hold only 0 and 1, with 1 = real, got {number}; for"
        ):
            read_token_mask(torch.tensor([[1, 0, number]]), (1, 3))
    for shape in ((3,), (1, 3), (2, 4)):
        with pytest.raises(ValueError, match=r"the shape of tokens, \(2, 3\), got"):
            read_token_mask(torch.ones(shape, dtype=torch.bool), (2, 3))


def test_a_whole_number_has_limits_where_they_are_given():
    check_whole("n", -3)
    check_whole("n", 3, 3, 3)
    check_count(n=0)
    with refused(ValueError, "n must not be negative, got -1"):
        check_count(n=-1)
    with refused(ValueError, "n must be at least 2, got 1"):
        check_whole("n", 1, least=2)
    with refused(ValueError, "n must be at most 1,000, got 2,000"):
        check_whole("n", 2000, least=1, most=1000)
    with refused(TypeError, "n must be a whole number, got 1.0 of type float"):
        check_whole("n", 1.0)


def test_sizes_have_an_end_and_some_numbers_must_be_positive():
    check_at_most(5, width=5, height=1)
    with pytest.raises(ValueError, match="height must be at most 5,000, got 5,001"):
        check_at_most(5000, width=5, height=5001)
    check_above_zero(eps=1e-9, base=None)
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=f"base must be a finite number above 0, got {wrong}"):
            check_above_zero(eps=1.0, base=wrong)
