"""The examples and commands in README.md and docs/ are true: they are run here."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead.lab.attention import experiment

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted(
    {
        command
        for page in PAGES
        for command in re.findall(r"`(clearhead \w+ [^`]+)`", page.read_text())
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


def is_slow(command):
    return command.split()[1] in ("bench", "train")


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow if is_slow(c) else ()) for c in COMMANDS],
)
def test_commands_named_in_the_pages_work(command, tmp_path):
    briefly = ["--seconds", "0.1"] if command.startswith("clearhead bench") else []
    run = subprocess.run(
        [sys.executable, "-m", "clearhead.cli.main", *command.split()[1:], *briefly],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_the_readme_shows_what_the_experiment_prints():
    command = r"`clearhead lab attention`[^\n]*\n\n```\n(.*?)\n```"
    shown = re.search(command, PAGES[0].read_text(), re.DOTALL)
    assert shown, "README.md shows what `clearhead lab attention` prints"
    lines = shown[1].splitlines()
    assert lines == experiment().text.splitlines()[: len(lines)]


def test_pages_link_only_to_files_that_exist():
    for page in PAGES:
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
