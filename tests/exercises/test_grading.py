"""Grading a class: assignments, resuming, and faults that stay with one submission."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from clearhead.exercises import grading
from clearhead.exercises.assignment import AssignedPart, Assignment, read_assignment
from clearhead.exercises.gradebook import Gradebook, find_root, find_submissions
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


def test_G23_a_run_stopped_at_any_part_continues_there(folder, tmp_path, judged):
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
