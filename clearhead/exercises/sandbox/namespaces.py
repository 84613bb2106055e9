"""Namespaces: a separate root folder, process list, network and shared memory.

`enter` gives the process that calls it a new file tree: the folders it may read, without clearhead,
and a small memory disk at BOX. Its next child is process 1 of a new process namespace: when that
one ends, the kernel ends all others. The network has no device that is up, not even loopback.

Without root rights a user namespace comes first; in it the process may mount. The zygote reads
this file, so it imports nothing of clearhead but kernel.py and view.py.
"""

import contextlib
import ctypes
import os
import platform
from pathlib import Path

from clearhead.exercises.sandbox import kernel, view

BOX = "/box"  # the working folder of checked code
NEW_FILES, NEW_SYSTEM_NAME, NEW_SHARED_MEMORY = 0x20000, 0x4000000, 0x8000000
NEW_USER, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 2, 4, 4096, 16384, 1 << 18
READ_ONLY = 0b11  # and no set-user-id programs
DETACH, CURRENT_FOLDER, WHOLE_TREE = 2, -100, 0x8000
MOUNT_SETATTR = 442
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user")]


def enter(folder: str, readable: list[str], hidden: list[str], disk: int) -> None:
    """Move into new namespaces; raises OSError if that is impossible.

    folder: an empty one, where the new tree is built. disk: bytes that fit into BOX.
    """
    user, group = os.geteuid(), os.getegid()
    flags = NEW_FILES | NEW_PROCESSES | NEW_NETWORK | NEW_SHARED_MEMORY | NEW_SYSTEM_NAME
    kernel.call("unshare", flags | (NEW_USER if user else 0))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(None, "/", None, PRIVATE | RECURSIVE)
    _mount(b"tmpfs", folder, b"tmpfs", NO_SUID, "size=4m,mode=755")
    _build_tree(folder, readable, hidden)
    _mount(b"tmpfs", folder + BOX, b"tmpfs", NO_SUID | NO_DEVICES, f"size={disk},nr_inodes=4096")
    os.chmod(folder + BOX, 0o777)
    _change_root(folder)


def _build_tree(root: str, readable: list[str], hidden: list[str]) -> None:
    """Show the readable folders in the new root, cover what is hidden, and allow no writing."""
    for path in (*readable, *view.DEVICES):
        if os.path.isdir(path):
            os.makedirs(root + path)
        else:
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            Path(root + path).touch()
        _mount(os.fsencode(path), root + path, None, BIND | RECURSIVE)
    for path in hidden:
        if os.path.isdir(root + path):
            _mount(b"tmpfs", root + path, b"tmpfs", NO_SUID, "size=4k,mode=755")
        elif os.path.exists(root + path):
            _mount(b"/dev/null", root + path, None, BIND)
    for name, target in view.find_links().items():
        with contextlib.suppress(OSError):  # it may lie in a folder that is shown already
            os.makedirs(os.path.dirname(root + name), exist_ok=True)
            os.symlink(target, root + name)
    os.mkdir(root + BOX)
    os.mkdir(root + "/old")
    attributes = Attributes(READ_ONLY, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    kernel.syscall(MOUNT_SETATTR, CURRENT_FOLDER, os.fsencode(root), WHOLE_TREE, attributes, size)


def _change_root(root: str) -> None:
    os.chdir(root)
    kernel.syscall(PIVOT_ROOT[platform.machine()], b".", b"old")
    os.chdir("/")
    kernel.call("umount2", b"/old", DETACH)
    os.chdir(BOX)


def _mount(
    source: bytes | None, target: str, kind: bytes | None, flags: int, data: str = ""
) -> None:
    kernel.call("mount", source, os.fsencode(target), kind, flags, data.encode() or None)
