"""A studio in a process of its own, and raw requests to it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.studio.frames import decode_answer

SECONDS = 60
MEGABYTE = 1 << 20
COMMAND = ["-m", "clearhead.cli.main", "studio", "--no-browser", "--port", "0", "--threads", "1"]
FAKE = [str(Path(__file__).with_name("fake_studio.py"))]


def start_fake_studio(folder: Path, **options: Any) -> "RunningStudio":
    """A studio with the questions of fake_worker.py; it starts in half a second."""
    return RunningStudio(json.dumps(options), folder=folder, command=FAKE)


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningStudio:
    """`clearhead studio` with these arguments; it has printed its link when this returns."""

    def __init__(
        self, *arguments: str, folder: Path | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        """folder: where it runs; what it prints to stderr is there, too."""
        self.folder = folder
        self.log = (folder / "stderr" if folder else Path(os.devnull)).open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, *command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=folder,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"studio: ((http://([^/]+))/\?token=(\S+))\n", line)
        if not found:
            self.stop()
            raise AssertionError(f"the studio did not start: {line!r}\n{self.read_log()}")
        self.url, self.address, self.host, self.token = found.groups()
        self.port = int(self.host.rpartition(":")[2])

    def read_log(self) -> str:
        """What it has printed to stderr so far."""
        return "" if self.folder is None else (self.folder / "stderr").read_text(errors="replace")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; returns the exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.log.close()

    def headers(self) -> dict[str, str]:
        """Those of a program that may ask."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def raw(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | str | None = None,
    ) -> Answer:
        """One request with exactly these headers, beside Host and Content-Length."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, path: str, value: Any) -> Answer:
        """POST a value as JSON, with the token."""
        return self.raw("POST", path, self.headers(), json.dumps(value))

    def ask(self, question: str, arguments: dict[str, Any] | None = None) -> Any:
        """The answer to a question, decoded."""
        answer = self.post(f"/api/ask/{question}", arguments or {})
        assert answer.status == 200, answer.body
        return decode_answer(answer.body)

    def connect(self) -> socket.socket:
        """A socket to it, for requests that no library would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def send_bytes(self, data: bytes) -> bytes:
        """Send bytes as they are; returns what comes back until the connection is closed."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """What arrives until the other side closes the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def find_worker(studio):
    """The process id of the worker: the only child of the server."""
    id = studio.process.pid
    (worker,) = Path(f"/proc/{id}/task/{id}/children").read_text().split()
    return int(worker)


def measure_memory(process):
    """The bytes that a process keeps in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) * 1024
