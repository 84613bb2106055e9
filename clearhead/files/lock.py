"""Lock a folder, so that only one process at a time writes a run or fetches a data set.

The lock is filelock's: flock on Unix, msvcrt.locking on Windows. The system releases it when the
process ends, even if it is killed. On a disk without locks, such as some network disks, a marker
file is used instead. It names its owner; if that was a process of this machine which has ended, the
marker is replaced.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.files.writing import check_target, open_target

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK, MARKER = ".lock", "-marker"  # MARKER is added to the name of a lock file
MAX_OWNER = 1 << 16  # bytes of a lock or marker file; only the first 80 are used
# The errors of a disk without locks.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)
# Seconds to wait for a lock: `is_locked` in another process may hold it for a moment.
PATIENCE = 0.5


class Busy(RuntimeError):
    """Another process works in this folder."""


@contextmanager
def lock_folder(folder: Path, name: str = LOCK, *, wait: float = PATIENCE) -> Iterator[None]:
    """Within a `with` block, no other process may hold this lock of a folder; Busy if one does.

    name: of the lock file, for a folder with several locks. wait: seconds until Busy is raised.
    """
    lock = _acquire(folder, name, wait)
    try:
        if Path(lock.lock_file).name == name:  # a marker names its owner itself
            # Windows allows no writing to a locked file.
            with suppress(OSError), open_target(folder / name, "wb") as file:
                file.write(f"{os.getpid()}\n".encode())
        yield
    finally:
        lock.release()


def is_locked(folder: Path, name: str = LOCK) -> bool:
    """Whether another process writes to a folder now."""
    if not any((folder / file).exists() for file in (name, f"{name}{MARKER}")):
        return False
    try:
        _acquire(folder, name, 0).release()
    except Busy:
        return True
    except (BadFile, OSError):  # a folder that this process may not write to
        return False
    return False


def read_owner(folder: Path, name: str = LOCK) -> int | None:
    """The number of the process that last locked a folder; None if the lock does not name it."""
    with suppress(OSError, BadFile):
        number = re.search(rb"\d+", read_bytes(folder / name, MAX_OWNER)[:80])
        return int(number[0]) if number else None
    return None


def _acquire(folder: Path, name: str, seconds: float) -> "BaseFileLock":
    from filelock import FileLock, SoftFileLock, Timeout  # takes 25 ms: only here

    path, marker, way_out = folder / name, folder / f"{name}{MARKER}", "wait or stop it"
    check_target(path, in_place=True)
    check_target(marker)
    try:
        try:
            lock: BaseFileLock = FileLock(path, timeout=seconds, fallback_to_soft=False)
            lock.acquire()
        except OSError as fault:
            if fault.errno not in NO_LOCKS:
                raise
            path = marker
            way_out += f", or remove {marker.name} if it has ended on another machine"
            lock = SoftFileLock(path, timeout=seconds)
            lock.acquire()
    except Timeout:
        number = read_owner(folder, path.name)
        owner = "another process" if number is None else f"process {number}"
        raise Busy(f"{quote(folder)} is in use by {owner}; {way_out}") from None
    return lock
