"""A running studio that many clients ask at once: how long answers take, and the worker's memory.

Each client asks questions of different views one after the other. If the studio is busy (status
429), it waits as the page does, and asks again. Any other error ends the measurement. The memory is
read from /proc, so this needs Linux.
"""

import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.bench.row import Row, Rows
from clearhead.studio.worker_process import make_environment
from clearhead.timing import Timer

N_CLIENTS = 50
N_BEFORE = 200  # questions before memory is measured: libraries are imported, models loaded
PAUSE = 0.5  # seconds before a client asks a busy studio again, as on the page
COMMAND = [sys.executable, "-P", "-m", "clearhead.cli.main", "studio", "--no-browser", "--quiet"]
LINK = re.compile(r"studio: (http://([^/]+)/\?token=(\S+))\n")


@dataclass
class Running:
    """A studio in a process of its own."""

    process: int
    link: str
    host: str
    token: str

    @property
    def worker(self) -> int:
        """The process of its worker: the only child."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children")
        return int(children.read_text("ascii").split()[0])

    def connect(self) -> http.client.HTTPConnection:
        """A connection that a client keeps."""
        return http.client.HTTPConnection(self.host, timeout=60)

    def ask(self, connection: http.client.HTTPConnection, question: str, arguments: Any) -> int:
        """Ask one question; returns the status, 200 or 429."""
        body = json.dumps(arguments)
        connection.request("POST", f"/api/ask/{question}", body=body, headers=self._headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status not in (200, 429):
            raise RuntimeError(f"{question} was answered with {response.status}: {answer!r:.300}")
        return response.status

    def wait_until_idle(self) -> None:
        """Wait until no question waits or runs."""
        with closing(self.connect()) as connection:
            while True:
                connection.request("GET", "/api/status", headers=self._headers)
                if json.load(connection.getresponse())["pending"] == 0:
                    return
                time.sleep(0.05)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}


@contextmanager
def run_studio(*words: str) -> Iterator[Running]:
    """Start `clearhead studio` with these words on a free port, in an empty folder; end it."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*COMMAND, "--port", "0", "--threads", "1", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=make_environment(),
        )
        try:
            assert process.stdout is not None
            found = LINK.fullmatch(process.stdout.readline())
            if found is None:
                raise RuntimeError("the studio did not start; its error stands above")
            yield Running(process.pid, *found.groups())
        finally:
            process.terminate()
            process.communicate()


def choose_question(i: int) -> tuple[str, dict[str, Any]]:
    """The i-th question: of all views in turn, each time about something else."""
    text = "".join("abc"[i * k % 3] for k in range(1, 5 + i % 7))
    date = {"model": "dates", "text": f"sep {1 + i % 28}, 18{10 + i % 90}"}
    words = {"model": "substring", "text": f"{text}|{text[:3]}"}
    tokens = [(i * k) % 40 for k in range(1, 20)]
    questions: list[tuple[str, dict[str, Any]]] = [
        ("attend", words),
        ("measure_heads", words),
        ("attribute", words),
        ("show_next", {"model": "shakespeare", "tokens": tokens}),
        ("read_lens", {"model": "shakespeare", "tokens": tokens}),
        ("look_at_picture", {"model": "digits", "number": i % 100}),
        ("translate", date),
        ("search_beams", date),
        ("run_smallest", {"text": "CAC", "sharpness": 5.0 + i % 20}),
        ("show_positions", {"scheme": "sinusoidal", "n": 8 + i % 30}),
        ("compare_kernels", {"features": "positive", "seed": i}),
        ("list_models", {}),
    ]
    return questions[i % len(questions)]


def read_memory(process: int) -> int:
    """The resident bytes of a process."""
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@dataclass
class Client:
    """What one client has seen: the seconds of each answer, and how often the studio was busy."""

    seconds: list[float] = field(default_factory=list)
    n_busy: int = 0

    def ask(self, studio: Running, questions: Iterator[int], limit: float) -> "Client":
        """Ask one question after the other, for so many seconds or until there are no more."""
        whole = Timer()
        with closing(studio.connect()) as connection:
            for i in questions:
                if whole.seconds >= limit:
                    break
                timer = Timer()
                while studio.ask(connection, *choose_question(i)) == 429:
                    self.n_busy += 1
                    time.sleep(PAUSE)
                    timer = Timer()
                self.seconds.append(timer.seconds)
        return self


def load(seconds: float, n_clients: int = N_CLIENTS) -> Rows:
    """Many clients ask the built-in models for so many seconds."""
    with run_studio("--demo") as studio:
        alone = Client().ask(studio, iter(range(N_BEFORE)), limit=float("inf"))
        before = read_memory(studio.worker)
        with ThreadPoolExecutor(n_clients) as pool:
            starts = [iter(range(1000 * c, 1000 * c + 10**9)) for c in range(n_clients)]
            clients = list(pool.map(lambda own: Client().ask(studio, own, seconds), starts))
        after = read_memory(studio.worker)
    answers = [second for client in clients for second in client.seconds]
    n_busy = sum(client.n_busy for client in clients)
    what = f"{len(answers):,} answers to {n_clients} clients, {n_busy:,} × busy"
    typical = statistics.median(alone.seconds)
    return [
        Row(what, statistics.median(answers), "one client", typical),
        Row("memory of the worker after them", after, "before", before, unit="MB"),
    ]
