"""Counting: probabilities by hand, laws, documents that do not reach into each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.models.ngrams import NGrams, find_best_order

V = 4
TEXTS = st.lists(st.integers(0, V - 1), min_size=2, max_size=40)
DOCUMENTS = st.lists(TEXTS, min_size=1, max_size=5)


def probabilities(model, history):
    """P of every token after a history."""
    return np.array([model.probs([*history, w])[-1] for w in range(V)])


@given(DOCUMENTS, TEXTS, st.integers(1, 5))
def test_the_probabilities_after_any_history_sum_to_one(documents, history, order):
    found = probabilities(NGrams(documents, V, order), history)
    assert (found > 0).all()
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_one_token_counts_worked_by_hand():
    # given: 0; counted: 1 1 2. Tiny, so each discount is 1/2: (2 − ½)/3, (1 − ½)/3, and 1/3 shared.
    found = probabilities(NGrams([0, 1, 1, 2], V, 1), [0])
    np.testing.assert_allclose(found, [1 / 12, 1.5 / 3 + 1 / 12, 0.5 / 3 + 1 / 12, 1 / 12])


def test_two_token_counts_worked_by_hand():
    # Pairs 01 11 12, each once. Below, tokens count what stood before them: 1 (0, 1) and 2 (1).
    lower = np.array([1 / 12, 1.5 / 3 + 1 / 12, 0.5 / 3 + 1 / 12, 1 / 12])
    found = probabilities(NGrams([0, 1, 1, 2], V, 2), [1])
    np.testing.assert_allclose(found, (np.array([0, 0.5, 0.5, 0]) + 2 * 0.5 * lower) / 2)


def test_san_francisco():
    """What stands after one token only is unlikely after a new one, however frequent it is."""
    san, francisco, town, rest = range(4)
    text = [san, francisco] * 9 + [rest, town, san, town, town]
    model = NGrams(text, V, 2)
    assert NGrams(text, V, 1).probs([rest, francisco]) > NGrams(text, V, 1).probs([rest, town])
    assert model.probs([rest, francisco]) < model.probs([rest, town])


@given(DOCUMENTS, TEXTS, st.integers(1, 5))
def test_a_document_is_predicted_the_same_whatever_stands_before_it(documents, last, order):
    model = NGrams(documents, V, order)
    alone = model.probs(last)
    assert len(alone) == len(last) - 1
    np.testing.assert_array_equal(model.probs([*documents, last])[-len(alone) :], alone)


@given(DOCUMENTS, TEXTS, st.integers(1, 5))
def test_the_order_of_the_documents_means_nothing(documents, history, order):
    one, other = (NGrams(part, V, order).probs(history) for part in (documents, documents[::-1]))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_no_sequence_runs_over_the_border_of_two_documents():
    start = 0
    model = NGrams([[start, 1, 2], [start, 3, 1], [start, 1, 2]], V, 3)
    # After 2 no document goes on, so the trigram model knows nothing more than the pair does.
    np.testing.assert_allclose(
        probabilities(model, [start, 1, 2])[1:].sum() + probabilities(model, [start, 1, 2])[0], 1
    )
    joined = NGrams([start, 1, 2, start, 3, 1, start, 1, 2], V, 3)
    assert joined.probs([start, 1, 2, start])[-1] > 2 * model.probs([start, 1, 2, start])[-1]


def test_the_given_first_tokens_are_never_predicted():
    model = NGrams([[0, 1, 2, 1], [0, 2, 1]] * 9, V, 2)
    assert len(model.probs([[0, 1, 2, 1], [0, 2]])) == 4
    assert (probabilities(model, [0, 1])[0] < 0.1).all()


@given(DOCUMENTS, DOCUMENTS, st.integers(1, 5))
def test_the_best_order_is_the_one_with_the_least_loss(train, validation, most):
    losses = [NGrams(train, V, order).loss(validation) for order in range(1, most + 1)]
    order, loss = find_best_order(train, validation, V, most)
    assert loss == pytest.approx(min(losses), rel=1e-12)
    assert losses[order - 1] == pytest.approx(loss, rel=1e-12)


def test_a_longer_history_pays_where_it_decides():
    text = [0, 0, 1, 1] * 50
    assert find_best_order(text, text, V, 4)[0] >= 3
    assert NGrams(text, V, 3).loss(text) < 0.05 < NGrams(text, V, 2).loss(text)
    assert NGrams(text, V, 1).loss(text) == pytest.approx(math.log(2), abs=0.02)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_ids_come_as_lists_or_arrays(kind):
    text = [0, 1, 3, 1, 0]
    assert NGrams(kind(text), V, 2).loss(kind(text)) == NGrams(text, V, 2).loss([text])


def test_what_cannot_be_counted_is_named():
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        NGrams([0, 1], V, 0)
    with pytest.raises(ValueError, match="at least two tokens, one to be given and one to predict"):
        NGrams([[2], [1]], V, 2)
    with pytest.raises(ValueError, match="ids from 0 to 3, got 0 to 4"):
        NGrams([0, 4], V, 2)
    with pytest.raises(ValueError, match="ids from 0 to 3, got -1 to 1"):
        NGrams([0, 1], V, 2).probs([1, -1])
