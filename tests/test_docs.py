"""The examples and commands in README.md and docs/ are true: they are run here."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from findings import PAGES, ROOT, check_page, is_rounded, numbers_in, section_of
from small_runs import BRIEFLY, check_in_turn

import clearhead
from clearhead import lab
from clearhead.bench import CASE_NAMES
from clearhead.lab.attention import experiment

NOTES = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
COMMANDS = sorted(
    {
        command
        for page in PAGES
        for command in re.findall(r"`(clearhead \w+ [^`]+)`", page.read_text())
        # The experiments are run below, and what the command does with them in cli/test_lab.py.
        if not command.startswith("clearhead lab ") or command.endswith(" attention")
        # Measuring at full size takes minutes; tests/bench run each case at a small one.
        if not command.startswith("clearhead bench ")
        # A server, which runs until it is ended: tests/studio.
        if not command.startswith("clearhead studio ")
        # A file or a run of the reader's; the corpus is checked in exercises/test_corpus.py.
        if not re.search(r"\b[A-Z]{3,}\b|\.py\b|--self-test", command)
    }
)
FETCHING = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    if "clearhead data get" in block
]


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.name == "assignments.md")) for p in PAGES],
    ids=lambda page: page.name,
)
def test_examples_give_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    result = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8"
    )
    assert result.failed == 0


TRAININGS = [command for command in COMMANDS if command.startswith("clearhead train")]


@pytest.mark.parametrize(
    "commands",
    [
        [command for command in COMMANDS if command not in TRAININGS],
        pytest.param(TRAININGS, marks=pytest.mark.slow),
    ],
    ids=["quick", "trainings"],
)
def test_commands_named_in_the_pages_work(commands, tmp_path):
    """Two steps of each training: what whole ones reach is tested in training/tasks and lab."""
    assert commands
    briefly = BRIEFLY if commands == TRAININGS else []
    check_in_turn([[*command.split()[1:], *briefly] for command in commands], tmp_path)


def test_every_measurement_named_in_the_pages_exists():
    names = {n for page in PAGES for n in re.findall(r"`clearhead bench (\w+)`", page.read_text())}
    assert names
    assert names <= set(CASE_NAMES)


# Numbers that an experiment gave

# tests/lab compare the page with findings that take long, which they have at hand.
ELSEWHERE = ("argmax", "positions", "learned-vs-designed")
# Times, and what long training finds, vary by machine.
VARYING = ("costs", "kernels", "heads", "induction", "sizes", "faithful", "algorithm")


@pytest.mark.parametrize("name", lab.EXPERIMENTS)
def test_every_experiment_stands_on_the_page_of_its_idea(name):
    assert section_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in lab.EXPERIMENTS if n not in (*VARYING, *ELSEWHERE)])
def test_the_numbers_of_a_page_are_those_of_the_experiment(name):
    check_page(name, lab.run(name, device="cpu"))


def test_numbers_are_compared_as_they_are_written():
    assert numbers_in("At 1,016 it is 3.97, 23.5% or 1.4e-15 of 20; 50 % (1,000 x1000) 317.") == [
        "1,016",
        "3.97",
        "23.5%",
        "1.4e-15",
        "50%",
        "1,000",
        "317",
    ]
    assert is_rounded("3.97", [3.9749])
    assert not is_rounded("3.97", [3.98, 39.7])
    assert is_rounded("23.5%", [0.2349999])
    assert is_rounded("1.4e-15", [1.39e-15])
    assert not is_rounded("1.4e-15", [1.5e-15])


def test_the_readme_shows_what_the_experiment_prints():
    command = r"`clearhead lab attention` prints[^\n]*\n\n```\n(.*?)\n```"
    shown = re.search(command, PAGES[0].read_text(), re.DOTALL)
    assert shown, "README.md shows what `clearhead lab attention` prints"
    lines = shown[1].splitlines()
    assert lines == experiment().text.splitlines()[: len(lines)]


def test_the_readme_and_the_package_show_the_same_tree():
    """test_architecture.py compares the tree of the package with its folders and their order."""
    tree = re.search(r"^clearhead/\n(.*?)^docs/", PAGES[0].read_text(), re.DOTALL | re.MULTILINE)
    package = [line for line in clearhead.__doc__.splitlines() if line.startswith("    ")]
    assert [line.strip() for line in package] == [line.strip() for line in tree[1].splitlines()]


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=lambda page: page.name)
def test_prose_has_short_lines(page):
    """Code blocks and tables are left out: they cannot be wrapped."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in prose.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 120] == []


def test_pages_link_only_to_files_that_exist():
    for page in [*PAGES, *NOTES]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """Where the data sets that the pages fetch are kept while the tests run."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("page", "block"), FETCHING, ids=[name for name, _ in FETCHING])
def test_what_a_page_fetches_can_be_fetched_and_used_as_it_says(page, block, home, tmp_path):
    bin_folder = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "CLEARHEAD_HOME": str(home),
        },
    )
    if "when you are online" in done.stderr:
        pytest.skip("the package registry cannot be reached from here")
    assert done.returncode == 0, done.stderr
    if "generate stories15m" in block:
        assert "Once upon a time, there was a little girl named Lily." in done.stdout
    for picture in re.findall(r"\S+\.png", done.stdout):
        assert (tmp_path / picture).stat().st_size > 10_000
