"""Sampling: each filter against its definition in lists, the draw as an exact inverse."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from clearhead.generation import Sampling, choose, likely

INF = math.inf


def wide(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def logits_of(*probs):
    return wide([math.log(p) if p else -INF for p in probs])


def frequencies(logits, sampling, n=1000, seen=None):
    """How often each token is chosen by n draws spread evenly from 0 to 1."""
    draws = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    seen = None if seen is None else seen.expand(n, -1)
    tokens = choose(logits.expand(n, -1), sampling, draws, seen)
    counts = Counter(tokens.tolist())
    return [counts[v] / n for v in range(logits.size(-1))]


# The definition, in lists


def by_definition(logits, temperature, top_k, min_p, top_p):
    """Probabilities of one row, and how far top_p is from where it would cut elsewhere."""
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    if top_k is not None and top_k < len(weights):
        last = sorted(weights, reverse=True)[top_k - 1]
        weights = [w if w >= last else 0.0 for w in weights]
    if min_p is not None:
        weights = [w if w >= min_p * max(weights) else 0.0 for w in weights]
    probs = [w / sum(weights) for w in weights]
    margin = 1.0
    if top_p is not None:
        sums, kept = [], []
        for p in sorted(probs, reverse=True):
            kept.append(p)
            sums.append(sum(kept))
            if sums[-1] >= top_p:
                break
        margin = min(abs(s - top_p) for s in sums)
        probs = [p if p >= kept[-1] else 0.0 for p in probs]
        probs = [p / sum(probs) for p in probs]
    return probs, margin


rows = st.lists(st.integers(-12, 12).map(lambda n: n / 4), min_size=1, max_size=12)


@given(
    rows,
    st.sampled_from([0.3, 1.0, 2.5]),
    st.none() | st.integers(1, 14),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
)
def test_temperature_and_filters_are_their_definitions(row, temperature, top_k, min_p, top_p):
    expected, margin = by_definition(row, temperature, top_k, min_p, top_p)
    ratios = [math.exp((x - max(row)) / temperature) for x in row]
    assume(margin > 1e-9)
    assume(min_p is None or all(r == 1 or abs(r - min_p) > 1e-9 for r in ratios))
    y = likely(wide(row), Sampling(temperature, top_k, top_p, min_p))
    assert y.shape == (1, len(row))
    assert torch.allclose(y, wide(expected), rtol=0, atol=1e-12)


@given(rows, st.integers(1, 12))
def test_top_k_keeps_exactly_the_k_most_likely_and_their_equals(row, k):
    y = likely(wide(row), Sampling(1.0, top_k=k))[0]
    last = sorted(row, reverse=True)[min(k, len(row)) - 1]
    assert [p > 0 for p in y.tolist()] == [x >= last for x in row]
    if len(set(row)) == len(row):
        assert int((y > 0).sum()) == min(k, len(row))


@given(rows, st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set_that_reaches_p(row, p):
    free = likely(wide(row), Sampling(1.0))[0]
    kept = likely(wide(row), Sampling(1.0, top_p=p))[0] > 0
    assert float(free[kept].sum()) >= p - 1e-9
    least = free[kept].min()
    assert not bool((free[~kept] >= least).any())
    without = free[free > least].sum()  # all that are more likely than the last that stays
    assert float(without) < p + 1e-9


@given(rows, st.floats(0.001, 1))
def test_min_p_keeps_those_that_are_at_least_so_likely_as_the_best(row, p):
    ratios = [math.exp(x - max(row)) for x in row]
    assume(all(r == 1 or abs(r - p) > 1e-9 for r in ratios))
    y = likely(wide(row), Sampling(1.0, min_p=p))[0]
    assert [q > 0 for q in y.tolist()] == [r >= p for r in ratios]


@given(rows, st.floats(0.05, 20), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1))
def test_rows_sum_to_one_and_the_most_likely_always_stays(row, temperature, k, p, q):
    row = torch.tensor([row, row[::-1]])
    y = likely(row, Sampling(temperature, k, p, q))
    assert torch.allclose(y.sum(-1), torch.ones(2), rtol=0, atol=1e-6)
    assert bool((y >= 0).all())
    assert bool((y[row == row.amax(-1, keepdim=True)] > 0).all())
    assert torch.equal(y[1], y[0].flip(0)) or torch.allclose(y[1], y[0].flip(0), atol=1e-6)


def test_filters_at_their_ends_change_nothing_or_leave_the_best():
    x = torch.randn(3, 9, dtype=torch.float64)
    free = x.softmax(-1)
    for all_stay in (Sampling(1), Sampling(1, 9), Sampling(1, 99, 1.0, 0.0), Sampling(1, min_p=0)):
        assert torch.allclose(likely(x, all_stay), free, rtol=0, atol=1e-15)
    one = torch.nn.functional.one_hot(x.argmax(-1), 9).double()
    for best in (
        Sampling(1, 1),
        Sampling(1, top_p=0),
        Sampling(1, top_p=0.0),
        Sampling(1, min_p=1),
    ):
        assert torch.equal(likely(x, best), one)


def test_top_p_that_is_reached_exactly_takes_no_more():
    logits = wide([math.log(2), 0.0, 0.0])
    assert likely(logits, Sampling(1))[0].tolist() == [0.5, 0.25, 0.25]
    assert likely(logits, Sampling(1, top_p=0.5))[0].tolist() == [1, 0, 0]
    assert likely(logits, Sampling(1, top_p=0.500001))[0].tolist() == [0.5, 0.25, 0.25]


def test_top_p_of_a_large_vocabulary_in_float32():
    x = torch.randn(1, 50_257, generator=torch.Generator().manual_seed(0))
    exact = x.double().softmax(-1)
    for p in (0.1, 0.5, 0.9, 0.99):
        kept = likely(x, Sampling(1.0, top_p=p)) > 0
        mass = float(exact[kept].sum())
        assert p - 1e-5 <= mass <= p + float(exact[kept].min()) + 1e-5


# The draw


@pytest.mark.parametrize("n", [7, 100, 1000])
def test_evenly_spread_draws_give_every_token_its_share(n):
    logits = torch.randn(1, 6, dtype=torch.float64)
    for sampling in (Sampling(1), Sampling(0.5), Sampling(2, 4), Sampling(1, top_p=0.8)):
        share = likely(logits, sampling)[0].tolist()
        for found, expected in zip(frequencies(logits, sampling, n), share, strict=True):
            assert abs(found - expected) <= 1 / n + 1e-12


def test_a_draw_chooses_the_token_in_whose_part_of_the_line_it_falls():
    logits = logits_of(0.25, 0.0, 0.5, 0.25).expand(9, -1)
    draws = wide(0.0, 0.1, 0.249, 0.251, 0.5, 0.749, 0.751, 0.9, 0.999)
    expected = [0, 0, 0, 2, 2, 2, 3, 3, 3]
    assert choose(logits, Sampling(1.0), draws).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_at_the_ends_choose_the_first_and_the_last_token_that_is_possible(dtype):
    row = torch.tensor([[-INF, -INF, 1.0, -INF, 0.5, 0.1, -INF, -INF]], dtype=dtype)
    almost = math.nextafter(1.0, 0.0)
    assert choose(row, Sampling(1.0), wide(0.0)).tolist() == [2]
    for draw in (almost, 1.0, 1 - 2**-24):
        assert choose(row, Sampling(1.0), wide(draw)).tolist() == [5]
    for draw in (0.0, 5e-324, almost, 1.0):
        assert choose(row, Sampling(1.0, top_k=1), wide(draw)).tolist() == [2]


@given(
    st.lists(st.sampled_from([-INF, -3.0, 0.0, 2.0, 40.0]), min_size=2, max_size=9),
    st.floats(0, 1),
    st.floats(0.05, 5),
)
def test_what_is_impossible_is_never_chosen(row, draw, temperature):
    assume(max(row) > -INF)
    for sampling in (Sampling(temperature), Sampling(temperature, 3, 0.9, 0.01)):
        for dtype in (torch.float32, torch.float64):
            logits = torch.tensor([row], dtype=dtype)
            (token,) = choose(logits, sampling, wide(draw)).tolist()
            assert float(likely(logits, sampling)[0, token]) > 0
            assert row[token] > -INF


def test_each_row_uses_its_own_draw():
    logits = torch.randn(5, 7, dtype=torch.float64)
    draws = torch.rand(5)
    together = choose(logits, Sampling(0.7, 5, 0.9), draws)
    alone = [choose(logits[i : i + 1], Sampling(0.7, 5, 0.9), draws[i : i + 1]) for i in range(5)]
    assert torch.equal(together, torch.cat(alone))
    assert together.shape == (5,)
    assert together.dtype == torch.long


def test_no_rows_give_no_tokens():
    for sampling in (Sampling(), Sampling(1.0, 2, 0.5, 0.1)):
        assert choose(torch.zeros(0, 4), sampling, torch.zeros(0)).shape == (0,)


# Temperature


def test_zero_is_greedy_and_needs_no_draws():
    logits = torch.randn(4, 9)
    assert torch.equal(choose(logits, Sampling(), torch.zeros(0)), logits.argmax(-1))
    assert Sampling().needs_logits is False
    assert Sampling(top_k=3, top_p=0.5).needs_logits is False
    assert Sampling(0.1).needs_logits is True
    assert Sampling(repetition_penalty=1.1).needs_logits is True


@pytest.mark.parametrize("temperature", [1e-2, 1e-6, 1e-30, 1e-40, 1e-46, 1e-100, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_temperature_near_zero_is_greedy(temperature, dtype):
    logits = torch.tensor([[1.0, 3.0, -INF, 2.5, -40.0]], dtype=dtype).expand(4, -1)
    draws = wide(2**-24, 0.3, 0.99, 1 - 2**-24)  # the ends of what torch.rand gives
    assert choose(logits, Sampling(temperature), draws).tolist() == [1, 1, 1, 1]
    y = likely(logits, Sampling(temperature))
    assert torch.allclose(y, wide([0, 1, 0, 0, 0]).to(dtype).expand(4, -1), rtol=0, atol=1e-20)


@pytest.mark.parametrize("temperature", [1e6, 1e37, 1e39, 1e300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_huge_temperature_makes_all_that_is_possible_equally_likely(temperature, dtype):
    logits = torch.tensor([[1.0, 3.0, -INF, -2.0]], dtype=dtype)
    y = likely(logits, Sampling(temperature))
    assert torch.allclose(y, wide([1 / 3, 1 / 3, 0, 1 / 3]).to(dtype), rtol=0, atol=1e-5)
    assert float(y[0, 2]) == 0


def test_greedy_leaves_all_probability_to_the_best():
    y = likely(torch.tensor([[1.0, 3.0, 2.0]]), Sampling())
    assert y.tolist() == [[0.0, 1.0, 0.0]]


def test_temperature_divides_the_logits_by_hand():
    # Odds of 4 : 1 become 2 : 1 at temperature 2 and 16 : 1 at ½.
    logits = logits_of(0.8, 0.2)
    assert likely(logits, Sampling(2))[0].tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-12)
    assert likely(logits, Sampling(0.5))[0].tolist() == pytest.approx([16 / 17, 1 / 17], abs=1e-12)
    assert likely(logits + 500, Sampling(0.5))[0].tolist() == pytest.approx([16 / 17, 1 / 17])


def test_huge_logits_stay_numbers():
    x = torch.tensor([[3e38, -3e38, 2.9e38]])
    assert likely(x, Sampling(1.0)).tolist() == [[1.0, 0.0, 0.0]]


# The penalty


def penalty(x):
    return Sampling(1.0, repetition_penalty=x)


def test_the_penalty_by_hand():
    logits = wide([2.0, -1.0, 0.0, 3.0, -0.5])
    seen = torch.tensor([[True, True, True, False, False]])
    changed = wide([1.0, -2.0, 0.0, 3.0, -0.5]).softmax(-1)[0].tolist()
    for found, share in zip(frequencies(logits, penalty(2), seen=seen), changed, strict=True):
        assert abs(found - share) <= 1e-3 + 1e-12


def test_the_penalty_decides_a_greedy_choice():
    greedy = Sampling(repetition_penalty=1.5)
    first, none = torch.tensor([[True, False]]), torch.zeros(1, 2, dtype=torch.bool)
    for row in ([3.0, 2.9], [-1.0, -1.2], [0.1, -0.0]):
        assert choose(wide(row), greedy, torch.zeros(0), none).tolist() == [0]
    assert choose(wide([3.0, 2.9]), greedy, torch.zeros(0), first).tolist() == [1]
    assert choose(wide([-1.0, -1.2]), greedy, torch.zeros(0), first).tolist() == [1]
    assert choose(wide([3.0, 1.9]), greedy, torch.zeros(0), first).tolist() == [0]
    assert choose(wide([-1.0, -1.6]), greedy, torch.zeros(0), first).tolist() == [0]


def test_a_penalty_below_one_invites_and_of_one_or_unseen_changes_nothing():
    seen = torch.tensor([[False, True]])
    assert choose(wide([3.0, 2.0]), Sampling(repetition_penalty=0.5), wide(0.5), seen).item() == 1
    logits = torch.randn(1, 2, dtype=torch.float64)
    assert frequencies(logits, penalty(1.0), seen=seen) == frequencies(logits, Sampling(1.0))
    assert frequencies(logits, penalty(3.0)) == frequencies(logits, Sampling(1.0))


def test_the_logits_given_are_not_changed():
    logits, seen = torch.randn(3, 5), torch.ones(3, 5, dtype=torch.bool)
    before = logits.clone()
    choose(logits, Sampling(0.5, 3, 0.7, 0.1, 2.0), torch.rand(3), seen)
    assert torch.equal(logits, before)


# The order


def kept(logits, sampling, seen=None):
    return [share > 0 for share in frequencies(logits, sampling, seen=seen)]


def test_top_k_comes_before_top_p():
    # Of 0.4 and 0.3 alone the first has 0.57; of all four it has 0.4, and two would stay.
    logits = logits_of(0.4, 0.3, 0.2, 0.1)
    assert kept(logits, Sampling(1, top_p=0.5)) == [True, True, False, False]
    assert kept(logits, Sampling(1, top_k=2, top_p=0.5)) == [True, False, False, False]


def test_min_p_comes_before_top_p():
    logits = logits_of(0.4, 0.3, 0.2, 0.1)
    assert kept(logits, Sampling(1, min_p=0.6)) == [True, True, False, False]
    assert kept(logits, Sampling(1, min_p=0.6, top_p=0.5)) == [True, False, False, False]


def test_temperature_comes_before_min_p_and_top_p():
    logits = logits_of(0.8, 0.2)  # at temperature 2 the second is half as likely as the first
    assert kept(logits, Sampling(1, min_p=0.4)) == [True, False]
    assert kept(logits, Sampling(2, min_p=0.4)) == [True, True]
    assert kept(logits, Sampling(1, top_p=0.75)) == [True, False]
    assert kept(logits, Sampling(2, top_p=0.75)) == [True, True]


def test_the_penalty_comes_before_everything():
    logits, seen = wide([4.0, 3.0, 0.0]), torch.tensor([[True, False, False]])
    assert kept(logits, Sampling(1, top_k=1), seen) == [True, False, False]
    with_penalty = Sampling(1, top_k=1, repetition_penalty=2)
    assert kept(logits, with_penalty, seen) == [False, True, False]
    # 4 becomes 2 by the penalty and, at temperature ½, stands 2 behind 3: not after it.
    share = frequencies(logits, Sampling(0.5, repetition_penalty=2), 10_000, seen)
    expected = wide([4.0, 6.0, 0.0]).softmax(-1)[0].tolist()
    assert share == pytest.approx(expected, abs=2e-4)


# Bad values


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ({"temperature": -0.1}, ValueError, "temperature must be a finite number from 0, got -0.1"),
        ({"temperature": math.nan}, ValueError, "temperature must be a finite .*, got nan"),
        ({"temperature": INF}, ValueError, "temperature must be a finite number from 0, got inf"),
        ({"temperature": True}, TypeError, "temperature must be a number, got True"),
        ({"temperature": "1"}, TypeError, "temperature must be a number, got '1'"),
        ({"temperature": None}, TypeError, "temperature must be a number, got None"),
        ({"temperature": 10**400}, ValueError, "temperature must be a finite number from 0"),
        ({"top_k": 0}, ValueError, "top_k must be at least 1, got 0"),
        ({"top_k": -3}, ValueError, "top_k must be at least 1, got -3"),
        ({"top_k": True}, TypeError, "top_k must be a whole number, got True"),
        ({"top_k": 2.0}, TypeError, "top_k must be a whole number, got 2.0"),
        ({"top_p": -0.1}, ValueError, "top_p must be a finite number from 0 to 1, got -0.1"),
        ({"top_p": 1.1}, ValueError, "top_p must be a finite number from 0 to 1, got 1.1"),
        ({"top_p": math.nan}, ValueError, "top_p must be a finite number from 0 to 1, got nan"),
        ({"top_p": True}, TypeError, "top_p must be a number, got True"),
        ({"min_p": -1}, ValueError, "min_p must be a finite number from 0 to 1, got -1"),
        ({"min_p": 2}, ValueError, "min_p must be a finite number from 0 to 1, got 2"),
        ({"min_p": math.nan}, ValueError, "min_p must be a finite number from 0 to 1, got nan"),
        ({"min_p": False}, TypeError, "min_p must be a number, got False"),
        ({"repetition_penalty": 0}, ValueError, "repetition_penalty must be more than 0, got 0"),
        ({"repetition_penalty": -1}, ValueError, "repetition_penalty must be .* from 0, got -1"),
        ({"repetition_penalty": INF}, ValueError, "repetition_penalty must be a finite number"),
        ({"repetition_penalty": math.nan}, ValueError, "repetition_penalty must be .* got nan"),
        ({"repetition_penalty": True}, TypeError, "repetition_penalty must be a number, got True"),
    ],
    ids=lambda x: str(x)[:50],
)
def test_a_bad_value_is_refused_by_its_name(values, kind, words):
    with pytest.raises(kind, match=words):
        Sampling(**values)


def test_a_sampling_does_not_change():
    with pytest.raises(AttributeError):
        Sampling().temperature = 1.0
    assert Sampling(1, 2, 0.5) == Sampling(1.0, 2, 0.5)


@pytest.mark.parametrize("penalty", [1e308, 1e-308])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_penalty_of_any_size_leaves_numbers(penalty, dtype):
    """Tokens 0 and 2 are made impossible or certain; all seen, one of the best is drawn."""
    logits = torch.tensor([[2.0, -3.0, -1.0, 1.0]], dtype=dtype)
    sampling = Sampling(temperature=1.0, repetition_penalty=penalty)
    draws = torch.tensor([0.3])
    seen = torch.tensor([[True, False, True, False]])
    assert choose(logits, sampling, draws, seen).item() == (3 if penalty > 1 else 0)
    for draw in (0.0, 0.5, 0.99):
        chosen = choose(logits, sampling, torch.tensor([draw]), torch.ones_like(seen)).item()
        assert chosen in (0, 3)
