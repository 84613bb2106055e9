"""The smallest transformer in NumPy: worked by hand, told in words, and what it refuses."""

import math

import numpy as np
import pytest

from clearhead.models.smallest import NumpyTransformer

D_INPUT, D_POS, D_QK, D_V, MAX_LEN, N = 3, 2, 4, 6, 7, 5


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def any_model(positions: bool = True) -> NumpyTransformer:
    rows = D_INPUT + D_POS * positions
    return NumpyTransformer(
        drawn(rows, D_QK, seed=1),
        drawn(rows, D_QK, seed=2),
        drawn(rows, D_V, seed=3),
        drawn(MAX_LEN, D_POS, seed=4) if positions else None,
    )


# Two tokens, worked by hand. The first asks 2 ln 3 of a key of 1, divided by √4: ln 3. So it hears
# itself three times as loud as the other, and the second, who asks nothing, both alike.
KM = [[1, 0, 0, 0], [0, 0, 0, 0]]
QM = [[2 * math.log(3), 0, 0, 0], [0, 0, 0, 0]]
VM = [[4], [8]]


def test_the_case_worked_by_hand() -> None:
    steps = NumpyTransformer(KM, QM, VM).steps([[1, 0], [0, 1]])
    np.testing.assert_allclose(steps.scores, [[math.log(3), 0], [0, 0]], rtol=1e-15)
    np.testing.assert_allclose(steps.attention, [[0.75, 0.25], [0.5, 0.5]], rtol=1e-15)
    np.testing.assert_allclose(steps.output, [[5], [6]], rtol=1e-15)


def test_the_place_stands_after_the_token() -> None:
    pos = [[7, 8], [9, 10]]
    steps = NumpyTransformer(np.zeros((3, 1)), np.zeros((3, 1)), np.eye(3), pos).steps([[5], [6]])
    np.testing.assert_array_equal(steps.x, [[5, 7, 8], [6, 9, 10]])
    np.testing.assert_array_equal(steps.V, steps.x)
    np.testing.assert_allclose(steps.output, [[5.5, 8, 9]] * 2)  # nobody asks: the mean


@pytest.mark.parametrize("positions", [False, True])
def test_the_loops_compute_the_equation(positions: bool) -> None:
    model, seq = any_model(positions), drawn(N, D_INPUT)
    x = np.hstack([seq, model.pos[:N]]) if positions else seq
    scores = (x @ model.Qm) @ (x @ model.Km).T / 2  # √4
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    steps = model.steps(seq)
    for name, right in [("K", x @ model.Km), ("Q", x @ model.Qm), ("V", x @ model.Vm)]:
        np.testing.assert_allclose(getattr(steps, name), right, rtol=1e-12)
    np.testing.assert_allclose(steps.scores, scores, rtol=1e-10)
    np.testing.assert_allclose(steps.attention, weights, rtol=1e-10)
    np.testing.assert_allclose(steps.output, weights @ (x @ model.Vm), rtol=1e-10)
    np.testing.assert_array_equal(model.forward(seq), steps.output)


def test_weights_of_every_query_sum_to_one_even_at_huge_scores() -> None:
    model = NumpyTransformer(1e4 * np.eye(2), 1e4 * np.eye(2), np.eye(2))
    attention = model.steps([[1, 0], [0, 1], [1, 0]]).attention
    np.testing.assert_array_equal(attention, [[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]])


def test_without_positions_the_order_of_tokens_is_the_order_of_outputs_and_nothing_else() -> None:
    model, seq, order = any_model(positions=False), drawn(N, D_INPUT), [3, 0, 4, 1, 2]
    np.testing.assert_allclose(model.forward(seq[order]), model.forward(seq)[order], rtol=1e-12)


def test_with_positions_the_order_of_tokens_matters() -> None:
    model, seq = any_model(), drawn(N, D_INPUT)
    assert not np.allclose(model.forward(seq[::-1]), model.forward(seq)[::-1], rtol=1e-2)


def test_no_tokens_give_no_rows() -> None:
    assert any_model().forward(np.zeros((0, D_INPUT))).shape == (0, D_V)


def test_a_model_keeps_its_own_numbers() -> None:
    Km, Qm, Vm = (np.array(table, dtype=float) for table in (KM, QM, VM))
    model = NumpyTransformer(Km, Qm, Vm)
    Vm[:] = 0
    np.testing.assert_allclose(model.forward(np.eye(2)), [[5], [6]])
    with pytest.raises(ValueError, match="read-only"):
        model.Vm[0, 0] = 1
    assert (model.d_input, model.d_pos) == (2, 0)


# In words


def test_the_narration_tells_every_step_with_its_numbers(capsys: pytest.CaptureFixture) -> None:
    pos = [[0.125], [0.625]]
    KM3, QM3, VM3 = ([*table, [0] * len(table[0])] for table in (KM, QM, VM))
    output = NumpyTransformer(KM3, QM3, VM3, pos).forward([[1, 0], [0, 1]], verbose=True)
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "2 tokens.",
        "Token 0 is [1 0] with position [0.125]:",
        "  key   [1 0 0 0]",
        "  value [4]",
        "Token 1 is [0 1] with position [0.625]:",
        "  key   [0 0 0 0]",
        "  value [8]",
        "Token 0 has the query [2.197 0 0 0]:",
        "  query · key 0 = 2.197, divided by √4: 1.099, weight 0.75",
        "  query · key 1 = 0, divided by √4: 0, weight 0.25",
        "  output, the weighted sum of the values: [5]",
        "Token 1 has the query [0 0 0 0]:",
        "  query · key 0 = 0, divided by √4: 0, weight 0.5",
        "  query · key 1 = 0, divided by √4: 0, weight 0.5",
        "  output, the weighted sum of the values: [6]",
    ]
    np.testing.assert_allclose(output, [[5], [6]])


def test_it_is_silent_unless_asked_and_names_no_position_where_there_is_none(
    capsys: pytest.CaptureFixture,
) -> None:
    model = NumpyTransformer(KM, QM, VM)
    model.forward(np.eye(2))
    assert capsys.readouterr().out == ""
    model.forward([[1, 0]], verbose=True)
    told = capsys.readouterr().out
    assert told.startswith("1 token.\nToken 0 is [1 0]:\n")
    assert "position" not in told


# What is refused

K, V = np.ones((5, 4)), np.ones((5, 6))


@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        ((K, np.ones((5, 3)), V), r"Qm must have the shape of Km, \(5, 4\), got \(5, 3\)"),
        (
            (K, K, np.ones((4, 6))),
            r"Vm must have a row for each input, 5 as Km has, got .*\(4, 6\)",
        ),
        ((K, K, V, np.ones((9, 5))), r"pos is 5 wide but Km has 5 rows.*more than 5 rows"),
        ((K[0], K, V), r"Km must have rows and columns, got shape \(4,\)"),
        ((K, K[:, :0], V), r"Qm must have rows and columns, got shape \(5, 0\)"),
        ((K, K, V, np.ones((0, 2))), r"pos must have rows and columns, got shape \(0, 2\)"),
        ((K, K, [[1, 2], [3]]), "Vm must be a table with equal rows"),
        ((K, K, np.full((5, 6), np.nan)), r"Vm must be finite, but Vm\[0, 0\] is nan"),
    ],
)
def test_wrong_matrices_are_named(matrices: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NumpyTransformer(*matrices)


@pytest.mark.parametrize("wrong", [[["a"]], np.ones((5, 4), dtype=complex), "ABC"])
def test_matrices_hold_real_numbers(wrong: object) -> None:
    with pytest.raises(TypeError, match="Km must hold real numbers, got an array of"):
        NumpyTransformer(wrong, K, V)


@pytest.mark.parametrize(
    ("seq", "words"),
    [
        (np.ones((2, 4)), r"seq has 4 columns but d_input is 3.*Km, 5, less the width of pos, 2"),
        (np.ones((8, 3)), "seq has length 8 but pos has 7 rows; shorten it or give pos 8 rows"),
        (np.ones(3), r"seq must have rows and columns, got shape \(3,\)"),
        (np.full((1, 3), np.inf), r"seq must be finite, but seq\[0, 0\] is inf"),
    ],
)
def test_wrong_sequences_are_named(seq: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        any_model().forward(seq)
