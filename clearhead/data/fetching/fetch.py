"""Fetch a data set, check it and keep it.

    get("mnist")        fetch it if needed; returns the folder of its files

The archive is downloaded into a hidden folder beside the data sets (download.py) and its SHA-256
checked; the needed members are read by name (archives.py); each file is compared with the
catalogue; only then are the files renamed into their folder. An interruption at any moment leaves
complete files, or parts from which the next attempt resumes.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.fetching.catalogue import Archive, DataFile, DataSet, find, folder
from clearhead.data.fetching.clients import (
    AddressUnusable,
    Busy,
    DiskFault,
    NotFetched,
    fetch_by_client,
    locate,
)
from clearhead.data.fetching.download import download, matches_checksum
from clearhead.data.fetching.sword import pair_verses, read_verses
from clearhead.files import read_members
from clearhead.files.lock import Busy as InUse
from clearhead.files.lock import lock_folder
from clearhead.files.reading import quote
from clearhead.files.writing import DISK_FAULTS, sync_folder, write_new

Watch = Callable[[str, int, int], None]  # a message, bytes so far, bytes in all (0 if unknown)


@dataclass(frozen=True)
class Fetched:
    """The folder of a data set, and whether it was there before."""

    data: DataSet
    path: Path
    was_here: bool


def get(name: str, *, home: Path | None = None, watch: Watch | None = None) -> Fetched:
    """Fetch a data set unless it is there complete and unchanged; NotFetched says why not."""
    data, home = find(name), home or folder()
    target, watch = home / name, watch or (lambda *_: None)
    if is_intact(data, target):
        return Fetched(data, target, was_here=True)
    try:
        work = home / ".fetch" / name
        work.mkdir(parents=True, exist_ok=True)
        with _lock(work):
            _check_room(data, work)
            _fetch(data, target, work, watch)
    except NotFetched as reason:
        raise type(reason)(f"{name} was not fetched: {reason}") from None
    except OSError as reason:
        kind = DiskFault if reason.errno in DISK_FAULTS else NotFetched
        raise kind(f"{name} was not fetched: {_describe_disk_fault(reason, home)}") from reason
    return Fetched(data, target, was_here=False)


def is_intact(data: DataSet, path: Path) -> bool:
    """Whether every file is there with the right size and SHA-256."""
    return all(matches_checksum(path / file.name, file.size, file.sha256) for file in data.files)


def _fetch(data: DataSet, target: Path, work: Path, watch: Watch) -> None:
    """Fetch the archives into the folder `work`, and put the files of the set into `target`."""
    stage = work / "stage"
    try:
        shutil.rmtree(stage, ignore_errors=True)  # left by a run that was killed
        members = []
        for number, archive in enumerate(data.archives):
            path = _fetch_archive(archive, work, watch)
            wanted = {member: _find_base_name(member) for member in archive.members}
            read_members(path, wanted, stage / str(number))
            members.append(stage / str(number))
        watch("checking the files", 0, 0)
        ready = [_make_file(data, file, members, stage) for file in data.files]
        for path, file in zip(ready, data.files, strict=True):
            if not matches_checksum(path, file.size, file.sha256):
                raise NotFetched(f"{file.name} does not have the SHA-256 of the catalogue")
        target.mkdir(parents=True, exist_ok=True)
        for path, file in zip(ready, data.files, strict=True):
            os.replace(path, target / file.name)
        sync_folder(target)
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
            raise AddressUnusable(
                f"this {archive.client} gives no address of {archive.file}; update it"
            )
        download(address, path, archive.size, archive.sha256, report)
    except AddressUnusable:
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
        raise NotFetched(f"{archive.file} arrived with a wrong SHA-256 and was deleted")
    os.replace(found, path)


def _make_file(data: DataSet, file: DataFile, members: list[Path], stage: Path) -> Path:
    """The path of a file of the set: a member, a part of one, or verses in pairs."""
    path = stage / file.name
    if not file.member:
        pairs = pair_verses(*(read_verses(folder) for folder in members))
        write_new(path, (f"{a}\t{b}\n".encode() for a, b in pairs))
        return path
    source = members[0] / _find_base_name(file.member)
    if sum(file.member == other.member for other in data.files) == 1:
        return source
    with open(source, "rb") as member:
        member.seek(file.start)
        write_new(path, [member.read(file.size)])
    return path


def _find_base_name(member: str) -> str:
    return member.rpartition("/")[2]


@contextmanager
def _lock(work: Path) -> Iterator[None]:
    """Let only one process at a time fetch a data set."""
    try:
        # Beside the folder, not in it: the folder is removed while the lock is held.
        with lock_folder(work.parent, f"{work.name}.lock"):
            yield
    except InUse as reason:
        raise Busy(f"another process is fetching it: {reason}") from None


def _check_room(data: DataSet, work: Path) -> None:
    """Archives, members and files are all on the disk for a moment; there must be room."""
    free = shutil.disk_usage(work).free
    there = sum(path.stat().st_size for path in work.iterdir() if path.is_file())
    needed = data.n_fetched + 2 * data.n_kept - there
    if free < needed:
        raise DiskFault(
            f"it needs {needed / 1e6:,.0f} MB in {work.parent.parent}, where {free / 1e6:,.0f} MB "
            "are free; make room, or choose a folder on another disk (--out or CLEARHEAD_HOME)"
        )


def _describe_disk_fault(reason: OSError, home: Path) -> str:
    if reason.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {home} is full; make room and run this again to resume"
    if isinstance(reason, FileExistsError | NotADirectoryError):
        fault = f"there is a file where {quote(reason.filename)} should be a folder"
    else:
        fault = f"{home} cannot be written ({(reason.strerror or str(reason)).lower()})"
    return f"{fault}; choose another folder (--out or CLEARHEAD_HOME)"
