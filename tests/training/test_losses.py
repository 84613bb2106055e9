"""Losses: by hand, under padding, with nothing to predict; the fast one is the plain one."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.data.augmentation import random_mixup
from clearhead.data.batch import IGNORE, next_tokens
from clearhead.training import losses, losses_fast
from clearhead.training.losses import (
    class_loss,
    class_token_loss,
    mean_cross_entropy,
    next_token_loss,
)

B, T, V, D, C = 3, 5, 7, 4, 6
FORMS = {"plain": losses.vocabulary_loss, "fast": losses_fast.vocabulary_loss}


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def ids(*shape, high=V, seed=0):
    return torch.randint(high, shape, generator=random(seed))


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=random(seed), dtype=dtype)


# Next token: D9


def test_the_targets_by_hand():
    tokens = torch.tensor([[5, 1, 2, 6], [5, 3, 0, 0]])
    assert next_tokens(tokens).tolist() == [[1, 2, 6, IGNORE], [3, 0, 0, IGNORE]]
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    assert next_tokens(tokens, real).tolist() == [
        [1, 2, 6, IGNORE],
        [3, IGNORE, IGNORE, IGNORE],
    ]
    left = torch.tensor([[True] * 4, [False, False, True, True]])
    assert next_tokens(tokens, left)[1].tolist() == [IGNORE, IGNORE, 0, IGNORE]


def test_the_targets_of_packed_documents_by_hand():
    tokens = torch.tensor([[5, 1, 2, 5, 3, 5, 0]])
    segments = torch.tensor([[4, 4, 4, 2, 2, -1, -1]])
    targets = [[1, 2, IGNORE, 3, IGNORE, IGNORE, IGNORE]]
    assert next_tokens(tokens, segments=segments).tolist() == targets
    real = torch.tensor([[True, True, False, True, True, True, True]])
    targets = [[1, IGNORE, IGNORE, 3, IGNORE, IGNORE, IGNORE]]
    assert next_tokens(tokens, real, segments).tolist() == targets


def test_a_sequence_has_one_prediction_less_than_tokens_by_hand():
    # Three tokens of two words; the odds of the right one are 3 : 1, then 1 : 1.
    logits = torch.tensor([[[0.0, math.log(3)], [2.0, 2.0], [99.0, -99.0]]], dtype=torch.float64)
    tokens = torch.tensor([[0, 1, 0]])
    expected = (math.log(4 / 3) + math.log(2)) / 2
    assert next_token_loss(logits, tokens).item() == pytest.approx(expected, abs=1e-12)


def test_D9_the_loss_is_the_mean_of_all_successors_in_plain_loops():
    logits, tokens = numbers(B, T, V), ids(B, T)
    lengths = [5, 1, 3]
    real = torch.arange(T) < torch.tensor(lengths)[:, None]
    costs = [
        -float(logits[b, t].log_softmax(-1)[tokens[b, t + 1]])
        for b, n in enumerate(lengths)
        for t in range(n - 1)
    ]
    assert len(costs) == 4 + 0 + 2
    expected = sum(costs) / len(costs)
    assert next_token_loss(logits, tokens, real).item() == pytest.approx(expected, abs=1e-12)
    every = [
        -float(logits[b, t].log_softmax(-1)[tokens[b, t + 1]])
        for b in range(B)
        for t in range(T - 1)
    ]
    assert next_token_loss(logits, tokens).item() == pytest.approx(sum(every) / 12, abs=1e-12)


def test_D9_neither_the_first_token_nor_the_last_logit_nor_padding_counts():
    logits, tokens = numbers(B, T, V).requires_grad_(), ids(B, T)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [False] * 2 + [True] * 3])
    loss = next_token_loss(logits, tokens, real)
    (grad,) = torch.autograd.grad(loss, logits)
    felt = grad.abs().amax(-1) > 0
    assert felt.tolist() == [
        [True, True, True, True, False],
        [True, True, False, False, False],
        [False, False, True, True, False],
    ]
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % V
    other[2, 2] = (other[2, 2] + 1) % V  # the first of the row padded on the left
    other[~real] = (other[~real] + 3) % V
    assert torch.equal(next_token_loss(logits, other, real), loss)
    noise = logits.detach().clone()
    noise[~felt] = 1e6
    assert torch.equal(next_token_loss(noise, tokens, real), loss)


@pytest.mark.parametrize("extra", [0, 1, 7])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("seed", range(10))
def test_D9_extra_padding_columns_change_nothing(extra, side, seed):
    x, tokens = numbers(B, T, D, seed=seed, dtype=torch.float32), ids(B, T, seed=seed)
    weight = numbers(V, D, seed=seed + 1, dtype=torch.float32)
    real = torch.arange(T) < torch.tensor([5, 2, 4])[:, None]
    real = real.flip(1) if side == "left" else real
    filling = (
        numbers(B, extra, D, seed=seed + 2, dtype=torch.float32) * 9,
        ids(B, extra, seed=seed + 2),
        torch.zeros(B, extra, dtype=torch.bool),
    )
    wider = [
        torch.cat((more, own) if side == "left" else (own, more), dim=1)
        for own, more in zip((x, tokens, real), filling, strict=True)
    ]
    losses_of = []
    for inside, words, mask in ((x, tokens, real), wider):
        logits = torch.stack([row @ weight.mT for row in inside.flatten(0, 1)]).view(B, -1, V)
        fast = losses_fast.vocabulary_loss(inside, weight, next_tokens(words, mask))
        losses_of.append((float(next_token_loss(logits, words, mask)), float(fast)))
    for alone, padded in zip(*losses_of, strict=True):
        assert abs(padded - alone) <= 1e-7


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("extra", [1, 7])
def test_D9_extra_padding_changes_no_vocabulary_loss_and_no_gradient(form, extra):
    x, weight, tokens = numbers(B, T, D), numbers(V, D, seed=1), ids(B, T)
    real = torch.arange(T) < torch.tensor([5, 2, 4])[:, None]
    results = []
    for n in (0, extra):
        inside = torch.cat((x, numbers(B, n, D, seed=2)), dim=1).requires_grad_()
        table = weight.clone().requires_grad_()
        targets = next_tokens(
            torch.cat((tokens, ids(B, n, seed=2)), dim=1),
            torch.cat((real, torch.zeros(B, n, dtype=torch.bool)), dim=1),
        )
        loss = FORMS[form](inside, table, targets)
        loss.backward()
        results.append((loss, inside.grad[:, :T], table.grad))
        assert bool((inside.grad[:, T:] == 0).all())
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-13)


def test_packed_documents_cost_what_they_cost_alone():
    lengths = [3, 1, 4]
    logits, tokens = numbers(1, 8, V), ids(1, 8)
    segments = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2]])
    places = [slice(0, 3), slice(3, 4), slice(4, 8)]
    alone = [next_token_loss(logits[:, p], tokens[:, p]) for p in places]
    total = sum(loss * (n - 1) for loss, n in zip(alone, lengths, strict=True))
    expected = (total / 5).item()
    assert next_token_loss(logits, tokens, None, segments).item() == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize("length", [0, 1])
def test_N23_a_sequence_too_short_to_predict_costs_nothing(length):
    logits = numbers(B, length, V).requires_grad_()
    loss = next_token_loss(logits, ids(B, length))
    assert loss.item() == 0
    loss.backward()
    assert bool((logits.grad == 0).all())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_targets_are_the_same_for_ids_of_any_whole_type(dtype):
    tokens, real = ids(B, T), torch.arange(T) < torch.tensor([5, 2, 4])[:, None]
    targets = next_tokens(tokens.to(dtype), real)
    assert targets.dtype == torch.long
    assert torch.equal(targets, next_tokens(tokens, real))


def test_the_tokens_given_are_not_changed():
    tokens, real = ids(B, T), torch.ones(B, T, dtype=torch.bool)
    before = tokens.clone()
    next_tokens(tokens, real, torch.zeros_like(tokens))[:] = 3
    assert torch.equal(tokens, before)


# Nothing to predict


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_N28_all_ignored_is_zero_with_zero_gradient(dtype):
    nothing = torch.full((B, T), IGNORE)
    logits = numbers(B, T, V, dtype=dtype).requires_grad_()
    loss = mean_cross_entropy(logits, nothing)
    assert loss.item() == 0
    loss.backward()
    assert bool((logits.grad == 0).all())
    for form in FORMS.values():
        x = numbers(B, T, D, dtype=dtype).requires_grad_()
        weight = numbers(V, D, dtype=dtype).requires_grad_()
        for cap in (None, 2.0):
            x.grad = weight.grad = None
            loss = form(x, weight, nothing, soft_cap=cap)
            assert loss.item() == 0
            assert loss.shape == ()
            loss.backward()
            assert bool((x.grad == 0).all())
            assert bool((weight.grad == 0).all())


@pytest.mark.parametrize("form", FORMS)
def test_N28_no_rows_at_all_cost_nothing(form):
    x, weight = numbers(0, D).requires_grad_(), numbers(V, D).requires_grad_()
    loss = FORMS[form](x, weight, ids(0))
    assert loss.item() == 0
    loss.backward()
    assert bool((weight.grad == 0).all())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_N06_broken_numbers_in_ignored_rows_do_not_spoil_the_fast_loss(value):
    weight = numbers(V, D).requires_grad_()
    x = numbers(T, D)
    targets = torch.tensor([1, IGNORE, 2, IGNORE, 0])
    clean = losses_fast.vocabulary_loss(x, weight, targets)
    x[1], x[3] = value, value
    loss = losses_fast.vocabulary_loss(x, weight, targets)
    assert torch.equal(loss, clean)
    loss.backward()
    assert bool(weight.grad.isfinite().all())
    weight.grad = None
    nothing = losses_fast.vocabulary_loss(x, weight, torch.full((T,), IGNORE))
    assert nothing.item() == 0
    nothing.backward()
    assert bool((weight.grad == 0).all())


# Classes


def test_the_class_loss_is_pytorch_s():
    logits, labels = numbers(B, C), ids(B, high=C)
    assert torch.allclose(class_loss(logits, labels), cross_entropy(logits, labels), rtol=1e-14)
    for dtype in (torch.int32, torch.int16, torch.uint8):
        assert torch.equal(class_loss(logits, labels.to(dtype)), class_loss(logits, labels))


def test_N29_one_class_is_legal_and_costs_nothing():
    logits = numbers(B, 1).requires_grad_()
    loss = class_loss(logits, torch.zeros(B, dtype=torch.long))
    assert loss.item() == 0
    loss.backward()
    assert bool((logits.grad == 0).all())
    for form in FORMS.values():
        assert form(numbers(B, D), numbers(1, D), torch.zeros(B, dtype=torch.long)).item() == 0


def test_no_examples_cost_nothing():
    assert class_loss(torch.zeros(0, C), torch.zeros(0, dtype=torch.long)).item() == 0
    assert class_token_loss(torch.zeros(0, T), torch.zeros(0)).item() == 0


def mixtures(*shape, seed=0, dtype=torch.float64):
    return numbers(*shape, seed=seed).softmax(-1).to(dtype)


def test_a_mixture_of_classes_by_hand():
    # log softmax of (0, log 3) is (−log 4, log 3 − log 4).
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    first = 0.25 * math.log(4) + 0.75 * (math.log(4) - math.log(3))
    expected = (first + math.log(2)) / 2
    assert class_loss(logits, labels).item() == pytest.approx(expected, rel=1e-14)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**20))
@settings(max_examples=50)
def test_a_mixture_costs_what_pytorch_says_in_value_and_gradient(rows, classes, seed):
    logits = (3 * numbers(rows, classes, seed=seed)).requires_grad_()
    labels = mixtures(rows, classes, seed=seed + 1)
    loss = class_loss(logits, labels)
    (ours,) = torch.autograd.grad(loss, logits)
    expected = cross_entropy(logits, labels)
    (theirs,) = torch.autograd.grad(expected, logits)
    assert torch.allclose(loss, expected, rtol=1e-12)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_one_hot_rows_cost_what_their_labels_do(dtype):
    logits, labels = (5 * numbers(B, C)).to(dtype), ids(B, high=C)
    rows = torch.nn.functional.one_hot(labels, C)
    for kind in (torch.float32, torch.float64, dtype):
        assert torch.equal(class_loss(logits, rows.to(kind)), class_loss(logits, labels))


def test_an_impossible_class_that_is_not_named_costs_nothing():
    logits = torch.tensor([[0.0, -math.inf, 0.0]], dtype=torch.float64, requires_grad=True)
    loss = class_loss(logits, torch.tensor([[0.5, 0.0, 0.5]], dtype=torch.float64))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert logits.grad.isfinite().all()


def test_mixtures_of_no_examples_and_in_half_precision():
    assert class_loss(torch.zeros(0, C), torch.zeros(0, C)).item() == 0
    logits, labels = numbers(B, C), mixtures(B, C)
    for dtype in (torch.float16, torch.bfloat16):
        loss = class_loss(logits.to(dtype), labels.to(dtype))
        assert loss.dtype == torch.float32
        assert abs(float(loss) - float(class_loss(logits, labels))) < 0.03


def test_what_mixup_makes_is_a_mixture():
    images, labels = numbers(B, 1, 4, 5, dtype=torch.float32), ids(B, high=C)
    _, mixed = random_mixup(images, labels, C, 0.4, random())
    assert mixed.shape == (B, C)
    logits = numbers(B, C, dtype=torch.float32)
    assert torch.allclose(class_loss(logits, mixed), cross_entropy(logits, mixed))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([[0.5, 0.5], [0.6, 0.6]], r"labels\[1\] must be probabilities, .* the sum 1\.2"),
        ([[1.5, -0.5], [0.5, 0.5]], r"labels\[0\] must be .* none negative .* lowest is -0\.5"),
        ([[0.5, 0.5], [math.nan, 1.0]], r"labels\[1\] must be probabilities"),
        ([[math.inf, 0.0], [0.5, 0.5]], r"labels\[0\] must be probabilities"),
        ([[0.0, 0.0], [0.5, 0.5]], r"labels\[0\] must be .* the sum 0"),
        ([[1.0, 0.0]], r"labels as probabilities must have the shape of the logits, \(2, 2\)"),
        ([[1.0], [1.0]], r"labels as probabilities must have the shape of .*, got \(2, 1\)"),
    ],
)
def test_what_is_no_mixture_of_classes_is_refused(labels, words):
    with pytest.raises(ValueError, match=words):
        class_loss(numbers(2, 2), torch.tensor(labels))


@pytest.mark.parametrize(
    ("labels", "kind", "words"),
    [
        ([0, 6, 2], ValueError, r"labels\[1\] is 6, but there are classes from 0 to 5"),
        ([-1, 0, 2], ValueError, r"labels\[0\] is -1, but there are classes from 0 to 5"),
        ([0, 1, -100], ValueError, r"labels\[2\] is -100, but there are classes from 0 to 5"),
        ([0.0, 1.0, 2.0], TypeError, r"labels must hold integers, got torch\.float32"),
        ([True, False, True], TypeError, r"labels must hold integers, got torch\.bool"),
        ([0, 1], ValueError, r"labels must have .*\(3,\), got \(2,\)"),
        ([[0], [1], [2]], ValueError, r"labels must have .*\(3,\), got \(3, 1\)"),
    ],
)
def test_N29_wrong_labels_are_refused_by_their_name(labels, kind, words):
    with pytest.raises(kind, match=words):
        class_loss(numbers(B, C), torch.tensor(labels))


def test_N29_wrong_logits_of_classes_are_refused():
    with pytest.raises(ValueError, match=r"logits must have shape \(B, C\), got \(3, 2, 6\)"):
        class_loss(numbers(B, 2, C), ids(B, 2))
    with pytest.raises(
        TypeError, match=r"logits must hold floating-point numbers, got torch\.int64"
    ):
        class_loss(ids(B, C), ids(B))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("targets", "kind", "words"),
    [
        ([[0, 7], [1, 2]], ValueError, r"targets\[0, 1\] is 7, but there are classes from 0 to 6"),
        ([[0, 1], [-1, 2]], ValueError, r"targets\[1, 0\] is -1, .* 0 to 6 and -100 for none"),
        ([[0, 1], [-101, 2]], ValueError, r"targets\[1, 0\] is -101"),
        ([[0.0, 1.0], [1.0, 2.0]], TypeError, r"targets must hold integers, got torch\.float32"),
        (
            [0, 1],
            ValueError,
            r"targets must have the shape of the predictions, \(2, 2\), got \(2,\)",
        ),
    ],
)
def test_N29_wrong_targets_are_refused_by_their_place(form, targets, kind, words):
    with pytest.raises(kind, match=words):
        FORMS[form](numbers(2, 2, D), numbers(V, D), torch.tensor(targets))


# The class token: A8


def test_the_class_token_loss_by_hand():
    # Odds of 3 : 1 for 1, twice; the labels are 1 and 0.
    logits = torch.tensor([[math.log(3), 9.0], [math.log(3), -9.0]], dtype=torch.float64)
    expected = (math.log(4 / 3) + math.log(4)) / 2
    for labels in (torch.tensor([1, 0]), torch.tensor([1.0, 0.0]), torch.tensor([True, False])):
        assert class_token_loss(logits, labels).item() == pytest.approx(expected, abs=1e-12)
        assert class_token_loss(logits[..., None], labels).item() == pytest.approx(expected)


def test_only_the_first_token_gets_a_gradient():
    logits, labels = numbers(B, T, 1).requires_grad_(), torch.tensor([1, 0, 1])
    class_token_loss(logits, labels).backward()
    assert bool((logits.grad[:, 1:] == 0).all())
    expected = (logits.detach()[:, 0, 0].sigmoid() - labels) / B
    assert torch.allclose(logits.grad[:, 0, 0], expected, rtol=0, atol=1e-14)
    reference = binary_cross_entropy_with_logits(logits[:, 0, 0], labels.double())
    assert torch.allclose(class_token_loss(logits, labels), reference, rtol=1e-14)


def test_extreme_logits_of_the_class_token_cost_what_they_should():
    logits = torch.tensor([[1e4], [-1e4], [1e4]], requires_grad=True)
    assert class_token_loss(logits, torch.tensor([1, 0, 0])).item() == pytest.approx(1e4 / 3)


@pytest.mark.parametrize(
    ("logits", "labels", "kind", "words"),
    [
        (numbers(B, T), [0, 1, 2], ValueError, "labels must be 0 or 1"),
        (numbers(B, T), [0, 1, -1], ValueError, "labels must be 0 or 1"),
        (numbers(B, T), [0.5, 1.0, 0.0], ValueError, "labels must be 0 or 1"),
        (numbers(B, T), [math.nan, 1.0, 0.0], ValueError, "labels must be 0 or 1"),
        (numbers(B, T), [0, 1], ValueError, r"labels \(B,\), got \(3, 5\) and \(2,\)"),
        (numbers(B, T, 2), [0, 1, 1], ValueError, r"logits must have shape .* got \(3, 5, 2\)"),
        (numbers(B, 0), [0, 1, 1], ValueError, r"with a \[CLS\] in front"),
        (numbers(B), [0, 1, 1], ValueError, r"logits must have at least 2 axes, got shape \(3,\)"),
        (ids(B, T), [0, 1, 1], TypeError, "logits must hold floating-point numbers"),
    ],
)
def test_N29_what_the_class_token_loss_refuses(logits, labels, kind, words):
    with pytest.raises(kind, match=words):
        class_token_loss(logits, torch.tensor(labels))


# Bad input


@pytest.mark.parametrize("name", ["token_mask", "segments"])
def test_what_stands_beside_the_tokens_must_have_their_shape(name):
    other = {"token_mask": torch.ones(B, T + 1, dtype=torch.bool), "segments": ids(B, T - 1)}
    with pytest.raises(ValueError, match=rf"{name} must have the shape of tokens, \(3, 5\), got"):
        next_tokens(ids(B, T), **{name: other[name]})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_N08_a_token_mask_that_is_not_boolean_is_refused_by_its_name(dtype):
    with pytest.raises(TypeError, match=r"token_mask must be .*bool"):
        next_tokens(ids(B, T), torch.ones(B, T, dtype=dtype))


def test_segments_that_are_not_whole_numbers_are_refused_by_their_name():
    with pytest.raises(TypeError, match="segments must hold integers"):
        next_tokens(ids(B, T), segments=torch.zeros(B, T))


def test_tokens_of_another_shape_or_type_are_refused():
    with pytest.raises(ValueError, match=r"tokens must have shape \(B, T\), got \(5,\)"):
        next_tokens(ids(T))
    with pytest.raises(TypeError, match="tokens must hold integers"):
        next_tokens(numbers(B, T))


def test_logits_and_tokens_of_different_lengths_are_refused():
    with pytest.raises(
        ValueError, match=r"targets must have the shape of the predictions, \(3, 4\)"
    ):
        next_token_loss(numbers(B, 4, V), ids(B, T))


@pytest.mark.parametrize("form", FORMS)
def test_x_and_weight_of_different_widths_are_refused_by_name(form):
    with pytest.raises(ValueError, match=r"(x|weight) .*(4|6).*(6|4)"):
        FORMS[form](numbers(B, 4), numbers(V, 6), ids(B))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"soft_cap": 0.0}, ValueError, "soft_cap must be a finite number above 0, got 0.0"),
        ({"soft_cap": -2}, ValueError, "soft_cap must be a finite number above 0, got -2"),
        ({"soft_cap": math.nan}, ValueError, "soft_cap must be a finite number above 0, got nan"),
        ({"soft_cap": "30"}, TypeError, "soft_cap must be a number, got '30'; None = no cap"),
        ({"soft_cap": True}, TypeError, "soft_cap must be a number, got True; None = no cap"),
        (
            {"x": numbers(B, D, dtype=torch.float32)},
            TypeError,
            r"x and weight must have one dtype, got torch\.float32 and torch\.float64; use x\.to",
        ),
        (
            {"weight": numbers(V, D, dtype=torch.bfloat16)},
            TypeError,
            r"x and weight must have one dtype, got torch\.float64 and torch\.bfloat16",
        ),
        ({"x": [[1.0]]}, TypeError, r"x must be a torch\.Tensor, got list"),
        ({"weight": None}, TypeError, r"weight must be a torch\.Tensor, got NoneType"),
        ({"weight": ids(V, D)}, TypeError, r"weight must hold floating-point numbers"),
        ({"targets": [0, 1, 2]}, TypeError, r"targets must be a torch\.Tensor of int.*, got list"),
        ({"targets": torch.tensor([0, 7, 1])}, ValueError, r"targets\[1\] is 7, but there are"),
        ({"targets": torch.tensor([0, 1])}, ValueError, r"the shape of the predictions, \(3,\)"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_N29_both_forms_refuse_the_same_in_the_same_words(form, changes, kind, words):
    call = {"x": numbers(B, D), "weight": numbers(V, D), "targets": ids(B)} | changes
    with pytest.raises(kind, match=words):
        FORMS[form](**call)


def test_under_autocast_both_forms_take_what_a_model_gives():
    weight, targets = numbers(V, D, seed=1, dtype=torch.float32), ids(B)
    for dtype in (torch.float32, torch.bfloat16):
        x = numbers(B, D, dtype=torch.float32)
        exact = losses.vocabulary_loss(x, weight, targets)
        with torch.autocast("cpu", torch.bfloat16):
            for form in FORMS.values():
                table = weight.clone().requires_grad_()
                loss = form(x.to(dtype), table, targets)
                loss.backward()
                assert abs(loss.item() - exact.item()) < 0.05
                assert table.grad.dtype == torch.float32


def test_labels_of_class_tokens_are_a_tensor():
    with pytest.raises(TypeError, match=r"labels must be a torch\.Tensor of 0 and 1, got list"):
        class_token_loss(numbers(B, T), [0, 1, 1])


# The vocabulary loss: fast = plain


def both(x, weight, targets, *, soft_cap=None, upstream=1.0, need=(True, True)):
    """Loss and gradients of each form."""
    for form in FORMS.values():
        mine = x.clone().requires_grad_(need[0])
        table = weight.clone().requires_grad_(need[1])
        loss = form(mine, table, targets, soft_cap=soft_cap)
        if any(need):
            (loss * upstream).backward()
        yield loss.detach(), mine.grad, table.grad


def same(one, other, limit):
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert torch.allclose(a, b, rtol=limit, atol=limit), float((a - b).abs().max())


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of the least number of rows."""
    monkeypatch.setattr(losses_fast, "CHUNK", 1)


@given(
    st.integers(1, 200),
    st.integers(1, 40),
    st.integers(1, 9),
    st.sampled_from([None, 0.5, 4.0, 30.0]),
    st.floats(0, 1),
    st.integers(0, 2**20),
)
@settings(max_examples=60)
def test_N31_value_and_gradients_are_those_of_the_plain_form(
    rows, words, width, cap, ignored, seed
):
    x, weight = numbers(rows, width, seed=seed), numbers(words, width, seed=seed + 1)
    targets = ids(rows, high=words, seed=seed)
    targets[torch.rand(rows, generator=random(seed)) < ignored] = IGNORE
    same(*both(x, weight, targets, soft_cap=cap), 1e-12)
    in_single = both(x.float(), weight.float(), targets, soft_cap=cap)
    same(*in_single, 3e-6)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 127, 128, 129, 200])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_sizes_around_the_edge_of_a_chunk(rows, cap):
    x, weight, targets = numbers(rows, D), numbers(V, D, seed=1), ids(rows)
    same(*both(x, weight, targets, soft_cap=cap), 1e-12)


@pytest.mark.parametrize("need", list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.usefixtures("small_chunks")
def test_a_gradient_for_whatever_needs_one_and_for_nothing_else(need, cap):
    x, weight, targets = numbers(130, D), numbers(V, D, seed=1), ids(130)
    before = x.clone(), weight.clone(), targets.clone()
    same(*both(x, weight, targets, soft_cap=cap, need=need), 1e-12)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, weight, targets), strict=True))


@pytest.mark.parametrize("upstream", [0.0, -2.5, 1000.0])
def test_the_gradient_is_scaled_by_what_comes_from_above(upstream):
    x, weight, targets = numbers(B, T, D), numbers(V, D, seed=1), ids(B, T)
    same(*both(x, weight, targets, upstream=upstream), 1e-11)


@pytest.mark.parametrize("cap", [None, 1.5])
def test_gradcheck(cap):
    x, weight = numbers(6, D).requires_grad_(), numbers(V, D, seed=1).requires_grad_()
    targets = torch.tensor([0, 6, IGNORE, 3, 3, IGNORE])

    def loss(x, weight):
        return losses_fast.vocabulary_loss(x, weight, targets, soft_cap=cap)

    assert torch.autograd.gradcheck(loss, (x, weight))


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("form", FORMS)
def test_the_bias_of_a_head_counts_in_value_and_gradient(form, cap):
    x, weight, bias = numbers(6, D), numbers(V, D, seed=1), numbers(V, seed=2)
    targets = torch.tensor([0, 6, IGNORE, 3, 3, IGNORE])

    def loss(x, weight, bias):
        return FORMS[form](x, weight, targets, bias=bias, soft_cap=cap)

    assert torch.autograd.gradcheck(loss, [t.requires_grad_() for t in (x, weight, bias)])
    with_ones = torch.cat((x, torch.ones(6, 1, dtype=x.dtype)), dim=1)  # b as a column of W
    joined = FORMS[form](
        with_ones, torch.cat((weight, bias[:, None]), dim=1), targets, soft_cap=cap
    )
    assert torch.allclose(loss(x, weight, bias), joined, rtol=1e-13)
    assert torch.autograd.gradcheck(lambda b: loss(x.detach(), weight.detach(), b), bias)
    with torch.no_grad():
        assert torch.equal(loss(x, weight, bias), loss(x.detach(), weight, bias))


@pytest.mark.usefixtures("small_chunks")
def test_the_gradient_of_a_bias_is_the_sum_over_all_chunks():
    x, weight, targets = numbers(130, D), numbers(V, D, seed=1), ids(130)
    grads = []
    for form in FORMS.values():
        bias = numbers(V, seed=2).requires_grad_()
        form(x, weight, targets, bias=bias).backward()
        grads.append(bias.grad)
    assert torch.allclose(*grads, rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_a_bias_without_targets_gets_a_gradient_of_zeros(form):
    bias = numbers(V).requires_grad_()
    nothing = torch.full((3,), IGNORE)
    FORMS[form](numbers(3, D), numbers(V, D), nothing, bias=bias).backward()
    assert bool((bias.grad == 0).all())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", [numbers(V + 1), numbers(1, V), numbers(V).float()])
def test_a_bias_that_is_not_the_head_s_is_refused(form, wrong):
    words = rf"bias must be the head's, torch\.float64 of shape \({V},\), got "
    with pytest.raises(ValueError, match=words):
        FORMS[form](numbers(3, D), numbers(V, D), ids(3), bias=wrong)


def test_any_leading_axes_and_layouts():
    weight = numbers(V, D, seed=1)
    x, targets = numbers(2, 3, 5, D), ids(2, 3, 5)
    same(*both(x, weight, targets), 1e-12)
    same(*both(numbers(5, D, 3).mT, weight, ids(5, 3)), 1e-12)
    same(*both(x, numbers(D, V).mT, targets), 1e-12)
    same(*both(numbers(1, D).expand(6, D), weight, ids(6)), 1e-12)
    same(*both(numbers(D), weight, torch.tensor(3)), 1e-12)
    same(*both(x, weight, targets.to(torch.int32)), 1e-12)


def test_two_backward_passes_add_up():
    x, weight = numbers(9, D).requires_grad_(), numbers(V, D, seed=1).requires_grad_()
    loss = losses_fast.vocabulary_loss(x, weight, ids(9))
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    assert torch.allclose(x.grad, 2 * once, rtol=1e-14)


def test_a_tied_table_gets_both_gradients():
    for form in FORMS.values():
        table = numbers(V, D).requires_grad_()
        tokens = ids(B, T)
        x = torch.nn.functional.embedding(tokens, table)
        form(x, table, next_tokens(tokens)).backward()
        if form is losses.vocabulary_loss:
            expected = table.grad
    assert torch.allclose(table.grad, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_cost_what_they_should(form, dtype):
    # Logits ±10⁴: the probability of a wrong target is e^−20000, far below what a number can hold.
    x = torch.tensor([[1.0], [1.0], [-1.0]], dtype=dtype, requires_grad=True)
    weight = torch.tensor([[1e4], [-1e4], [0.0]], dtype=dtype, requires_grad=True)
    targets = torch.tensor([0, 1, 2])
    loss = FORMS[form](x, weight, targets)
    assert loss.item() == pytest.approx((0 + 2e4 + 1e4) / 3, rel=1e-6)
    loss.backward()
    # p − one-hot is 0, (1, −1, 0), (0, 1, −1), a third of it for each row.
    assert torch.allclose(weight.grad, torch.tensor([[1.0], [-2.0], [1.0]], dtype=dtype) / 3)
    assert torch.allclose(x.grad, torch.tensor([[0.0], [2e4], [-1e4]], dtype=dtype) / 3)


def test_extreme_logits_under_a_cap():
    x = torch.tensor([[1e4, 0.0]], dtype=torch.float64)
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    same(*both(x, weight, torch.tensor([1]), soft_cap=15.0), 1e-12)


def test_a_loss_of_almost_nothing_is_not_rounded_away():
    x = torch.tensor([[12.0]], dtype=torch.float64)
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    exact = math.log1p(math.exp(-12.0))
    assert losses_fast.vocabulary_loss(x, weight, torch.tensor([0])).item() == pytest.approx(
        exact, rel=1e-9
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_the_plain_form(dtype):
    x, weight = numbers(B, T, D, dtype=dtype), numbers(V, D, seed=1, dtype=dtype)
    targets = ids(B, T)
    targets[0, 1] = IGNORE
    results = list(both(x, weight, targets, soft_cap=3.0))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    exact = losses.vocabulary_loss(x.double(), weight.double(), targets, soft_cap=3.0)
    assert abs(results[0][0].double() - exact) < 0.05


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_of_half_precision_logits_are_computed_in_single(dtype):
    logits, tokens = (3 * numbers(B, T, V)).to(dtype), ids(B, T)
    loss = next_token_loss(logits, tokens)
    assert loss.dtype == torch.float32
    assert abs(float(loss) - float(next_token_loss(logits.double(), tokens))) < 1e-6
    first, labels = logits[..., :1], torch.tensor([1, 0, 1])
    loss = class_token_loss(first, labels)
    assert loss.dtype == torch.float32
    assert abs(float(loss) - float(class_token_loss(first.double(), labels))) < 1e-6


def test_it_is_right_without_gradients_too():
    x, weight, targets = numbers(9, D), numbers(V, D, seed=1), ids(9)
    expected = losses.vocabulary_loss(x, weight, targets)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            loss = losses_fast.vocabulary_loss(x.requires_grad_(), weight.requires_grad_(), targets)
        assert torch.allclose(loss, expected, rtol=1e-13)
        assert not loss.requires_grad


class Products(TorchDispatchMode):
    """Counts products of matrices."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += "mm" in func.__name__
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("mode", "n"), [(torch.enable_grad, 3), (torch.no_grad, 1), (torch.inference_mode, 1)]
)
def test_without_gradients_there_is_no_work_for_them(mode, n):
    x, weight = numbers(9, D).requires_grad_(), numbers(V, D, seed=1).requires_grad_()
    with mode(), Products() as products:
        losses_fast.vocabulary_loss(x, weight, ids(9))
    assert products.n == n
    assert weight.requires_grad  # the parameter itself is as it was


class Sizes(TorchDispatchMode):
    """Notes how many numbers the largest new tensor has room for."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("cap", [None, 30.0])
def test_the_logits_are_never_there_as_a_whole(cap):
    rows, words, width = 2048, 13_000, 32
    x = numbers(rows, width, dtype=torch.float32).requires_grad_()
    weight = numbers(words, width, seed=1, dtype=torch.float32).mul_(0.1).requires_grad_()
    targets = ids(rows, high=words)
    with Sizes() as fast:
        losses_fast.vocabulary_loss(x, weight, targets, soft_cap=cap).backward()
    assert fast.largest < rows * words / 4
    with Sizes() as plain:  # the measure itself would notice
        losses.vocabulary_loss(x.detach()[:64], weight.detach(), targets[:64], soft_cap=cap)
    assert plain.largest >= 64 * words


def test_the_fast_loss_has_no_second_derivative_and_says_so():
    x, weight = numbers(B, D).requires_grad_(), numbers(V, D, seed=1)
    loss = losses_fast.vocabulary_loss(x, weight, ids(B))
    with pytest.raises(RuntimeError, match=r"no second derivative; use losses\.vocabulary_loss"):
        torch.autograd.grad(loss, x, create_graph=True)
