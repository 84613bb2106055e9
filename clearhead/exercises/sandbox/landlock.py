"""Landlock: no access to files outside an allow-list, to TCP, or to other processes.

A process without rights may restrict itself and its children for good (Linux 5.13 and later).
Each version of the interface (ABI) knows more rights:

    1  files and folders      2  renaming across folders     3  truncating
    4  TCP                    5  ioctl on devices            6  signals and abstract sockets

The zygote reads this file, so it imports nothing of clearhead but kernel.py.
"""

import ctypes
import os
import stat

from clearhead.exercises.sandbox import kernel

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
TRUNCATE = 1 << 14
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many bits each ABI knows
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
READ = READ_FILE | READ_DIR
TCP = 0b11  # bind and connect
SCOPES = 0b11  # abstract sockets and signals


class Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def find_abi() -> int:
    """The version of the interface; raises OSError where the kernel has no Landlock."""
    return kernel.syscall(CREATE_RULESET, None, 0, 1)


def restrict(readable: list[str], devices: list[str], folder: str) -> None:
    """Allow reading these paths, using these devices, and all but programs in the folder."""
    abi = find_abi()
    every = (1 << FILE_RIGHTS.get(abi, 16)) - 1
    rules = Ruleset(every, TCP if abi >= 4 else 0, SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = kernel.syscall(CREATE_RULESET, rules, size, 0)
    for path in readable:
        _allow(ruleset, path, READ)
    for path in devices:
        _allow(ruleset, path, READ_FILE | WRITE_FILE)
    _allow(ruleset, folder, every & ~(EXECUTE | MAKE_CHAR | MAKE_SOCK | MAKE_BLOCK))
    kernel.syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule; a path that does not exist needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        rights &= ON_FILES
    kernel.syscall(ADD_RULE, ruleset, PATH_BENEATH, PathRule(rights, descriptor), 0)
    os.close(descriptor)
