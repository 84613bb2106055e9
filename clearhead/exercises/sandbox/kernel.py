"""Calls of the Linux kernel that Python does not offer, through ctypes.

The zygote reads this file, so it imports nothing else of clearhead. On other systems every call
raises OSError: the layer that needs it is then missing, and the level says so.
"""

import ctypes
import errno
import os
import sys
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def call(name: str, *arguments: int | bytes | ctypes.Structure | None) -> int:
    """Call a function of the C library; raise OSError if it returns a negative number."""
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name} exists on Linux only")
    result = int(getattr(_libc, name)(*(_to_c(each) for each in arguments)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call that has no function in the C library."""
    return call("syscall", number, *arguments)


def prctl(option: int, *values: Any) -> int:
    """Set a property of this process; prctl(2)."""
    return call("prctl", option, *values, *[0] * (4 - len(values)))


def _to_c(value: Any) -> Any:
    """Convert an argument: whole numbers to the width of a register, structures to addresses."""
    if isinstance(value, int):
        return ctypes.c_long(value)
    if isinstance(value, ctypes.Structure):
        return ctypes.byref(value)
    return value
