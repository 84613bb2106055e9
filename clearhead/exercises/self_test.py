"""Score the check itself on every submission of the corpus.

clearhead check --self-test
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearhead.exercises.contracts import EXERCISES, find_exercise
from clearhead.exercises.corpus import CorpusEntry, read_corpus
from clearhead.exercises.definitions import find_definition
from clearhead.exercises.diagnosis import Diagnosis, diagnose
from clearhead.exercises.intake import read_source
from clearhead.exercises.sandbox.direct import DirectSession
from clearhead.exercises.student import Student


@dataclass
class Score:
    """Counts over the corpus. misses: submissions that got a wrong verdict."""

    n_honest: int = 0
    n_honest_passed: int = 0
    n_named: int = 0
    n_named_right: int = 0
    n_named_failed: int = 0
    n_outside: int = 0
    n_outside_failed: int = 0
    n_outside_term: int = 0
    misses: list[str] = field(default_factory=list)

    def add(self, entry: CorpusEntry, found: Diagnosis) -> None:
        """Count one submission."""
        before = (self.n_honest_passed, self.n_named_right, self.n_outside_term)
        has_failed = found.verdict != "passed"
        if entry.expected == "honest":
            self.n_honest += 1
            self.n_honest_passed += not has_failed
        elif entry.expected.startswith("outside "):
            self.n_outside += 1
            self.n_outside_failed += has_failed
            self.n_outside_term += found.term == entry.expected.removeprefix("outside ")
        else:
            self.n_named += 1
            self.n_named_failed += has_failed
            self.n_named_right += " + ".join(found.mistakes) == entry.expected
        if before == (self.n_honest_passed, self.n_named_right, self.n_outside_term):
            what = " + ".join(found.mistakes) or found.term or found.sentence
            self.misses.append(f"{entry.exercise}, {entry.name}: {found.verdict}, {what}")

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def text(self) -> str:
        """For a terminal."""
        lines = [
            f"named mistakes      {self.n_named_failed} of {self.n_named} failed, "
            f"{self.n_named_right} named right",
            f"other mistakes      {self.n_outside_failed} of {self.n_outside} failed, "
            f"{self.n_outside_term} given the right term",
            f"honest submissions  {self.n_honest_passed} of {self.n_honest} passed",
        ]
        return "\n".join([*lines, *(f"missed: {each}" for each in self.misses)])


def run_self_test(seeds: Sequence[int] = (1,), names: Sequence[str] = ()) -> Score:
    """Check the corpus of these exercises, or of all, with inputs from each seed."""
    score = Score()
    for seed in seeds:
        for entry, found in check_corpus(names or list(EXERCISES), seed):
            score.add(entry, found)
    return score


def check_corpus(names: Sequence[str], seed: int) -> Iterator[tuple[CorpusEntry, Diagnosis]]:
    """Each submission with its diagnosis; our own texts, so they run in this process."""
    for name in names:
        for entry in read_corpus(name):
            yield entry, check_source(name, entry.source, seed)


def check_source(name: str, source: str, seed: int = 1) -> Diagnosis:
    """The diagnosis of the part for an exercise in a trusted source text, run in this process."""
    exercise = find_exercise(name)
    submission = read_source(source, f"{name}.py")
    found = find_definition(exercise.names, submission.definitions, is_asked=True)
    if found is None:
        raise ValueError(f"none of {', '.join(exercise.names)} is defined in the text")
    session = DirectSession()
    with warnings.catch_warnings(action="ignore"):  # those of students' code
        loaded = session.request("load", cells=[[1, source]], helpers=exercise.helpers)
        if loaded["failures"]:
            raise ValueError(f"the text cannot be run: {loaded['failures']}")
        return diagnose(exercise, Student(session, found.name, found.is_class), seed)
