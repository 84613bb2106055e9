"""Limits that every system has: time, memory, files, processes, and rights given up for good.

`Limits` is chosen by the supervisor; the other functions are called in the process that will run
the student's file. The zygote reads this file, so it imports nothing of clearhead but kernel.py.
"""

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.exercises.sandbox import kernel

UNUSED_USERS = (1_900_000_000, 60_000)  # the second for containers with 65,536 user ids only
ENVIRONMENT = {"LANG": "C.UTF-8", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
PR_SET_KEEPCAPS, CAP_DAC_READ_SEARCH, CAPABILITIES_VERSION = 8, 2, 0x20080522


class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("process", ctypes.c_int)]


class Rights(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("now", "ever", "inherit", "a", "b", "c")]


@dataclass(frozen=True)
class Limits:
    """What one session may use. seconds: for one request; total: for all; the rest in bytes."""

    seconds: float = 10.0
    total: float = 60.0
    memory: int = 512 << 20  # besides what Python and torch need
    disk: int = 32 << 20
    output: int = 64 << 10  # of printed text are kept
    threads: int = 64
    files: int = 64  # open at once


def set_limits(limits: Limits, threads_before: int) -> None:
    """Set the kernel's limits. threads_before: how many threads this user already runs."""
    import resource

    data = _read_status("VmData") + limits.memory + (128 << 20)  # torch reserves more than it uses
    values = {
        resource.RLIMIT_CPU: int(limits.total) + 1,
        resource.RLIMIT_FSIZE: limits.disk,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: data,
        resource.RLIMIT_NPROC: limits.threads + threads_before,
    }
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def give_up_rights() -> None:
    """Give up new privileges, clear the environment, and create files for this user only."""
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(ENVIRONMENT, HOME=os.getcwd(), TMPDIR=os.getcwd())
    tempfile.tempdir = None  # forget the folder found before; TMPDIR is new


def keep_files(*kept: int) -> None:
    """Close every open file but standard input, output, errors and these; number them from 3."""
    copies = [os.dup(os.dup(each)) for each in kept]  # twice: above the numbers they will get
    for number, each in enumerate(copies, 3):
        os.dup2(each, number)
    os.closerange(3 + len(kept), _highest_file() + 1)


def become_unused_user(number: int, readable: Sequence[str]) -> None:
    """As root: become a user id that is not in use, and give up all groups.

    If Python is in a folder that only root can enter, the right to read is kept; the other layers
    decide which files are visible.
    """
    needs_right = not all(os.stat(f).st_mode & 1 for path in readable for f in Path(path).parents)
    os.setgroups([])
    kernel.prctl(PR_SET_KEEPCAPS, int(needs_right))
    for base in UNUSED_USERS:
        user = base + number % 4096
        try:
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            continue
        if needs_right:
            kept = 1 << CAP_DAC_READ_SEARCH
            kernel.call("capset", Header(CAPABILITIES_VERSION, 0), Rights(kept, kept))
        return
    raise OSError("no unused user could be taken")


def count_threads(user: int) -> int:
    """Count the running threads of this user; 0 where the system does not tell."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:  # it has ended
            continue
    return count


def reset_signals() -> None:
    """Restore the default action of every signal that Python handles or ignores."""
    for each in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)


def _highest_file() -> int:
    try:
        return max(int(name) for name in os.listdir("/dev/fd"))
    except (OSError, ValueError):
        return 1024


def _read_status(name: str) -> int:
    """Bytes of an entry of /proc/self/status; 0 where there is none."""
    try:
        with open("/proc/self/status") as file:
            return next((int(r.split()[1]) << 10 for r in file if r.startswith(f"{name}:")), 0)
    except OSError:
        return 0
