"""The examples and commands in README.md and docs/ are true: they are run here."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import clearhead
from clearhead import lab
from clearhead.bench import CASE_NAMES
from clearhead.lab.attention import experiment

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_give_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    result = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8"
    )
    assert result.failed == 0


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.slow] * (c.split()[1] == "train")) for c in COMMANDS],
)
def test_commands_named_in_the_pages_work(command, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "clearhead.cli.main", *command.split()[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_every_measurement_named_in_the_pages_exists():
    names = {n for page in PAGES for n in re.findall(r"`clearhead bench (\w+)`", page.read_text())}
    assert names
    assert names <= set(CASE_NAMES)


# Numbers that an experiment gave

# Times, and what long training finds, vary by machine.
VARYING = ("costs", "kernels", "heads", "induction", "sizes")


def numbers_in(text):
    """Those of three digits, with a point, a comma or a percent sign, as they are written."""
    written = r"\d[\d,]*\.\d+(?:e-?\d+)?%?|\d{1,3}(?:,\d{3})+|\d+ ?%|\d{3,}"
    return [x.replace(" ", "") for x in re.findall(rf"(?<![\w.,])(?:{written})", text)]


def is_rounded(shown, values):
    """Whether one of these values, or its share of a hundred, is written so."""
    share = 100 if shown.endswith("%") else 1
    plain = shown.rstrip("%").replace(",", "")
    digits = len(plain.partition(".")[2].partition("e")[0])
    half = 0.5000001 * 10.0 ** ((int(plain.partition("e")[2]) if "e" in plain else 0) - digits)
    return any(abs(float(plain) - share * abs(value)) <= half for value in values)


def section_of(name):
    """The part of a page that tells of an experiment, from its heading to the next."""
    for page in PAGES:
        for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE):
            if f"`clearhead lab {name}`" in section:
                return section
    raise AssertionError(f"no page tells of {name}")


def settings_of(name):
    """The text of the file of an experiment, or of all files in its folder."""
    home = Path(lab.__file__).with_name(name.replace("-", "_"))
    files = sorted(home.glob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("name", lab.EXPERIMENTS)
def test_every_experiment_stands_on_the_page_of_its_idea(name):
    assert section_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in lab.EXPERIMENTS if name not in VARYING])
def test_the_numbers_of_a_page_are_those_of_the_experiment(name):
    finding = lab.run(name, device="cpu")
    values = [x for value in finding.numbers.values() for x in np.ravel(value).tolist()]
    settings = settings_of(name)
    printed = {*numbers_in(finding.text), *numbers_in(settings.replace("_", ","))}
    shown = numbers_in(section_of(name))
    wrong = [x for x in shown if x not in printed and not is_rounded(x, values)]
    assert shown
    assert not wrong


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
@pytest.mark.xdist_group("fetching")
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
