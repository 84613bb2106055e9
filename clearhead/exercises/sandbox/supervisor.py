"""The trusted side: sends requests, reads answers, and enforces time limits.

    with Sandbox() as sandbox:
        print(sandbox.level)
        with sandbox.open() as session:
            session.request("load", cells=[[1, source]])
            session.request("call", target="attention", args=[q, k, v], kwargs={})

Inputs, expected values and the secret seed exist in this process only. Nothing that comes back is
trusted: answers are frames of limited size, and printed text is escaped.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time
from types import TracebackType
from typing import Any, Self

from clearhead.exercises.sandbox import frames
from clearhead.exercises.sandbox.box import CANNOT_CLOSE
from clearhead.exercises.sandbox.limits import Limits

START_SECONDS = 300.0  # until a worker is ready: the first one waits for the import of torch


class StudentError(Exception):
    """The student's code raised: type, message, and the line in the file, if known."""

    def __init__(self, type: str, message: str, line: int | None) -> None:
        super().__init__(f"{type}: {message}")
        self.type, self.message, self.line = type, message, line


class Stopped(Exception):
    """The worker ended without an answer; the reason is a sentence."""


def escape(text: str) -> str:
    """Make text safe for a terminal: control characters become escapes such as \\x1b."""
    safe = (
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )
    return "".join(safe)


def read_reply(reply: Any, number: int) -> Any:
    """Read the value of the reply to the request of this number; the reply is not trusted."""
    if not isinstance(reply, dict) or reply.get("number") != number:
        raise Stopped("its answer does not belong to the request")
    error = reply.get("error")
    if not isinstance(error, dict):
        return reply.get("value")
    line = error.get("line")
    raise StudentError(
        escape(str(error.get("type"))[:80]),
        escape(str(error.get("message"))[:400]),
        line if type(line) is int else None,
    )


class Session:
    """One worker in a box. When it has stopped, every later request raises `Stopped`.

    output: what the student's code has printed, escaped and cut; known when the session is closed.
    """

    def __init__(self, source: int, sink: int, life: socket.socket, limits: Limits) -> None:
        self.source, self.sink, self.life, self.limits = source, sink, life, limits
        self.number, self.end = 0, 0.0
        self.stopped: str | None = None
        self.output = ""
        os.set_blocking(sink, False)

    def wait_until_ready(self) -> Self:
        """Wait for the worker's first message; the time limit of the session starts here."""
        try:
            read_reply(self._read(time.monotonic() + START_SECONDS), 0)
        except Stopped as fault:
            self.close()
            raise Stopped(f"{fault} {self.output}".strip()) from fault
        self.end = time.monotonic() + self.limits.total
        return self

    def request(self, do: str, **values: Any) -> Any:
        """Send a request and wait for its answer."""
        if self.stopped is not None:
            raise Stopped(self.stopped)
        self.number += 1
        limit = min(time.monotonic() + self.limits.seconds, self.end)
        try:
            request = frames.pack({"number": self.number, "do": do, **values})
        except frames.BadFrame:
            raise ValueError("the code is too large for the sandbox; check less code") from None
        try:
            self._write(request, limit)
            return read_reply(self._read(limit), self.number)
        except Stopped as fault:
            self.stopped = str(fault)
            self.close()
            raise

    def close(self) -> None:
        """End every process of the session, and wait until they are gone."""
        if self.life.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self.life.shutdown(socket.SHUT_WR)
        self._read_report()
        for end in (self.source, self.sink):
            os.close(end)
        self.stopped = self.stopped or "the session is closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, data: bytes, limit: float) -> None:
        view = memoryview(data)
        while view:
            _, ready, _ = select.select([], [self.sink], [], max(0, limit - time.monotonic()))
            if not ready:
                raise Stopped(self._describe_delay())
            try:
                view = view[os.write(self.sink, view[: 1 << 16]) :]
            except BrokenPipeError:
                raise Stopped(self._describe_end()) from None

    def _read(self, limit: float) -> Any:
        try:
            return frames.read(lambda n: self._take(n, limit))
        except frames.BadFrame as fault:
            raise Stopped(f"its answer could not be read: {fault}") from fault

    def _take(self, n: int, limit: float) -> bytes:
        data = bytearray()
        while len(data) < n:
            ready, _, _ = select.select([self.source], [], [], max(0, limit - time.monotonic()))
            if not ready:
                raise Stopped(self._describe_delay())
            part = os.read(self.source, min(n - len(data), 1 << 20))
            if not part:
                raise Stopped(self._describe_end())
            data += part
        return bytes(data)

    def _describe_delay(self) -> str:
        if time.monotonic() >= self.end > 0:
            return f"all its calls together took longer than {self.limits.total:g} s"
        return f"it took longer than {self.limits.seconds:g} s"

    def _describe_end(self) -> str:
        """Why the worker has ended, from the report of the zygote."""
        report = self._read_report()
        reason, status = report.get("reason"), report.get("status")
        if reason == "memory":
            return f"it used more than {self.limits.memory >> 20} MB of memory"
        if reason == "disk":
            return f"it wrote more than {self.limits.disk >> 20} MB or too many files"
        if not isinstance(status, int):
            return "the sandbox has ended"
        if status == CANNOT_CLOSE and self.number == 0:
            return "the sandbox could not be isolated:"
        number = -status if status < 0 else status - 128
        if number in list(signal.Signals):
            return f"it was ended by signal {number} ({signal.Signals(number).name})"
        return f"it ended the process with exit status {status}"

    def _read_report(self) -> dict[str, Any]:
        """The report that the zygote writes when every process of the session is gone."""
        data = bytearray()
        with contextlib.suppress(OSError):
            while part := self.life.recv(1 << 16):
                data += part
        self.life.close()
        head, _, printed = bytes(data).partition(b"\n")
        self.output = escape(printed.decode(errors="replace")) or self.output
        return dict(json.loads(head)) if head else {}
