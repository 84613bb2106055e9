"""Submissions of the corpus get the verdict they must get.

All honest ones, each named mistake in one of its styles, and of the mistakes without a name one in
each term: another style for each, so that every style occurs. `clearhead check --self-test` checks
all of them.
"""

from itertools import groupby

import pytest
from submissions import check_source

from clearhead.exercises.contracts import EXERCISES
from clearhead.exercises.corpus import read_corpus


def choose(name):
    """The submissions of an exercise to check here."""
    entries = sorted(read_corpus(name), key=lambda entry: entry.expected)
    for number, (expected, group) in enumerate(groupby(entries, lambda entry: entry.expected)):
        styles = list(group)
        yield from styles if expected == "honest" else [styles[number % len(styles)]]


# Modules with many roles or mistakes, for which there are many readings to try.
LONG = ("multi_head_attention", "attention_head", "transformer_layer", "vit", "classifier")
LONG += ("attention_decoder", "self_attention", "cross_attention", "additive_attention")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in EXERCISES]
)
def test_G19_each_submission_gets_its_verdict(name):
    for submission in choose(name):
        found = check_source(name, submission.source)
        said = f"{submission.name}: {found}"
        if submission.expected == "honest":
            assert found.verdict == "passed", said
        elif submission.expected.startswith("outside "):
            assert found.verdict == "failed", said
            assert found.term == submission.expected.removeprefix("outside "), said
        else:
            assert found.verdict == "failed", said
            assert found.mistakes == tuple(submission.expected.split(" + ")), said
