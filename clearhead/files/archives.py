"""Chosen members of an archive – tar, tar.gz, zip or a Debian package, told apart by their bytes.

Every member is looked at, wanted or not, and one that breaks a rule refuses the whole archive. The
wanted ones are written, as plain files with new permissions, to a folder beside the target, which
takes its name when all is done: nothing is ever outside, nothing half there, nothing left behind.
What is unpacked is counted as it comes, so that a bomb stops at a cap and not at a full disk. An
archive inside an archive is a file like any other.
"""

import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from clearhead.files.debs import MARK as DEB_MARK
from clearhead.files.debs import Unpacked, find_data
from clearhead.files.members import Member, Names
from clearhead.files.names import check_file_name
from clearhead.files.reading import BadFile, open_regular, quote
from clearhead.files.tars import Readable, tar_members
from clearhead.files.writing import create_folder
from clearhead.files.zips import zip_members

MAX_ARCHIVE = 4 << 30
SLACK = 1 << 20  # a small archive may unpack to this much, whatever the ratio

Wanted = Mapping[str, str] | Callable[[str], str | None]


def read_members(
    archive: str | os.PathLike[str],
    wanted: Wanted,
    into: str | os.PathLike[str],
    *,
    max_members: int = 10_000,
    max_bytes: int = 4 << 30,
    max_ratio: int = 200,
) -> dict[str, Path]:
    """Unpack the wanted members into the new folder `into`; returns target name → path.

    `wanted` maps names of members to target names relative to `into`, or is a function that gives
    the target name, or None to leave the member out. The whole archive may unpack to max_bytes and
    to max_ratio times its own size.
    """
    name = quote(archive)
    with open_regular(archive, MAX_ARCHIVE) as file, create_folder(into) as stage:
        most = min(max_bytes, max_ratio * os.fstat(file.fileno()).st_size + SLACK)
        members = _members(file, name, max_members, most)
        targets = _unpack(_first(max_members, members, name), wanted, stage, name)
    return {target: Path(into) / target for target in targets}


def _members(file: BinaryIO, name: str, max_members: int, most: int) -> Iterator[Member]:
    """The members of any known kind of archive."""
    start = file.read(262)
    file.seek(0)
    if start.startswith((b"PK\3\4", b"PK\5\6")):
        yield from zip_members(file, name, max_members, most)
    elif start.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=file) as unzipped:
            yield from tar_members(_Counted(unzipped, name, most), name)
    elif start.startswith(DEB_MARK):
        find_data(file, name)
        yield from tar_members(_Counted(Unpacked(file), name, most), name)
    elif start[257:] == b"ustar":
        yield from tar_members(_Counted(file, name, most), name)
    else:
        raise BadFile(f"{name} is no archive that is read here (tar, tar.gz, zip, deb)")


class _Counted:
    """A stream that stops at a cap, also for what is skipped; a broken one is a BadFile."""

    def __init__(self, stream: Readable, name: str, most: int) -> None:
        self.stream, self.name, self.left = stream, name, most

    def read(self, n_bytes: int) -> bytes:
        try:
            data = self.stream.read(n_bytes)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as reason:
            raise BadFile(f"{self.name} is broken or cut short: {reason}") from None
        self.left -= len(data)
        if self.left < 0:
            raise BadFile(f"{self.name} unpacks to more than is allowed; it looks like a bomb")
        return data


def _first(most: int, members: Iterator[Member], archive: str) -> Iterator[Member]:
    """The members, if they are not more than that."""
    for count, member in enumerate(members, 1):
        if count > most:
            raise BadFile(f"{archive} has more than {most:,} members")
        yield member


def _unpack(members: Iterator[Member], wanted: Wanted, stage: Path, archive: str) -> list[str]:
    names = Names(archive)
    places = Names(archive, "members whose targets would share a name")
    targets: dict[str, str] = {}
    for member in members:
        names.add(member.name, is_folder=member.is_folder)
        target = _target(member, wanted)
        if target is not None:
            places.add(target)
            targets[target] = member.name
            _write(member, stage / target)
    if isinstance(wanted, Mapping):
        found = set(targets.values())
        missing = [name for name in wanted if name not in found]
        if missing:
            raise BadFile(f"{archive} has no member {quote(missing[0])}")
    return list(targets)


def _target(member: Member, wanted: Wanted) -> str | None:
    if member.is_folder:
        return None
    target = wanted(member.name) if callable(wanted) else wanted.get(member.name)
    if target is not None:
        if not isinstance(target, str):
            raise TypeError(f"the target of {member.name} must be a name, got {target!r:.80}")
        for part in target.split("/"):
            check_file_name(part, "target")
    return target


def _write(member: Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as file:  # x: never through a name that is there
        for chunk in member.chunks():
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
