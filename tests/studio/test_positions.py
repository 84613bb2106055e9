"""Positions: the numbers of every scheme, by their formulas and by the Python lines."""

import math

import numpy as np
import pytest

from clearhead.studio.arguments import read_arguments
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.sources import Sources
from clearhead.studio.views.positions import show_positions

SCHEMES = ["sinusoidal", "learned", "rotary", "toeplitz", "alibi"]
N, D = 7, 6


def show(scheme, **arguments):
    given = {"scheme": scheme, "n": N, "d": D, **arguments}
    found = show_positions(Sources([]), **read_arguments(show_positions, given))
    return decode_answer(encode_answer(found))


def execute(lines):
    names = {}
    exec(lines, names)
    return names


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [False, True])
def test_the_python_lines_compute_the_same_numbers(scheme, causal):
    answer = show(scheme, base=50.0, seed=4, n_heads=3, causal=causal)
    found = execute(answer["python"])
    compared = answer.keys() & found.keys() - {"python"}
    for name in compared:
        np.testing.assert_array_equal(answer[name], found[name], err_msg=name)
    wanted = {"rotary": "scores", "toeplitz": "attention", "alibi": "attention"}
    assert wanted.get(scheme, "similarity") in compared


def test_sinusoids_follow_their_formula_with_any_base():
    answer = show("sinusoidal", base=50.0)
    p, pair = 5, 2
    angle = p / 50 ** (2 * pair / D)
    assert answer["angles"][p, pair] == pytest.approx(angle)
    assert answer["frequencies"][pair] == pytest.approx(1 / 50 ** (2 * pair / D))
    assert answer["table"][p, 2 * pair] == pytest.approx(math.sin(angle))
    assert answer["table"][p, 2 * pair + 1] == pytest.approx(math.cos(angle))


def test_only_learned_positions_have_similarities_that_depend_on_more_than_the_distance():
    spreads = {scheme: show(scheme)["spread"] for scheme in ("sinusoidal", "learned", "rotary")}
    assert spreads["sinusoidal"] < 1e-12
    assert spreads["rotary"] < 1e-12
    assert spreads["learned"] > 1e-3


def test_rotary_scores_are_the_products_of_turned_queries_and_keys():
    answer = show("rotary", base=50.0)
    i, j, pair = 4, 2, 1
    a = i / 50 ** (2 * pair / D)
    x, y = answer["q"][pair], answer["q"][pair + D // 2]
    turned = answer["rotated_q"][i]
    assert turned[pair] == pytest.approx(x * math.cos(a) - y * math.sin(a))
    assert turned[pair + D // 2] == pytest.approx(y * math.cos(a) + x * math.sin(a))
    assert answer["scores"][i, j] == pytest.approx(turned @ answer["rotated_k"][j])
    assert answer["scores"][i, j] == pytest.approx(answer["scores"][i + 2, j + 2])


def test_a_toeplitz_bias_has_one_number_for_each_distance():
    weights = [float(distance) for distance in range(-(N - 1), N)]
    answer = show("toeplitz", weights=weights, causal=True)
    i, j = np.indices((N, N))
    np.testing.assert_array_equal(answer["bias"][0], j - i)
    powers = np.where(j <= i, np.exp((j - i) / D**0.5), 0)
    np.testing.assert_allclose(answer["attention"][0], powers / powers.sum(1, keepdims=True))


def test_alibi_subtracts_the_slope_for_each_step_of_distance():
    answer = show("alibi", n_heads=4)
    assert answer["slopes"].tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    i, j = np.indices((N, N))
    np.testing.assert_allclose(answer["bias"][1], -abs(i - j) / 16)
    powers = np.exp(answer["bias"])
    np.testing.assert_allclose(answer["attention"], powers / powers.sum(2, keepdims=True))


def test_another_seed_draws_other_numbers_and_the_same_seed_the_same():
    for scheme, name in (("learned", "table"), ("rotary", "q"), ("toeplitz", "weights")):
        first, again, other = (show(scheme, seed=seed)[name] for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n": 1}, "n must be at least 2"),
        ({"n": 129}, "n must be at most 128"),
        ({"d": 7, "scheme": "rotary"}, "d_head must be even"),
        ({"base": 0.5}, "base must be"),
        ({"n_heads": 17}, "n_heads must be at most 16"),
        ({"scheme": "toeplitz", "weights": [1.0]}, "weights must have 2n − 1 = 13 numbers"),
        ({"scheme": "toeplitz", "weights": [1e7] * 13}, r"weights\[0\] must be"),
        ({"scheme": "relative"}, "scheme must be one of sinusoidal, learned"),
    ],
)
def test_wrong_arguments_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        show(**{"scheme": "sinusoidal", **changes})
