"""Byte-pair merging against the plainest loop, and merges that are refused."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.tokenizers.merges import merge_pairs, read_merges


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
