"""docs/programs.md: the table of programs says what they are."""

import re
from pathlib import Path

import pytest
from program_answers import list_inputs

from clearhead.programs import make_plan
from clearhead.programs.catalogue import PROGRAMS

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"


def describe(name):
    """A row of the table: layers, heads, d_model, d_ff, inputs."""
    example = PROGRAMS[name]
    plan = make_plan(example.build(), example.vocabulary, example.max_len)
    n_inputs = len(list_inputs(example.vocabulary, example.max_len))
    sizes = plan.n_layers, plan.n_heads, len(plan.directions), plan.d_ff
    return [*map(str, sizes), f"{n_inputs:,}"]


def test_the_table_has_every_program_with_its_sizes():
    rows = re.findall(r"^\| `([\w-]+)`.*?[^\\]\|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    table = {name: re.findall(r"\d+(?:,\d+)*", cells) for name, cells in rows if name in PROGRAMS}
    assert list(table) == list(PROGRAMS)
    for name, numbers in table.items():
        assert [*numbers[:4], numbers[-1]] == describe(name), name


def test_the_steps_on_the_page_are_those_that_the_command_prints(monkeypatch, capsys):
    from clearhead.cli import main as command

    monkeypatch.setattr("sys.argv", ["clearhead", "program", "run", "reverse", "abca", "--steps"])
    with pytest.raises(SystemExit):
        command.main()
    shown = re.search(r"```\n(embedding.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert shown in capsys.readouterr().out
