"""The tour is a notebook: its cells run one after the other, and what they show can be shown."""

import ast
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
    names = {}
    pictures = [value for cell in cells() if (value := shown(cell, names)) is not None]
    pictures = [value for value in pictures if hasattr(value, "_repr_html_")]
    assert len(pictures) == 6
    assert all("data:image/png;base64," in picture._repr_html_() for picture in pictures)
    said = capsys.readouterr().out
    for words in (
        "output (4, 3) weights (4, 6)",
        "the weights of each query sum to 1: [1.0, 1.0, 1.0, 1.0]",
        "CAC → CCC",
        "'answer': 'CCC'",
        "report: runs/substring-0001/report.html",
    ):
        assert words in said
    assert names["learned"].metrics["val_loss"] < 1e-4


def test_the_tour_has_a_heading_for_each_part_that_it_announces():
    text = TOUR.read_text(encoding="utf-8")
    assert [f"## {n}." in text for n in range(1, 8)] == [True] * 7
    assert len(cells()) == 8  # a cell for each, and two for the fifth
