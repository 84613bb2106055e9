"""Pasted code is checked by `clearhead check` in its sandbox, one at a time, within limits."""

import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from clearhead.exercises.catalogue import read_catalogue
from clearhead.studio import checking
from clearhead.studio.checking import EXAMPLE, Checker, list_exercises, read_options
from clearhead.studio.supervisor import AskError
from clearhead.studio.worker_process import PACKAGES

SECONDS = 120
RIGHT = EXAMPLE.replace("masked_fill(mask,", "masked_fill(~mask,")


def run(work):
    return asyncio.run(asyncio.wait_for(work, SECONDS))


def is_left(text):
    """Whether the folder of a check whose code contains this text still exists.

    Other tests may check code at the same time, and their folders do not matter.
    """
    for path in Path(tempfile.gettempdir()).glob("clearhead-check-*/*.py"):
        with suppress(FileNotFoundError):
            if text in path.read_text():
                return True
    return False


# The command itself


def test_the_example_is_diagnosed_with_its_line_and_the_repaired_one_passes(studio):
    answer = studio.post("/api/check", {"code": EXAMPLE, "seed": 3})
    (part,) = answer.json["parts"]
    assert (part["verdict"], part["mistake"]) == ("failed", "mask_inverted")
    assert "masked_fill(mask" in EXAMPLE.split("\n")[part["line"] - 1]
    assert part["example"]["expected"] != part["example"]["got"]
    assert answer.json["sandbox"]
    answer = studio.post("/api/check", {"code": RIGHT, "exercise": "attention"})
    assert [each["verdict"] for each in answer.json["parts"]] == ["passed"]


def test_a_notebook_is_checked_cell_by_cell(studio):
    cells = ["# %%\n%matplotlib inline", "# %%\nx = [", f"# %%\n{EXAMPLE}"]
    notebook = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    answer = studio.post("/api/check", {"code": json.dumps(notebook), "kind": "notebook"})
    (part,) = answer.json["parts"]
    line = "\n".join(cells).split("\n")[part["line"] - 1]
    assert "masked_fill(mask" in line
    assert part["where"].startswith("cell 3, line ")


def test_what_cannot_be_checked_is_said(studio):
    for code, sentence in (("x = 1", "no part of a known exercise"), ("def f(:", "my_file.py")):
        answer = studio.post("/api/check", {"code": code})
        assert answer.status == 400
        assert sentence in answer.json["error"]
    for body in (
        {},
        {"code": ""},
        {"code": 3},
        {"code": "x", "kind": "exe"},
        {"code": "x", "f": 1},
        [],
        *({"code": value} for value in (None, 3, True, [], ["x"], {})),
        *({"code": "x", "kind": value} for value in (None, 3, True, [], ["python"], {})),
        *({"code": "x", "exercise": value} for value in (3, True, [], ["attention"], {})),
        *({"code": "x", "seed": value} for value in ("1", 1.5, True, [], [1], {})),
    ):
        assert studio.post("/api/check", body).status == 400
    assert studio.raw("GET", "/api/check", studio.headers()).status == 405


def test_a_check_imports_the_package_from_the_same_place(monkeypatch):
    """As in a checkout that is not installed: the command runs in another folder."""
    code = "import json, os; print(json.dumps({'path': os.environ['PYTHONPATH']}))"
    monkeypatch.setattr(checking, "COMMAND", (sys.executable, "-c", code))
    monkeypatch.setenv("PYTHONPATH", ".")
    report = run(Checker().check(EXAMPLE, "python", []))
    assert report["path"].split(os.pathsep) == [PACKAGES, "."]


HOSTILE = """\
import os, socket, subprocess, sys
found = []
def attempt(action):
    try:
        action()
        found.append(action)
    except BaseException:
        pass
attempt(lambda: open({marker!r}, "w").write("x"))
attempt(lambda: open(os.path.expanduser("~/clearhead-was-here"), "w").write("x"))
attempt(lambda: open({source!r}, "a").write("# changed"))
attempt(lambda: os.kill({pid}, 15))
attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1))
attempt(lambda: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]))
print('{{"file": "my_file.py", "parts": [{{"verdict": "passed"}}]}}')
def attention(q, k, v, mask=None):
    os._exit(0)
"""


def test_hostile_code_changes_nothing(studio, tmp_path):
    source = Path(checking.__file__)
    before = source.read_bytes()
    code = HOSTILE.format(
        marker=str(tmp_path / "marker"),
        source=str(source),
        pid=studio.process.pid,
        port=studio.port,
    )
    answer = studio.post("/api/check", {"code": code, "exercise": "attention"})
    assert answer.status == 200, answer.body
    assert [each["verdict"] for each in answer.json["parts"]] == ["error"]
    assert not (tmp_path / "marker").exists()
    assert not Path("~/clearhead-was-here").expanduser().exists()
    assert source.read_bytes() == before
    assert studio.process.poll() is None
    assert not is_left(str(tmp_path))


# Around a command that only pretends


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """Let the command be another program, whose processes write their numbers to a file."""
    numbers = tmp_path / "numbers"

    def pretend(program):
        start = f"import os, sys, time\nprint(os.getpid(), file=open({str(numbers)!r}, 'a'))\n"
        monkeypatch.setattr(checking, "COMMAND", (sys.executable, "-c", start + program))

    def read_numbers():
        return [int(line) for line in numbers.read_text().split()] if numbers.exists() else []

    pretend.read_numbers = read_numbers
    return pretend


def is_gone(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z"


async def wait_for_numbers(pretend, n):
    while len(pretend.read_numbers()) < n:
        await asyncio.sleep(0.02)


def check_gone(pretend, n):
    numbers = pretend.read_numbers()
    assert len(numbers) == n
    end = time.monotonic() + SECONDS
    while not all(map(is_gone, numbers)):
        assert time.monotonic() < end
        time.sleep(0.02)


FORKS = "os.fork() or print(os.getpid(), file=open({!r}, 'a'))\ntime.sleep(1000)"


def test_a_check_that_takes_too_long_is_ended_with_all_its_processes(
    pretend, monkeypatch, tmp_path
):
    pretend(FORKS.format(str(tmp_path / "numbers")))

    limits, make_limit = [], asyncio.timeout

    def remember(seconds):
        limits.append(make_limit(seconds))
        return limits[-1]

    async def check():
        code = f"# {tmp_path}"
        task = asyncio.create_task(Checker().check(code, "python", []))
        await wait_for_numbers(pretend, 2)
        assert is_left(str(tmp_path))
        limits[0].reschedule(0)  # instead of waiting
        return await task

    monkeypatch.setattr(asyncio, "timeout", remember)
    with pytest.raises(AskError, match="was ended after 60 s") as caught:
        run(check())
    assert caught.value.status == 408
    check_gone(pretend, 2)
    assert not is_left(str(tmp_path))


def test_W14_a_check_whose_page_has_left_is_ended(pretend, tmp_path):
    pretend(FORKS.format(str(tmp_path / "numbers")))

    async def leave():
        task = asyncio.create_task(Checker().check("x", "python", []))
        await wait_for_numbers(pretend, 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(leave())
    check_gone(pretend, 2)


def test_one_check_runs_at_a_time_and_only_a_few_wait(pretend, monkeypatch, tmp_path):
    program = (
        "print('{}')\nopen('x', 'w')\ntime.sleep(0.05)\nassert os.listdir() == ['my_file.py', 'x']"
    )
    pretend(program)
    monkeypatch.setattr(checking, "MAX_WAITING", 2)

    async def check_many():
        checker = Checker()
        work = [checker.check("x", "python", []) for _ in range(5)]
        return await asyncio.gather(*work, return_exceptions=True)

    answers = run(check_many())
    assert answers[:3] == [{}] * 3
    assert [answer.status for answer in answers[3:]] == [429, 429]


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("print('x' * 5_000_000)", 400, "more than 4,194,304 bytes"),
        ("print('no json')", 500, "the terminal of the studio shows why"),
        ("print('{}')\nsys.exit(9)", 500, "the terminal of the studio shows why"),
        ('print(\'{"error": "one sentence"}\')\nsys.exit(2)', 400, "one sentence"),
    ],
)
def test_what_the_command_prints_is_read_within_limits(pretend, capsys, program, status, words):
    pretend(program)
    with pytest.raises(AskError, match=words) as caught:
        run(Checker().check("x", "python", []))
    assert caught.value.status == status


def test_only_known_exercises_and_numbers_reach_the_command():
    assert read_options({"exercise": "attention", "seed": 5}) == [
        "--exercise",
        "attention",
        "--seed",
        "5",
    ]
    for given in ({"exercise": "--self-test"}, {"exercise": 3}, {"exercise": "atention"}):
        with pytest.raises(AskError, match="there is no exercise"):
            read_options(given)
    for seed in (-1, 2**63, 1.5, "1", True):
        with pytest.raises(AskError, match="seed must be a whole number"):
            read_options({"seed": seed})


def test_every_exercise_has_a_template_to_start_from():
    listed = list_exercises()["exercises"]
    assert [each["name"] for each in listed] == list(read_catalogue())
    for each in listed:
        compile(each["template"], each["name"], "exec")
        assert each["formula"]
