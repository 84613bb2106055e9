"""Random numbers that depend on their place alone."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.randomness import choose_below, draw_bits, hash_rows, is_validation, split


def test_a_number_does_not_depend_on_what_is_drawn_with_it():
    many = draw_bits(3, "x", np.arange(50), 7)
    for index in (0, 1, 17, 49):
        assert draw_bits(3, "x", index, 7)[0] == many[index]
        assert draw_bits(3, "x", np.array([index, 99]), 7)[0] == many[index]


def test_counters_broadcast_and_their_places_matter():
    table = draw_bits(0, "x", np.arange(4)[:, None], np.arange(3))
    assert table.shape == (4, 3)
    assert len(np.unique(table)) == 12
    assert draw_bits(0, "x", 1, 2)[0] == table[1, 2] != draw_bits(0, "x", 2, 1)[0]


def test_seed_purpose_and_every_counter_change_the_number():
    numbers = [
        draw_bits(s, p, i, j)[0] for s in (-1, 0, 1) for p in "xy" for i in (0, 1) for j in (0, 1)
    ]
    assert len(set(numbers)) == len(numbers)


def test_the_numbers_are_these_on_every_machine_and_in_every_process():
    """Golden values: data of a saved run must not change with a version."""
    expected = draw_bits(0, "order", 0, np.arange(2)).tolist()
    code = (
        "from clearhead.data.randomness import draw_bits; import numpy;"
        "print(draw_bits(0, 'order', 0, numpy.arange(2)).tolist())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(expected)
    assert expected == GOLDEN


GOLDEN = [5827910025689761029, 365776395740486636]


def test_bits_are_even_and_independent_of_their_neighbours():
    numbers = draw_bits(5, "bits", np.arange(4000))
    bits = (numbers[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.04  # 5 standard deviations
    assert np.abs((bits[1:] ^ bits[:-1]).mean(axis=0) - 0.5).max() < 0.04


@given(st.integers(1, 2**32), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9))
def test_below_stays_below(limit, numbers):
    found = choose_below(limit, np.array(numbers, dtype=np.uint64))
    assert found.min() >= 0
    assert found.max() < limit


def test_a_million_indices_have_a_million_numbers():
    """A number of 32 bits would come twice more than a hundred times; one of 24 nearly always."""
    numbers = draw_bits(0, "x", np.arange(1_000_000))
    assert len(np.unique(numbers)) == 1_000_000


@pytest.mark.parametrize("counter", [0.5, np.array([0.2, 0.7]), True, 2**64, "1", None])
def test_a_counter_that_is_no_whole_number_is_refused(counter):
    with pytest.raises(TypeError, match="counters must be whole numbers of 64 bits, got"):
        draw_bits(0, "x", counter)


def test_below_reaches_each_number_about_as_often():
    counts = np.bincount(choose_below(7, draw_bits(1, "x", np.arange(14_000))), minlength=8)
    assert counts[7] == 0
    assert np.abs(counts[:7] - 2000).max() < 200
    assert choose_below(np.array([1, 5]), np.array([2**64 - 1] * 2, dtype=np.uint64)).tolist() == [
        0,
        4,
    ]


def test_one_key_in_ten_is_for_validation():
    share = is_validation(np.arange(20_000, dtype=np.uint64)).mean()
    assert 0.09 < share < 0.11


def test_the_key_of_a_row_is_of_its_codes_in_their_order_without_what_fills_it_up():
    rows = np.array([[1, 2, -1, -1], [2, 1, -1, -1], [1, 2, 0, -1], [1, -1, -1, -1], [-1] * 4])
    keys = hash_rows(rows)
    assert len(set(keys.tolist())) == 5
    assert hash_rows(rows[:1, :2])[0] == keys[0]


@pytest.mark.parametrize("seed", [1.0, "0", None, True, np.float64(1), np.True_])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be a whole number, got"):
        draw_bits(seed, "x")
    with pytest.raises(TypeError, match="seed must be a whole number, got"):
        split(["a", "b"], seed=seed)


def test_a_seed_may_be_of_numpy():
    assert draw_bits(np.int64(3), "x", np.uint8(7)) == draw_bits(3, "x", 7)
    assert split("abcdefgh", seed=np.int32(3)) == split("abcdefgh", seed=3)


@pytest.mark.parametrize("seed", [0, -3, 2**70])
def test_any_whole_number_is_a_seed(seed):
    assert draw_bits(seed, "x", 1).dtype == np.uint64


# Training and validation lists


@given(
    st.lists(st.sampled_from("abcdefghij"), min_size=2).filter(lambda x: len(set(x)) > 1),
    st.integers(0, 3),
    st.floats(0.01, 0.99),
)
def test_split_keeps_every_item_once_in_order_and_no_text_in_both(items, seed, share):
    numbered = list(enumerate(items))
    train, validation = split(numbered, seed=seed, share=share, key=lambda item: item[1])
    assert sorted(train + validation) == numbered
    assert train == sorted(train)
    assert validation == sorted(validation)
    assert train
    assert validation
    assert not {text for _, text in train} & {text for _, text in validation}


def test_split_takes_the_asked_share_and_depends_on_the_seed():
    texts = [f"speech {i}" for i in range(200)]
    assert [len(part) for part in split(texts, seed=1, share=0.25)] == [150, 50]
    assert split(texts, seed=1) == split(texts, seed=1)
    assert split(texts, seed=1) != split(texts, seed=2)


def test_split_says_what_cannot_be_split():
    with pytest.raises(ValueError, match="at least 2 different ones to split, got 1"):
        split(["a", "a"])
    for share in (0.0, 1.0, -1, 2):
        with pytest.raises(ValueError, match="share must be between 0 and 1"):
            split(["a", "b"], share=share)
