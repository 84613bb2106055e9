"""Find the term of the formula that has a mistake without a name.

A wrong answer that no named mistake explains is compared with many wrong forms of the formula: the
named mistakes, and each term disturbed (disturbances.py). A form that explains every answer
identifies the term. If none does, the term is the one whose wrong forms come closest: they fail the
same cases, by similar numbers. The term of the first failing case has an advantage, since cases go
from few terms to many.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clearhead.exercises.comparison import evaluate, measure_distance
from clearhead.exercises.disturbances import (
    Suspect,
    Trace,
    change_result,
    count_numbers,
    disturb_terms,
    on_floats,
    rank,
    trace_terms,
)
from clearhead.exercises.exercise import Answer, Asked, Case, Exercise

EXACT = 0.02  # a wrong form with a lower score explains the answers
ADVANTAGE = 0.3  # of the term that the first failing case names
N_FAILED = 3  # failing cases that are compared by their numbers
N_READINGS = 2  # of the weights, the closest ones
CLOSE = 0.35  # a term with a lower score is preferred to that of the first failing case
APART = 0.99  # if the best score is higher, the term is not known
REFUTED = 0.7  # the score of a form that explains the first cases but not all
NEGLIGIBLE = 0.05  # a smaller share of an answer counts as noise
NEAR = 1e-3  # distance of an answer that counts as right
N_SUSPECTS = 12  # of each term that are compared in every case
GRID = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 16, 64)  # factors to begin with


@dataclass(frozen=True)
class Question:
    """A case in the form that was passed to the student's code, and its answer."""

    case: Case
    answer: Answer

    def compare(self, formula: Exercise, reading: int) -> float | None:
        """The distance of the answer from a formula; None if they cannot be compared."""
        expected, _ = evaluate(formula, self.case, self.inputs(reading))
        has_raised = self.answer.results is None
        if isinstance(expected, Exception) or has_raised:
            return 0.0 if isinstance(expected, Exception) and has_raised else None
        return measure_distance(self.answer.results or {}, expected)

    def inputs(self, reading: int) -> Mapping[str, Any]:
        choices = self.answer.choices
        return choices[min(reading, len(choices) - 1)]


def find_term(
    exercise: Exercise, asked: Asked, choice: int, failed: Sequence[int]
) -> tuple[str, float] | None:
    """The likeliest term and its score: 0 if a wrong form of it explains every answer, 1 if none
    is closer than the formula itself.

    None if the values point to no term.
    """
    wrong: list[Question] = []
    right: list[Question] = []
    for number, (case, answer) in enumerate(asked):
        if answer.choices:
            question = Question(replace(answer.form or case, gradient=False), answer)
            (wrong if number in failed else right).append(question)
    wrong = [each for each in wrong if each.compare(exercise, choice) != 0]
    if not wrong:
        return None
    return _Search(exercise, wrong, right, choice).choose(asked[failed[0]][0].term)


class _Search:
    """Scores wrong forms of a formula by the questions that were answered wrong and right."""

    def __init__(
        self, exercise: Exercise, wrong: list[Question], right: list[Question], choice: int
    ) -> None:
        self.exercise, self.wrong, self.right = exercise, wrong, right
        self.readings = self._find_readings(choice)
        self.distances = {r: [q.compare(exercise, r) for q in wrong] for r in self.readings}

    def _find_readings(self, choice: int) -> list[int]:
        """The readings of the weights that explain the right answers, the closest first."""
        n = max(len(each.answer.choices) for each in self.wrong)
        far = {r: self.wrong[0].compare(self.exercise, r) for r in range(n)}
        misfits = {r: sum(not self._fits(each, r) for each in self.right) for r in range(n)}
        near = sorted(far, key=lambda r: (misfits[r], far[r] is None, far[r] or 0.0, r != choice))
        return near[:N_READINGS]

    def _fits(self, question: Question, reading: int) -> bool:
        """Whether the formula gives the answer under this reading of the weights."""
        distance = question.compare(self.exercise, reading)
        return distance is not None and distance < NEAR

    def choose(self, first: str) -> tuple[str, float] | None:
        """The term with the best wrong form; `first` is the one the first failing case names."""
        traces = self._trace()
        exact = [*self._fit_factors(traces)]
        suspects = [*_list_known(self.exercise), *disturb_terms(self.exercise, traces)]
        best: dict[str, float] = {}
        for suspect in self._preselect(suspects):
            score, reading = self._rate_wrong(suspect)
            if score < best.get(suspect.term, 2.0) or score < EXACT:
                score += self._rate_right(suspect, reading)
                if score < EXACT and self._explains(suspect, reading):
                    exact.append(suspect)
                elif score < EXACT:
                    score = REFUTED
                best[suspect.term] = min(score, best.get(suspect.term, 2.0))
        if exact:
            is_first = any(each.term == first and each.is_result for each in exact)
            suspect = min(exact, key=lambda each: each.rank)
            is_moved = suspect.rank >= 3 * len(traces)  # several terms move numbers alike
            return first if is_first or is_moved else suspect.term, 0.0
        if not best:
            return None
        likeliest = min(best, key=lambda term: best[term] - ADVANTAGE * (term == first))
        if best[likeliest] > APART and self._is_far():
            return None
        return likeliest if best[likeliest] < CLOSE else first, best[likeliest]

    def _is_far(self) -> bool:
        """Whether the right answers are negligible beside those that were given."""
        distances = [each for each in self.distances[self.readings[0]] if each is not None]
        return bool(distances) and all(abs(each - 1) < NEGLIGIBLE for each in distances)

    def _trace(self) -> dict[str, Trace]:
        """How the formula calls each term; is_routing holds only if it holds in every case."""
        found: dict[str, Trace] = {}
        for question in self.wrong[:N_FAILED]:
            traces = trace_terms(self.exercise, question.inputs(self.readings[0]))
            kept = {t: trace for t, trace in found.items() if not trace.is_routing}
            found = {**found, **traces, **kept}
        return found

    def _preselect(self, suspects: Sequence[Suspect]) -> list[Suspect]:
        """The best suspects of each term by the first question alone."""
        rated = sorted(suspects, key=lambda each: self._rate_wrong(each, 1)[0])
        terms = {each.term for each in suspects}
        return [
            each for term in terms for each in [s for s in rated if s.term == term][:N_SUSPECTS]
        ]

    def _rate_wrong(self, suspect: Suspect, n: int = N_FAILED) -> tuple[float, int]:
        """The mean over n failing cases, with the reading of the weights that fits best."""
        found = []
        for reading in self.readings:
            pairs = [*zip(self.wrong, self.distances[reading], strict=True)][:n]
            scores = [_rate(q.compare(suspect.formula, reading), far) for q, far in pairs]
            found.append((sum(scores) / len(scores), reading))
        return min(found)

    def _explains(self, suspect: Suspect, reading: int) -> bool:
        """Whether a form is near every wrong answer."""
        pairs = zip(self.wrong, self.distances[reading], strict=True)
        return all(_rate(q.compare(suspect.formula, reading), far) < EXACT for q, far in pairs)

    def _rate_right(self, suspect: Suspect, reading: int) -> float:
        """The share of cases that are right but would be wrong in this form."""
        distances = [question.compare(suspect.formula, reading) for question in self.right]
        n_missed = sum(far is None or far > NEAR for far in distances)
        return n_missed / (len(self.right) + len(self.wrong))

    def _fit_factors(self, traces: Mapping[str, Trace]) -> Iterator[Suspect]:
        """Find terms whose result times a factor, perhaps one per case, explains every answer."""
        for term, trace in traces.items():
            if trace.is_composite or trace.is_routing or not self._are_many():
                continue
            if all(self._fit(question, term) for question in self.wrong[:2]):
                yield Suspect(term, self.exercise, rank(trace, len(traces), is_factor=True))

    def _are_many(self) -> bool:
        """Whether the answers have several numbers: a single one is explained by some factor."""
        return all(count_numbers(each.answer.results) > 2 for each in self.wrong[:2])

    def _fit(self, question: Question, term: str) -> bool:
        """Whether a factor brings the formula to the answer: the best of a few, then by halving
        the distance to its neighbours."""
        reading = self.readings[0]

        def compare(factor: float) -> float:
            formula = change_result(self.exercise, term, on_floats(lambda x: factor * x))
            distance = question.compare(formula, reading)
            return math.inf if distance is None else distance

        factor = min(GRID, key=compare)
        step = factor / 4
        for _ in range(24):
            better = min((factor, factor - step, factor + step), key=compare)
            step, factor = step / 2 if better == factor else step, better
        return compare(factor) < EXACT * compare(1.0)


def _list_known(exercise: Exercise) -> Iterator[Suspect]:
    """The wrong forms that the exercise itself defines, with and without a name."""
    for mistake in exercise.mistakes.values():
        for method in mistake.methods:
            yield Suspect(mistake.term, exercise.with_mistakes(method), -1)
    for method, term in exercise.unnamed.items():
        yield Suspect(term, exercise.with_mistakes(method), -1)


def _rate(distance: float | None, start: float | None) -> float:
    """0 if a form explains the answer, 1 if it is no closer than the formula, `start` away."""
    if distance is None:
        return 1.0
    if start is None:
        return min(0.9, distance)
    return min(1.0, distance / start) if start else float(distance > 0)
