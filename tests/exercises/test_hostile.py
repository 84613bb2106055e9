"""No hostile submission passes, breaks the grader, outlives its session or reaches outside."""

import os
import secrets
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from exercises.hostile import HOSTILE, REACHING

import clearhead
from clearhead.exercises.contracts import find_exercise
from clearhead.exercises.diagnosis import diagnose
from clearhead.exercises.sandbox import Limits, Sandbox, Stopped, StudentError
from clearhead.exercises.student import Student

LEVELS = {  # what is switched off
    "all": (),
    "namespaces": ("Landlock", "seccomp"),
    "Landlock": ("namespaces", "seccomp", "bubblewrap"),
    "bubblewrap": ("namespaces", "Landlock", "seccomp"),
    "limits": ("Landlock", "namespaces", "seccomp", "bubblewrap"),
}
SOURCES = {each.name: each.source for each in HOSTILE}
LIMITS = Limits(seconds=1, total=4, memory=256 << 20)
FORBIDDEN = ["torch.nn.functional.scaled_dot_product_attention"]
HONEST = """
import torch, math
def attention(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None: scores = scores.masked_fill(~mask.bool(), -math.inf)
    return torch.softmax(scores, -1) @ v
"""
MARK = "SECRET-SEED-" + secrets.token_hex(8)


@dataclass
class Outcome:
    """What a submission came to. longest: seconds of its slowest request."""

    verdict: str
    sentence: str
    longest: float
    reached: object
    output: str


class TimedSession:
    """A session that remembers how long its slowest request took."""

    def __init__(self, session):
        self.session, self.longest = session, 0.0

    def request(self, do, **values):
        start = time.monotonic()
        try:
            return self.session.request(do, **values)
        finally:
            self.longest = max(self.longest, time.monotonic() - start)


def submit(sandbox, source, seed=1, **limits):
    """Check a source text as a submission for `attention`, and read `reached` from it."""
    verdict, sentence, reached = "error", "", None
    with sandbox.open(**limits) as session:
        timed = TimedSession(session)
        try:
            timed.request("load", cells=[[1, source]], forbidden=FORBIDDEN)
            if "reached" in source:
                reached = timed.request("get", name="reached")
            found = diagnose(find_exercise("attention"), Student(timed, "attention", False), seed)
            verdict, sentence = found.verdict, found.sentence
        except (Stopped, StudentError) as fault:
            sentence = str(fault)
    return Outcome(verdict, sentence, timed.longest, reached, session.output)


class World:
    """Things outside that a submission must not reach; each name stands for @NAME in a source."""

    def __init__(self, folder):
        folder.chmod(0o777)
        for parent in list(folder.parents)[:2]:  # made by pytest for one user only
            parent.chmod(parent.stat().st_mode | 0o011)
        (folder / "secret.txt").write_text(MARK)
        self.folder = folder
        self.tcp = socket.create_server(("127.0.0.1", 0))
        port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", port))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        self.abstract.bind(f"\0clearhead-{port}")
        for each in (self.unix, self.abstract):
            each.listen()
        package = Path(clearhead.__file__).parent
        self.names = {"OUTSIDE": folder, "PORT": port, "SOCKET": folder / "socket"}
        self.names |= {"ABSTRACT": f"clearhead-{port}", "SUPERVISOR": os.getpid()}
        self.names |= {"PACKAGE": package, "TESTS": Path(__file__).parent.parent}

    def fill(self, source):
        for name, value in self.names.items():
            source = source.replace(f"@{name}", str(value))
        return source

    def list_changes(self):
        """Files that came or changed, and connections that were made."""
        found = sorted(path.name for path in self.folder.iterdir())
        changes = [name for name in found if name not in ("secret.txt", "socket")]
        if (self.folder / "secret.txt").read_text() != MARK:
            changes.append("secret.txt")
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.setblocking(False)
            try:
                each.recv(1) if each is self.udp else each.accept()
                changes.append(str(each))
            except BlockingIOError:
                pass
        return changes

    def close(self):
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.close()


def find_processes(sandbox):
    """Processes other than the zygote that came from it: a fork has the same command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words, process = path.read_text(), int(path.parent.name)
            state = (path.parent / "stat").read_text().rsplit(")")[-1].split()[0]
        except OSError:
            continue
        if process != sandbox.zygote.pid and state != "Z":
            found += [process] if sandbox.folder in words or "sleep\x001000" in words else []
    return found


QUICK = ("G03", "G04", "G06 k", "G10", "G11", "G12", "G13", "G14")  # depend on the level
BETWEEN = ("namespaces", "Landlock", "bubblewrap", "limits, the rest")
PARTS = ["all", "limits", *(pytest.param(name, marks=pytest.mark.slow) for name in BETWEEN)]


@pytest.fixture(scope="module", params=PARTS)
def level(request, tmp_path_factory):
    """A sandbox of a level, and the outcome of every submission that may be tried there.

    All are tried with every layer. At lower levels those are tried that the missing layers stop,
    and with limits alone also the rest: what limits alone stop, more layers stop, too.
    """
    name, _, rest = request.param.partition(", ")
    os.environ["CLEARHEAD_TEST_MARK"] = MARK
    world = World(tmp_path_factory.mktemp("world"))
    with closing(world), Sandbox(LIMITS, without=LEVELS[name]) as sandbox:
        layers = set(sandbox.protection.layers)
        if name not in ("all", "limits", *layers):
            pytest.skip(f"no {name} here: {sandbox.protection.missing}")
        sandbox.open().close()  # torch is imported
        tried = [h for h in HOSTILE + REACHING if not h.layers or layers & h.layers]
        if name != "all":
            tried = [h for h in tried if h.name.startswith(QUICK) != bool(rest)]
        start, memory, before = time.monotonic(), measure_own_memory(), find_processes(sandbox)
        with ThreadPoolExecutor(4) as pool:
            outcomes = pool.map(lambda h: submit(sandbox, world.fill(h.source)), tried)
            found = dict(zip((h.name for h in tried), outcomes, strict=True))
        print(f"{request.param}: {len(found)} in {time.monotonic() - start:.1f} s")
        yield Level(name, sandbox, found, world, measure_own_memory() - memory, before)
    del os.environ["CLEARHEAD_TEST_MARK"]


@dataclass
class Level:
    name: str
    sandbox: Sandbox
    outcomes: dict
    world: World
    growth: int
    before: list[int]  # processes; inside bubblewrap the zygote has others above it


def measure_own_memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def find_outcome(level, name):
    if name not in level.outcomes:
        pytest.skip("not tried at this level")
    return level.outcomes[name]


@pytest.mark.parametrize("name", [each.name for each in HOSTILE])
def test_a_hostile_file_never_passes_and_is_stopped_in_time(level, name):
    outcome = find_outcome(level, name)
    assert outcome.verdict != "passed"
    for _ in range(3):  # four were tried at once: one that waited for the others is tried alone
        if outcome.longest <= LIMITS.seconds + 1:
            break
        outcome = submit(level.sandbox, level.world.fill(SOURCES[name]))
    slack = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # one second on a free machine
    assert outcome.longest <= LIMITS.seconds + slack, outcome
    assert len(outcome.output) <= 6 * LIMITS.output
    shown = outcome.output + outcome.sentence
    assert all(c.isprintable() or c in "\n\t" for c in shown), shown


@pytest.mark.parametrize("name", [each.name for each in REACHING])
def test_nothing_outside_is_reached(level, name):
    assert not find_outcome(level, name).reached


def test_no_process_is_left(level):
    wait_until_cleaned(level.sandbox)
    assert set(find_processes(level.sandbox)) <= set(level.before)


def wait_until_cleaned(sandbox):
    """Large folders are removed in the background."""
    limit = time.monotonic() + (5 if "bubblewrap" in sandbox.level else 120)
    while os.listdir(sandbox.folder) and time.monotonic() < limit:
        time.sleep(0.05)


def test_no_file_is_left_and_nothing_outside_has_changed(level):
    wait_until_cleaned(level.sandbox)
    if level.name != "bubblewrap":  # its folders are removed when the sandbox is closed
        assert os.listdir(level.sandbox.folder) == []
    if level.name != "limits":
        assert level.world.list_changes() == []


def test_the_supervisor_needs_little_memory(level):
    assert level.growth < 400 << 20


def test_G27_the_next_honest_file_passes(level):
    outcome = submit(level.sandbox, HONEST, seconds=30, total=200)
    assert outcome.verdict == "passed", outcome


def test_the_corpus_is_large_enough():
    assert len(HOSTILE) + len(REACHING) >= 60
    assert len({each.name for each in HOSTILE + REACHING}) == len(HOSTILE) + len(REACHING)


def test_G03_memory_is_named_as_the_reason():
    source = "def f():\n    x = []\n    while True: x.append(bytearray(1 << 20))"
    with Sandbox(LIMITS) as sandbox, sandbox.open(seconds=30) as session:
        session.request("load", cells=[[1, source]])
        with pytest.raises((Stopped, StudentError), match=r"memory|MemoryError"):
            session.request("call", target="f", args=[], kwargs={})
        assert torch.ones(1) == 1
