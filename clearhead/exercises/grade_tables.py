"""The grades of a class for other programs: a CSV table, and JUnit's XML.

Names and sentences come from students. In the table, a cell that a spreadsheet would read as a
formula begins with an apostrophe; characters that XML does not allow become escapes such as \\x1b.
"""

import csv
import io
from collections.abc import Sequence
from xml.etree import ElementTree

from clearhead.exercises.gradebook import Grade
from clearhead.exercises.gradescope import clean
from clearhead.exercises.report import Part

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(grades: Sequence[Grade]) -> str:
    """A line for each submission: its points, then the points and the verdict of each part."""
    exercises = list(dict.fromkeys(part.exercise for grade in grades for part in grade.parts))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    columns = [word for name in exercises for word in (name, f"{name} verdict")]
    table.writerow(["submission", "points", "max_points", *columns, "notes", "sha256"])
    for grade in grades:
        parts = {part.exercise: part for part in grade.parts}
        cells = [cell for name in exercises for cell in _write_cells(parts.get(name))]
        notes = " | ".join(grade.notes)
        row = [_protect(grade.submission), f"{grade.points:g}", f"{grade.max_points:g}"]
        table.writerow([*row, *cells, _protect(notes), grade.sha256])
    return text.getvalue()


def _write_cells(part: Part | None) -> tuple[str, str]:
    """The points, and the mistake or else the verdict."""
    if part is None:
        return "", ""
    return f"{part.points:g}", part.mistake or part.verdict


def _protect(text: str) -> str:
    text = clean(text).replace("\n", " ")
    return f"'{text}" if text.startswith(FORMULA) else text


def write_junit(grades: Sequence[Grade]) -> str:
    """A test suite for each submission, a test case for each part."""
    root = ElementTree.Element("testsuites")
    for grade in grades:
        verdicts = [part.verdict for part in grade.parts]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=clean(grade.submission),
            tests=str(len(verdicts)),
            failures=str(sum(verdict in ("failed", "missing") for verdict in verdicts)),
            errors=str(verdicts.count("error")),
            time=f"{grade.seconds:.3f}",
        )
        for part in grade.parts:
            _add_case(suite, part, grade.submission)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, part: Part, submission: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", name=part.exercise, classname=clean(submission)
    )
    if part.verdict == "passed":
        return
    kind = "error" if part.verdict == "error" else "failure"
    points = f"{part.points:g} of {part.max_points:g} points"
    fault = ElementTree.SubElement(
        case, kind, type=part.mistake or part.verdict, message=clean(part.sentence)
    )
    fault.text = f"{clean(part.text)}\n{points}"
