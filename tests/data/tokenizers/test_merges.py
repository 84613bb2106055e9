"""Byte-pair merging against the plainest loop, and merges that are refused."""

import itertools
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.tokenizers.merges import learn_merges, merge_pairs, read_merges


def join_plainly(parts, rank):
    """Look at all pairs, join the best, the leftmost of equals; again, until none is left."""
    parts = list(parts)
    while True:
        ranked = [(rank(a, b), i) for i, (a, b) in enumerate(itertools.pairwise(parts))]
        ranked = [(value, i) for value, i in ranked if value is not None]
        if not ranked:
            return parts
        _, i = min(ranked)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@given(
    st.text("abc", max_size=30),
    st.dictionaries(st.text("abc", min_size=2, max_size=5), st.integers(0, 6)),
)
def test_joining_is_that_of_the_plain_loop(text, scores):
    def by_union(left, right):
        return scores.get(left + right)

    assert merge_pairs(text, by_union) == join_plainly(text, by_union)


@given(
    st.text("ab", max_size=30),
    st.lists(st.tuples(*[st.text("ab", min_size=1, max_size=3)] * 2), max_size=12, unique=True),
)
def test_joining_by_an_order_of_pairs_is_that_of_the_plain_loop(text, pairs):
    ranks = {pair: place for place, pair in enumerate(pairs)}

    def by_pair(left, right):
        return ranks.get((left, right))

    assert merge_pairs(text, by_pair) == join_plainly(text, by_pair)


def test_of_equal_pairs_the_leftmost_is_joined_first():
    assert merge_pairs("aaaaa", lambda a, b: 0 if a + b == "aa" else None) == ["aa", "aa", "a"]
    assert merge_pairs("aaaaa", lambda a, b: 0) == ["aaaaa"]
    assert merge_pairs("", lambda a, b: 0) == []
    assert merge_pairs("a", lambda a, b: 0) == ["a"]


def test_a_long_text_without_blanks_is_no_trap():
    """100 000 characters: the plain loop would look at 5 · 10⁹ pairs."""
    start = time.process_time()
    parts = merge_pairs("ab" * 50_000, lambda a, b: len(a + b) if len(a + b) <= 16 else None)
    assert "".join(parts) == "ab" * 50_000
    assert time.process_time() - start < 5


def test_F18_merges_to_the_unknown_are_refused():
    known = {"a", "b", "ab"}
    assert read_merges(["a b"], known) == {("a", "b"): 0}
    for line in ("a c", "c a", "b a", "ab", "", " ab", "a  b", 3, None, ["a", "b"]):
        with pytest.raises(ValueError, match="joins or makes an unknown token"):
            read_merges([line], known)
    with pytest.raises(ValueError, match="merge 'a b' occurs twice"):
        read_merges(["a b", "a b"], known)


def learn_by_counting(words, n_tokens, n_merges, min_count):
    """The definition: count all pairs again after each merge."""
    merges = []
    while len(merges) < n_merges:
        counts = Counter()
        for word, n in words.items():
            for pair in itertools.pairwise(word):
                counts[pair] += n
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if best is None or counts[best] < min_count:
            break
        joined = Counter()
        for word, n in words.items():
            parts = list(word)
            for i in range(len(word) - 1):  # a part that was joined is None
                if (parts[i], parts[i + 1]) == best:
                    parts[i], parts[i + 1] = None, n_tokens + len(merges)
            joined[tuple(part for part in parts if part is not None)] += n
        words = joined
        merges.append(best)
    return merges


def test_merges_of_low_lower_lowest_by_hand():
    words = {(0, 1, 2): 1, (0, 1, 2, 3, 4): 1, (0, 1, 2, 3, 5, 6): 1}  # low, lower, lowest
    assert learn_merges(words, 7, 9, 2) == [(0, 1), (7, 2), (8, 3)]  # lo, low, lowe
    assert learn_merges(words, 7, 2, 2) == [(0, 1), (7, 2)]
    assert learn_merges({}, 7, 2, 1) == []
    assert learn_merges({(3,): 5, (0, 0, 0): 1}, 7, 9, 1) == [(0, 0), (0 + 7, 0)]


WORDS = st.dictionaries(
    st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), st.integers(1, 4), max_size=8
)


@given(WORDS, st.integers(0, 12), st.integers(1, 4))
def test_learned_merges_are_those_of_counting_anew(words, n_merges, min_count):
    expected = learn_by_counting(words, 3, n_merges, min_count)
    assert learn_merges(words, 3, n_merges, min_count) == expected
