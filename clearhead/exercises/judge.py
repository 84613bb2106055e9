"""Judge one part of a submission: run it in the sandbox, diagnose it, and report the result."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.definitions import Definition, drop_condition
from clearhead.exercises.diagnosis import Diagnosis, diagnose
from clearhead.exercises.exercise import Exercise
from clearhead.exercises.intake import Submission
from clearhead.exercises.lines import collect_pieces, find_line
from clearhead.exercises.report import Part
from clearhead.exercises.sandbox.supervisor import Session, Stopped, StudentError
from clearhead.exercises.student import Student


def judge(
    submission: Submission, name: str, definition: Definition | None, sandbox: Any, seed: int
) -> Part:
    """Judge one exercise; always returns a result, whatever the student's code does."""
    exercise = find_exercise(name)
    if definition is None:
        usual = ", ".join(drop_condition(each) for each in exercise.names[:4])
        sentence = f"nothing in the file is called {usual}; --map {name}=NAME names it"
        return Part(name, "missing", sentence=sentence, max_points=exercise.points)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny tensors: a second thread only costs time
    try:
        with sandbox.open() as session:
            found = _diagnose(exercise, submission, definition, session, seed)
    except Stopped as stop:
        found = Diagnosis("error", sentence=f"the code was stopped: {stop}")
    finally:
        torch.set_num_threads(threads)
    return _write_part(exercise, submission, definition, found)


def _diagnose(
    exercise: Exercise, submission: Submission, definition: Definition, session: Session, seed: int
) -> Diagnosis:
    loaded = session.request(
        "load",
        cells=[list(cell) for cell in submission.cells],
        files=dict(submission.files),
        helpers=exercise.helpers,
        forbidden=list(exercise.forbidden),
    )
    failures = loaded.get("failures") if isinstance(loaded, dict) else None
    names = loaded.get("names") if isinstance(loaded, dict) else None
    if not isinstance(failures, list) or not isinstance(names, list):
        raise Stopped("its answer could not be read")
    raised = _read_failures(failures)
    if definition.name.split(".")[0] in names:
        student = Student(session, definition.name, definition.is_class)
        try:
            found = diagnose(exercise, student, seed)
        except StudentError as error:
            sentence = f"it raises {error.type}: {error.message}"
            found = Diagnosis("error", sentence=sentence, line=error.line)
    else:
        found = _describe_failures(definition, raised)
    found.notes += [_note_failure(submission, fault) for fault in raised]
    return found


def _note_failure(submission: Submission, fault: StudentError) -> str:
    where = submission.describe_line(fault.line) if fault.line else "the file"
    return f"{where} raises {fault}; the rest of the file was still run"


def _read_failures(failures: list[Any]) -> list[StudentError]:
    """Read the errors that statements of the file raised; the list is not trusted."""
    found = []
    for each in failures[:20]:
        if isinstance(each, dict):
            line = each.get("line")
            kind, message = str(each.get("type"))[:80], str(each.get("message"))[:200]
            found.append(StudentError(kind, message, line if type(line) is int else None))
    return found


def _describe_failures(definition: Definition, failures: list[StudentError]) -> Diagnosis:
    """Say why a definition in the file does not exist after the file has run."""
    first, last = definition.lines
    own = [fault for fault in failures if first <= (fault.line or 0) <= last]
    fault = next(iter(own or failures), None)
    if fault is None:
        sentence = f"{definition.name} no longer exists after the file has run"
        return Diagnosis("error", sentence=sentence)
    sentence = f"{definition.name} could not be defined: running the file gave {fault}"
    return Diagnosis("error", sentence=sentence, line=fault.line)


def _write_part(
    exercise: Exercise, submission: Submission, definition: Definition, found: Diagnosis
) -> Part:
    line = found.line
    if line is None and found.mistakes:
        pieces = collect_pieces(exercise, found.mistakes)
        line = find_line(submission.source, definition, pieces) or definition.lines[0]
    points = exercise.points * (1.0 if found.verdict == "passed" else found.share)
    return Part(
        exercise.name,
        found.verdict,
        found.outcome,
        found.mistakes[0] if found.mistakes else None,
        found.sentence,
        line,
        _write_example(exercise, definition, submission, found),
        points=math.floor(10 * points) / 10 if found.verdict != "error" else 0.0,
        max_points=exercise.points,
        term=found.term,
        says=found.says,
        term_in_words=exercise.terms.get(found.term) if found.term else None,
        formula=exercise.formula,
        page=exercise.page,
        where=submission.describe_line(line) if line else None,
        code=_get_line(submission.source, line),
        notes=found.notes,
        mistakes=list(found.mistakes),
    )


def _get_line(source: str, line: int | None) -> str | None:
    lines = source.split("\n")
    return lines[line - 1].strip() if line and 0 < line <= len(lines) else None


def _write_example(
    exercise: Exercise, definition: Definition, submission: Submission, found: Diagnosis
) -> dict[str, Any] | None:
    """Write the counter-example as plain lists, and as code to run."""
    if found.example is None:
        return None
    example = found.example
    shown = [name for name in example["inputs"] if name in exercise.parameters]
    inputs = {name: to_plain(example["inputs"][name]) for name in shown or example["inputs"]}
    expected = to_plain(example["expected"])
    got = example["got"]
    got = f"{got}" if isinstance(got, Exception) else to_plain(got)
    if isinstance(expected, dict) and isinstance(got, dict):
        expected = {name: value for name, value in expected.items() if name in got}
    sizes = example.get("sizes") or {}
    plain = {"inputs": inputs, "expected": expected, "got": got}
    if sizes and definition.is_class:
        plain["sizes"] = to_plain(sizes)
    needed = set(exercise.parameters) - set(exercise.optional)
    has_all = definition.kind == "function" and needed <= set(inputs)
    if has_all and submission.name.endswith(".py"):
        plain["snippet"] = _write_snippet(definition, submission, inputs, expected)
    return plain


def _write_snippet(
    definition: Definition, submission: Submission, inputs: dict[str, Any], expected: Any
) -> str:
    module = submission.name.removesuffix(".py")
    arguments = ", ".join(
        f"torch.tensor({value})" if isinstance(value, list) else repr(value)
        for value in inputs.values()
    )
    root = definition.name.split(".")[0]
    return (
        f"import torch\nfrom {module} import {root}\n"
        f"print({definition.name}({arguments}))\n# expected: {expected}"
    )


def to_plain(value: Any) -> Any:
    """Convert a value for JSON: tensors and arrays become nested lists, rounded to four digits."""
    if isinstance(value, Tensor | np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value if isinstance(value, str | int | bool | None) else repr(value)
