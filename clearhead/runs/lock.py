"""One process at a time writes to a run folder.

The lock is filelock's: flock on Unix, its counterpart on Windows. The system releases it when the
process ends, however it ends. On a disk without locks, such as some network disks, a marker file
is used instead. It names its owner, and is taken over if that process has died on this machine.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.files.reading import quote

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK, MARKER = ".lock", ".lock-marker"
# The errors of a disk without locks.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


class Busy(RuntimeError):
    """Another process works in this run folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Within a `with` block, no other process may write to a folder; Busy if one does now."""
    lock = _acquire(folder)
    try:
        if Path(lock.lock_file).name == LOCK:  # a marker names its owner itself
            with suppress(OSError):  # Windows allows no writing to a locked file
                (folder / LOCK).write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def _acquire(folder: Path) -> "BaseFileLock":
    from filelock import FileLock, SoftFileLock, Timeout  # takes 25 ms: only here

    path, way_out = folder / LOCK, "wait or stop it"
    try:
        try:
            lock: BaseFileLock = FileLock(path, timeout=0, fallback_to_soft=False)
            lock.acquire()
        except OSError as fault:
            if fault.errno not in NO_LOCKS:
                raise
            path = folder / MARKER
            way_out += f", or remove {MARKER} if it has ended on another machine"
            lock = SoftFileLock(path, timeout=0)
            lock.acquire()
    except Timeout:
        raise Busy(f"{quote(folder)} is in use by {_read_owner(path)}; {way_out}") from None
    return lock


def _read_owner(path: Path) -> str:
    """The process that a lock file names."""
    number = None
    with suppress(OSError):
        number = re.search(r"\d+", path.read_text(encoding="utf-8", errors="replace")[:80])
    return f"process {number[0]}" if number else "another process"
