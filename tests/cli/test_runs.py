"""clearhead runs: every run with its step, best measure and a next command that works."""

import json
import os
import shlex
import shutil
import time
from pathlib import Path

import pytest
from small_runs import SMALL, assert_a_mistake, small_run

from clearhead.files.strict_json import read_json, write_json
from clearhead.runs.folder import RunFolder

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def folder(tmp_path):
    """A finished run, and a younger one that is not."""
    runs = tmp_path / "runs"
    shutil.copytree(GOLDEN, runs)
    state = runs / "identity-0001" / "checkpoints" / "step-0000004" / "state.json"
    write_json(state, {**read_json(state), "finished": False})
    shutil.rmtree(runs / "dialogue-0001")
    for name, age in {"substring-0001": 7300, "identity-0001": 200}.items():
        for file in ("config.json", "metrics.jsonl"):
            os.utime(runs / name / file, (time.time() - age,) * 2)
    return runs


def test_the_newest_run_stands_first_with_what_to_do_next(run, folder):
    code, out, err = run("runs", folder)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["run", "recipe", "step", "best", "age"]
    assert lines[1].split()[:3] == ["identity-0001", "identity", "4/4"]
    assert lines[1].endswith("3 min")
    assert lines[2] == f"    clearhead train --resume {folder / 'identity-0001'}"
    assert "val_accuracy" in lines[3]
    assert lines[3].endswith("2 h")
    assert lines[4].startswith(f"    clearhead predict {folder / 'substring-0001'} ")


def test_a_narrow_terminal_has_no_column_of_recipes(run, folder, monkeypatch):
    wide = run("runs", folder)[1].splitlines()
    width = max(len(line) for line in (wide[0], wide[1], wide[3]))
    monkeypatch.setenv("COLUMNS", str(width))
    assert run("runs", folder)[1].splitlines() == wide
    monkeypatch.setenv("COLUMNS", str(width - 1))
    narrow = run("runs", folder)[1].splitlines()
    assert narrow[0].split() == ["run", "step", "best", "age"]
    assert len(narrow[3]) < len(wide[3])


def test_a_run_that_is_being_trained_is_said_to_be_running(run, folder):
    busy = RunFolder(folder / "identity-0001")
    with busy.lock():
        lines = run("runs", folder)[1].splitlines()
    assert lines[1].endswith(" running")
    assert lines[2] == f"    clearhead plot curves {busy.path}"
    assert "running" not in run("runs", folder)[1]


@pytest.mark.parametrize("given", ["substring-0001", "runs/substring-001", "runs/sbstring-0001"])
def test_a_misspelt_run_is_answered_with_the_nearest(run, folder, monkeypatch, given):
    monkeypatch.chdir(folder.parent)
    for verb in ("eval", "plot") if "/" in given else ("eval",):
        code, out, err = run(verb, given)
        assert_a_mistake(code, out, err)
        assert err.splitlines()[0].endswith("; did you mean runs/substring-0001?")


def test_the_next_command_of_a_finished_run_works(run, folder):
    listed = json.loads(run("runs", folder, "--json")[1])["runs"][-1]
    assert (listed["step"], listed["steps"], listed["finished"]) == (4, 4, True)
    code, out, _ = run(*shlex.split(listed["next"])[1:])
    assert code == 0
    assert " → " in out


def test_broken_runs_are_listed_too(run, folder):
    (folder / "identity-0001" / "config.json").write_text("{")
    (folder / "substring-0001" / "config.json").write_text('{"recipe": "\\u001b[31mred"}')
    shutil.rmtree(folder / "substring-0001" / "checkpoints")
    code, out, _ = run("runs", folder)
    assert code == 0
    assert "\x1b" not in out
    assert "0/?" in out


def test_no_run_yet_is_said(run, tmp_path):
    assert run("runs", tmp_path)[1].startswith("no runs in ")
    assert_a_mistake(*run("runs", tmp_path / "nowhere"))


@pytest.mark.parametrize("verb", [["predict", "abc|c"], ["eval"], ["plot"]])
def test_a_folder_of_runs_is_answered_with_its_runs(run, folder, verb):
    code, out, err = run(verb[0], folder, *verb[1:])
    assert_a_mistake(code, out, err)
    assert f"give one of them: {folder / 'identity-0001'}, {folder / 'substring-0001'}" in err
    assert "clearhead runs" in err.splitlines()[1]


def test_a_finished_run_repeated_says_so(run, tmp_path):
    first = small_run(tmp_path)
    (first / "report.html").touch()  # else only the report would be drawn
    _, _, err = run("train", "substring", *SMALL, "--out", tmp_path, "--threads", 1)
    assert f"{first} is finished and has the same settings" in err
    assert (tmp_path / "substring-0002").is_dir()
    _, _, err = run("train", "substring", *SMALL, "--seed", 5, "--out", tmp_path, "--threads", 1)
    assert "is finished" not in err
