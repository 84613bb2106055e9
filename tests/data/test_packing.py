"""No work on padding, and the same numbers."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.attention import Mask
from clearhead.data import bucket, join_documents, pack
from clearhead.data.packing import WINDOW
from clearhead.layers import Block, Stack
from clearhead.positions import LearnedPositions

LENGTHS = st.lists(st.integers(1, 12), max_size=40)


def flat(batches):
    return sorted(i for batch in batches for i in batch)


def padding(lengths, batches):
    room = sum(len(b) * max(lengths[i] for i in b) for b in batches)
    return 1 - sum(lengths) / room


# Buckets


@pytest.mark.parametrize("n", range(18))
@pytest.mark.parametrize("limit", [{"batch_size": 4}, {"max_tokens": 20}, {"batch_size": 1}])
def test_T26_each_example_comes_once_in_an_epoch(n, limit):
    lengths = [1 + (i * 7) % 11 for i in range(n)]
    batches = bucket(lengths, **limit, seed=1, epoch=2)
    assert flat(batches) == list(range(n))
    assert all(batches)


@given(LENGTHS, st.integers(12, 60), st.integers(0, 3))
def test_a_batch_with_its_padding_stays_within_max_tokens(lengths, max_tokens, epoch):
    batches = bucket(lengths, max_tokens=max_tokens, seed=0, epoch=epoch)
    assert flat(batches) == list(range(len(lengths)))
    assert all(len(b) * max(lengths[i] for i in b) <= max_tokens for b in batches)


@given(LENGTHS, st.integers(1, 9))
def test_batches_have_the_asked_size_but_for_one(lengths, batch_size):
    sizes = [len(b) for b in bucket(lengths, batch_size=batch_size, seed=0, epoch=0)]
    assert all(size <= batch_size for size in sizes)
    assert sum(size < batch_size for size in sizes) <= 1


def test_examples_of_like_length_meet():
    lengths = [1 + (i * i) % 97 for i in range(400)]
    batches = bucket(lengths, batch_size=8, seed=0, epoch=0)
    assert padding(lengths, batches) < 0.04
    sizes = [max(lengths[i] for i in b) for b in batches]
    assert sizes != sorted(sizes), "short batches must not all come first"


def test_the_epochs_of_a_large_set_differ_in_who_meets_whom():
    lengths = [1 + i % 50 for i in range(WINDOW + 500)]
    first, again, second = (
        bucket(lengths, batch_size=16, seed=3, epoch=epoch) for epoch in (0, 0, 1)
    )
    assert first == again
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}
    assert padding(lengths, first) < 0.04


@pytest.mark.parametrize("limit", [{}, {"batch_size": 2, "max_tokens": 9}])
def test_one_limit_is_given(limit):
    with pytest.raises(ValueError, match="give either batch_size or max_tokens"):
        bucket([1, 2], **limit, seed=0, epoch=0)


def test_an_example_beyond_the_limit_is_named():
    with pytest.raises(ValueError, match=r"lengths\[1\] is 9, more than max_tokens=8; cut it"):
        bucket([3, 9, 2], max_tokens=8, seed=0, epoch=0)
    with pytest.raises(ValueError, match="max_tokens must be at least 1"):
        bucket([], max_tokens=0, seed=0, epoch=0)


KINDS = {
    "array": np.array,
    "bytes": lambda lengths: np.array(lengths, dtype=np.uint8),
    "tensor": torch.tensor,
    "list of numbers": lambda lengths: [np.uint8(n) for n in lengths],
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_lengths_may_be_of_numpy_and_pytorch(kind):
    lengths = [100, 90, 3, 100, 7, 99]  # of bytes, 3 · 100 would be 44
    for limit in ({"batch_size": np.int64(4)}, {"max_tokens": np.uint8(200)}):
        plain = {name: int(most) for name, most in limit.items()}
        expected = bucket(lengths, **plain, seed=1, epoch=2)
        assert bucket(kind(lengths), **limit, seed=1, epoch=2) == expected
    assert pack(kind(lengths), np.uint8(200)) == pack(lengths, 200)


@pytest.mark.parametrize(
    ("lengths", "error", "words"),
    [
        ([3, -1], ValueError, r"lengths\[1\] must not be negative, got -1"),
        ([1.0], TypeError, r"lengths\[0\] must be a whole number, got 1.0 of type float"),
        ([2, True], TypeError, r"lengths\[1\] must be a whole number, got True"),
        (np.ones((2, 3), dtype=int), TypeError, r"lengths\[0\] must be a whole number, got \[1, 1"),
        (torch.tensor(3), TypeError, r"lengths must be a list of whole numbers, got tensor\(3\)"),
        (None, TypeError, "lengths must be a list of whole numbers, got None"),
    ],
)
def test_lengths_are_counts(lengths, error, words):
    with pytest.raises(error, match=words):
        bucket(lengths, batch_size=2, seed=0, epoch=0)
    with pytest.raises(error, match=words):
        pack(lengths, 9)


def test_N23_examples_without_a_token_have_their_batch_too():
    batches = bucket([0, 3, 0, 2], max_tokens=3, seed=0, epoch=0)
    assert flat(batches) == [0, 1, 2, 3]


# Packing


@given(LENGTHS, st.integers(12, 30))
def test_each_document_stands_in_one_row_that_holds_it(lengths, row_length):
    rows = pack(lengths, row_length)
    assert flat(rows) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= row_length for row in rows)
    # No two rows of a best fit could be one
    sums = sorted(sum(lengths[i] for i in row) for row in rows)
    assert all(a + b > row_length for a, b in pairwise(sums))


def test_a_packing_worked_by_hand():
    assert pack([3, 7, 4, 6, 2, 8], 10) == [[5, 4], [1, 0], [3, 2]]
    assert pack([], 5) == []
    assert pack([5, 5], 5) == [[0], [1]]


def test_packing_thousands_leaves_hardly_any_room():
    lengths = [1 + (i * i * 31) % 127 for i in range(3000)]
    rows = pack(lengths, 256)
    assert sum(lengths) / (len(rows) * 256) > 0.99


def test_a_document_that_fits_no_row_is_named():
    with pytest.raises(
        ValueError, match=r"lengths\[1\] is 0: a document without a token; leave it out"
    ):
        pack([3, 0], 10)
    with pytest.raises(
        ValueError,
        match=r"lengths\[0\] is 11, more than row_length=10; cut .* or use row_length=11",
    ):
        pack([11, 3], 10)
    with pytest.raises(ValueError, match="row_length must be at least 1, got 0"):
        pack([], 0)


def test_packed_rows_worked_by_hand():
    tokens, segments, positions = join_documents(
        [[[5, 6, 7], [8, 9]], [[4]]], pad_id=1, row_length=6
    )
    assert tokens.tolist() == [[5, 6, 7, 8, 9, 1], [4, 1, 1, 1, 1, 1]]
    assert segments.tolist() == [[0, 0, 0, 1, 1, -1], [0, -1, -1, -1, -1, -1]]
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 0, 0, 0]]
    assert join_documents([[[5, 6], [7]]], 1)[0].tolist() == [[5, 6, 7]]
    assert [x.shape for x in join_documents([], 1)] == [(0, 0)] * 3
    with pytest.raises(ValueError, match=r"rows\[0\] has 3 tokens, more than length=2"):
        join_documents([[[5, 6], [7]]], 1, row_length=2)


@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=4), max_size=3)
)
def test_the_mask_of_the_segments_counts_the_same_positions(rows):
    tokens, segments, positions = join_documents(rows, pad_id=0)
    if tokens.numel():
        counted = Mask.segments(segments).positions(tokens.size(1))
        assert torch.equal(counted.expand_as(positions)[segments >= 0], positions[segments >= 0])


@torch.no_grad()
def test_each_packed_document_gets_the_numbers_it_gets_alone():
    D, V = 12, 20
    embed, where = torch.nn.Embedding(V, D), LearnedPositions(9, D)
    model = Stack([Block(D, 3), Block(D, 3)])
    documents = [torch.randint(V, (n,)).tolist() for n in (4, 1, 6, 3, 5)]
    rows = pack([len(d) for d in documents], 9)
    tokens, segments, positions = join_documents(
        [[documents[i] for i in row] for row in rows], 0, 9
    )
    mask = Mask.causal() & Mask.segments(segments)
    together = model(where(embed(tokens), positions=positions), mask=mask)
    for b, row in enumerate(rows):
        for segment, i in enumerate(row):
            alone = model(where(embed(torch.tensor([documents[i]]))), mask=Mask.causal())[0]
            assert (together[b, segments[b] == segment] - alone).abs().max() < 1e-6
    assert len(rows) < len(documents)
