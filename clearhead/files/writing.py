"""Replace a file atomically, whole or not at all; create a folder in the same way.

The bytes are written under a temporary name in the same folder, forced to the disk (fsync), and
renamed atomically. A reader, or a restart after a crash, finds the old file or the new one, never
a part of either. A disk error is raised as an OSError that names the file, not its temporary name.

An untrusted folder may hold symbolic links to files outside it, or pipes that block when they are
opened. `check_target` checks a path in such a folder before it is written to: it must be a regular
file, or must not exist yet.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from clearhead.files.reading import BadFile, check_regular, quote

# Errors of the disk, not of a file name: it is full or broken, or writing is not allowed.
DISK_FAULTS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
)

# Raised by file systems that cannot sync a folder and do not need to.
NOT_SYNCED = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EBADF))


@contextmanager
def replace_file(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the name `path` when the block ends without an error.

    A symbolic link is followed: the file it points to is replaced, the link stays. With
    follow=False, for an untrusted folder, a link is refused.
    """
    if not follow:
        check_target(path)
    target = Path(os.path.realpath(path))
    mode = _find_mode(target)
    temporary = _choose_temporary(target)
    try:
        with open(temporary, "xb") as file:
            if mode is not None:
                os.chmod(temporary, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as fault:
        with suppress(OSError):
            temporary.unlink()
        name_target(fault, target, temporary)
        raise
    sync_folder(target.parent)


def check_target(path: str | os.PathLike[str], *, in_place: bool = False) -> None:
    """Refuse to write to a symbolic link, a pipe, a device or a folder.

    in_place: the file will be changed, not replaced; also refuse one with several hard links.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise BadFile(
            f"{quote(path)} is a symbolic link, which is not followed for writing; remove the link"
        )
    check_regular(path, found, max_bytes=found.st_size)
    if in_place and found.st_nlink > 1:
        raise BadFile(
            f"{quote(path)} is a hard link: writing to it would also change the file under its "
            "other name; replace it with a copy"
        )


def open_target(path: str | os.PathLike[str], mode: str) -> BinaryIO:
    """Open a file in an untrusted folder for binary writing, after `check_target`."""
    check_target(path, in_place=True)
    return cast(BinaryIO, open(path, mode, opener=_open_without_following))


def _open_without_following(path: str, flags: int) -> int:
    """Open without following a link or waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def write_new(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file that does not exist yet, and force it to the disk."""
    with open(path, "xb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())


def write_new_text(path: Path, text: str, way_out: str = "give another name") -> None:
    """Write a text file that does not exist yet, and the folders above it; refuse to replace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_new(path, [text.encode()])
    except FileExistsError:
        raise ValueError(f"{quote(path)} exists already; move it away or {way_out}") from None


@contextmanager
def create_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a folder to fill that takes the name `path` when the block ends without an error.

    Only an empty folder may have that name already, so nothing is overwritten.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadFile(
            f"{quote(target)} exists already and is not an empty folder; choose another name"
        )
    temporary = _choose_temporary(target)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        sync_folder(temporary)
        os.replace(temporary, target)
    except BaseException as fault:
        shutil.rmtree(temporary, ignore_errors=True)
        name_target(fault, target, temporary)
        raise
    sync_folder(target.parent)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Force the names in a folder to the disk, where the system can do that."""
    try:
        try:
            number = os.open(folder, os.O_RDONLY)
        except PermissionError:  # Windows cannot open folders; elsewhere, it is not readable
            return
        try:
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as fault:
        if fault.errno not in NOT_SYNCED:
            fault.filename = fault.filename or os.fspath(folder)
            raise


def _choose_temporary(target: Path) -> Path:
    """An unused name in the same folder."""
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")


def name_target(fault: BaseException, target: Path, temporary: Path) -> None:
    """Put the target's name into a disk fault, instead of the temporary name."""
    if not isinstance(fault, OSError):
        return
    unnamed = fault.filename is None and fault.errno in DISK_FAULTS
    if unnamed or str(fault.filename).startswith(str(temporary)):
        fault.filename = str(target)


def _find_mode(target: Path) -> int | None:
    """The permissions of the file to be replaced, None if there is none yet."""
    try:
        found = os.stat(target)
    except OSError:
        return None
    check_regular(target, found, max_bytes=found.st_size)
    return stat.S_IMODE(found.st_mode)
