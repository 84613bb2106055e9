"""Grading a class: resuming, partial results, and files that other programs read."""

import csv
import io
import json
import math
import os
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from gradescope_results import check_results
from hypothesis import given
from hypothesis import strategies as st

from clearhead.exercises import grading
from clearhead.exercises.assignment import (
    HINTS,
    VISIBILITIES,
    AssignedPart,
    Assignment,
    read_assignment,
)
from clearhead.exercises.class_report import count_mistakes, write_class_report
from clearhead.exercises.grade_tables import write_csv, write_junit
from clearhead.exercises.gradebook import Grade, Gradebook, find_root, find_submissions
from clearhead.exercises.gradescope import make_results, write_results
from clearhead.exercises.grading import Grader
from clearhead.exercises.report import Part
from clearhead.exercises.sandbox import Limits
from clearhead.files.reading import BadFile

NAMES = ("attention", "self_attention", "fourier_features")
ASSIGNMENT = Assignment(parts=tuple(AssignedPart(name, points=3) for name in NAMES))
SOURCE = "def attention(q, k, v):\n    return v\n"


# Assignments


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seeds = 4", "no 'seeds'; the nearest is 'seed'"),
        ("[[parts]]\nexercise = 'atention'", "did you mean attention?"),
        ("[[parts]]\nexercise = 'attention'\nvisibilty = 'x'", "the nearest is 'visibility'"),
        ("[[parts]]\nexercise = 'attention'\nvisibility = 'hiden'", "did you mean hidden?"),
        ("[[parts]]\nexercise = 'attention'\npoints = nan", "finite"),
        ("[[parts]]\nexercise = 'attention'\npoints = -1", "points must be from 0"),
        ("[[parts]]\nexercise = 'attention'\nseconds = 0", "seconds must be above 0"),
        ("[[parts]]\nexercise = 'attention'\nmemory = 1", "memory must be from 64"),
        ("[[parts]]\nexercise = 'attention'\n[[parts]]\nexercise = 'attention'", "two parts"),
        ("hints = 'all'\n[[parts]]\nexercise = 'attention'", "hints must be one of none"),
        ("parts = 3", "under a line \\[\\[parts\\]\\]"),
        ("title = 'x'", "at least one part"),
        ("title =", "is not TOML"),
    ],
)
def test_an_assignment_with_a_mistake_is_refused_by_name(tmp_path, text, complaint):
    path = tmp_path / "hw.toml"
    path.write_text(text)
    with pytest.raises(BadFile, match=complaint) as fault:
        read_assignment(path)
    assert str(path) in str(fault.value)


def test_a_part_takes_what_it_leaves_out_from_the_assignment_and_the_exercise():
    work = Assignment(hints="term", parts=(AssignedPart("attention", seconds=5),))
    part = work.find_part("attention")
    assert (part.points, part.hints, part.seconds, part.memory) == (10, "term", 5, 512)


def test_a_student_has_the_same_limits_as_the_grader():
    limits, work = Limits(), Assignment()
    ours = (grading.CALL_SECONDS, work.seconds, work.memory << 20)
    assert ours == (limits.seconds, limits.total, limits.memory)


# Resuming


@pytest.fixture
def folder(tmp_path):
    """Three submissions: two files and a folder in a folder."""
    subs = tmp_path / "subs"
    (subs / "c" / "inner").mkdir(parents=True)
    for name in ("a.py", "b.py", "c/inner/mine.py"):
        (subs / name).write_text(SOURCE)
    return subs


@pytest.fixture
def judged(monkeypatch):
    """The judge is replaced by one that notes what it is asked; points differ between parts."""
    asked = []

    def check_part(submission, name, definition, sandbox, seed):
        asked.append((submission.name, name))
        if len(asked) == judge.stop_at:
            raise KeyboardInterrupt
        return Part(name, "failed", "named", "no_scaling", "wrong", points=6.6, max_points=10)

    judge = SimpleNamespace(asked=asked, stop_at=None)
    monkeypatch.setattr(grading, "check_part", check_part)
    monkeypatch.setattr(os, "fsync", lambda number: None)  # slow on a busy disk
    return judge


def grade_all(folder, out, assignment=ASSIGNMENT):
    book = Gradebook(out, assignment)
    grader = Grader(assignment, SimpleNamespace(level="none"), book, book.seed)
    return [grader.grade(path) for path in find_submissions(folder, out)]


def test_a_run_stopped_at_any_part_continues_there(folder, tmp_path, judged):
    whole = [(g.submission, g.points) for g in grade_all(folder, tmp_path / "whole")]
    n = len(judged.asked)
    assert n == 9
    assert {points for _, points in whole} == {5.7}  # three times 6.6 of 10, of 3 points: 1.9
    for stop in (1, 2, 3, 4, n):
        out = tmp_path / f"stopped{stop}"
        judged.asked.clear()
        judged.stop_at = stop
        with pytest.raises(KeyboardInterrupt):
            grade_all(folder, out)
        judged.stop_at = None
        again = [(g.submission, g.points) for g in grade_all(folder, out)]
        assert again == whole
        assert len(judged.asked) == n + 1  # only the part that was stopped is judged twice


def test_what_has_changed_is_graded_again_and_nothing_else(folder, tmp_path, judged):
    out = tmp_path / "out"
    seed = Gradebook(out, ASSIGNMENT).seed
    grade_all(folder, out)
    judged.asked.clear()
    (folder / "b.py").write_text(SOURCE + "# changed\n")
    grade_all(folder, out)
    assert judged.asked == [("b.py", name) for name in NAMES]
    (out / "a.py.json").write_text('{"parts": 3')
    judged.asked.clear()
    grade_all(folder, out)
    assert judged.asked == [("a.py", name) for name in NAMES]
    judged.asked.clear()
    grade_all(folder, out, replace(ASSIGNMENT, parts=ASSIGNMENT.parts[:1]))
    assert len(judged.asked) == 3
    assert Gradebook(out, ASSIGNMENT).seed == seed


def test_one_bad_part_or_file_never_costs_the_rest(folder, tmp_path, judged, monkeypatch):
    good = grading.check_part

    def check_part(submission, name, *rest):
        if name == "self_attention":
            raise RuntimeError("\ud800")
        part = good(submission, name, *rest)
        part.example = {"inputs": {}, "expected": 0, "got": [0.5] * 100_000}
        return part

    monkeypatch.setattr(grading, "check_part", check_part)
    (folder / "a.py").write_bytes(b"\xff\x00")
    (folder / "b.py").unlink()
    (folder / "b.py").symlink_to("/etc/passwd")
    (folder / "c" / "inner" / "broken.py").write_text("def (")
    cells = [{"cell_type": "code", "source": "def ("}] * 30_000
    (folder / "d.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "secret" / "inner").mkdir(parents=True)
    (tmp_path / "secret" / "inner" / "own.py").write_text(SOURCE)
    (folder / "e").symlink_to(tmp_path / "secret")
    a, b, c, d, e = grade_all(folder, tmp_path / "out")
    assert "is a symbolic link" in e.parts[0].sentence
    assert d.notes[-1] == "and 29980 more"
    assert [p.verdict for p in a.parts] == ["error"] * 3
    assert "is a symbolic link" in b.parts[0].sentence
    assert [p.verdict for p in c.parts] == ["failed", "error", "failed"]
    assert "could not be" in c.parts[1].sentence
    assert "broken.py" in c.notes[0]
    assert c.parts[0].example is None
    assert c.max_points == 9


def test_submissions_are_files_notebooks_and_folders(folder, tmp_path):
    for name in (".hidden.py", "notes.txt", "n.ipynb"):
        (folder / name).write_text("")
    (folder / "__pycache__").mkdir()
    out = folder / "subs-grades"
    out.mkdir()
    names = [path.name for path in find_submissions(folder, out)]
    assert names == ["a.py", "b.py", "c", "n.ipynb"]
    assert find_root(folder / "c").name == "inner"
    with pytest.raises(BadFile, match="has no"):
        find_submissions(out, tmp_path)


# Files for other programs

texts = st.text(st.characters(), max_size=40) | st.just("\x1b[2J<script>&]]>\ud800\ufffe\x00")
long_texts = texts | texts.map(lambda text: text * 20_000)
numbers = st.floats(allow_nan=True, allow_infinity=True)
parts = st.builds(
    Part,
    exercise=st.sampled_from(NAMES),
    verdict=st.sampled_from(["passed", "failed", "error", "missing"]),
    mistake=st.sampled_from([None, "no_scaling", "no_scaling + softmax_over_queries", "other"]),
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
    hints=st.sampled_from(HINTS),
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
def test_results_for_gradescope_are_always_valid(grade, assignment):
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
        for hints in HINTS
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
        parts = [Part("attention", "failed", "named", each, f"<img {name}>") for each in mistakes]
        return Grade(f"{name}.py", "", "", "", parts=parts)

    found = [make(f"student{n}", "no_scaling") for n in range(3)]
    found += [make("eve", "softmax_over_queries + no_scaling"), make("max", "<b>odd")]
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
