"""clearhead recipes: list, show, copy, and a recipe of one's own."""

import json
import re
import shlex
from pathlib import Path

import pytest
from small_runs import SMALL, assert_a_mistake

from clearhead.training import find_recipe, with_changes
from clearhead.training.recipes import RECIPES, read_source


def test_the_list_has_every_recipe(run):
    code, out, err = run("recipes", "list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[: len(RECIPES)]] == list(RECIPES)
    assert run("recipes")[1] == out
    assert list(json.loads(run("recipes", "list", "--json")[1])) == list(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_the_list_says_what_was_measured(name):
    """Its numbers stand in one row of docs/measurements.md that names the recipe."""
    page = Path(__file__).parents[2] / "docs" / "measurements.md"
    rows = page.read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if re.match(rf"\| ([\w-]+, )*{name}[ ,]", row)]
    listed = re.findall(r"[\d.]+(?:e-\d+)?", f"{RECIPES[name].minutes} {RECIPES[name].result}")
    assert listed
    assert any(set(listed) <= set(re.findall(r"[\d.]+(?:e-\d+)?", row)) for row in rows), listed


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_shown_can_be_given_to_train(run, name):
    code, out, err = run("recipes", "show", name)
    assert (code, err) == (0, "")
    recipe = find_recipe(name)
    assert with_changes(recipe, out.splitlines()) == recipe
    assert json.loads(run("recipes", "show", name, "--json")[1])["recipe"] == name


@pytest.mark.parametrize("name", RECIPES)
def test_a_copy_is_the_file_and_says_the_next_step(run, tmp_path, name):
    code, out, err = run("recipes", "copy", name, "--out", tmp_path / "new")
    path = tmp_path / "new" / f"{name.replace('-', '_')}.py"
    assert (code, err) == (0, "")
    assert out == f"{path}\nnext: change it, then clearhead train {path}\n"
    assert path.read_text() == read_source(name)


def test_the_next_step_after_a_copy_is_what_a_shell_understands(run, tmp_path):
    _, out, _ = run("recipes", "copy", "substring", "--out", tmp_path / "my recipes")
    command = out.partition("then ")[2]
    path = tmp_path / "my recipes" / "substring.py"
    assert shlex.split(command) == ["clearhead", "train", str(path)]
    assert out.splitlines()[0] == str(path)


def test_a_copy_overwrites_nothing(run, tmp_path):
    (tmp_path / "substring.py").write_text("mine")
    code, out, err = run("recipes", "copy", "substring", "--out", tmp_path)
    assert_a_mistake(code, out, err)
    assert "substring.py exists already; move it away or give another --out" in err
    assert (tmp_path / "substring.py").read_text() == "mine"


@pytest.mark.parametrize("verb", ["show", "copy"])
def test_C01_an_unknown_recipe_is_answered_with_the_nearest(run, verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("recipes", verb, "substrin")
    assert_a_mistake(code, out, err)
    assert "there is no recipe 'substrin'; the nearest is 'substring'" in err
    assert list(tmp_path.iterdir()) == []


# A recipe of one's own


TWO = """
from clearhead.training.recipes import find_recipe

def one():
    return find_recipe("first")

def two():
    return find_recipe("unique")
"""


HIDDEN = """
import dataclasses
from clearhead.training import find_recipe
from clearhead.training.tasks import SubstringData

def mine():
    class MyData(SubstringData):
        pass
    return dataclasses.replace(find_recipe("substring"), data=MyData())
"""


TRAINS = """
from clearhead.training import find_recipe, train
def mine():
    return find_recipe("first")
train(mine())
"""


@pytest.mark.parametrize("name", ["substring.py", "mine.py"])
def test_a_changed_copy_is_trained(run, tmp_path, monkeypatch, name):
    """Its function has the name of the file, or is the only one in it."""
    monkeypatch.chdir(tmp_path)
    text = read_source("substring").replace('"substring",', '"my-substring",')
    (tmp_path / name).write_text(text)
    code, out, err = run("train", name, *SMALL, "--threads", 1, "--quiet", "--dry-run")
    assert code == 0, err
    assert out.startswith("dry run: 2 steps")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "mine.py must have a function mine() that returns a Recipe"),
        ("__all__ = ['a', 'b']", "mine.py must have a function mine() that returns a Recipe"),
        (TWO, "mine.py must have a function mine() that returns a Recipe"),
        ("def mine():\n    return 7", "mine.py: its function must return a Recipe, got 7"),
        ("def mine(:\n    return 7", "mine.py, line 1: invalid syntax"),
        ("import no_such_thing", "mine.py: No module named 'no_such_thing'"),
        ("x = 1\n1 / 0", "mine.py, line 2: ZeroDivisionError: division by zero"),
        ("def mine():\n    return none", "mine.py, line 2: NameError: name 'none' is not defined"),
        ("import sys\nsys.exit(3)", "mine.py, line 2: SystemExit: 3"),
        (HIDDEN, "mine.py: data is of the unknown kind 'MyData'"),
        (TRAINS, "mine.py, line 5: mine.py calls train whenever it is loaded; put the call below"),
    ],
)
def test_a_file_without_a_recipe_is_told(run, tmp_path, monkeypatch, text, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    code, out, err = run("train", "mine.py")
    assert_a_mistake(code, out, err)
    assert sentence in err
