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
    assert "it is not so that" in shown
    assert "softmax" not in shown.replace("softmax(q kᵀ", "")
    assert "line 4" not in shown


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
    assert "no part of a known exercise" in err


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
