"""The grades of a class in files that other programs read, whatever students wrote."""

import csv
import io
import json
import math
from dataclasses import replace
from xml.etree import ElementTree

from gradescope_results import check_results
from hypothesis import given
from hypothesis import strategies as st

from clearhead.exercises.assignment import VISIBILITIES, AssignedPart, Assignment
from clearhead.exercises.class_report import count_mistakes, write_class_report
from clearhead.exercises.grade_tables import write_csv, write_junit
from clearhead.exercises.gradebook import Grade
from clearhead.exercises.gradescope import make_results, write_results
from clearhead.exercises.report import LEVELS, Part

NAMES = ("attention", "self_attention", "fourier_features")
ASSIGNMENT = Assignment(parts=tuple(AssignedPart(name, points=3) for name in NAMES))

texts = st.text(st.characters(), max_size=40) | st.just("\x1b[2J<script>&]]>\ud800\ufffe\x00")
long_texts = texts | texts.map(lambda text: text * 20_000)
numbers = st.floats(allow_nan=True, allow_infinity=True)
parts = st.builds(
    Part,
    exercise=st.sampled_from(NAMES),
    verdict=st.sampled_from(["passed", "failed", "error", "missing"]),
    mistake=st.sampled_from([None, "no_scaling", "other"]),
    mistakes=st.sampled_from([[], ["no_scaling"], ["no_scaling", "softmax_over_queries"]]),
    sentence=long_texts,
    code=long_texts,
    where=texts,
    points=numbers,
    max_points=numbers,
    notes=st.lists(texts, max_size=2),
)


def unique(found):
    return list({part.exercise: part for part in found}.values())


grades = st.builds(
    Grade,
    submission=texts,
    sha256=texts,
    key=texts,
    sandbox=texts,
    seconds=numbers,
    parts=st.lists(parts, max_size=3).map(unique),
    notes=st.lists(long_texts, max_size=2),
)
assignments = st.builds(
    Assignment,
    hints=st.sampled_from(LEVELS),
    parts=st.lists(st.sampled_from(NAMES), unique=True).flatmap(
        lambda names: st.tuples(
            *(
                st.builds(
                    AssignedPart,
                    exercise=st.just(name),
                    points=st.none() | st.floats(0, 10_000),
                    visibility=st.sampled_from(VISIBILITIES),
                )
                for name in names
            )
        )
    ),
)


@given(grades, assignments)
def test_G24_results_for_gradescope_are_always_valid(grade, assignment):
    results = make_results(grade, assignment)
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    check_results(results)
    listed = {test["tags"][0] for test in results["tests"]}
    assert listed == {*assignment.exercises, *(part.exercise for part in grade.parts)}


def test_results_after_each_part_say_which_parts_are_not_graded_yet(tmp_path):
    part = Part("attention", "passed", points=3, max_points=3)
    path = tmp_path / "results.json"
    write_results(path, Grade("a.py", "", "", "", parts=[part]), ASSIGNMENT)
    tests = json.loads(path.read_text())["tests"]
    assert [test["score"] for test in tests] == [3, 0, 0]
    assert ["not graded" in test["output"] for test in tests] == [False, True, True]


def test_students_are_told_what_the_assignment_allows():
    part = Part("attention", "failed", "named", "no_scaling", "SENTENCE", 4, says="SAYS")
    part = replace(part, term="scale", term_in_words="WORDS", where="line 4", code="CODE")
    shown = {
        hints: make_results(
            Grade("a.py", "", "", "", parts=[part]),
            Assignment(hints=hints, parts=(AssignedPart("attention"),)),
        )["tests"][0]["output"]
        for hints in LEVELS
    }
    assert shown["none"] == "attention: failed"
    words = ("SAYS", "WORDS", "SENTENCE", "CODE", "no_scaling")
    assert [word for word in words if word in shown["property"]] == ["SAYS"]
    assert [word for word in words if word in shown["term"]] == ["WORDS"]
    assert {"SENTENCE", "CODE", "no_scaling"} <= {w for w in words if w in shown["line"]}


def finite(grade):
    grade.parts = [p for p in grade.parts if math.isfinite(p.points + p.max_points)]
    grade.seconds = 1.0
    return grade


@given(st.lists(grades.map(finite), max_size=3))
def test_tables_can_be_read_back_whatever_students_wrote(found):
    rows = list(csv.DictReader(io.StringIO(write_csv(found))))
    assert len(rows) == len(found)
    assert not [r for r in rows if (r["submission"] + r["notes"]).startswith(tuple("=+-@"))]
    root = ElementTree.fromstring(write_junit(found))
    assert [len(suite) for suite in root] == [len(grade.parts) for grade in found]


def test_a_spreadsheet_sees_no_formula():
    assert "\n'=cmd()," in write_csv([Grade("=cmd()", "", "", "")])


# The class report


def test_the_report_counts_mistakes_names_no_student_and_escapes_everything():
    def make(name, *mistakes):
        first, *_ = mistakes
        part = Part("attention", "failed", "named", first, f"<img {name}>", mistakes=[*mistakes])
        return Grade(f"{name}.py", "", "", "", parts=[part])

    found = [make(f"student{n}", "no_scaling") for n in range(3)]
    found += [make("eve", "softmax_over_queries", "no_scaling"), make("max", "<b>odd")]
    found.append(
        Grade("x", "", "", "", parts=[Part("attention", "failed", "narrowed", term="scale")])
    )
    counts = {finding.mistake: n for finding, n in count_mistakes(found)}
    assert counts == {"no_scaling": 4, "softmax_over_queries": 1, "<b>odd": 1, "": 1}
    page = write_class_report("Home <work>", found)
    assert "Home &lt;work&gt;" in page
    assert "4 submissions" in page
    assert "The scores are not divided by" in page  # what to say, from the catalogue
    assert "docs/attention.md" in page
    assert "<b>odd" not in page
    assert "<img" not in page
    assert "student1" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "no named mistake" in write_class_report("x", [Grade("a", "", "", "")]).lower()
