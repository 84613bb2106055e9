"""clearhead predict."""

import json

import pytest
from small_runs import assert_a_mistake, small_run

from clearhead.training import load_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("runs"))


def test_each_input_is_answered_in_its_order(run, folder):
    texts = ["abcab|ca", "aaaa|b", "cccc|c"]
    expected = [load_run(folder).predict(text) for text in texts]
    code, out, err = run("predict", folder, *texts, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"run": str(folder), "answers": expected}
    _, out, _ = run("predict", folder, *texts)
    assert out.splitlines() == [
        f"{e['input']} → {e['answer']} (probability {e['probability']:.4f})" for e in expected
    ]
    assert run("predict", folder, *texts, "--quiet")[1].split() == [e["answer"] for e in expected]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("abcab", "the input must be written haystack|needle, got 'abcab'"),
        ("abz|a", "text has 'z' at place 2, which is not in the alphabet"),
        ("a" * 90 + "|a", "max_len"),
        ("", "the input must be written haystack|needle"),
    ],
)
def test_C01_what_cannot_be_answered_is_told_before_any_answer(run, folder, text, sentence):
    code, out, err = run("predict", folder, "abc|a", text)
    assert_a_mistake(code, out, err)
    assert sentence in err


def test_something_must_be_asked(run, folder):
    code, out, err = run("predict", folder)
    assert_a_mistake(code, out, err)
    assert "INPUT" in err
