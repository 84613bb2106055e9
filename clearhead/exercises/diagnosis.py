"""Find the mistake behind a wrong answer: named, narrowed to a term, or unknown. Never a guess.

1. The student's code is called for every case, and its answers are compared with the reference.
2. If one differs, each named mistake is put into the formula, then each pair (naming.py).
3. If none does, the term to look at is found by disturbing each one (terms.py), and general
   properties are tried (properties.py). If neither helps, the mistake is unknown.
4. The smallest failing example is found among tiny cases with small whole numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clearhead.exercises.comparison import compare_results, differs, evaluate
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Asked, Case, Exercise
from clearhead.exercises.naming import name_mistakes
from clearhead.exercises.properties import probe
from clearhead.exercises.sandbox.frames import Unreadable
from clearhead.exercises.sandbox.supervisor import Stopped, StudentError
from clearhead.exercises.student import CannotCall, Student
from clearhead.exercises.terms import find_term


@dataclass
class Diagnosis:
    """The diagnosis of one part. verdict: passed, failed, error or missing; outcome: named,
    narrowed, unknown or None; mistakes: ids, two for a pair; term: where to look."""

    verdict: str
    outcome: str | None = None
    mistakes: tuple[str, ...] = ()
    term: str | None = None
    sentence: str = ""
    line: int | None = None
    example: Mapping[str, Any] | None = None
    share: float = 0.0  # of the points
    says: str | None = None  # the first failing case, in words
    notes: list[str] = field(default_factory=list)


def diagnose(exercise: Exercise, student: Student, seed: int) -> Diagnosis:
    """Check one part with inputs drawn from this seed."""
    try:
        asked = _ask_all(exercise, student, exercise.cases(Draw(seed)))
    except CannotCall as fault:
        return Diagnosis("error", sentence=str(fault))
    except Stopped as fault:
        return Diagnosis("error", sentence=f"the code was stopped: {fault}")
    if not asked:
        return Diagnosis("error", sentence=f"it cannot be called as {exercise.signature}")
    choice, failed = _find_best_choice(exercise, asked)
    if not failed:
        found = _examine_behaviour(exercise, student, asked, choice, seed)
        found.notes += _describe_readings(exercise, student, asked, choice)
        return found
    found = _explain(exercise, asked, choice, failed)
    is_nameless = found.outcome in ("narrowed", "unknown")
    if is_nameless and any(_is_random(exercise, student, asked, i) for i in failed):
        found = _report_unrepeatable("two calls with the same inputs give different answers")
    found.share = _compute_credit(asked, failed)
    found.says = asked[failed[0]][0].says
    try:
        if found.outcome in ("narrowed", "unknown"):
            student.seed = failed[0] + 1
            found.notes += probe(exercise, student, *asked[failed[0]])
            found.outcome = "narrowed" if found.notes else found.outcome
        found.example = find_example(exercise, student, seed, choice)
    except (Stopped, CannotCall):
        found.notes.append("no small example: the code was stopped")
    found.notes += _describe_readings(exercise, student, asked, choice)
    return found


def _ask_all(exercise: Exercise, student: Student, cases: Any) -> Asked:
    asked: list[tuple[Case, Answer]] = []
    for case in cases:
        student.seed = len(asked) + 1
        answer = exercise.ask(student, case)
        if answer is not None:
            asked.append((case, answer))
    return asked


def _find_best_choice(exercise: Exercise, asked: Asked) -> tuple[int, list[int]]:
    """Find the reading of the weights with the fewest failing cases; return it and these cases."""
    best: tuple[int, list[int]] | None = None
    for choice in range(max(1, *(len(answer.choices) for _, answer in asked))):
        failed = [
            i for i, (case, answer) in enumerate(asked) if differs(exercise, case, answer, choice)
        ]
        if best is None or len(failed) < len(best[1]):
            best = choice, failed
        if not failed:
            break
    assert best is not None
    return best


def _describe_readings(
    exercise: Exercise, student: Student, asked: Asked, choice: int
) -> list[str]:
    """List what was adapted to call the code, and which accepted conventions it follows."""
    readings = [a.choices[min(choice, len(a.choices) - 1)] for _, a in asked if a.choices]
    notes = [note for each in readings for note in exercise.describe_reading(each)]
    return list(dict.fromkeys([*student.notes, *notes]))


def _explain(exercise: Exercise, asked: Asked, choice: int, failed: list[int]) -> Diagnosis:
    """Name the mistake, or the term of the first failing case."""
    errors = [answer.error for _, answer in asked if answer.error is not None]
    if len(errors) == len(asked):
        return _report_error(errors[0])
    mistakes = name_mistakes(exercise, asked, choice, failed)
    if mistakes:
        mistakes = tuple(sorted(mistakes, key=lambda each: [*exercise.terms].index(each.term)))
        return Diagnosis(
            "failed",
            "named",
            tuple(each.id for each in mistakes),
            mistakes[0].term,
            "; and ".join(each.sentence for each in mistakes),
        )
    return _narrow(exercise, asked, choice, failed)


def _report_error(error: StudentError) -> Diagnosis:
    sentence = f"it raises {error.type}: {error.message}"
    return Diagnosis("error", sentence=sentence, line=error.line)


def _narrow(exercise: Exercise, asked: Asked, choice: int, failed: list[int]) -> Diagnosis:
    """Find the term whose wrong forms come closest; by default that of the first failing case.

    The result is unknown if every case fails and no wrong form comes near the values.
    """
    case, answer = asked[failed[0]]
    how = differs(exercise, case, answer, choice)
    found = find_term(exercise, asked, choice, failed) if how in ("values", "shape") else None
    if how == "values" and found is None and len(failed) == len(asked):
        return Diagnosis("failed", "unknown", sentence=f"this case fails: {case.says}")
    term = found[0] if found else case.term
    words = exercise.terms[term]
    if how == "error" and answer.error is not None:
        sentence = f"it raises {answer.error} in this case: {case.says}; look at {words}"
    elif how == "shape":
        got, expected = _find_shapes(exercise, case, answer, choice)
        sentence = f"the output has the shape {got} instead of {expected}; look at {words}"
    elif how == "type":
        got = _describe_type(answer)
        sentence = f"it returns {got} in this case: {case.says}; look at {words}"
    elif how == "gradient":
        sentence = f"the values are right, but the gradient is not: {case.says}; look at {words}"
    else:
        sentence = f"this case fails: {case.says}; look at {words}"
    line = answer.error.line if answer.error is not None else None
    return Diagnosis("failed", "narrowed", (), term, sentence, line)


def _describe_type(answer: Answer) -> str:
    """Name the type of the returned value, with its article."""
    values = list((answer.results or {}).values())
    if len(values) != 1:
        return "values of another type"
    kind = values[0].name if isinstance(values[0], Unreadable) else type(values[0]).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    return "None" if values[0] is None else f"{article} {kind}"


def _find_shapes(exercise: Exercise, case: Case, answer: Answer, choice: int) -> tuple[Any, Any]:
    """The shapes of the answer and of the formula's result, (got, expected)."""
    expected, _ = evaluate(exercise, case, answer.choices[min(choice, len(answer.choices) - 1)])
    name = next(name for name in expected if name in (answer.results or {}))
    got = (answer.results or {})[name]
    return tuple(getattr(got, "shape", ())), tuple(getattr(expected[name], "shape", ()))


def _compute_credit(asked: Asked, failed: list[int]) -> float:
    """Half the share of right cases, so a wrong part gets at most half its points."""
    total = math.fsum(case.worth for case, _ in asked)
    right = math.fsum(case.worth for i, (case, _) in enumerate(asked) if i not in failed)
    return 0.5 * right / total if total else 0.0


def _examine_behaviour(
    exercise: Exercise, student: Student, asked: Asked, choice: int, seed: int
) -> Diagnosis:
    """When all values are right: check that inputs stay unchanged and a second call agrees."""
    if any(answer.is_changed for _, answer in asked):
        return Diagnosis(
            "failed",
            "named",
            ("modifies_input",),
            None,
            "the values are right, but it modifies its input tensors, so a caller who uses them "
            "again gets wrong results; work on a copy: masked_fill, not masked_fill_",
            share=0.8,
        )
    for number, (case, answer) in enumerate(asked):
        if answer.results is None:  # this case expects an error
            continue
        student.seed = number + 1  # the same weights, asked once more
        again = exercise.ask(student, case)
        if again is None or again.error is not None or again.results is None:
            return _report_unrepeatable("it raises an error when it is called a second time")
        if compare_results(again.results, answer.results, exercise.tolerance):
            return _report_unrepeatable("a second call with the same inputs gives another answer")
    others = _ask_all(exercise, student, reversed([*exercise.cases(Draw(seed + 1))]))
    if any(differs(exercise, case, answer, choice) for case, answer in others):
        return _report_unrepeatable(
            "it is right at first, but wrong for new inputs of the same sizes"
        )
    return Diagnosis("passed", share=1.0, sentence="right in every case")


def _is_random(exercise: Exercise, student: Student, asked: Asked, number: int) -> bool:
    """Whether the answer to a case changes with the seed of PyTorch's generator."""
    case, answer = asked[number]
    student.seed, student.shift = number + 1, 1000
    try:
        again = exercise.ask(student, case)
    except (Stopped, CannotCall):
        return False
    finally:
        student.shift = 0
    if again is None or again.results is None or answer.results is None:
        return False
    if any(isinstance(value, Unreadable) for value in answer.results.values()):
        return False  # such as a generator, which never equals another
    return compare_results(again.results, answer.results, exercise.tolerance) is not None


def _report_unrepeatable(sentence: str) -> Diagnosis:
    advice = (
        "; is dropout still active in evaluation, or does something remain from an earlier call?"
    )
    return Diagnosis("failed", "named", ("not_repeatable",), None, sentence + advice, share=0.5)


def find_example(
    exercise: Exercise, student: Student, seed: int, choice: int
) -> dict[str, Any] | None:
    """Find the first tiny case, smallest first, for which the answer is wrong."""
    for number, case in enumerate(exercise.small_cases(Draw(seed))):
        student.seed = number + 1
        answer = exercise.ask(student, case)
        if answer is None or not answer.choices or not differs(exercise, case, answer, choice):
            continue
        inputs = answer.choices[min(choice, len(answer.choices) - 1)]
        expected, _ = evaluate(exercise, case, inputs)
        return {
            "inputs": (answer.form or case).inputs,
            "sizes": case.sizes,
            "expected": expected,
            "got": answer.error if answer.error is not None else answer.results,
        }
    return None
