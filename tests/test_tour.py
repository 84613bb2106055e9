"""The tour is a notebook: its cells run one after the other, and what they show can be shown."""

import ast
import json
from pathlib import Path

import pytest

TOUR = Path(__file__).parent.parent / "docs" / "tour.py"


def cells():
    """The program of each cell of code."""
    parts = TOUR.read_text(encoding="utf-8").split("\n# %%")[1:]
    return [part.partition("\n")[2] for part in parts if not part.startswith(" [markdown]")]


def shown(program, names):
    """Run a cell as a notebook does; returns what it shows, the value of its last line."""
    tree = ast.parse(program)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, TOUR.name, "exec"), names)
    return (
        None
        if last is None
        else eval(compile(ast.Expression(last.value), TOUR.name, "eval"), names)
    )


@pytest.mark.slow
def test_every_cell_of_the_tour_runs_and_its_pictures_are_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"get_ipython": None}  # as in a notebook
    pictures = [value for cell in cells() if (value := shown(cell, names)) is not None]
    pictures = [value for value in pictures if hasattr(value, "_repr_html_")]
    assert len(pictures) == 7
    assert all("data:image/png;base64," in picture._repr_html_() for picture in pictures)
    said = capsys.readouterr().out
    for words in (
        "output (4, 3) weights (4, 6)",
        "the weights of each query sum to 1: [1.0, 1.0, 1.0, 1.0]",
        "CAC → CCC",
        "'answer': 'CCC'",
        "report: runs/substring-0001/report.html",
        "without the previous-token head (layer 0, ",
    ):
        assert words in said
    assert names["learned"].metrics["val_loss"] < 1e-4


def test_the_tour_has_a_heading_for_each_part_that_it_announces():
    text = TOUR.read_text(encoding="utf-8")
    assert [f"## {n}." in text for n in range(1, 9)] == [True] * 8
    assert len(cells()) == 9  # a cell for each, and two for the fifth


def test_the_executed_notebook_has_the_cells_of_the_tour():
    """After a change of tour.py: jupytext --to notebook --execute docs/tour.py."""
    notebook = json.loads(TOUR.with_suffix(".ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]).strip() for cell in code] == [cell.strip() for cell in cells()]
    words = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    tour = TOUR.read_text(encoding="utf-8").splitlines()
    lines = [line for text in words for line in "".join(text).splitlines()]
    assert [line for line in lines if f"# {line}".rstrip() not in tour] == []
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert "error" not in kinds
    assert kinds.count("execute_result") == 7


def test_as_a_program_it_saves_its_pictures_and_says_where(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in cells()[:4]:
        exec(cell, names)
    saved = [line for line in capsys.readouterr().out.splitlines() if line.startswith("picture:")]
    assert saved == [f"picture: tour/{name}.png" for name in ("mask", "attention", "positions")]
    assert all((tmp_path / line.split()[1]).stat().st_size > 1000 for line in saved)
