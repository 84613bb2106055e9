"""The worker as a process, which never outlives the studio, and the pipes to and from it.

    async with WorkerProcess({"paths": [], "lecture": True}) as worker:
        worker.send({"id": 1, "question": "list_models", "arguments": {}})
        async for id, letter, data in worker.read(): …

worker.py describes the messages. The process ends when its standard input does, even if the studio
was killed; leaving the block ends it at once.
"""

import asyncio
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HEADER = struct.Struct("<IIc")  # as in worker.py: length of what follows, id, letter
BUFFER = 8 << 20  # bytes read ahead; an answer has 2 MB
MAX_LINE = 300  # characters of a line of stderr that an error message repeats
PACKAGES = str(Path(__file__).parents[2])  # where this package was imported from
# -P: a file in the current folder must not be imported in place of a library.
COMMAND = (sys.executable, "-P", "-m", "clearhead.studio.worker")


class WorkerProcess:
    """A worker. last_line: the last line that it wrote to stderr."""

    def __init__(self, settings: Mapping[str, Any], command: Sequence[str] | None = None) -> None:
        self.command = [*(command or COMMAND), json.dumps(settings)]
        self.last_line = ""

    async def __aenter__(self) -> "WorkerProcess":
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=BUFFER,
            start_new_session=True,  # Ctrl-C in the terminal is for the server alone
            env=make_environment(),
        )
        self._print_task = asyncio.create_task(self._print_stderr())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._process.wait()
        await asyncio.wait([self._print_task], timeout=1)  # for its last lines
        self._print_task.cancel()

    @property
    def id(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """End the process, and those that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; to a process that has ended it is lost."""
        assert self._process.stdin is not None
        data = json.dumps(message).encode()
        self._process.stdin.write(struct.pack("<I", len(data)) + data)

    async def read(self) -> AsyncIterator[tuple[int, bytes, bytes]]:
        """The messages of the process, until it ends: id, letter, data."""
        output = self._process.stdout
        assert output is not None
        with suppress(asyncio.IncompleteReadError):
            while True:
                length, id, letter = HEADER.unpack(await output.readexactly(HEADER.size))
                yield id, letter, await output.readexactly(length - 5)

    async def _print_stderr(self) -> None:
        """Print what the process writes to stderr, line by line."""
        assert self._process.stderr is not None
        rest = b""
        while part := await self._process.stderr.read(4096):
            *lines, rest = (rest + part)[-BUFFER:].split(b"\n")
            for line in lines:
                self._print_line(line)
        self._print_line(rest)

    def _print_line(self, line: bytes) -> None:
        text = escape_controls(line.decode(errors="replace")).rstrip()
        if text:
            self.last_line = text[:MAX_LINE]
            print_safely(text)


def make_environment() -> dict[str, str]:
    """The environment for a Python started with -P: it imports this package from the same place."""
    paths = filter(None, [PACKAGES, os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def escape_controls(text: str) -> str:
    """The text with control characters escaped, so that it cannot change a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def print_safely(text: str) -> None:
    """Print to stderr, with control characters escaped; without a stderr nothing happens."""
    if sys.stderr is None:  # as in a program without a console; print would write to stdout
        return
    with suppress(OSError, ValueError):
        print(escape_controls(text), file=sys.stderr, flush=True)
