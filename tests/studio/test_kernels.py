"""Kernel attention beside the softmax: exact numbers, errors that fall as promised."""

import math
from itertools import pairwise

import numpy as np
import pytest

from clearhead.studio.arguments import read_arguments
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.sources import Sources
from clearhead.studio.views.kernels import compare_kernels, measure_kernels

FEATURES = ["quadratic", "elu", "fourier", "positive"]
RANDOM = ["fourier", "positive"]


def ask(question, **arguments):
    found = question(Sources([]), **read_arguments(question, arguments))
    return decode_answer(encode_answer(found))


def compare(features, **arguments):
    sizes = {"T": 7, "D": 5, "m": 12, "seed": 3, "length": 1.5}
    return ask(compare_kernels, features=features, **{**sizes, **arguments})


def execute(lines):
    names = {}
    exec(lines, names)
    return names


@pytest.mark.parametrize("features", FEATURES)
def test_the_python_lines_compute_the_same_weights(features):
    answer = compare(features)
    found = execute(answer["python"])
    for name in ("exact", "approximate", "similarity", "q", "k"):
        np.testing.assert_array_equal(answer[name], found[name], err_msg=name)
    assert answer["error"] == found["error"]


@pytest.mark.parametrize("features", FEATURES)
def test_weights_are_similarities_divided_by_their_sum(features):
    answer = compare(features)
    for weights, similarity in (("exact", "kernel"), ("approximate", "similarity")):
        sums = answer[similarity].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(answer[weights], answer[similarity] / sums, rtol=1e-9)
    np.testing.assert_allclose(answer["kernel"], np.exp(answer["q"] @ answer["k"].T / 5**0.5))
    np.testing.assert_array_equal(answer["difference"], answer["approximate"] - answer["exact"])
    norm = np.linalg.norm
    assert answer["error"] == pytest.approx(norm(answer["difference"]) / norm(answer["exact"]))


def test_every_map_has_its_number_of_features():
    counts = [compare(features)["n_features"] for features in FEATURES]
    assert counts == [6 * 7 // 2, 5, 2 * 12, 12]


def test_queries_and_keys_have_the_length_that_is_asked_for():
    answer = compare("elu", length=2.5)
    for name in ("q", "k"):
        np.testing.assert_allclose(np.linalg.norm(answer[name], axis=1), 2.5)


@pytest.mark.parametrize("features", RANDOM)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_error_of_random_features_is_about_the_expected_one(features, seed):
    answer = compare(features, T=24, D=8, m=1000, seed=seed)
    assert answer["similarity_error"] == pytest.approx(answer["expected_error"], rel=0.35)


def test_only_fourier_features_make_weights_below_zero():
    negative = {each: compare(each, m=4, length=5.0)["n_negative"] for each in FEATURES}
    assert negative.pop("fourier") > 0
    assert set(negative.values()) == {0}


def test_the_error_falls_as_one_by_the_root_of_m():
    answer = ask(measure_kernels, T=24, D=8, length=1.5)
    assert answer["frequencies"] == [4, 16, 64, 256, 1024]
    for name in RANDOM:
        predicted = answer[name]["predicted"]
        assert [a / b for a, b in pairwise(predicted)] == pytest.approx([2.0] * 4)
        assert answer[name]["error"] == pytest.approx(predicted, rel=0.35)
        assert math.isclose(answer[name]["slope"], -0.5, abs_tol=0.06)


def test_the_python_lines_measure_the_same_errors():
    answer = ask(measure_kernels, T=7, D=5, seed=2)
    found = execute(answer["python"])["found"]
    for name in RANDOM:
        for kind, values in answer[name].items():
            assert found[f"{name}_{kind}"] == values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"T": 1}, "T must be at least 2"),
        ({"T": 129}, "T must be at most 128"),
        ({"D": 65}, "D must be at most 64"),
        ({"m": 0}, "m must be at least 1"),
        ({"seed": 1_000_000}, "seed must be at most"),
        ({"length": 9.0}, "length must be"),
        ({"features": "cubic"}, "features must be one of quadratic, elu"),
    ],
)
def test_wrong_arguments_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        compare(**{"features": "positive", **changes})
