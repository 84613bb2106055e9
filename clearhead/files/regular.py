"""A file opened after a look, and replaced whole or not at all.

Reading: only a regular file within a size is opened, so that a folder, a pipe that never answers or
a disk image is one sentence and not a hang. Writing: the bytes go to a temporary name beside the
place, reach the disk, and then take the name in one step. Whoever reads meanwhile, and whoever
comes after a crash, finds the old file or the new one, never a part of either. A folder is filled
beside its place in the same way. A fault of the disk stays an OSError, and names the place.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# The disk is full or broken, or we may not write to it: no other name or number would help.
DISK_FAULTS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
)

# What a file system says that cannot sync a folder, and need not.
NOT_SYNCED = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EBADF))


class BadFile(ValueError):
    """A file that cannot be used; the sentence names the file and its fault."""


def shown(path: object) -> str:
    """A path or a name from a file, fit for one line of a terminal."""
    text = os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path)
    text = text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"
    return text if text.isprintable() else ascii(text)


@contextmanager
def named_faults(start: object) -> Iterator[None]:
    """What is wrong with what a file says is wrong with the file, whose name starts the message."""
    try:
        yield
    except BadFile:
        raise
    except (TypeError, ValueError) as reason:
        raise BadFile(f"{shown(start)}: {reason}") from None


def open_regular(path: str | os.PathLike[str], max_bytes: int) -> BinaryIO:
    """The file, open for reading; BadFile if it is not there, no regular file, or too large."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except FileNotFoundError:
        raise BadFile(f"{shown(path)} is not there") from None
    except (OSError, ValueError) as reason:  # ValueError: a NUL in the name
        words = getattr(reason, "strerror", None) or str(reason)
        raise BadFile(f"{shown(path)} cannot be opened: {words.lower()}") from None
    try:
        _check_kind(path, os.fstat(number), max_bytes)
        return open(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_bytes(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """All bytes of a regular file of at most max_bytes."""
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1)
    if len(data) != size:
        raise BadFile(f"{shown(path)} changed while it was read; try again")
    return data


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write, which takes the name `path` when the block ends without an error.

    A symbolic link is followed: the file it points to is replaced, the link stays.
    """
    place = Path(os.path.realpath(path))
    mode = _mode_of(place)
    beside = _beside(place)
    try:
        with open(beside, "xb") as file:
            if mode is not None:
                os.chmod(beside, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException as fault:
        with suppress(OSError):
            beside.unlink()
        _tell_of(place, beside, fault)
        raise
    sync_folder(place.parent)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to fill, which takes the name `path` when the block ends without an error.

    Only an empty folder may stand there already, so nothing is overwritten.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BadFile(f"{shown(place)} is there already and not an empty folder; take another name")
    beside = _beside(place)
    try:
        beside.mkdir(parents=True)
        yield beside
        sync_folder(beside)
        os.replace(beside, place)
    except BaseException as fault:
        shutil.rmtree(beside, ignore_errors=True)
        _tell_of(place, beside, fault)
        raise
    sync_folder(place.parent)


def _beside(place: Path) -> Path:
    """A name in the same folder that nobody has."""
    return place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")


def _tell_of(place: Path, beside: Path, fault: BaseException) -> None:
    """A fault of the disk is told of the place, not of a name beside it that nobody knows."""
    if not isinstance(fault, OSError):
        return
    unnamed = fault.filename is None and fault.errno in DISK_FAULTS
    if unnamed or str(fault.filename).startswith(str(beside)):
        fault.filename = str(place)


def _mode_of(place: Path) -> int | None:
    """The permissions of the file that is replaced, None if there is none yet."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    _check_kind(place, found, max_bytes=found.st_size)
    return stat.S_IMODE(found.st_mode)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Let the names in a folder reach the disk, where the system can do that."""
    try:
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as fault:
        if fault.errno not in NOT_SYNCED:
            fault.filename = fault.filename or os.fspath(folder)
            raise


_BINARY = getattr(os, "O_BINARY", 0)


def _check_kind(path: object, found: os.stat_result, max_bytes: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise BadFile(f"{shown(path)} is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(f"{shown(path)} is not a regular file but a pipe, socket or device")
    if found.st_size > max_bytes:
        raise BadFile(
            f"{shown(path)} has {found.st_size:,} bytes, more than the {max_bytes:,} read here"
        )
