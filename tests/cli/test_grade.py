"""clearhead grade and clearhead gradescope-zip, as a teacher uses them."""

import csv
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gradescope_results import check_results

from clearhead.exercises import sandbox as sandbox_folder
from clearhead.exercises.gradescope_zip import NEEDED
from clearhead.exercises.sandbox import Level, Stopped

ROOT = Path(__file__).parents[2]
RIGHT = """\
import torch

def attention(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v
"""
WRONG = RIGHT.replace("dim=-1", "dim=-2")
FEATURES = """
def phi(x, W):
    raise SystemExit("100/100 points")
"""
ASSIGNMENT = """
title = "Home <work>"
hints = "term"
seconds = 3

[[parts]]
exercise = "attention"
points = 4

[[parts]]
exercise = "fourier_features"
points = 6
visibility = "hidden"
"""


@pytest.fixture
def assignment(tmp_path):
    path = tmp_path / "hw.toml"
    path.write_text(ASSIGNMENT)
    return path


def test_a_class_is_graded_part_by_part_and_a_second_run_grades_nothing_again(
    run, tmp_path, assignment
):
    subs = tmp_path / "subs"
    (subs / "team").mkdir(parents=True)
    (subs / "right.py").write_text(RIGHT)
    (subs / "broken.py").write_text("def attention(q:")
    (subs / "team" / "mine.py").write_text(WRONG + FEATURES)
    (subs / "loop.py").write_text("while True:\n    pass\n" + RIGHT)
    files = ["--csv", tmp_path / "g.csv", "--junit", tmp_path / "g.xml"]
    code, out, err = run("grade", subs, "--assignment", assignment, "--json", *files)
    assert code == 0, err
    shown = json.loads(out)
    found = {s["submission"]: s for s in shown["submissions"]}
    points = {name: s["points"] for name, s in found.items()}
    assert 0 <= points.pop("team") <= 2  # half of the part at most
    assert points == {"broken.py": 0, "loop.py": 0, "right.py": 4}
    assert [p["verdict"] for p in found["team"]["parts"]] == ["failed", "error"]
    assert [p["verdict"] for p in found["right.py"]["parts"]] == ["passed", "missing"]
    assert found["team"]["parts"][0]["mistake"] == "softmax_over_queries"
    assert "longer than" in found["loop.py"]["parts"][0]["sentence"]
    assert {s["max_points"] for s in found.values()} == {10}
    assert "Landlock" in shown["sandbox"] or "namespaces" in shown["sandbox"]
    rows = list(csv.DictReader((tmp_path / "g.csv").read_text().splitlines()))
    assert [row["attention verdict"] for row in rows][2:] == ["passed", "softmax_over_queries"]
    suites = ElementTree.parse(tmp_path / "g.xml").getroot()
    assert [suite.get("errors") for suite in suites] == ["2", "1", "0", "1"]
    grades = tmp_path / "subs-grades"
    assert "Home &lt;work&gt;" in (grades / "report.html").read_text()

    before = {path.name: path.stat().st_mtime_ns for path in grades.glob("*.py.json")}
    (subs / "broken.py").write_text(RIGHT)
    code, out, err = run("grade", subs, "--assignment", assignment)
    assert re.search(r"broken.py +4/10 +fourier_features: missing", out), err
    after = {path.name: path.stat().st_mtime_ns for path in grades.glob("*.py.json")}
    assert {name for name in after if after[name] != before[name]} == {"broken.py.json"}


class Weak:
    """A sandbox on a system that has limits only."""

    def __init__(self, **_):
        self.protection = Level((), {"Landlock": "not in this kernel"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_G26_grading_that_cannot_run_ends_with_code_7(run, tmp_path, monkeypatch):
    (tmp_path / "subs").mkdir()
    (tmp_path / "subs" / "a.py").write_text(RIGHT)
    monkeypatch.setattr(sandbox_folder, "Sandbox", Weak)
    code, out, err = run("grade", tmp_path / "subs")
    assert code == 7
    assert "level 1" in err
    assert "not in this kernel" in err
    assert "--unsafe" in err

    def fail(**_):
        raise Stopped("no memory")

    monkeypatch.setattr(sandbox_folder, "Sandbox", fail)
    code, out, err = run("grade", tmp_path / "subs", "--unsafe", "--json")
    assert code == 7
    assert json.loads(out)["exit_code"] == 7


def test_what_is_no_submission_is_named_and_a_place_for_a_table_is_checked_first(
    run, tmp_path, monkeypatch
):
    subs = tmp_path / "subs"
    subs.mkdir()
    for name in ("a.py", "late.zip", "notes.txt"):
        (subs / name).write_text("x = 1\n")
    (subs / "loop.py").symlink_to("loop.py")
    _, out, err = run("grade", str(subs), "--exercise", "causal_mask")
    assert "not graded, neither .py file, notebook nor folder: late.zip, notes.txt" in err
    assert "loop.py" in out
    monkeypatch.setattr("clearhead.exercises.grading.open_sandbox", None)  # is not reached
    for option in ("--csv", "--junit"):
        code, _, err = run("grade", str(subs), option, str(tmp_path / "no" / "x"))
        assert code == 2
        assert "no such folder" in err


def test_wrong_usage_is_answered_before_anything_runs(run, tmp_path, assignment):
    for arguments, words in [
        ((tmp_path / "nosuch",), "is not a folder"),
        ((tmp_path, "--exercise", "atention"), "did you mean attention"),
        ((tmp_path, "--exercise", "attention", "--assignment", assignment), "leave out --exercise"),
    ]:
        code, _, err = run("grade", *arguments)
        assert code == 2
        assert words in err


# Gradescope


@pytest.fixture
def autograder(run, tmp_path, assignment):
    """The folder /autograder as Gradescope lays it out, with the zip file unpacked in it."""
    code, _, err = run("gradescope-zip", assignment, "--out", tmp_path / "autograder.zip")
    assert code == 0, err
    root = tmp_path / "autograder"
    for name in ("source", "submission", "results"):
        (root / name).mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "autograder.zip") as archive:
        assert {"setup.sh", "run_autograder"} <= set(archive.namelist())  # at the top
        archive.extractall(root / "source")
    program = root / "run_autograder"  # where Gradescope copies it
    program.write_bytes((root / "source" / "run_autograder").read_bytes())
    program.chmod(0o755)
    return root


def test_the_zip_has_the_same_bytes_every_time(run, tmp_path, assignment):
    for name in ("a.zip", "b.zip"):
        assert run("gradescope-zip", assignment, "--out", tmp_path / name)[0] == 0
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assignment.write_text("[[parts]]\nexercise = 'atention'")
    code, _, err = run("gradescope-zip", assignment, "--out", tmp_path / "c.zip")
    assert code == 2
    assert "did you mean attention" in err
    assert not (tmp_path / "c.zip").exists()


@pytest.mark.slow
def test_the_autograder_grades_a_submission_laid_out_as_on_gradescope(autograder):
    (autograder / "submission" / "mine.py").write_text(WRONG + FEATURES)
    (autograder / "submission" / "torch.py").write_text("raise SystemExit")  # not our torch
    done = subprocess.run(
        [autograder / "run_autograder"],
        cwd=autograder,
        env={
            "PATH": os.environ["PATH"],
            "AUTOGRADER_ROOT": str(autograder),
            "AUTOGRADER_PYTHON": sys.executable,
            "PYTHONPROFILEIMPORTTIME": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((autograder / "results" / "results.json").read_text())
    check_results(results)
    attention, features = results["tests"]
    assert (attention["max_score"], attention["status"]) == (4, "failed")
    assert "look at the softmax over the keys" in attention["output"]
    assert "softmax_over_queries" not in json.dumps(results)  # the hints end at the term
    assert (features["visibility"], features["score"]) == ("hidden", 0)
    assert str(autograder) not in json.dumps(results)
    imported = set(re.findall(r"\| +(\w+)", done.stderr))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {re.match(r"[\w-]+", each)[0] for each in project["dependencies"]}
    assert ours & imported <= {*NEEDED, "filelock"}  # torch brings filelock
    assert "torch" in imported


def test_setup_installs_exactly_the_versions_of_the_teacher(autograder, tmp_path):
    """apt-get, Python and pip are replaced by programs that note how they are called."""
    tools, notes = tmp_path / "tools", tmp_path / "notes"
    tools.mkdir()
    note = f'#!/bin/sh\necho "$(basename $0) $*" >> {notes}\n'
    make_pip = f"mkdir -p venv/bin; cp {tools}/apt-get venv/bin/pip\n"
    for name, text in {"apt-get": note, "python3.11": note + make_pip}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    subprocess.run(
        ["bash", autograder / "source" / "setup.sh"], check=True, env={"PATH": path}, cwd="/"
    )
    assert (autograder / "source" / "venv" / "bin" / "pip").exists()
    install = notes.read_text().splitlines()[-1]
    assert install.startswith("pip install --no-cache-dir --constraint constraints.txt")
    assert install.endswith(" ".join(NEEDED))
    versions = (autograder / "source" / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in versions)
    assert {*NEEDED} <= {line.partition("==")[0] for line in versions}


# Other graders


@pytest.mark.slow
def test_pytest_finds_the_fixture_by_its_entry_point_and_starts_without_torch(tmp_path):
    """The entry point is that of pyproject.toml, with the files that a wheel would list."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry,) = project["entry-points"]["pytest11"].items()
    info = tmp_path / "site" / "clearhead-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clearhead\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\n{} = {}\n".format(*entry))
    (info / "RECORD").write_text("clearhead/__init__.py,,\nclearhead/exercises/check.py,,\n")
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "test_homework.py").write_text(
        "import sys\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "def test_attention(clearhead_check):\n"
        "    clearhead_check('wrong.py', 'attention')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "-n0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the softmax runs over the queries" in done.stdout
    assert "line 4:" in done.stdout
    assert "AssertionError" in done.stdout
    assert "testing.py" not in done.stdout  # the student's test is shown, not our code
