"""BestWord: the argmax of the whole product, on tables made to mislead it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.generation.fast.best_word import BestWord


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(weight, x):
    """The word chosen is the best, as exactly as float32 can tell; returns the words."""
    words = BestWord(weight)(x)
    assert words.shape == x.shape[:1]
    assert words.dtype == torch.long
    exact = x.double() @ weight.double().mT
    chosen = exact.gather(1, words[:, None])[:, 0]
    # A product of D numbers in float32 may be off by this much, whoever computes it.
    size = x.double().norm(dim=-1) * weight.double().norm(dim=-1).amax()
    assert bool((chosen >= exact.amax(-1) - 4e-7 * size).all())
    return words


def check_bound(weight, x):
    """|exact − rounded| ≤ slack for every word, which is what makes the choice exact."""
    logits, slack = BestWord(weight)._round_logits(x)
    error = (x.double() @ weight.double().mT - logits.double()).abs()
    rounding = 4e-7 * logits.double().abs()  # of the sums and products themselves
    assert bool((error <= slack.double() + rounding).all())


# Ordinary tables


@pytest.mark.parametrize("V", [1, 2, 17, 100, 1000, 5003])
@pytest.mark.parametrize("D", [1, 2, 7, 32, 65])
@pytest.mark.parametrize("B", [1, 3, 32])
def test_the_best_word_of_random_tables(V, D, B):
    weight, x = numbers(V, D), numbers(B, D, seed=1)
    words = check(weight, x)
    assert torch.equal(words, (x.double() @ weight.double().mT).argmax(-1))
    check_bound(weight, x)


def test_a_row_of_a_batch_is_answered_as_alone():
    best, x = BestWord(numbers(700, 24)), numbers(9, 24, seed=1)
    together = best(x)
    assert len(set(together.tolist())) > 1
    for i in range(9):
        assert best(x[i : i + 1]).item() == together[i]


def test_no_rows_give_no_words():
    assert BestWord(numbers(50, 8))(torch.zeros(0, 8)).shape == (0,)


# Tables made to mislead


@given(st.integers(1, 400), st.integers(2, 40), st.floats(-9, -1), st.integers(0, 2**20))
@settings(max_examples=60)
def test_near_ties(V, D, exponent, seed):
    """All rows are one vector and a little of their own: 8 bits cannot tell them apart."""
    weight = numbers(1, D, seed=seed) + 10.0**exponent * numbers(V, D, seed=seed + 1)
    x = numbers(3, D, seed=seed + 2)
    check(weight, x)
    check_bound(weight, x)


@given(
    st.integers(2, 300),
    st.integers(2, 24),
    st.integers(-18, 18),
    st.integers(-18, 18),
    st.integers(0, 2**20),
)
@settings(max_examples=60)
def test_scales_of_every_size_and_one_outlier(V, D, of_table, of_x, seed):
    weight, x = numbers(V, D, seed=seed), numbers(2, D, seed=seed + 1)
    weight[seed % V, seed % D] *= 1e4
    x[0, seed % D] *= 1e4
    weight, x = weight * 10.0**of_table, x * 10.0**of_x
    check(weight, x)
    check_bound(weight, x)


@given(st.integers(20, 300), st.integers(2, 12), st.integers(0, 2**20))
@settings(max_examples=60)
def test_rows_of_very_different_length(V, D, seed):
    weight = numbers(V, D, seed=seed) * 10.0 ** (4 * numbers(V, 1, seed=seed + 1))
    x = numbers(4, D, seed=seed + 2)
    check(weight, x)
    check_bound(weight, x)


@pytest.mark.parametrize("exponent", [-20, -22, -25, -30])
@pytest.mark.parametrize("which", ["x", "table"])
def test_numbers_whose_squares_are_too_small_for_float32(exponent, which):
    weight, x = numbers(300, 16), numbers(40, 16, seed=1)
    weight[1::2] = weight[::2] * (1 + 1e-3 * numbers(150, 1, seed=2))  # every second a near tie
    expected = (x.double() @ weight.double().mT).argmax(-1)
    small = 10.0**exponent
    words = BestWord(weight * (small if which == "table" else 1))(
        x * (small if which == "x" else 1)
    )
    assert torch.equal(words, expected)


@pytest.mark.parametrize("together", range(-46, -34))
def test_products_so_small_that_digits_are_lost(together):
    """10^−38 is the last with all its digits, 1.4 · 10^−45 the last of all."""
    for case in range(40):
        V, D, of_table = 150 + case, 16 + case % 9, -case % 46
        weight = (numbers(V, D, seed=case).double() * 10.0**-of_table).float()
        x = (numbers(2, D, seed=case + 1).double() * 10.0 ** (together + of_table)).float()
        words, exact = BestWord(weight)(x), (x.double() @ weight.double().mT).float()
        best = exact.gather(1, words[:, None])[:, 0] == exact.amax(-1)
        assert bool((best | (words == (x @ weight.mT).argmax(-1))).all())


def test_a_table_of_the_smallest_numbers():
    smallest = 2.0**-149
    weight = torch.zeros(64, 16)
    weight[41, 3], weight[17, 3] = 2 * smallest, smallest
    x = torch.zeros(2, 16)
    x[0, 3], x[1, 3] = 1.0, -1.0
    weight[:, 5] = smallest * (torch.arange(64) == 50)
    x[1, 5] = 2.0
    for rows in (x, x[:1], x[1:]):
        assert torch.equal(BestWord(weight)(rows), (rows @ weight.mT).argmax(-1))
    assert BestWord(weight)(x).tolist() == [41, 50]


def test_one_outlier_row_or_column():
    for place in ((3, slice(None)), (slice(None), 5)):
        weight, x = numbers(400, 16), numbers(6, 16, seed=1)
        weight[place] *= 1e5
        check(weight, x)
        check_bound(weight, x)
        x[:, 5] = 0
        check(weight, x)
        check_bound(weight, x)


def test_a_winner_by_less_than_a_step_of_8_bits():
    """The second row is better by a thousandth of a step, at a place that rounds the other way."""
    weight = torch.full((600, 8), -1.0)
    weight[70] = torch.tensor([1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    weight[333] = weight[70]
    weight[333, 3] += 1e-5
    x = torch.ones(1, 8)
    assert BestWord(weight)(x).tolist() == [333]
    weight[333, 3] -= 2e-5
    assert BestWord(weight)(x).tolist() == [70]


@pytest.mark.parametrize(
    ("rounded", "exact"),
    [(50.51, 50.6), (50.49, 50.4)],
    ids=["the second is rounded past the best", "the best is rounded below the second"],
)
def test_rounding_as_unlucky_as_can_be(rounded, exact):
    """x reads one column. A row with a larger number beside it is rounded there, to 51 or to 50
    steps; a row with nothing beside it is not. So neither slack can be left out."""
    weight = torch.full((600, 2), -1.0)
    weight[70] = torch.tensor([1.0, rounded / 127])
    weight[333] = torch.tensor([0.0, exact / 127])
    x = torch.tensor([[0.0, 1.0]])
    assert BestWord(weight)(x).tolist() == [333 if exact > rounded else 70]
    check_bound(weight, x)


# Ties: the first wins


@pytest.mark.parametrize("V", [2, 16, 33, 37, 100, 1001])
@pytest.mark.parametrize("D", [1, 3, 8, 19])
@pytest.mark.parametrize("B", [1, 2, 5])
def test_where_nearly_all_rows_are_equal_the_whole_product_decides(V, D, B):
    weight, x = numbers(1, D).expand(V, D).contiguous(), numbers(B, D, seed=1)
    assert torch.equal(BestWord(weight)(x), (x @ weight.mT).argmax(-1))


@pytest.mark.parametrize("V", [64, 500, 1003])
def test_of_a_few_copies_of_the_best_row_the_first_wins(V):
    weight = numbers(V, 12)
    for seed in range(10):
        x = numbers(1, 12, seed=100 + seed)
        best = int((x.double() @ weight.double().mT).argmax())
        table = weight.clone()
        for place in (V - 1, V // 2, 3):
            table[place] = weight[best]
        assert BestWord(table)(x).item() == min(best, 3)


def test_zeros():
    weight, x = numbers(200, 8), numbers(2, 8, seed=1)
    assert BestWord(weight)(torch.zeros(2, 8)).tolist() == [0, 0]
    assert BestWord(torch.zeros(200, 8))(x).tolist() == [0, 0]
    some = -weight.abs()
    some[[7, 9]] = 0.0
    assert BestWord(some)(x.abs()).tolist() == [7, 7]
    mixed = torch.cat((torch.zeros(1, 8), x[1:]))
    assert BestWord(weight)(mixed).tolist() == [0, int((weight @ x[1]).argmax())]


def test_a_constant_x_and_whole_numbers():
    weight = torch.randint(-3, 4, (300, 9), generator=torch.Generator().manual_seed(0)).float()
    sums = weight.sum(-1)
    assert BestWord(weight)(torch.ones(1, 9)).item() == int(sums.argmax())
    assert BestWord(weight)(torch.full((1, 9), -0.1)).item() == int(sums.argmin())


# Broken numbers


def test_broken_numbers_are_not_hidden():
    """What argmax would show, BestWord shows: a NaN wins."""
    weight, x = numbers(300, 8), numbers(2, 8, seed=1)
    weight[40, 3] = math.nan
    assert BestWord(weight)(x).tolist() == [40, 40]
    weight = numbers(300, 8)
    weight[40] = math.inf * x[0].sign()
    assert BestWord(weight)(x[:1]).tolist() == [40]


def test_numbers_too_large_for_their_squares():
    weight, x = numbers(300, 8) * 1e20, numbers(2, 8, seed=1)
    assert torch.equal(BestWord(weight)(x), (x.double() @ weight.double().mT).argmax(-1))
    weight, x = numbers(300, 8), numbers(2, 8, seed=1) * 1e30
    assert torch.equal(BestWord(weight)(x), (x.double() @ weight.double().mT).argmax(-1))


def test_it_reads_few_words_exactly():
    """That is what it is for: of random rows only a few are near the best."""
    best, x = BestWord(numbers(5000, 64)), numbers(8, 64, seed=1)
    logits, slack = best._round_logits(x)
    near = logits + slack >= (logits - slack).amax(-1, keepdim=True)
    assert int(near.sum(-1).max()) < 100
