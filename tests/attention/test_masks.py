"""Masks against definitions written out as loops, their laws, their pictures and their errors."""

import copy
import itertools
import pickle

import pytest
import torch
from torch import Tensor, nn

from clearhead.attention import EluFeatures, LinearAttention, dot_product, dot_product_fast
from clearhead.attention.inputs import dense_mask
from clearhead.attention.masks import Mask

SIZES = list(itertools.product(range(1, 6), range(1, 6)))
BATCH = 2


def tensor(*rows):
    return torch.tensor(rows)


def lengths(T, S):
    return torch.tensor([S, S // 2])


def query_lengths(T, S):
    return torch.tensor([[(3 * b + 2 * t) % (S + 1) for t in range(T)] for b in range(BATCH)])


def token_mask(T, S):
    return torch.tensor([[(b + s) % 3 != 0 for s in range(S)] for b in range(BATCH)])


def segment_ids(T, S):
    """Unsorted documents 7 and 2, and padding by two different negative ids."""
    return torch.tensor(
        [[(7, 2, -1, 7, 2), (-5, 7, 7, 2, 7)][b][s] for b in range(BATCH) for s in range(S)]
    )


def matrix(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(shape, generator=generator) > 0.4


# One entry for each kind: the mask, and whether query t of batch element b may attend to key s.
KINDS = {
    "causal": (
        lambda T, S: Mask.causal(),
        lambda T, S: lambda b, t, s: s <= t + S - T,
    ),
    "window(1)": (
        lambda T, S: Mask.window(1),
        lambda T, S: lambda b, t, s: s == t + S - T,
    ),
    "window(3)": (
        lambda T, S: Mask.window(3),
        lambda T, S: lambda b, t, s: s in range(t + S - T - 2, t + S - T + 3),
    ),
    "padding (B,)": (
        lambda T, S: Mask.padding(lengths(T, S)),
        lambda T, S: lambda b, t, s: s < lengths(T, S).tolist()[b],
    ),
    "padding (B, T)": (
        lambda T, S: Mask.padding(query_lengths(T, S)),
        lambda T, S: lambda b, t, s: s < query_lengths(T, S).tolist()[b][t],
    ),
    "tokens": (
        lambda T, S: Mask.tokens(token_mask(T, S)),
        lambda T, S: lambda b, t, s: token_mask(T, S).tolist()[b][s],
    ),
    "segments": (
        lambda T, S: Mask.segments(segment_ids(T, S).reshape(BATCH, S)),
        lambda T, S: (
            lambda b, t, s: _same_document(segment_ids(T, S).tolist()[b * S :][:S], t + S - T, s)
        ),
    ),
    "of (T, S)": (
        lambda T, S: Mask.of(matrix(T, S)),
        lambda T, S: lambda b, t, s: matrix(T, S).tolist()[t][s],
    ),
    "of (B, T, S)": (
        lambda T, S: Mask.of(matrix(BATCH, T, S)),
        lambda T, S: lambda b, t, s: matrix(BATCH, T, S).tolist()[b][t][s],
    ),
    "of (B, H, T, S)": (
        lambda T, S: Mask.of(matrix(BATCH, 1, T, S)),
        lambda T, S: lambda b, t, s: matrix(BATCH, 1, T, S).tolist()[b][0][t][s],
    ),
}


def _same_document(ids, place, s):
    return place >= 0 and ids[s] >= 0 and ids[place] == ids[s]


def by_loop(rule, T, S):
    return torch.tensor(
        [[[bool(rule(b, t, s)) for s in range(S)] for t in range(T)] for b in range(BATCH)]
    ).reshape(BATCH, T, S)


def whole(mask: Mask, T: int, S: int) -> Tensor:
    """(B, T, S), whatever the smallest form is."""
    dense = mask.broadcastable(T, S, axes=3)
    return dense.expand(BATCH, T, S)


# Each kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_allows_what_its_definition_says(kind):
    make, rule = KINDS[kind]
    for T, S in SIZES:
        assert torch.equal(whole(make(T, S), T, S), by_loop(rule(T, S), T, S)), (T, S)


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(KINDS, 2)))
def test_joined_masks_allow_what_both_allow(first, second):
    for T, S in SIZES:
        a, b = KINDS[first][0](T, S), KINDS[second][0](T, S)
        expected = by_loop(KINDS[first][1](T, S), T, S) & by_loop(KINDS[second][1](T, S), T, S)
        assert torch.equal(whole(a & b, T, S), expected), (T, S)
        assert torch.equal(whole(b & a, T, S), expected), (T, S)


def test_joining_is_associative_and_idempotent_and_none_is_neutral():
    for T, S in ((3, 5), (5, 3)):
        masks = [make(T, S) for make, _ in KINDS.values()]
        for a, b, c in itertools.permutations(masks, 3):
            assert torch.equal(whole((a & b) & c, T, S), whole(a & (b & c), T, S))
        for a in masks:
            assert torch.equal(whole(a & a, T, S), whole(a, T, S))
            assert torch.equal(whole(a & None, T, S), whole(a, T, S))
            assert torch.equal(whole(None & a, T, S), whole(a, T, S))


def test_joining_leaves_both_masks_as_they_were():
    a, b = Mask.causal(), Mask.window(2)
    joined = a & b
    assert (repr(a), repr(b)) == ("Mask.causal()", "Mask.window(2)")
    assert repr(joined) == "Mask.causal() & Mask.window(2)"


def test_a_boolean_tensor_joins_from_either_side():
    allowed = matrix(3, 4)
    expected = whole(Mask.causal(), 3, 4) & allowed
    assert torch.equal(whole(Mask.causal() & allowed, 3, 4), expected)
    assert torch.equal(whole(allowed & Mask.causal(), 3, 4), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_integers_0_and_1_are_a_mask(dtype):
    allowed, real = matrix(3, 5), matrix(BATCH, 5)
    for given in (Mask.of(allowed.to(dtype)), Mask.causal() & allowed.to(dtype)):
        expected = allowed & (whole(Mask.causal(), 3, 5) if given.is_causal else True)
        assert torch.equal(whole(given, 3, 5), expected.expand(BATCH, 3, 5))
    assert torch.equal(whole(Mask.tokens(real.to(dtype)), 3, 5), whole(Mask.tokens(real), 3, 5))
    q, k, v = torch.randn(BATCH, 3, 4), torch.randn(BATCH, 5, 4), torch.randn(BATCH, 5, 2)
    for attend in (dot_product.attend, dot_product_fast.attend):
        outputs = [attend(q, k, v, mask=mask) for mask in (allowed.to(dtype), allowed)]
        one, other = (out if isinstance(out, Tensor) else out[0] for out in outputs)
        assert torch.equal(one, other)
    converted = Mask.from_mha((~allowed).to(dtype), (~real).to(dtype))
    assert torch.equal(whole(converted, 3, 5), whole(Mask.of(allowed) & Mask.tokens(real), 3, 5))


def test_lengths_may_be_a_list():
    for lens in ([5, 2], [[5, 1, 0], [2, 2, 4]]):
        expected = whole(Mask.padding(torch.tensor(lens)), 3, 5)
        assert torch.equal(whole(Mask.padding(lens), 3, 5), expected)
        assert torch.equal(whole(Mask.padding(tuple(lens)), 3, 5), expected)
    assert Mask.padding([]).dense(3, 5).shape == (0, 1, 3, 5)


# Either and not


@pytest.mark.parametrize(("first", "second"), list(itertools.product(KINDS, KINDS)))
def test_either_mask_may_allow_it(first, second):
    for T, S in ((3, 5), (5, 3), (4, 4)):
        a, b = KINDS[first][0](T, S), KINDS[second][0](T, S)
        expected = by_loop(KINDS[first][1](T, S), T, S) | by_loop(KINDS[second][1](T, S), T, S)
        assert torch.equal(whole(a | b, T, S), expected), (T, S)
        joined = (a | b) & Mask.window(2)
        assert torch.equal(whole(joined, T, S), expected & whole(Mask.window(2), T, S))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[0] in "cwo"])
def test_the_inverse_allows_what_the_mask_does_not(kind):
    for T, S in SIZES:
        mask = KINDS[kind][0](T, S)
        assert torch.equal(whole(~mask, T, S), ~whole(mask, T, S)), (T, S)
        assert ~~mask is mask
        assert (~mask).dense(T, S).shape == mask.dense(T, S).shape


def test_either_takes_tensors_and_none():
    allowed, causal = matrix(3, 4), Mask.causal()
    expected = whole(causal, 3, 4) | allowed
    assert torch.equal(whole(causal | allowed, 3, 4), expected)
    assert torch.equal(whole(allowed | causal, 3, 4), expected)
    assert whole(causal | None, 3, 4).all()
    assert whole(None | causal, 3, 4).all()


def test_a_prompt_is_seen_whole_and_the_rest_causally():
    mask = Mask.causal() | Mask.padding([2])
    assert repr(mask) == "(Mask.causal() | Mask.padding([2]))"
    assert repr(mask & Mask.window(2)) == "(Mask.causal() | Mask.padding([2])) & Mask.window(2)"
    assert repr(~(Mask.causal() & Mask.window(2))) == "~(Mask.causal() & Mask.window(2))"
    assert mask.dense(4, 4)[0, 0].int().tolist() == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ]
    assert not mask.is_causal
    assert mask.real_keys(4) is None
    assert "■ ■ · ·" in mask.picture(4)


@pytest.mark.parametrize("kind", ["padding (B,)", "padding (B, T)", "tokens", "segments"])
def test_the_inverse_of_a_mask_of_real_tokens_is_refused(kind):
    mask = KINDS[kind][0](3, 5)
    for refused in (mask, Mask.causal() & mask):
        words = (
            r"to padding and to nothing else; .* use Mask\.tokens\(~tensor\), else Mask\.of\(~mask"
        )
        with pytest.raises(TypeError, match=words):
            refused.__invert__()


def test_a_mask_of_either_is_no_mask_for_running_sums():
    q, features = torch.randn(BATCH, 1, 3, 4), EluFeatures()
    with pytest.raises(ValueError, match=r"\(Mask\.causal\(\) \| .*\) cannot be served by running"):
        LinearAttention(features)(q, q, q, mask=Mask.causal() | Mask.padding([2, 1]))


def test_causal_is_written_once_and_known_by_its_structure():
    twice = Mask.causal() & Mask.causal()
    assert twice.is_only_causal
    assert Mask.causal().is_causal
    joined = Mask.causal() & Mask.window(2)
    assert joined.is_causal
    assert not joined.is_only_causal
    assert not Mask.window(2).is_causal
    assert not Mask.of(torch.ones(2, 2, dtype=torch.bool).tril()).is_causal


def test_causal_by_hand_when_keys_are_cached():
    expected = tensor([1, 1, 1, 1, 0], [1, 1, 1, 1, 1]).bool()
    assert torch.equal(Mask.causal().dense(2, 5), expected)
    assert torch.equal(Mask.causal().dense(1, 8), torch.ones(1, 8, dtype=torch.bool))


def test_N13_causal_with_more_queries_than_keys_leaves_the_first_rows_empty():
    for T, S in itertools.product(range(1, 7), repeat=2):
        dense = Mask.causal().dense(T, S)
        assert dense[-1].all(), "the last query sees every key"
        assert dense.any(-1).tolist() == [t >= T - S for t in range(T)]
    expected = tensor([0, 0], [0, 0], [1, 0], [1, 1]).bool()
    assert torch.equal(Mask.causal().dense(4, 2), expected)


# The dense form


def test_dense_has_as_many_axes_as_the_mask_needs():
    T, S = 3, 5
    for kind in ("causal", "window(3)", "of (T, S)"):
        assert KINDS[kind][0](T, S).dense(T, S).shape == (T, S), kind
    for kind in ("padding (B,)", "padding (B, T)", "tokens", "segments"):
        assert KINDS[kind][0](T, S).dense(T, S).shape == (BATCH, 1, T, S), kind
    assert Mask.of(matrix(2, 3, T, S)).dense(T, S).shape == (2, 3, T, S)
    assert Mask.of(matrix(2, T, S)).dense(T, S).shape == (2, T, S)
    joined = Mask.padding(lengths(T, S)) & Mask.of(matrix(1, 4, T, S)) & Mask.causal()
    assert joined.dense(T, S).shape == (BATCH, 4, T, S)


def test_dense_by_hand_for_causal_and_padding():
    dense = (Mask.causal() & Mask.padding(tensor(2, 3))).dense(3, 3)
    expected = tensor(
        [[[1, 0, 0], [1, 1, 0], [1, 1, 0]]],
        [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]],
    ).bool()
    assert torch.equal(dense, expected)


def test_no_part_at_all_allows_everything():
    nothing = Mask.from_mha()
    assert nothing.dense(2, 3).all()
    assert nothing.dense(2, 3).shape == (2, 3)
    q, k, v = torch.randn(2, 1, 2, 4), torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4)
    expected = dot_product.attend(q, k, v)
    torch.testing.assert_close(dot_product_fast.attend(q, k, v, mask=nothing), expected)
    torch.testing.assert_close(dot_product.attend(q, k, v, mask=nothing), expected)


def test_a_mask_of_one_row_or_one_column_stands_for_all():
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    row, column = matrix(1, 5), tensor([True], [False], [True])
    for small in (row, column, torch.ones(1, 1, dtype=torch.bool)):
        expected = dot_product.attend(q, k, v, mask=small.expand(3, 5).clone())
        for form in (dot_product, dot_product_fast):
            torch.testing.assert_close(form.attend(q, k, v, mask=small), expected)


def test_masks_of_empty_batches_and_sequences_keep_their_shape():
    none = torch.zeros(0, dtype=torch.long)
    assert Mask.padding(none).dense(3, 4).shape == (0, 1, 3, 4)
    assert Mask.padding(none.reshape(0, 3)).dense(3, 4).shape == (0, 1, 3, 4)
    assert Mask.padding(torch.zeros(2, 0, dtype=torch.long)).dense(0, 4).shape == (2, 1, 0, 4)
    assert Mask.tokens(torch.zeros(0, 4, dtype=torch.bool)).dense(3, 4).shape == (0, 1, 3, 4)
    assert Mask.segments(torch.zeros(0, 4, dtype=torch.long)).dense(3, 4).shape == (0, 1, 3, 4)
    assert Mask.causal().dense(0, 4).shape == (0, 4)
    assert Mask.causal().dense(4, 0).shape == (4, 0)


def test_a_mask_may_be_made_for_another_device():
    dense = (Mask.causal() & Mask.window(2)).dense(2, 3, device="meta")
    assert dense.device.type == "meta"


# Which axis means what


def test_N22_equal_sizes_never_change_what_an_axis_means():
    n = 4
    q, k, v = (torch.randn(n, n, n, n, dtype=torch.float64) for _ in range(3))
    one = torch.ones(n, n).tril(-1).bool() | torch.eye(n).bool()
    one[0, 3] = True  # asymmetric in every pair of axes
    per_element = torch.stack([one.roll(b, dims=1) for b in range(n)])
    for form in (dot_product, dot_product_fast):
        everywhere = form.attend(q, k, v, mask=one)
        by_element = form.attend(q, k, v, mask=per_element[:, None])
        by_head = form.attend(q, k, v, mask=per_element[None])
        for b, h in itertools.product(range(n), repeat=2):
            alone = q[b, h], k[b, h], v[b, h]
            for got, mask in (
                (everywhere, one),
                (by_element, per_element[b]),
                (by_head, per_element[h]),
            ):
                torch.testing.assert_close(got[b, h], dot_product.attend(*alone, mask=mask))
        with pytest.raises(
            ValueError, match=r"mask has 3 axes .* but the scores have 4; .*mask\[:, None\]"
        ):
            form.attend(q, k, v, mask=per_element)


def test_a_matrix_for_each_element_is_meant_where_there_are_no_heads():
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    mask = matrix(2, 3, 5)
    for form in (dot_product, dot_product_fast):
        got = form.attend(q, k, v, mask=mask)
        for b in range(2):
            torch.testing.assert_close(got[b], dot_product.attend(q[b], k[b], v[b], mask=mask[b]))
        torch.testing.assert_close(form.attend(q, k, v, mask=mask[:, None]), got)
        with pytest.raises(ValueError, match=r"mask has 4 axes .* but the scores have 3"):
            form.attend(q, k, v, mask=matrix(2, 6, 3, 5))


# Positions


def positions_by_loop(real, ids, T):
    """Each token counts the real tokens of its document up to itself, starting from 0."""
    rows = []
    for row, documents in zip(real, ids, strict=True):
        counted = []
        for s in range(len(row)):
            before = [i for i in range(s + 1) if row[i] and documents[i] == documents[s]]
            counted.append(max(len(before) - 1, 0))
        rows.append(([0] * T + counted)[len(row) :])
    return torch.tensor(rows)


def test_positions_without_padding_or_documents_count_the_last_queries():
    assert Mask.causal().positions(4).tolist() == [0, 1, 2, 3]
    assert Mask.causal().positions(2, 5).tolist() == [3, 4]
    assert (Mask.window(2) & Mask.of(matrix(4, 4))).positions(4).tolist() == [0, 1, 2, 3]


def test_positions_by_hand_for_left_padding_and_packed_documents():
    left = Mask.tokens(tensor([0, 0, 1, 1, 1], [1, 1, 1, 1, 1]).bool())
    assert left.positions(5).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    packed = Mask.segments(tensor([4, 4, 4, 1, 1, -1]))
    assert packed.positions(6).tolist() == [[0, 1, 2, 0, 1, 0]]
    assert packed.positions(2, 6).tolist() == [[1, 0]]
    woven = Mask.segments(tensor([3, 9, 3, 3, 9]))
    assert woven.positions(5).tolist() == [[0, 0, 1, 2, 1]]


@pytest.mark.parametrize("T", [1, 3, 5])
def test_positions_count_the_real_tokens_of_each_document(T):
    S = 5
    real, ids = token_mask(T, S), segment_ids(T, S).reshape(BATCH, S)
    lens = lengths(T, S)
    short = torch.arange(S) < lens[:, None]
    one = torch.zeros(BATCH, S, dtype=torch.long)
    cases = [
        (Mask.tokens(real), real, one),
        (Mask.padding(lens), short, one),
        (Mask.segments(ids), ids >= 0, ids),
        (Mask.causal() & Mask.segments(ids) & Mask.padding(lens), (ids >= 0) & short, ids),
        (Mask.tokens(real) & Mask.segments(ids), (ids >= 0) & real, ids),
        (Mask.padding(query_lengths(T, S)) & Mask.tokens(real), real, one),
    ]
    for mask, counted, documents in cases:
        expected = positions_by_loop(counted.tolist(), documents.tolist(), T)
        assert torch.equal(mask.positions(T, S), expected), mask


def test_positions_of_real_tokens_do_not_depend_on_padding():
    for length in range(1, 6):
        alone = Mask.causal().positions(length)
        left = torch.arange(5) >= 5 - length
        right = torch.arange(5) < length
        assert torch.equal(Mask.tokens(left[None]).positions(5)[0, left], alone)
        assert torch.equal(Mask.tokens(right[None]).positions(5)[0, right], alone)
        assert torch.equal(Mask.padding(tensor(length)).positions(5)[0, right], alone)


def test_positions_take_any_layout_and_an_empty_batch():
    ids = tensor([0, 0, 1], [1, 0, 1])
    turned = ids.T.contiguous().T
    assert torch.equal(Mask.segments(turned).positions(3), Mask.segments(ids).positions(3))
    assert Mask.segments(ids[:0]).positions(3).shape == (0, 3)


def test_documents_of_two_packings_are_their_intersections():
    both = Mask.segments(tensor([0, 0, 1, 1])) & Mask.segments(tensor([0, 1, 1, 1]))
    assert both.dense(4, 4)[0, 0, 1].tolist() == [False, True, False, False]
    assert both.positions(4).tolist() == [[0, 0, 0, 1]]


def test_positions_for_another_number_of_keys_are_refused():
    with pytest.raises(ValueError, match=r"segment ids has 5 columns .* but there are 3 keys"):
        Mask.segments(torch.zeros(2, 5, dtype=torch.long)).positions(3)
    with pytest.raises(ValueError, match=r"token_mask has 5 columns .* but there are 3 keys"):
        Mask.tokens(torch.ones(2, 5, dtype=torch.bool)).positions(3)


# Texts


def test_a_mask_prints_as_the_words_that_make_it():
    cases = {
        "Mask.causal()": Mask.causal(),
        "Mask.window(3)": Mask.window(3),
        "Mask.padding([3, 5])": Mask.padding(tensor(3, 5)),
        "Mask.padding(int64 (2, 2))": Mask.padding(tensor([3, 5], [1, 2])),
        "Mask.padding(int32 (9,))": Mask.padding(torch.zeros(9, dtype=torch.int32)),
        "Mask.tokens(bool (2, 4))": Mask.tokens(matrix(2, 4)),
        "Mask.segments(int64 (1, 3))": Mask.segments(tensor([0, 0, 1])),
        "Mask.of(bool (3, 4))": Mask.of(matrix(3, 4)),
        "Mask.causal() & Mask.padding([3, 5])": Mask.causal() & Mask.padding(tensor(3, 5)),
        "Mask()": Mask.from_mha(),
    }
    for text, mask in cases.items():
        assert repr(mask) == text


def test_the_picture_of_causal_is_a_staircase():
    assert Mask.causal().picture(3) == (
        "Mask.causal()   rows: 3 queries, columns: 3 keys\n"
        "■ · ·\n"
        "■ ■ ·\n"
        "■ ■ ■"
    )  # fmt: skip
    assert Mask.causal().picture(2, 4).splitlines()[1:] == ["■ ■ ■ ·", "■ ■ ■ ■"]
    assert len(Mask.causal().picture().splitlines()) == 9


def test_the_picture_shows_batch_elements_side_by_side():
    picture = (Mask.causal() & Mask.padding(tensor(1, 2))).picture(2)
    assert picture == (
        "Mask.causal() & Mask.padding([1, 2])   rows: 2 queries, columns: 2 keys\n"
        "■ ·   ■ ·\n"
        "■ ·   ■ ■"
    )


def test_the_picture_takes_its_size_from_the_mask():
    assert Mask.tokens(tensor([True, False])).picture().splitlines()[1:] == ["■ ·", "■ ·"]
    assert len(Mask.padding(tensor(9, 3)).picture().splitlines()) == 1 + 9
    wide = Mask.of(tensor([True, False, True], [False, True, True]))
    assert wide.picture().splitlines()[1:] == ["■ · ■", "· ■ ■"]
    each = Mask.padding(tensor([1, 2], [0, 1]))
    assert len(each.picture().splitlines()) == 1 + 2


# Immutability


def test_a_mask_never_changes():
    mask = Mask.causal()
    with pytest.raises(AttributeError):
        mask.parts = ()
    with pytest.raises(AttributeError):
        del mask.parts
    with pytest.raises(AttributeError):
        mask.other = 1
    with pytest.raises(AttributeError):
        Mask.window(2).parts[0].n = 3


def test_a_dense_mask_shares_no_memory_that_a_caller_could_change():
    given = matrix(3, 4)
    kept = given.clone()
    dense = (Mask.of(given) & Mask.causal()).dense(3, 4)
    dense.logical_not_()
    assert torch.equal(given, kept)


def test_a_mask_can_be_copied_and_pickled():
    mask = Mask.causal() & Mask.padding(tensor(2, 3))
    for again in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert repr(again) == repr(mask)
        assert torch.equal(again.dense(3, 3), mask.dense(3, 3))


# nn.MultiheadAttention's polarity


def mha_by_our_attention(mha: nn.MultiheadAttention, form, x, source, mask):
    weight, bias = mha.in_proj_weight.chunk(3), mha.in_proj_bias.chunk(3)
    inputs = (x, source, source)
    q, k, v = (
        nn.functional.linear(y, w, b).unflatten(-1, (mha.num_heads, -1)).transpose(1, 2)
        for y, w, b in zip(inputs, weight, bias, strict=True)
    )
    joined = form.attend(q, k, v, mask=mask).transpose(1, 2).flatten(2)
    return mha.out_proj(joined)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("form", [dot_product, dot_product_fast])
def test_N09_masks_convert_from_and_to_multihead_attention(form, seed):
    torch.manual_seed(seed)
    B, H, T, S, D = 2, 3, 5, 7, 12
    mha = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64)
    nn.init.normal_(mha.in_proj_bias)
    x, source = torch.randn(B, T, D).double(), torch.randn(B, S, D).double()
    padding = torch.arange(S) >= torch.randint(2, S + 1, (B, 1))  # True = must not attend
    shape = [(T, S), (B * H, T, S)][seed % 2]
    forbidden = torch.rand(shape) > 0.6
    forbidden[..., :2] = False  # nn.MultiheadAttention gives NaN for an empty row

    expected, _ = mha(x, source, source, attn_mask=forbidden, key_padding_mask=padding)
    ours = Mask.from_mha(forbidden, padding, n_heads=H)
    torch.testing.assert_close(mha_by_our_attention(mha, form, x, source, ours), expected)

    theirs = ours.to_mha(T, S, n_heads=H)
    torch.testing.assert_close(mha(x, source, source, attn_mask=theirs)[0], expected)
    again = Mask.from_mha(theirs, n_heads=H)
    assert torch.equal(*(m.dense(T, S).expand(B, H, T, S) for m in (ours, again)))


def test_N09_each_argument_of_multihead_attention_converts_alone():
    forbidden = matrix(3, 4)
    assert torch.equal(Mask.from_mha(forbidden).dense(3, 4), ~forbidden)
    assert torch.equal(Mask.of(~forbidden).to_mha(3, 4, n_heads=2), forbidden)
    padding = matrix(2, 4)
    assert torch.equal(
        Mask.from_mha(key_padding_mask=padding).dense(3, 4),
        ~padding[:, None, None].expand(2, 1, 3, 4),
    )
    per_head = matrix(6, 3, 4)
    dense = Mask.from_mha(per_head, n_heads=3).dense(3, 4)
    assert all(torch.equal(dense[i // 3, i % 3], ~per_head[i]) for i in range(6))
    assert Mask.causal().to_mha(3, 4, n_heads=2).shape == (3, 4)
    assert Mask.padding(tensor(1, 2)).to_mha(3, 4, n_heads=3).shape == (6, 3, 4)


def test_heads_that_do_not_fit_are_refused_by_name():
    with pytest.raises(
        ValueError, match="attn_mask has 4 matrices, which n_heads=3 does not divide"
    ):
        Mask.from_mha(matrix(4, 3, 5), n_heads=3)
    with pytest.raises(ValueError, match="n_heads must be at least 1"):
        Mask.from_mha(matrix(4, 3, 5), n_heads=0)
    with pytest.raises(ValueError, match="n_heads"):
        Mask.of(matrix(2, 3, 4, 5)).to_mha(4, 5, n_heads=2)


def test_N08_N09_a_float_mask_of_multihead_attention_is_refused_in_its_own_polarity():
    for name in ("attn_mask", "key_padding_mask"):
        with pytest.raises(TypeError, match=f"{name} must be boolean") as error:
            Mask.from_mha(**{name: torch.zeros(3, 4)})
        assert "True = may attend" not in str(error.value), "there True means must not attend"
        assert "must not attend" in str(error.value)


# Refusals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_N08_a_float_mask_is_refused_with_its_polarity_and_the_way_out(dtype):
    flags = torch.ones(3, 4).tril().to(dtype)
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 4, 4), torch.randn(2, 4, 4)
    doors = [
        lambda: Mask.of(flags),
        lambda: Mask.causal() & flags,
        lambda: dot_product.attend(q, k, v, mask=flags),
        lambda: dot_product_fast.attend(q, k, v, mask=flags),
        lambda: dot_product.weights(q, k, mask=flags),
        lambda: Mask.tokens(flags),
    ]
    for door in doors:
        with pytest.raises(
            TypeError,
            match=r"mask must be boolean with True = may attend, got torch\.float.*"
            r"For 1 = may attend use .*mask\.bool\(\); numbers to add go to bias=",
        ):
            door()


def test_what_is_no_mask_is_refused():
    with pytest.raises(TypeError, match=r"must be a Mask or a boolean torch\.Tensor, got list"):
        Mask.of([[True]])
    with pytest.raises(TypeError, match=r"must be a Mask or a boolean torch\.Tensor, got str"):
        Mask.causal() & "causal"
    with pytest.raises(ValueError, match=r"mask must have shape \(T, S\), \(B, T, S\) or"):
        Mask.of(torch.ones(4, dtype=torch.bool))
    for n, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n must be"):
            Mask.window(n)
    with pytest.raises(ValueError, match=r"token_mask must have shape \(B, S\)"):
        Mask.tokens(torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"segment ids must have shape \(B, S\)"):
        Mask.segments(torch.zeros(3, dtype=torch.long))
    with pytest.raises(TypeError, match="segment ids must hold integers"):
        Mask.segments(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("valid_lens", "error", "words"),
    [
        (torch.tensor([1.0, 2.0]), TypeError, r"valid_lens must hold integers, got torch\.float32"),
        (torch.tensor([1.5, 2.0]).half(), TypeError, r"valid_lens must hold integers"),
        (torch.tensor([True, False]), TypeError, r"valid_lens must hold integers, got torch\.bool"),
        (torch.tensor([1j, 2]), TypeError, "valid_lens must hold integers"),
        ([1.0, 2.0], TypeError, r"valid_lens must hold integers, got torch\.float32"),
        ([True, False], TypeError, r"valid_lens must hold integers, got torch\.bool"),
        (
            ["a"],
            TypeError,
            r"valid_lens must be a tensor or a list of whole numbers .* got \['a'\]",
        ),
        (
            [[1, 2], [3]],
            TypeError,
            r"a list of whole numbers such as \[7, 4\], got \[\[1, 2\], \[3\]",
        ),
        ([1, -1], ValueError, "valid_lens must not be negative, got -1"),
        (3, TypeError, r"valid_lens must be a torch\.Tensor of integers, got int"),
        (None, TypeError, r"valid_lens must be a torch\.Tensor of integers, got NoneType"),
        (torch.tensor([1, -1]), ValueError, "valid_lens must not be negative, got -1"),
        (torch.tensor([[1, 2, -3]]), ValueError, "valid_lens must not be negative, got -3"),
        (torch.tensor(2), ValueError, r"valid_lens must have shape \(B,\) or \(B, T\), got \(\)"),
        (torch.ones(2, 3, 4).long(), ValueError, r"valid_lens must have shape .* got \(2, 3, 4\)"),
        (
            torch.tensor([1, 6]),
            ValueError,
            "valid_lens has 6 but there are only 5 keys; clamp it to 5",
        ),
        (torch.tensor([[1, 9, 2], [0, 1, 2]]), ValueError, "valid_lens has 9 but there are only 5"),
        (
            torch.tensor([[1, 2], [0, 1]]),
            ValueError,
            r"valid_lens has shape \(2, 2\) but there are 3 q",
        ),
        (
            torch.tensor([1, 2, 3]),
            ValueError,
            r"mask has 3 entries in axis 0 .* but the scores have",
        ),
    ],
)
def test_N21_wrong_valid_lens_are_refused_by_name(valid_lens, error, words):
    with pytest.raises(error, match=words):
        dense_mask(Mask.padding(valid_lens), (2, 4, 3, 5), torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_N21_valid_lens_of_any_whole_number_type_are_legal_and_zero_too(dtype):
    for lens in (torch.tensor([0, 5]), torch.tensor([[0, 1, 5], [2, 0, 0]])):
        given, long = Mask.padding(lens.to(dtype)), Mask.padding(lens)
        assert torch.equal(given.dense(3, 5), long.dense(3, 5))
        assert torch.equal(given.dense(3, 5).sum(-1).squeeze(1), lens.reshape(2, -1).expand(2, 3))


def test_segment_ids_of_any_whole_number_type_are_legal():
    ids = tensor([0, 1, 1], [2, 2, 0])
    for dtype in (torch.int8, torch.uint8, torch.int32):
        for T in (2, 3, 4):
            given = Mask.segments(ids.to(dtype)).dense(T, 3)
            assert torch.equal(given, Mask.segments(ids).dense(T, 3)), (dtype, T)


def test_sizes_that_do_not_fit_are_refused():
    cpu = torch.device("cpu")
    with pytest.raises(ValueError, match=r"token_mask has 4 columns .* but there are 5 keys"):
        Mask.tokens(matrix(2, 4)).dense(3, 5)
    with pytest.raises(ValueError, match=r"segment ids has 4 columns .* but there are 5 keys"):
        Mask.segments(torch.zeros(2, 4, dtype=torch.long)).dense(3, 5)
    with pytest.raises(
        ValueError, match=r"last two axes must be \(T, S\) = \(3, 5\); .*Mask\.tokens"
    ):
        Mask.of(matrix(2, 5)).dense(3, 5)
    with pytest.raises(ValueError, match="masks that are joined must agree in their batch"):
        (Mask.padding(tensor(1, 2)) & Mask.tokens(matrix(3, 5))).dense(3, 5)
    with pytest.raises(ValueError, match="mask has 2 entries in axis 1"):
        dense_mask(matrix(1, 2, 3, 5), (2, 4, 3, 5), cpu)
    with pytest.raises(
        ValueError, match=r"differs by batch element but q has no batch axis; use q\.unsq"
    ):
        dense_mask(Mask.padding(tensor(1)), (3, 5), cpu)


# What the caller does afterwards


def test_a_mask_keeps_what_it_was_made_of():
    lens, real, ids = tensor(2, 3), matrix(2, 3), tensor([0, 0, 1], [0, 1, 1])
    masks = [Mask.padding(lens), Mask.tokens(real), Mask.segments(ids)]
    before = [mask.dense(3, 3) for mask in masks]
    lens.zero_(), real.logical_not_(), ids.add_(torch.arange(3))
    for mask, dense in zip(masks, before, strict=True):
        assert torch.equal(mask.dense(3, 3), dense), mask


def test_a_dense_mask_is_a_matrix_of_its_own():
    dense = Mask.padding(tensor(2, 3)).dense(3, 4)
    dense[0, 0, 0, 3] = True
    assert dense[0, 0, :, 3].tolist() == [True, False, False]


def test_positions_come_on_the_device_asked_for():
    assert Mask.causal().positions(3, 5, device="meta").device.type == "meta"
    assert Mask.tokens(matrix(2, 4)).positions(3, 4, device="meta").device.type == "meta"


def test_lengths_given_as_a_mask_are_answered_with_padding():
    with pytest.raises(ValueError, match=r"with 1 = may attend, got 2; for lengths use Mask\.padd"):
        Mask.of(tensor(2, 3))
    with pytest.raises(ValueError, match=r"only 0 and 1, .* got -1"):
        Mask.of(tensor([1, -1], [0, 1]))
    with pytest.raises(ValueError, match=r"token_mask must be .* only 0 and 1, .* got 3"):
        Mask.tokens(tensor([1, 3]))


def test_a_notebook_shows_a_small_mask_and_names_a_large_one():
    shown = Mask.padding([2, 3])._repr_html_()
    assert shown.startswith("<pre")
    assert shown.count("■ ■ ■ · ") == 8  # the second of two, a row for each query
    large = Mask.tokens(torch.ones(1, 65, dtype=torch.bool))._repr_html_()
    assert "■" not in large
    assert "Mask.tokens" in large
