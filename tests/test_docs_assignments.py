"""docs/assignments.md answers every item of five assignments, and its commands are valid.

Its Python lines are run by test_docs.py, like those of every page.
"""

import re
import shlex
from pathlib import Path

import pytest
import typer
from small_runs import BRIEFLY, check_in_turn

from clearhead import lab
from clearhead.cli.main import app
from clearhead.training import find_recipe, with_changes

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "assignments.md").read_text()
ITEMS = {"A": 22, "B": 14, "C, D": 34, "E": 20, "F": 33}
IDS = {"A": 8, "B": 7, "C": 3, "D": 11, "E": 7, "F": 7}

HEADER = re.compile(r"^\*\*(\d+) · ([A-F]\d+) · ", re.MULTILINE)
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
TRAININGS = [command[1:] for command in COMMANDS if command[0] == "train"]
OF_RUNS = [command for command in COMMANDS if any(x.startswith("runs/") for x in command)]
PLAY = "\n\n".join(f"{name}:\nGood day, {name}. We know't well." for name in ("ANN", "BEN") * 40)


def split_items():
    """(number, id, text) of every item, up to the next one or the next section."""
    starts = list(HEADER.finditer(PAGE))
    ends = [start.start() for start in starts[1:]] + [len(PAGE)]
    return [
        (int(start[1]), start[2], PAGE[start.start() : end].split("\n## ")[0])
        for start, end in zip(starts, ends, strict=True)
    ]


def find_anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_item_of_every_assignment_is_there():
    assert [number for number, _, _ in split_items()] == list(range(1, 124))
    sections = re.split(r"^## (.*?)\. .*$", PAGE, flags=re.MULTILINE)[1:]
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    assert {name: len(HEADER.findall(text)) for name, text in found.items()} == ITEMS


def test_every_requirement_occurs():
    wanted = {f"{letter}{n}" for letter, last in IDS.items() for n in range(1, last + 1)}
    assert {name for _, name, _ in split_items()} == wanted


@pytest.mark.parametrize("item", split_items(), ids=lambda item: f"{item[0]}-{item[1]}")
def test_an_item_has_lines_to_run_and_a_page_that_explains_it(item):
    _, _, text = item
    assert "```python\n>>> " in text or "```sh\nclearhead " in text
    assert re.search(r"\]\(\w+\.md(#[\w-]+)?\)", text)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_to_headings_that_exist(page):
    for target, anchor in re.findall(r"\]\(([\w.]*\.md)#([^)]+)\)", page.read_text()):
        assert anchor in find_anchors(DOCS / target), f"{page.name} links to {target}#{anchor}"


def test_anchors_are_made_as_on_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# layers – the parts\n\n## Why divide by √d?\n")
    assert find_anchors(page) == {"layers--the-parts", "why-divide-by-d"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_command_line_accepts_every_command(command):
    verb, *arguments = command
    typer.main.get_command(app).commands[verb].make_context(verb, list(arguments))


@pytest.mark.parametrize("training", TRAININGS, ids=" ".join)
def test_the_settings_of_every_training_are_valid(training):
    name, *rest = training
    with_changes(find_recipe(name), [x for x in rest if re.match(r"\w+\.\w+=", x)])


def test_experiments_named_on_the_page_exist():
    named = {command[1] for command in COMMANDS if command[0] == "lab"}
    assert named <= set(lab.EXPERIMENTS)


def test_commands_that_need_no_run_work(tmp_path):
    commands = [x for x in COMMANDS if x[0] in ("plot", "recipes") and x not in OF_RUNS]
    assert commands
    check_in_turn(commands, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_trainings_start_and_the_commands_after_them_work(tmp_path):
    """Two steps of every training; photographs are left out, because they must be fetched."""
    (tmp_path / "play.txt").write_text(PLAY)
    (tmp_path / "pairs.tsv").write_text("".join(f"go {n}\tgeh {n}\n" for n in range(200)))
    trainings = [
        ["train", name, *rest, *BRIEFLY, "--threads", "1"]
        for name, *rest in TRAININGS
        if "cifar10" not in name
    ]
    check_in_turn([*trainings, *OF_RUNS], tmp_path)


def test_every_erratum_has_a_claim_and_lines_that_show_it():
    claims = re.split(r"^\*\*Claim: ", (DOCS / "errata.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(claims) == 13
    assert all(claim.count("```python\n>>> ") == 1 for claim in claims)
