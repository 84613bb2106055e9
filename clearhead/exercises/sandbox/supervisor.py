"""The trusted side: starts workers, sends requests, reads answers, and stops what takes too long.

with open_session() as session:
    session.request("load", cells=[[1, source]])
    session.request("call", target="attention", args=[q, k, v], kwargs={})
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

from clearhead.exercises.sandbox import frames

WORKER = Path(__file__).parent / "worker.py"
SECONDS = 10.0  # for one request


class StudentError(Exception):
    """The student's code raised: type, message, and the line in the file, if known."""

    def __init__(self, type: str, message: str, line: int | None) -> None:
        super().__init__(f"{type}: {message}")
        self.type, self.message, self.line = type, message, line


class Stopped(Exception):
    """The worker ended without an answer; the reason is a sentence."""


def read_reply(reply: Any, number: int) -> Any:
    """The value of a reply to the request of this number; the reply is not trusted."""
    if not isinstance(reply, dict) or reply.get("number") != number:
        raise Stopped("it answered what was not asked")
    error = reply.get("error")
    if not isinstance(error, dict):
        return reply.get("value")
    line = error.get("line")
    raise StudentError(
        str(error.get("type"))[:80],
        str(error.get("message"))[:400],
        line if type(line) is int else None,
    )


class Session:
    """One worker process. After `Stopped` it is gone."""

    def __init__(self, process: Any, source: int, sink: int, seconds: float) -> None:
        self.process, self.source, self.sink, self.seconds = process, source, sink, seconds
        self.number = 0

    def request(self, do: str, **values: Any) -> Any:
        """Send a request and wait for its answer."""
        self.number += 1
        limit = time.monotonic() + self.seconds
        try:
            self._write(frames.pack({"number": self.number, "do": do, **values}), limit)
            reply = frames.read(lambda n: self._take(n, limit))
        except frames.BadFrame as fault:
            raise Stopped(f"its answer could not be read: {fault}") from fault
        return read_reply(reply, self.number)

    def _write(self, data: bytes, limit: float) -> None:
        view = memoryview(data)
        while view:
            _, ready, _ = select.select([], [self.sink], [], max(0, limit - time.monotonic()))
            if not ready:
                raise Stopped(f"it took longer than {self.seconds:g} s")
            try:
                view = view[os.write(self.sink, view[: 1 << 16]) :]
            except BrokenPipeError:
                raise Stopped(self._describe_end()) from None

    def _take(self, n: int, limit: float) -> bytes:
        data = bytearray()
        while len(data) < n:
            ready, _, _ = select.select([self.source], [], [], max(0, limit - time.monotonic()))
            if not ready:
                raise Stopped(f"it took longer than {self.seconds:g} s")
            part = os.read(self.source, min(n - len(data), 1 << 20))
            if not part:
                raise Stopped(self._describe_end())
            data += part
        return bytes(data)

    def _describe_end(self) -> str:
        code = self.process.wait(5)
        if code < 0:
            return f"it was ended by signal {-code}"
        return f"it ended the process with exit status {code}"


@contextmanager
def open_session(seconds: float = SECONDS) -> Iterator[Session]:
    """A new worker; it is killed when the block ends."""
    request_end, sink = os.pipe()
    source, answer_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _START, str(WORKER.parent), str(request_end), str(answer_end)],
        pass_fds=(request_end, answer_end),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(request_end)
    os.close(answer_end)
    try:
        yield Session(process, source, sink, seconds)
    finally:
        process.kill()
        process.wait()
        os.close(source)
        os.close(sink)


class Sandbox:
    """Opens sessions; level: the protection that they run under, in words."""

    level = "limits only"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def open(self, seconds: float = SECONDS) -> AbstractContextManager[Session]:
        """A new worker; it is killed when the block ends."""
        return open_session(seconds)


_START = """
import sys
folder = sys.argv.pop(1)
sys.path.insert(0, folder)
import frames, worker
sys.path.remove(folder)
worker.main(frames)
"""
