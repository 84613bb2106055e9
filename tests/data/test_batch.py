"""Rows of unequal length become tensors, and each example comes once in an epoch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import Batch, order, pad_left, pad_right
from clearhead.data.batch import IGNORE, Batches, next_tokens, plan_batches

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=5)


def lists(*tensors):
    return [tensor.tolist() for tensor in tensors]


# Padding


def test_short_rows_are_filled_up_at_the_end():
    tokens, token_mask = pad_right([[5, 6, 7], [8], []], pad_id=9)
    assert tokens.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
    assert token_mask.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert (tokens.dtype, token_mask.dtype) == (torch.long, torch.bool)


def test_short_rows_are_filled_up_at_the_start():
    tokens, token_mask = pad_left([[5, 6, 7], [8], []], pad_id=9)
    assert tokens.tolist() == [[5, 6, 7], [9, 9, 8], [9, 9, 9]]
    assert token_mask.tolist() == [[True] * 3, [False, False, True], [False] * 3]


@pytest.mark.parametrize("pad", [pad_right, pad_left])
@given(rows=ROWS, pad_id=st.integers(-1, 99))
def test_the_real_tokens_are_the_rows_in_their_order(pad, rows, pad_id):
    tokens, token_mask = pad(rows, pad_id)
    assert tokens.shape == token_mask.shape == (len(rows), max(map(len, rows), default=0))
    assert [t[m].tolist() for t, m in zip(tokens, token_mask, strict=True)] == rows
    assert (tokens[~token_mask] == pad_id).all()


@pytest.mark.parametrize("pad", [pad_right, pad_left])
@pytest.mark.parametrize(("rows", "shape"), [([], (0, 0)), ([[]], (1, 0)), ([[], []], (2, 0))])
def test_N23_nothing_to_pad_keeps_its_shape(pad, rows, shape):
    tokens, token_mask = pad(rows, 0)
    assert tuple(tokens.shape) == tuple(token_mask.shape) == shape
    assert (tokens.dtype, token_mask.dtype) == (torch.long, torch.bool)


@pytest.mark.parametrize("pad", [pad_right, pad_left])
def test_rows_may_be_tensors(pad):
    rows = [torch.tensor([5, 6]), torch.tensor([7], dtype=torch.int32), (8, 9, 1)]
    assert lists(*pad(rows, 0)) == lists(*pad([[5, 6], [7], [8, 9, 1]], 0))


def test_a_length_pads_further_and_a_longer_row_is_refused():
    tokens, token_mask = pad_right([[1, 2], [3]], 0, length=4)
    assert tokens.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]
    assert token_mask.sum() == 3
    with pytest.raises(ValueError, match=r"rows\[1\] has 3 tokens, more than length=2"):
        pad_right([[1], [1, 2, 3]], 0, length=2)


@pytest.mark.parametrize("pad", [pad_right, pad_left])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.5]], "each id in rows must be a whole number, got 1.5 of type float"),
        ([[1, 2], [3.0]], "each id in rows must be a whole number, got 3.0 of type float"),
        ([[True]], "each id in rows must be a whole number, got True of type bool"),
        ([[1, True]], "each id in rows must be a whole number, got True of type bool"),
        ([torch.rand(2)], "each id in rows must be a whole number, got 0"),
        ([torch.ones(2, 3).long()], r"each id in rows must be a whole number, got \[1, 1, 1\]"),
        ([[None]], "each id in rows must be a whole number, got None"),
        (["ab"], "each row must be a list or a 1-D tensor of ids, got 'ab'"),
        ([3], "each row must be a list or a 1-D tensor of ids, got 3"),
    ],
)
def test_rows_of_another_type_are_refused(pad, rows, words):
    with pytest.raises(TypeError, match=words):
        pad(rows, 0)


@pytest.mark.parametrize("pad", [pad_right, pad_left])
def test_ids_may_be_of_numpy_and_negative(pad):
    rows = [np.array([5, -6], dtype=np.int8), [np.int64(7), 2**40], []]
    tokens, _ = pad(rows, np.int64(IGNORE))
    assert lists(tokens) == lists(pad([[5, -6], [7, 2**40], []], IGNORE)[0])
    assert tokens[2].tolist() == [IGNORE, IGNORE]


@pytest.mark.parametrize("pad", [pad_right, pad_left])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_named(pad, number):
    with pytest.raises(ValueError, match=f"each id in rows must fit 64 bits, got {number}"):
        pad([[1], [2, number]], 0)
    with pytest.raises(ValueError, match=f"pad_id must fit 64 bits, got {number}"):
        pad([[1], [2, 3]], number)


def test_N23_a_length_is_a_count():
    for rows in ([], [[]], [[], []]):
        assert pad_right(rows, 0, np.int64(3))[0].tolist() == [[0, 0, 0]] * len(rows)
        assert pad_right(rows, 0, 0)[1].shape == (len(rows), 0)
        with pytest.raises(ValueError, match="length must not be negative, got -1"):
            pad_right(rows, 0, -1)
        with pytest.raises(TypeError, match=r"length must be a whole number, got 2\.0"):
            pad_right(rows, 0, 2.0)


@pytest.mark.parametrize("pad_id", [None, 1.0, True])
def test_a_pad_id_is_a_whole_number(pad_id):
    with pytest.raises(TypeError, match="pad_id must be a whole number"):
        pad_right([[1]], pad_id)


# Next tokens


def test_D9_the_target_of_a_token_is_the_one_after_it():
    tokens, token_mask = pad_right([[0, 5, 6, 7], [0, 8]], 1)
    assert next_tokens(tokens, token_mask).tolist() == [
        [5, 6, 7, IGNORE],
        [8, IGNORE, IGNORE, IGNORE],
    ]


def test_D9_the_first_token_and_padding_are_never_targets_wherever_padding_stands():
    rows = [[50, 1, 2], [50], [], [50, 3]]
    for pad in (pad_right, pad_left):
        targets = next_tokens(*pad(rows, 9))
        assert [t[t != IGNORE].tolist() for t in targets] == [[1, 2], [], [], [3]]


def test_D9_the_token_after_a_documents_last_is_not_its_target():
    tokens = torch.tensor([[50, 1, 2, 50, 3, 9]])
    segments = torch.tensor([[0, 0, 0, 1, 1, -1]])
    targets = next_tokens(tokens, segments >= 0, segments)
    assert targets.tolist() == [[1, 2, IGNORE, 3, IGNORE, IGNORE]]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 1)])
def test_N23_targets_of_next_to_nothing(shape):
    tokens = torch.zeros(shape, dtype=torch.long)
    targets = next_tokens(tokens, torch.ones(shape, dtype=torch.bool))
    assert targets.shape == shape
    assert (targets == IGNORE).all()


def test_what_does_not_stand_beside_the_tokens_is_refused():
    tokens, token_mask = pad_right([[0, 5, 6], [0]], 1)
    with pytest.raises(ValueError, match=r"token_mask must have the shape of tokens, \(2, 3\)"):
        next_tokens(tokens, token_mask[:, :2])
    with pytest.raises(TypeError, match=r"token_mask must be .*boolean"):
        next_tokens(tokens, token_mask.float())
    with pytest.raises(TypeError, match=r"token_mask must be .*, got list"):
        next_tokens(tokens, token_mask.tolist())
    with pytest.raises(ValueError, match=r"segments must have the shape of tokens, \(2, 3\), got"):
        next_tokens(tokens, token_mask, tokens[:1])
    with pytest.raises(ValueError, match=r"tokens must have shape \(B, T\), got \(3,\)"):
        next_tokens(tokens[0])


# Order


@pytest.mark.parametrize("n", range(18))
def test_T26_each_example_comes_once_in_an_epoch(n):
    for seed, epoch in ((0, 0), (3, 0), (3, 1)):
        assert sorted(order(seed, epoch, n).tolist()) == list(range(n))
        for batch_size in (1, 4, 17, 30):
            batches = plan_batches(n, batch_size, seed=seed, epoch=epoch)
            assert sorted(i for batch in batches for i in batch) == list(range(n))
            assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
            assert all(batches)


def test_the_order_is_a_function_of_seed_and_epoch():
    first = order(5, 2, 50)
    torch.manual_seed(99)
    torch.rand(3)
    assert torch.equal(order(5, 2, 50), first)
    others = [order(5, 3, 50), order(6, 2, 50), order(2, 5, 50), order(5, 2, 50, purpose="x")]
    assert not any(torch.equal(first, other) for other in others)


def test_drawing_an_order_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    order(0, 0, 10)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_example_comes_first_about_as_often():
    firsts = [int(order(0, epoch, 5)[0]) for epoch in range(1000)]
    assert all(150 < firsts.count(i) < 250 for i in range(5))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0, -1, 3), ValueError, "epoch must not be negative, got -1"),
        ((0, 0, -3), ValueError, "n must not be negative, got -3"),
        ((0, 0.0, 3), TypeError, "epoch must be a whole number, got 0.0"),
        ((0, 0, 3.0), TypeError, "n must be a whole number"),
        ((None, 0, 3), TypeError, "seed must be a whole number"),
        ((0, True, 3), TypeError, "epoch must be a whole number, got True of type bool"),
        ((0, 2**70, 3), ValueError, "epoch must be below 2⁶³, got 1180591620717411303424"),
    ],
)
def test_a_wrong_order_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        order(*arguments)


def test_an_order_is_asked_for_with_numbers_of_numpy_too():
    assert torch.equal(order(np.int64(5), np.uint8(2), np.int32(9)), order(5, 2, 9))
    assert plan_batches(np.int64(9), np.int64(4), seed=0, epoch=0) == plan_batches(
        9, 4, seed=0, epoch=0
    )


def test_a_batch_holds_at_least_one():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        plan_batches(3, 0, seed=0, epoch=0)
    for nothing in (0.0, False):
        with pytest.raises(TypeError, match="n must be a whole number"):
            plan_batches(nothing, 3, seed=0, epoch=0)


# Batch and Batches


def test_a_batch_moves_with_all_it_holds():
    batch = Batch(torch.zeros(2, 3), torch.ones(2), token_mask=torch.ones(2, 3))
    moved = batch.to("meta")
    assert moved.inputs.device.type == moved.targets.device.type == "meta"
    assert moved.token_mask.device.type == "meta"
    assert moved.segments is None
    assert len(moved) == 2


def test_a_batch_cannot_be_changed():
    with pytest.raises(AttributeError):
        Batch(torch.zeros(1), torch.zeros(1)).inputs = torch.ones(1)


def test_batches_are_made_when_asked_for_and_can_resume_in_the_middle():
    made = []

    def make(plan):
        made.append(plan)
        return sum(plan)

    batches = Batches([[1], [2, 3], [4]], make)
    assert len(batches) == 3
    assert made == []
    assert batches[1] == 5
    assert list(batches[1:]) == [5, 4]
    assert list(batches) == list(batches) == [1, 5, 4]
    assert batches[-1] == batches[np.int64(2)] == 4
    with pytest.raises(TypeError, match="index must be a whole number, got True"):
        batches[True]
    assert [list(batches[rank::2]) for rank in (0, 1)] == [[1, 4], [5]]
    with pytest.raises(IndexError):
        batches[3]


def test_examples_of_a_batch_are_selected_in_every_tensor():
    tokens = torch.arange(20).view(5, 4)
    batch = Batch(tokens, tokens[:, 0], tokens % 2 == 0)
    chosen = batch.select([3, 1])
    assert chosen.inputs.tolist() == tokens[[3, 1]].tolist()
    assert chosen.targets.tolist() == [12, 4]
    assert chosen.token_mask.tolist() == (tokens[[3, 1]] % 2 == 0).tolist()
    assert chosen.source is None
    first, rest = batch.split(2)
    assert torch.equal(torch.cat([first.inputs, rest.inputs]), tokens)
    assert (len(first), len(rest), len(batch.select([]))) == (2, 3, 0)
