"""A disk that fails when asked: any call that changes it, by an errno or by a kill."""

import builtins
import errno
import os
import signal

CALLS = ("fsync", "rename", "replace", "unlink", "mkdir", "rmdir")


class Disk:
    """Counts what changes the disk; from call number `at` on it fails, by an errno or by a kill.

    A write that fails has written half of its bytes. once: only that one call fails.
    """

    def __init__(self, at=None, fault=None, *, once=True, writes_only=False):
        self.at, self.fault, self.once, self.writes_only = at, fault, once, writes_only
        self.n_calls, self.log = 0, []

    def __enter__(self):
        self.before = {name: getattr(os, name) for name in CALLS}
        self.open = builtins.open
        for name in CALLS:
            setattr(os, name, self._failing(name, self.before[name]))
        builtins.open = self._opened
        return self

    def __exit__(self, *reason):
        for name, call in self.before.items():
            setattr(os, name, call)
        builtins.open = self.open

    def _failing(self, name, call):
        def wrapped(*given, **named):
            if not (self.writes_only and name in ("unlink", "rmdir")):
                self.reached(name)
            return call(*given, **named)

        return wrapped

    def _opened(self, path, mode="r", *given, **named):
        if isinstance(path, int) or not set(mode) & set("wax+") or "lock" in str(path):
            return self.open(path, mode, *given, **named)
        self.reached("open")
        return _Written(self.open(path, mode, *given, **named), self)

    def reached(self, name):
        """Count a call; fail if it is time."""
        self.n_calls += 1
        self.log.append(name)
        if self.is_time():
            self.fail()

    def is_time(self):
        if self.at is None:
            return False
        return self.n_calls == self.at or (not self.once and self.n_calls > self.at)

    def fail(self):
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.fault, os.strerror(self.fault))


class _Written:
    """A file whose writes are counted."""

    def __init__(self, file, disk):
        self.file, self.disk = file, disk

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.file.close()

    def write(self, data):
        self.disk.n_calls += 1
        self.disk.log.append("write")
        if self.disk.is_time():
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
            self.disk.fail()
        return self.file.write(data)

    def truncate(self, size):
        self.disk.reached("truncate")
        return self.file.truncate(size)


FAULTS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)
