"""The comparison in docs/check.md is fair: the other judge accepts what is right."""

import pytest
from side_by_side import DRAWN, compare, is_accepted, pass_snapshots

from clearhead.exercises.corpus import read_corpus


@pytest.mark.parametrize("name", DRAWN)
def test_the_restated_tests_accept_right_answers(name):
    honest = [entry for entry in read_corpus(name) if entry.expected == "honest"]
    assert sum(bool(is_accepted(pass_snapshots, entry)) for entry in honest) >= len(honest) / 2


def test_wrong_answers_are_counted_by_judge():
    count, accepted = compare("warmup_schedule", has_torch_judge=False)
    assert accepted["clearhead"] == []
    assert "division_by_zero" in accepted["snapshots"]
    assert count["wrong"] >= count["snapshots tried"] > len(accepted["snapshots"])
