"""clearhead check and clearhead exercise, as a student uses them."""

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import clearhead
from clearhead.exercises.check import check
from clearhead.exercises.contracts import EXERCISES

RIGHT = """\
import torch

def attention(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v
"""
WRONG = RIGHT.replace("dim=-1", "dim=-2")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(WRONG)
    return path


def test_a_wrong_answer_is_named_with_its_line_and_an_example(run, file):
    code, out, err = run("check", str(file), "--json", "--seed", "3")
    assert code == 1, err
    report = json.loads(out)
    (part,) = report["parts"]
    assert report["file"] == "mine.py"
    assert (part["verdict"], part["outcome"]) == ("failed", "named")
    assert (part["mistake"], part["line"]) == ("softmax_over_queries", 4)
    assert part["example"]["expected"] != part["example"]["got"]
    assert 0 <= part["points"] < part["max_points"]
    compile(part["example"]["snippet"], "snippet", "exec")


def test_the_screen_says_it_and_a_right_answer_passes(run, file):
    code, out, err = run("check", str(file))
    assert err.startswith("checking mine.py: attention")
    assert "softmax runs over the queries" in out
    assert "line 4:" in out
    file.write_text(RIGHT)
    code, out, err = run("check", str(file))
    assert code == 0
    assert "1 of 1 parts passed, 10 of 10 points" in out


def test_hints_can_be_kept_back(run, file):
    _, shown, _ = run("check", str(file), "--hints", "property")
    assert "this case fails" in shown
    assert "softmax" not in shown.replace("softmax(q kᵀ", "")
    assert "line 4" not in shown


def test_an_error_of_the_code_is_told_at_every_level(run, file):
    file.write_text("def attention(q, k, v):\n    return qq\n")
    for level in ("property", "term", "line"):
        _, shown, _ = run("check", str(file), "--hints", level)
        assert "NameError" in shown, shown
    assert "NameError" not in run("check", str(file), "--hints", "none")[1]


ASSIGNMENT = """
title = "Homework 1"
hints = "property"
seed = 5

[[parts]]
exercise = "attention"
points = 4
hints = "term"

[[parts]]
exercise = "masked_softmax"
points = 3
name = "my_softmax"

[[parts]]
exercise = "causal_mask"
points = 2
hints = "none"

[[parts]]
exercise = "fourier_features"
visibility = "hidden"
"""
PARTS = (
    WRONG
    + """
def my_softmax(x, valid_lens=None):
    return x

def causal_mask(n):
    return torch.ones(n, n)
"""
)


def test_parts_points_and_hints_are_those_of_the_assignment_and_of_the_grade(run, tmp_path, file):
    file.write_text(PARTS)
    (tmp_path / "hw.toml").write_text(ASSIGNMENT)
    code, out, err = run("check", str(file), "--assignment", str(tmp_path / "hw.toml"), "--json")
    assert code == 1, err
    shown = {part["exercise"]: part for part in json.loads(out)["parts"]}
    assert [part["max_points"] for part in shown.values()] == [4, 3, 2]
    assert shown["attention"]["term"]
    assert shown["attention"]["mistake"] is None
    assert shown["masked_softmax"]["verdict"] == "failed"
    assert shown["masked_softmax"]["term"] is None
    assert (shown["causal_mask"]["sentence"], shown["causal_mask"]["example"]) == ("", None)
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "mine.py").write_text(PARTS)
    code, out, err = run(
        "grade", str(folder), "--assignment", str(tmp_path / "hw.toml"), "--json", "--quiet"
    )
    (graded,) = json.loads(out)["submissions"]
    for part in graded["parts"]:
        if part["exercise"] in shown:
            own = shown[part["exercise"]]
            assert (own["verdict"], own["points"]) == (part["verdict"], part["points"])


def test_an_assignment_leaves_nothing_else_to_choose(run, tmp_path, file):
    (tmp_path / "hw.toml").write_text(ASSIGNMENT)
    for words in (["--exercise", "attention"], ["--map", "attention=f"], ["--hints", "term"]):
        code, _, err = run("check", str(file), "--assignment", str(tmp_path / "hw.toml"), *words)
        assert code == 2
        assert "the assignment" in err


def test_what_is_missing_or_unknown_is_said(run, file):
    code, out, err = run("check", str(file), "--exercise", "self_attention")
    assert code == 1
    assert "--map self_attention=NAME" in out
    code, out, err = run("check", str(file), "--exercise", "atention")
    assert code == 2
    assert "attention" in err
    code, out, err = run("check", str(file), "--map", "attention=Other")
    assert code == 2
    assert "does not define 'Other'" in err
    file.write_text("x = 1")
    code, out, err = run("check", str(file))
    assert code == 2
    assert err.splitlines()[0].endswith("no part of a known exercise")
    assert "--map EXERCISE=NAME tells which" in err.splitlines()[1]


def test_the_list_and_the_templates_need_no_torch(run, tmp_path):
    shown = json.loads(run("check", "--list", "--json")[1])
    assert [each["name"] for each in shown["exercises"]] == list(EXERCISES)
    target = tmp_path / "attention.py"
    assert run("exercise", "attention", "--out", str(target))[0] == 0
    compile(target.read_text(), "attention.py", "exec")
    code, _, err = run("exercise", "attention", "--out", str(target))
    assert code == 2
    assert "exists already" in err
    assert run("exercise", "all", "--out", str(tmp_path / "sheet"))[0] == 0
    cells = json.loads((tmp_path / "sheet" / "sheet.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            compile(cell["source"], "cell", "exec")


def test_a_function_is_checked_from_python(file):
    spec = spec_from_file_location("mine", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    report = clearhead.check(module.attention, "attention")
    assert report.parts[0].mistake == "softmax_over_queries"
    assert "<code>" in report._repr_html_()
    assert clearhead.check is check
    with pytest.raises(TypeError, match="a function or a class"):
        check({})


def test_the_readme_shows_what_check_prints(run, tmp_path):
    text = (Path(clearhead.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    source = re.search(r"```python\n# my_attention.py\n(.*?)```", text, re.DOTALL)
    shown = re.search(
        r"`clearhead check my_attention.py --seed 1` prints:\n\n```\n(.*?)```", text, re.DOTALL
    )
    path = tmp_path / "my_attention.py"
    path.write_text(source[1])
    assert run("check", path, "--seed", "1")[1] == shown[1]
