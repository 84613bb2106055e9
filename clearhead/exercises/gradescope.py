"""A grade as Gradescope reads it: results.json.

Students see what the assignment allows: hints up to a level, and only the parts that are visible to
them. The file is valid after every part; parts that are not graded yet have no points and say so.
Gradescope's format: https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

import math
from pathlib import Path
from typing import Any

from clearhead.exercises.assignment import MAX_POINTS, AssignedPart, Assignment
from clearhead.exercises.catalogue import read_entry
from clearhead.exercises.gradebook import Grade
from clearhead.exercises.report import Part
from clearhead.files.strict_json import write_json

MAX_OUTPUT = 10_000  # bytes of the text of a part
NOT_GRADED = "not graded: the autograder ended before this part; ask for a new run"


def write_results(path: Path, grade: Grade, assignment: Assignment) -> None:
    """Write results.json; the file is replaced whole or not at all."""
    write_json(path, make_results(grade, assignment))


def make_results(grade: Grade, assignment: Assignment) -> dict[str, Any]:
    """The object of results.json."""
    graded = {part.exercise: part for part in grade.parts}
    tests = []
    for name in dict.fromkeys([*assignment.exercises, *graded]):
        assigned = assignment.find_part(name)
        part = graded.get(name) or Part(name, "error", sentence=NOT_GRADED)
        tests.append(_write_test(part, assigned))
    return {
        "score": round(math.fsum(test["score"] for test in tests), 2),
        "execution_time": math.ceil(_limit(grade.seconds, 1e6)),
        "output": clean("\n".join(f"note: {note}" for note in grade.notes)),
        "output_format": "text",
        "stdout_visibility": "hidden",
        "extra_data": {"sandbox": clean(grade.sandbox), "sha256": clean(grade.sha256)},
        "tests": tests,
    }


def _write_test(part: Part, assigned: AssignedPart) -> dict[str, Any]:
    max_score = _limit(assigned.points or 0.0, MAX_POINTS)
    shown = part.limit(assigned.hints or "line")
    return {
        "name": read_entry(part.exercise).title,
        "score": _limit(part.points, max_score),
        "max_score": max_score,
        "status": "passed" if part.verdict == "passed" else "failed",
        "output": clean(shown.text),
        "output_format": "text",
        "visibility": assigned.visibility,
        "tags": [part.exercise],
    }


def clean(text: str) -> str:
    """Text without control characters, which are written as \\x1b is here, cut at 10 KB."""
    safe = "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
        for c in text[:MAX_OUTPUT]
    )
    data = safe.encode()
    if len(data) <= MAX_OUTPUT and len(text) <= MAX_OUTPUT:
        return safe
    return data[: MAX_OUTPUT - 10].decode(errors="ignore") + "\n… cut"


def _limit(value: float, most: float) -> float:
    """The value, rounded to two digits and kept between 0 and most; 0 if it is not finite."""
    if not math.isfinite(value) or value < 0:
        return 0.0
    return most if value >= most else min(round(value, 2), most)
