"""Find which wrong answers pass a handout's tests, and which answer gives its printed numbers.

If a function of the handout is one of our exercises, the handout is run again with submissions of
the corpus in place of it. Right submissions show what the tests accept and what is printed. A wrong
submission that passes the tests, or prints the handout's numbers, is the proof.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from clearhead.exercises.audit.digits import agree, measure_agreement
from clearhead.exercises.audit.findings import Finding, Note
from clearhead.exercises.audit.rerun import FAR, Claim, Run, check_shape, refute, shorten
from clearhead.exercises.audit.trial import Part, Trial
from clearhead.exercises.catalogue import read_entry
from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.corpus import CorpusEntry
from clearhead.exercises.draw import Draw

SECONDS = 60.0  # for all answers of one exercise
LEAST_SHARE = 0.5  # if fewer of the numbers are right, the others are not called a misprint
LARGE = 50.0  # inputs below it are ordinary
SHOWN = 3  # wrong answers that are described


def check_part(
    trial: Trial, part: Part, claims: Sequence[Claim], shapes: list[int]
) -> Iterator[Finding | Note | int]:
    """Find weak tests of one exercise, and printed numbers that only a wrong answer gives.

    shapes: lines with a claimed shape that is not checked yet; those that a run with a right answer
    can check are removed from the list.
    """
    limit = time.monotonic() + SECONDS
    tests = trial.find_tests(part)
    if not tests and not claims and not shapes:
        return
    runs = {each.style: trial.run(part, each) for each in part.honest}
    honest = {style: run for style, run in runs.items() if _is_whole(run)}
    if not honest:
        line = trial.programs[part.uses[0]].cells[0][0]
        yield Note(line, f"none of our right answers can be called as {part.name} is called here")
        return
    for line in list(shapes):
        found = check_shape(line, honest.values())
        if found is not None:
            yield from found
            shapes.remove(line)
    if not tests and not claims:
        return
    wrong: list[tuple[CorpusEntry, Run]] = []
    for each in _choose_wrong(part, honest):
        if time.monotonic() > limit:
            yield Note(
                tests[0] if tests else claims[0].line,
                f"not all wrong answers for {part.name} could be run",
            )
            break
        wrong.append((each, trial.run(part, each)))
    yield from _check_tests(part, honest, wrong, tests)
    if claims:
        first = next(each for each in part.honest if each.style in honest)
        again = trial.run(part, first, seed=2)
        yield from _check_numbers(part, honest, wrong, claims, again)


def _choose_wrong(part: Part, honest: Mapping[str, Run]) -> list[CorpusEntry]:
    """Each mistake once, in the first style whose right answer passed most tests."""
    styles = sorted(honest, key=lambda style: len(honest[style].failures))
    fitting = [each for style in styles for each in part.wrong if each.style == style]
    chosen = {each.expected: each for each in reversed(fitting)}
    return [each for each in part.wrong if chosen.get(each.expected) is each]


def _is_whole(run: Run) -> bool:
    """Whether the answer was called and did not raise."""
    return bool(run.outputs) and not run.stop and not any(line >= FAR for line in run.failures)


def _check_tests(
    part: Part,
    honest: Mapping[str, Run],
    wrong: Sequence[tuple[CorpusEntry, Run]],
    tests: Sequence[int],
) -> Iterator[Finding | Note | int]:
    """Find tests that all right answers fail, or that a wrong answer passes."""
    styles = [s for s, run in honest.items() if not any(n in run.failures for n in tests)]
    passing = [
        (answer, run)
        for answer, run in wrong
        if _is_whole(run) and not any(n in run.failures for n in tests)
    ]
    if not tests:
        return
    yield len(tests)
    if not styles:
        yield from _explain_failing(part, honest, passing, tests)
        return
    seen: dict[str, CorpusEntry] = {}
    hidden: list[CorpusEntry] = []
    for answer, run in passing:
        if answer.style not in styles:
            continue
        if _differ(run.outputs, honest[answer.style].outputs):
            seen.setdefault(answer.expected, answer)
        else:
            hidden.append(answer)
    visible = [each for each in hidden if _is_visible(each)]
    for answer in visible:
        seen.setdefault(answer.expected, answer)
    if seen:
        sentence = f"{len(seen)} of {len(wrong)} wrong answers pass the tests of {part.name}"
        yield Finding(tests[0], "weak test", sentence, _write_proof(list(seen.values())))
    rest = sorted({each.expected for each in hidden} - set(seen))
    if rest:
        yield Note(
            tests[0], f"the inputs of the tests of {part.name} cannot show {', '.join(rest)}"
        )


def _explain_failing(
    part: Part,
    honest: Mapping[str, Run],
    passing: Sequence[tuple[CorpusEntry, Run]],
    tests: Sequence[int],
) -> Iterator[Finding | Note]:
    """Explain why all right answers fail: the test expects a mistake, or another convention."""
    failing = [n for n in tests if all(n in run.failures for run in honest.values())]
    line = (failing or tests)[0]
    if passing:
        answer = passing[0][0]
        sentence = f"right answers of {part.name} fail this test; it expects {answer.expected}"
        yield Finding(line, "wrong", sentence, _write_proof([each for each, _ in passing]))
    else:
        reason = next(run.failures[line] for run in honest.values() if line in run.failures)
        yield Note(line, f"none of our answers for {part.name} passes this test: {shorten(reason)}")


def _check_numbers(
    part: Part,
    honest: Mapping[str, Run],
    wrong: Sequence[tuple[CorpusEntry, Run]],
    claims: Sequence[Claim],
    again: Run,
) -> Iterator[Finding | Note | int]:
    """Find printed numbers that no right answer gives: those of a wrong answer, and misprints.

    again: a run from another seed; numbers that depend on the seed are not judged.
    """
    for claim in claims:
        given = [claim.read(run) for run in honest.values()]
        if any(agree(claim.printed, each) for each in given):
            yield 1
            continue
        matching = [a for a, run in wrong if agree(claim.printed, claim.read(run))]
        comparable = [each for each in given if agree(claim.printed, each) is False]
        if matching and comparable:
            yield 1
            names = " or ".join(dict.fromkeys(each.expected for each in matching))
            sentence = f"a wrong {part.name} gives these numbers: {names}"
            proof = f"a right answer prints {shorten(comparable[0])}\n" + _write_proof(matching)
            yield Finding(claim.line, "wrong", sentence, proof)
        elif claim.read(again) in given and (
            _is_misprint(claim, given)
            or (comparable and {claim.read(run) for _, run in wrong} | {*given} == {given[0]})
        ):
            yield 1
            yield refute(claim, given[0])
        else:
            yield Note(claim.line, f"none of our answers for {part.name} prints these numbers")


def _is_misprint(claim: Claim, given: Sequence[str]) -> bool:
    """Whether several right answers print the same numbers, most of which are as claimed."""
    share = measure_agreement(claim.printed, given[0])
    return len(given) > 1 and share >= LEAST_SHARE and all(agree(given[0], each) for each in given)


def _differ(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two runs gave different outputs."""
    return len(some) != len(others) or any(map(_is_different, some, others))


def _is_different(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return bool(a != b)
    a, b = (torch.as_tensor(np.asarray(x)).double() for x in (a, b))
    return a.shape != b.shape or not torch.allclose(a, b, 1e-3, 1e-5, equal_nan=True)


def _is_visible(answer: CorpusEntry) -> bool:
    """Whether inputs of other sizes, without huge numbers and options, would show the mistake."""
    exercise = find_exercise(answer.exercise)
    if answer.expected not in exercise.mistakes:
        return False
    mistaken = exercise.with_mistakes(answer.expected)
    for case in exercise.cases(Draw(1)):
        values = [x for x in case.inputs.values() if isinstance(x, torch.Tensor) and x.numel()]
        is_plain = all(float(x.double().abs().max()) < LARGE for x in values)
        if is_plain and not any(case.inputs.get(each) is not None for each in exercise.optional):
            try:
                right, other = (
                    each.results(case.inputs)["output"] for each in (exercise, mistaken)
                )
            except (TypeError, KeyError, RuntimeError, ValueError):
                return False
            if _is_different(other, right):
                return True
    return False


def _write_proof(answers: Sequence[CorpusEntry]) -> str:
    """The names of wrong answers, what is wrong in each, and the first one as text."""
    known = read_entry(answers[0].exercise).mistakes
    answers = sorted(answers, key=lambda each: each.expected not in known)  # named ones first
    names = list(dict.fromkeys(each.expected for each in answers))
    lines = [f"accepted by: {', '.join(names)}"]
    lines += [f"{name}: {known[name]['sentence']}" for name in names[:SHOWN] if name in known]
    return "\n".join([*lines, *answers[0].source.strip().split("\n")])
