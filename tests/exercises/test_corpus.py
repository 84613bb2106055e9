"""Every submission of the corpus gets the verdict it must get."""

import pytest
from submissions import check_source

from clearhead.exercises.contracts import EXERCISES
from clearhead.exercises.corpus import read_corpus


@pytest.mark.parametrize("name", EXERCISES)
def test_each_submission_gets_its_verdict(name):
    for submission in read_corpus(name):
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
