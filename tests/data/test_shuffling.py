"""A random order by arithmetic: each number once, any part of it alone, all orders alike."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.shuffling import EvenPlans, shuffle_indices


@given(st.integers(1, 700), st.integers(-5, 50), st.integers(0, 9))
def test_every_number_comes_once(n, seed, epoch):
    found = shuffle_indices(range(n), n, seed=seed, epoch=epoch)
    assert sorted(found.tolist()) == list(range(n))


@given(st.integers(1, 1 << 40), st.integers(0, 9), st.data())
def test_an_entry_does_not_depend_on_the_others_asked_for(n, seed, data):
    asked = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9))
    together = shuffle_indices(asked, n, seed=seed, epoch=3).tolist()
    assert together == [int(shuffle_indices([i], n, seed=seed, epoch=3)[0]) for i in asked]
    assert all(0 <= value < n for value in together)
    assert len(set(together)) == len(set(asked))


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = {
        tuple(shuffle_indices(range(40), 40, seed=seed, epoch=epoch))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_all_orders_of_three_are_about_equally_frequent():
    found = Counter(tuple(shuffle_indices(range(3), 3, seed=0, epoch=e)) for e in range(3000))
    assert len(found) == 6
    assert all(400 < n < 600 for n in found.values())  # 500 each, five standard deviations


def test_every_number_visits_every_place():
    """Means over 1,000 epochs of the place of each number: 15 ± 0.29, five times that allowed."""
    places = np.array([shuffle_indices(range(31), 31, seed=2, epoch=e) for e in range(1000)])
    assert np.abs(places.mean(axis=0) - 15).max() < 1.45
    follows = (np.diff(places) == 1).mean()  # a number and the next one side by side: 1 in 31
    assert 0.5 < follows * 31 < 1.5


def test_a_part_of_a_trillion_needs_no_memory():
    tracemalloc.start()
    found = shuffle_indices(range(5 * 10**11, 5 * 10**11 + 64), 10**12, seed=0, epoch=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(found.tolist())) == 64
    assert found.max() > 2**32  # not the low half alone
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("indices", "n", "epoch", "words"),
    [
        ([0], 0, 0, "n must be at least 1, got 0"),
        ([5], 5, 0, "indices must be from 0 to 4, got 5 to 5"),
        ([-1, 2], 5, 0, "indices must be from 0 to 4, got -1 to 2"),
        ([1], 5, -1, "epoch must not be negative, got -1"),
    ],
)
def test_what_is_outside_is_refused(indices, n, epoch, words):
    with pytest.raises(ValueError, match=words):
        shuffle_indices(indices, n, seed=0, epoch=epoch)


@given(st.integers(0, 60), st.integers(1, 13))
def test_even_plans_are_the_list_cut_into_batches(n, batch_size):
    plans = EvenPlans(n, batch_size, lambda places: [10 * i for i in places])
    whole = [10 * i for i in range(n)]
    expected = [whole[i : i + batch_size] for i in range(0, n, batch_size)]
    assert len(plans) == len(expected)
    assert list(plans) == expected
    assert plans[:2] == expected[:2]
    assert plans[-1:] == expected[-1:]
    assert [list(plans)[i] for i in range(len(plans))] == [plans[i] for i in range(len(plans))]
    with pytest.raises(IndexError):
        plans[len(expected)]


def test_even_plans_make_only_what_is_asked_for():
    asked = []
    plans = EvenPlans(10**12, 64, lambda places: asked.append(places) or list(places))
    assert len(plans) == 10**12 // 64
    assert plans[10**9][0] == 64 * 10**9
    assert asked == [range(64 * 10**9, 64 * 10**9 + 64)]
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        EvenPlans(5, 0, list)
