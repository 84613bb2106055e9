"""A change of basis changes nothing, and in the same names it is undone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.lab.learned_vs_designed.shared_basis import (
    compare,
    dissimilarity,
    list_names,
    rewrite,
    scale_between,
)
from clearhead.models.smallest import NumpyTransformer, designs

DESIGNS = {
    "identity": lambda sharpness=40.0: designs.identity(sharpness),
    "first": lambda sharpness=40.0: designs.first(4, sharpness),
    "unique": lambda sharpness=40.0: designs.unique(4, sharpness),
}
SEQUENCES = {"identity": [0, 1, 2, 2], "first": [2, 0, 1, 0], "unique": [3, 0, 1, 0, 2]}


def disguised(design, seed=0, width=16, d_pos=7):
    """The same transformer in a random basis of its topics, with random vectors for its places."""
    random = np.random.default_rng(seed)
    d_qk = design.Km.shape[1]
    A = random.normal(size=(d_qk, width))
    back = np.linalg.pinv(A)  # A back = 1, so Q A (K backᵀ)ᵀ = Q Kᵀ
    n, d = len(design.Km), design.d_input
    inputs, pos = np.eye(n), None
    if design.pos is not None:
        pos = random.normal(size=(len(design.pos), d_pos))
        inputs = np.zeros((d + d_pos, n))
        inputs[:d, :d] = np.eye(d)
        inputs[d:, d:] = np.linalg.pinv(pos)
    Qm = inputs @ design.Qm @ A * math.sqrt(width / d_qk)
    return NumpyTransformer(inputs @ design.Km @ back.T, Qm, inputs @ design.Vm, pos)


def random_model(rule, seed=0):
    random = np.random.default_rng(seed)
    d_input, d_v = (4, 1) if rule == "unique" else (3, 3)
    pos = None if rule == "identity" else random.normal(size=(9, 6))
    rows = d_input + (0 if pos is None else 6)
    return NumpyTransformer(*(random.normal(size=(rows, d)) for d in (5, 5, d_v)), pos)


@pytest.mark.parametrize(
    ("rule", "names", "n_tokens"),
    [("identity", "ABC", 3), ("first", "ABC 0123", 12), ("unique", "ABC CLS 01234", 13)],
)
def test_every_letter_is_at_every_position_and_cls_at_position_0(rule, names, n_tokens):
    found = list_names(rule, 4)
    assert "".join(found.all) == names.replace(" ", "")
    assert found.tokens.shape == (n_tokens, len(found.all))
    assert found.tokens.sum(axis=1).tolist() == [1.0 if rule == "identity" else 2.0] * n_tokens
    assert len({tuple(row) for row in found.tokens.tolist()}) == n_tokens
    if rule == "unique":
        alone = found.tokens[found.tokens[:, 4] == 1]  # at place 0
        assert alone.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("rule", DESIGNS)
@given(seed=st.integers(0, 1000))
def test_the_rewritten_transformer_is_the_same_function(rule, seed):
    model, letters = random_model(rule, seed), SEQUENCES[rule]
    seq = np.eye(model.d_input)[letters]
    again = rewrite(model, DESIGNS[rule](), list_names(rule, 4))
    np.testing.assert_allclose(again.steps(seq).attention, model.steps(seq).attention, atol=1e-9)
    np.testing.assert_allclose(again.forward(seq), model.forward(seq), atol=1e-9)
    assert (again.Km == np.eye(len(again.Km))).all()


@pytest.mark.parametrize("rule", DESIGNS)
def test_a_disguised_design_is_found_again(rule):
    design, names = DESIGNS[rule](), list_names(rule, 4)
    hidden = disguised(design)
    seq = np.eye(design.d_input)[SEQUENCES[rule]]
    np.testing.assert_allclose(hidden.forward(seq), design.forward(seq), atol=1e-9)
    one, other = (rewrite(model, design, names) for model in (hidden, design))
    np.testing.assert_allclose(one.Qm, other.Qm, atol=1e-9)
    np.testing.assert_allclose(one.Vm, other.Vm, atol=1e-9)
    found = compare(hidden, design, names)
    assert found["scores"] == pytest.approx(0, abs=1e-9)
    assert found["sharper"] == pytest.approx(1)
    assert min(found["keys"], found["queries"]) > 0.5  # as they stand they have little in common


@pytest.mark.parametrize("rule", DESIGNS)
def test_the_rewritten_design_is_the_design_with_a_column_for_each_name(rule):
    design, names = DESIGNS[rule](), list_names(rule, 4)
    found = rewrite(design, design, names)
    table = design.Qm @ design.Km.T / math.sqrt(design.Qm.shape[1])  # its places are one-hot
    np.testing.assert_allclose(found.Qm / math.sqrt(len(table)), table, atol=1e-9)
    np.testing.assert_allclose(found.Vm, design.Vm, atol=1e-9)


def test_sharpness_is_a_factor_between_scores():
    names = list_names("unique", 4)
    found = compare(designs.unique(4, 7.0), designs.unique(4, 40.0), names)
    assert found["sharper"] == pytest.approx(7 / 40)
    assert found["scores"] == pytest.approx(0, abs=1e-12)


def test_what_the_softmax_ignores_does_not_count():
    design, names = designs.identity(3.0), list_names("identity", 4)
    shifted = NumpyTransformer(design.Km + np.array([5.0, -2.0, 1.0]), design.Qm, design.Vm)
    assert compare(shifted, design, names)["scores"] == pytest.approx(0, abs=1e-9)


def test_scores_are_compared_token_by_token():
    """Two models by loops: every letter at every place asks every other."""
    names, models = list_names("unique", 4), [random_model("unique", seed) for seed in (3, 5)]
    tokens = [(3, 0), *((letter, place) for letter in range(3) for place in range(1, 5))]
    tables = []
    for model in models:
        x = [np.concatenate([np.eye(4)[a], model.pos[p]]) for a, p in tokens]
        table = [[(i @ model.Qm) @ (j @ model.Km) / math.sqrt(5) for j in x] for i in x]
        tables.append([score - sum(row) / len(row) for row in table for score in row])
    dot, one, other = (sum(map(math.prod, zip(*pair, strict=True))) for pair in (
        tables, [tables[0]] * 2, [tables[1]] * 2
    ))  # fmt: skip
    found = compare(*models, names)
    assert found["sharper"] == pytest.approx(dot / other)
    assert found["scores"] == pytest.approx(math.sqrt(1 - dot**2 / (one * other)))


def test_dissimilarity_is_0_for_multiples_and_1_for_tables_with_nothing_in_common():
    one = np.array([[3.0, 4.0]])
    assert dissimilarity(one, -2 * one) == pytest.approx(0, abs=1e-12)
    assert dissimilarity(one, np.array([[-4.0, 3.0]])) == 1
    assert dissimilarity(one, np.array([[1.0]])) == pytest.approx(
        0.8
    )  # 3 of 5 in common, √(1 − 0.36)
    assert scale_between(2 * one, one) == 2
