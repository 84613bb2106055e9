"""The wheel: what `pip install clearhead` brings, and that it works away from the sources."""

import os
import shutil
import subprocess
import sys
import venv
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
from small_runs import SMALL

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE")

VIEW = """
import sys
import torch
from clearhead.inspection import attention_view
attention_view([torch.eye(2)[None, None]], tokens=["a", "b"]).save(sys.argv[1])
"""


def package_files():
    """Every file of the package, as a wheel names it."""
    paths = (ROOT / "clearhead").rglob("*")
    return {
        str(path.relative_to(ROOT))
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the sources, so that no build folder is left in ours."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "clearhead", source / "clearhead", ignore=leave_out)
    for name in SOURCES:
        shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    _run([sys.executable, "-m", "pip", "wheel", *options, source], cwd=ROOT)
    (made,) = folder.glob("clearhead-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of a new venv: this wheel, and the packages that the tests run with."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    _run([*pip, "install", "--no-deps", "--no-index", wheel], cwd=ROOT)
    (site_packages,) = folder.glob("lib/python3*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (site_packages / "others.pth").write_text("\n".join(others))
    return folder / "bin"


def _run(command, cwd):
    """Run a command as a user would, who has no sources on the path; returns its stdout.

    cwd: pip runs in ROOT, because PIP_CONSTRAINT may name constraints.txt there.
    """
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"CLEARHEAD_HOME": str(cwd), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel):
    names = [name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert set(names) == package_files()
    assert "clearhead/py.typed" in names


@pytest.mark.slow
def test_the_wheel_says_who_made_it_and_what_it_needs(wheel):
    archive = ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    about = message_from_bytes(archive.read(name))
    assert about["Author"] == "The clearhead authors"
    assert about["License-Expression"] == "MIT"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier")
    needed = {line.split(">=")[0] for line in about.get_all("Requires-Dist") if ";" not in line}
    assert {"torch", "numpy", "typer"} <= needed
    assert not {"pytest", "transformers", "setuptools"} & needed


@pytest.mark.slow
def test_the_installed_package_is_used_and_not_the_sources(installed, tmp_path):
    where = "import clearhead; print(clearhead.__file__)"
    printed = _run([installed / "python", "-c", where], cwd=tmp_path)
    assert Path(printed.strip()).is_relative_to(installed.parent)


@pytest.mark.slow
def test_the_installed_command_helps_and_experiments(installed, tmp_path):
    assert "Usage: clearhead" in _run([installed / "clearhead", "--help"], cwd=tmp_path)
    printed = _run([installed / "clearhead", "lab", "attention", "--threads", 1], cwd=tmp_path)
    assert 'takes 92% of what it gets from "dog"' in printed


@pytest.mark.slow
def test_the_installed_package_finds_the_templates_of_its_pages(installed, tmp_path):
    _run([installed / "clearhead", "train", "substring", "--threads", 1, *SMALL], cwd=tmp_path)
    assert "<html" in (tmp_path / "runs" / "substring-0001" / "report.html").read_text()
    _run([installed / "python", "-c", VIEW, tmp_path / "view.html"], cwd=tmp_path)
    assert "<html" in (tmp_path / "view.html").read_text()
