"""The sandbox: its levels, its sessions, what a worker sees, and what remains when it is closed."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from clearhead.exercises.sandbox import Level, Sandbox, Stopped, StudentError, escape, seccomp, view
from clearhead.exercises.sandbox.processes import find_children, find_descendants

DOUBLE = "def double(x): return 2 * x\nprint('loaded')"
LINUX = sys.platform == "linux"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as found:
        yield found


def load(session, source):
    found = session.request("load", cells=[[1, source]])
    assert found["failures"] == []


def call(session, target, *args):
    return session.request("call", target=target, args=list(args), kwargs={})["output"]


def evaluate(sandbox, code):
    """The value of `found` after the code has run in a session of its own."""
    with sandbox.open() as session:
        load(session, code)
        return session.request("get", name="found")


# Sessions


def test_a_function_is_called_and_its_output_is_kept(sandbox):
    with sandbox.open() as session:
        load(session, DOUBLE)
        assert torch.equal(call(session, "double", torch.tensor([1.5, 2])), torch.tensor([3.0, 4]))
    assert session.output == "loaded\n"


def test_what_the_code_raises_arrives_with_its_line(sandbox):
    with sandbox.open() as session:
        load(session, "def f():\n    x = 1\n    return x / 0")
        with pytest.raises(StudentError, match="ZeroDivisionError") as fault:
            call(session, "f")
    assert fault.value.line == 3


def test_a_session_that_was_stopped_stays_stopped(sandbox):
    with sandbox.open(seconds=0.5) as session:
        load(session, "def f():\n    while True: pass")
        for _ in range(2):
            with pytest.raises(Stopped, match=r"longer than 0\.5 s"):
                call(session, "f")


def test_all_calls_of_a_session_together_have_a_limit(sandbox):
    with sandbox.open(seconds=30, total=1) as session:
        load(session, "import time\ndef f(): time.sleep(0.6)")
        call(session, "f")
        with pytest.raises(Stopped, match="all its calls together"):
            call(session, "f")


def test_G22_a_session_starts_afresh(sandbox):
    assert evaluate(sandbox, "import torch\ntorch.kept = 1\nfound = open('kept', 'w').write('x')")
    code = "import os, torch\nfound = [hasattr(torch, 'kept'), os.listdir('.')]"
    assert evaluate(sandbox, code) == [False, []]


def test_sessions_at_the_same_time_do_not_disturb_each_other(sandbox):
    answers = {}

    def ask(number):
        with sandbox.open(seconds=60, total=120) as session:
            load(session, f"def f(): return {number}")
            answers[number] = [call(session, "f") for _ in range(5)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == {number: [number] * 5 for number in range(6)}


def test_twelve_sessions_take_little_time(sandbox):
    sandbox.open().close()
    start = time.monotonic()
    for _ in range(12):
        with sandbox.open() as session:
            load(session, DOUBLE)
            call(session, "double", 1)
    slack = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # 1 on a free machine
    assert time.monotonic() - start < 3 * slack


def test_G05_output_is_cut_and_escaped(sandbox):
    with sandbox.open(output=100) as session:
        load(session, r"print('\x1b[2J\x00' + 'x' * 100000)")
    assert session.output.startswith(r"\x1b[2J\x00x")
    assert session.output.count("x") < 110
    assert escape("a\tb\n\x07\u202e") == "a\tb\n\\x07\\u202e"


# What a worker sees


def test_G11_clearhead_cannot_be_imported(sandbox):
    code = """
found = []
for name in ("clearhead", "clearhead.attention", "clearhead.exercises.sandbox.worker"):
    try:
        __import__(name)
    except ModuleNotFoundError as fault:
        found.append(fault.name)
"""
    assert evaluate(sandbox, code) == ["clearhead"] * 3


def test_G10_nothing_of_the_environment_is_inherited(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    with Sandbox() as other:
        found = evaluate(other, "import os\nfound = sorted(os.environ)")
    assert found == ["HOME", "LANG", "MPLBACKEND", "OMP_NUM_THREADS", "TMPDIR"]


def test_libraries_can_be_imported_and_files_written_in_the_own_folder(sandbox):
    code = """
import json, tempfile, torch, numpy, torch.optim, importlib, xml.dom, email.parser, sqlite3
with tempfile.TemporaryFile() as file: file.write(b"x")
x = torch.ones(3, requires_grad=True); (x @ x).backward()
torch.set_num_threads(2); torch.ones(500, 500) @ torch.ones(500, 500)
found = x.grad.tolist()
"""
    assert evaluate(sandbox, code) == [2, 2, 2]


def test_G17_a_forbidden_function_refuses_under_every_name(sandbox):
    source = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as f
def first(x): return f(x, x, x)
def second(x): return torch._C._nn.scaled_dot_product_attention(x, x, x)
def third(x): return nn.modules.activation.MultiheadAttention(2, 1)
"""
    names = ["torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"]
    with sandbox.open() as session:
        session.request("load", cells=[[1, source]], forbidden=names)
        for name in ("first", "second", "third"):
            with pytest.raises(StudentError, match="not allowed in this exercise"):
                call(session, name, torch.ones(1, 2))


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_the_zygote_has_one_thread_and_no_children_when_nothing_runs(sandbox):
    sandbox.open().close()
    assert len(os.listdir(f"/proc/{sandbox.zygote.pid}/task")) == 1
    assert find_descendants(sandbox.zygote.pid) == []


def test_what_is_imported_beforehand_is_there_in_every_session_and_leaves_nothing():
    source = "import sys\nhas_it = 'matplotlib.pyplot' in sys.modules\n"
    source += (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nfolder = plt.matplotlib.get_cachedir()"
    )
    with Sandbox(imports=["matplotlib.pyplot", "absent"]) as sandbox:
        for _ in range(2):
            with sandbox.open(seconds=30) as session:
                loaded = session.request(
                    "load", cells=[[n, c] for n, c in enumerate(source.split("\n"), 1)]
                )
                assert loaded["failures"] == []
                assert session.request("get", name="has_it") is True
        assert len(list(Path(f"/proc/{sandbox.zygote.pid}/task").iterdir())) == 1
        os.kill(sandbox.zygote.pid, signal.SIGTERM)
        folder = sandbox.folder
    assert not os.path.exists(folder)


def test_the_common_sandbox_ends_with_the_process():
    source = """
from clearhead.exercises.sandbox import open_session
from clearhead.exercises.sandbox.sandbox import find_sandbox
with open_session(seconds=30) as session:
    print(session.request("load", cells=[[1, "x = 1"]])["names"], find_sandbox().folder)
"""
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    names, folder = ended.stdout.split()
    assert (names, ended.stderr) == ("['x']", "")
    assert not os.path.exists(folder)


# The end


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_a_sandbox_that_is_closed_leaves_nothing():
    with Sandbox() as sandbox:
        session = sandbox.open()
        running = find_descendants(sandbox.zygote.pid)
    assert running
    assert not any(os.path.exists(f"/proc/{each}") for each in running)
    assert not os.path.exists(sandbox.folder)
    with pytest.raises(Stopped):
        session.request("get", name="x")
    session.close()


def test_a_dead_zygote_costs_one_session():
    with Sandbox() as sandbox:
        with sandbox.open() as session:
            load(session, "import time\ndef f(): time.sleep(60)")
            os.kill(sandbox.zygote.pid, signal.SIGKILL)
            with pytest.raises(Stopped, match="the sandbox has ended"):
                call(session, "f")
        assert evaluate(sandbox, "found = 7") == 7


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_the_zygote_ends_with_the_supervisor():
    source = """
import os, signal
from clearhead.exercises.sandbox import Sandbox
sandbox = Sandbox()
session = sandbox.open()
print(sandbox.zygote.pid, sandbox.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    number, folder = ended.stdout.split()
    zygote = Path("/proc") / number
    limit = time.monotonic() + 60
    while zygote.exists() and time.monotonic() < limit:
        time.sleep(0.05)
    assert not zygote.exists()
    assert not os.path.exists(folder)


# Levels


@pytest.mark.parametrize(
    ("layers", "number"),
    [
        ((), 1),
        (("seccomp",), 1),  # files and network are not guarded
        (("Landlock",), 2),
        (("namespaces",), 2),
        (("Landlock", "seccomp"), 3),
        (("bubblewrap", "Landlock"), 3),
        (("Landlock", "namespaces", "seccomp"), 4),
        (("Landlock", "namespaces", "seccomp", "unused user"), 4),
    ],
)
def test_the_level_counts_the_walls(layers, number):
    assert Level(layers).number == number
    assert str(Level(layers)) == " + ".join(["limits", *layers])


def test_G26_a_layer_that_is_switched_off_is_said_to_be_missing():
    with Sandbox(without=["Landlock", "namespaces", "seccomp", "bubblewrap"]) as sandbox:
        assert sandbox.protection.number == 1
        assert sandbox.protection.missing["Landlock"] == "switched off"
        assert "Landlock" not in sandbox.level
        assert evaluate(sandbox, "found = 7") == 7


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("without", [(), ("namespaces", "bubblewrap")])
def test_G25_root_becomes_a_user_that_nobody_is(without):
    with Sandbox(without=without) as sandbox:
        user, groups = evaluate(sandbox, "import os\nfound = [os.getuid(), os.getgroups()]")
        assert user > 50_000
        assert groups == []


HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_of_system_calls_are_those_of_the_kernel(machine):
    if not os.path.exists(HEADERS[machine]):
        pytest.skip("the headers of the kernel are not installed")
    text = Path(HEADERS[machine]).read_text()
    known = {n: int(v) for n, v in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    table = seccomp.read_table(machine)
    assert {name: known.get(name) for name in table} == table


def test_a_filter_is_a_program_of_whole_instructions_that_ends_with_a_verdict():
    for machine in seccomp.ARCHITECTURES:
        code = seccomp.build_filter(machine)
        assert len(code) % 8 == 0
        assert code[-8] == seccomp.RETURN


# The view


def test_the_view_holds_torch_and_nothing_of_clearhead():
    readable = view.find_readable()
    visible = view.expand(readable, view.find_hidden())
    own = Path(view.__file__).resolve()
    assert any(Path(torch.__file__).resolve().is_relative_to(path) for path in visible)
    assert not any(own.is_relative_to(path) for path in visible)
    assert not any(Path(__file__).resolve().is_relative_to(path) for path in visible)


def test_what_is_hidden_is_cut_out_of_its_folder(tmp_path):
    for name in ("torch/nn", "clearhead", "numpy"):
        (tmp_path / "lib" / name).mkdir(parents=True)
    (tmp_path / "lib" / "one.py").touch()
    found = view.expand([str(tmp_path / "lib")], [str(tmp_path / "lib" / "clearhead")])
    assert sorted(Path(each).name for each in found) == ["numpy", "one.py", "torch"]


def test_a_process_without_children_has_none():
    assert find_children(1 << 22) == []


def test_code_that_does_not_fit_into_one_message_is_refused_in_a_sentence(sandbox):
    with (
        sandbox.open() as session,
        pytest.raises(ValueError, match="code is too large for the sandbox; check less code"),
    ):
        load(session, "x = 1\n" * 200_000)
