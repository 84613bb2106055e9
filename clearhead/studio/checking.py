"""The diagnosis of `clearhead check`, for code pasted into the page.

    GET  /api/exercises        the exercises with formula, signature and template; an example
                               with a mistake
    POST /api/check            {"code": …, "kind": "python" or "notebook", "exercise": …, "seed": …}

The server neither runs nor parses the code: it writes it to a private folder and starts
`clearhead check`, which runs it in its sandbox. One check runs at a time.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clearhead.config import suggest
from clearhead.exercises.catalogue import read_catalogue
from clearhead.exercises.template import write_template
from clearhead.studio.requests import read_object, run_while_connected
from clearhead.studio.supervisor import AskError
from clearhead.studio.worker_process import make_environment, print_safely

if TYPE_CHECKING:
    from clearhead.studio.server import Studio

COMMAND = (sys.executable, "-m", "clearhead.cli.main", "check")
FILES = {"python": "my_file.py", "notebook": "my_notebook.ipynb"}
COMPLETE = (0, 1)  # the exit codes of a complete check: passed, failed
SECONDS = 60.0  # then a check is ended
MAX_OUTPUT = 4 << 20  # bytes of a report
MAX_WAITING = 4
# How a check is ended, and how many seconds each signal gets: the studio must end within three.
END_SIGNALS = ((signal.SIGTERM, 1.5), (signal.SIGKILL, 0.5))
MAX_SEED = 2**62
MAX_LOG = 4000  # characters of an unexpected error, for the terminal

EXAMPLE = '''\
"""Scaled dot-product attention with a mistake: can you see it?"""

import math

import torch


def attention(q, k, v, mask=None):
    """softmax(q kᵀ / √d_k) v; mask True = may attend"""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ v
'''


class Checker:
    """Runs checks one after the other."""

    def __init__(self) -> None:
        self._turn, self._n_asked = asyncio.Lock(), 0
        self.process: Process | None = None

    async def check(self, code: str, kind: str, options: list[str]) -> dict[str, Any]:
        """The report of `clearhead check` on this code, with these command-line options."""
        if self._n_asked > MAX_WAITING:
            raise AskError(429, f"{MAX_WAITING} checks are waiting already; try again in a moment")
        self._n_asked += 1
        try:
            async with self._turn:
                with tempfile.TemporaryDirectory(prefix="clearhead-check-") as folder:
                    path = Path(folder, FILES[kind])
                    path.write_text(code, encoding="utf-8")
                    return await self._run(path, options)
        finally:
            self._n_asked -= 1

    async def _run(self, path: Path, options: list[str]) -> dict[str, Any]:
        with tempfile.TemporaryFile() as log:
            self.process = process = await asyncio.create_subprocess_exec(
                *COMMAND,
                path.name,
                "--json",
                *options,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
                cwd=path.parent,
                env=make_environment(),
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(SECONDS):
                    output = await _read_output(process)
                    code = await process.wait()
            except TimeoutError:
                raise AskError(
                    408, f"the check was ended after {SECONDS:.0f} s; check less code"
                ) from None
            finally:
                await self.stop()
            return _read_report(output, code, log)

    async def stop(self) -> None:
        """End the check that runs, with all its processes."""
        process, self.process = self.process, None
        if process is None:
            return
        for number, seconds in END_SIGNALS:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
                return


async def _read_output(process: Process) -> bytes:
    """The standard output of the command, up to a limit."""
    assert process.stdout is not None
    output = b""
    while part := await process.stdout.read(1 << 16):
        output += part
        if len(output) > MAX_OUTPUT:
            raise AskError(400, f"the report has more than {MAX_OUTPUT:,} bytes; check less code")
    return output


def _read_report(output: bytes, code: int, log: Any) -> dict[str, Any]:
    """The report that the command printed; its error message is raised as AskError."""
    found: Any = None
    with suppress(ValueError):
        found = json.loads(output)
    if isinstance(found, dict) and code in COMPLETE:
        return found
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        raise AskError(400, found["error"])
    log.seek(0)
    print_safely(
        f"clearhead check ended with {code}:\n{log.read(MAX_LOG).decode(errors='replace')}"
    )
    raise AskError(500, "the check failed; the terminal of the studio shows why")


@cache
def list_exercises() -> dict[str, Any]:
    """All exercises, each with a template to start from, and an example with a mistake."""
    exercises = [
        {
            "name": entry.name,
            "title": entry.title,
            "signature": entry.signature,
            "formula": entry.formula,
            "points": entry.points,
            "n_mistakes": len(entry.mistakes),
            "terms": dict(entry.terms),
            "template": write_template(entry.name),
        }
        for entry in read_catalogue().values()
    ]
    return {"exercises": exercises, "example": {"code": EXAMPLE, "exercise": "attention"}}


def read_options(given: dict[str, Any]) -> list[str]:
    """The command-line options --exercise and --seed for the fields of a request."""
    exercise, seed = given.get("exercise"), given.get("seed")
    names = [each["name"] for each in list_exercises()["exercises"]]
    if exercise is not None and exercise not in names:
        near = suggest(str(exercise), names)
        raise AskError(400, f"there is no exercise {str(exercise)[:80]!r}{near}")
    if seed is not None and (type(seed) is not int or not 0 <= seed < MAX_SEED):
        raise AskError(400, f"seed must be a whole number from 0, got {str(seed)[:40]}")
    options = [] if exercise is None else ["--exercise", exercise]
    return options if seed is None else [*options, "--seed", str(seed)]


def make_routes(studio: "Studio") -> list[Route]:
    """The routes of this file."""
    checker = Checker()
    studio.endings.append(checker.stop)

    async def get_exercises(request: Request) -> Response:
        return JSONResponse(list_exercises())

    async def check(request: Request) -> Response:
        given = await read_object(request, "code", "kind", "exercise", "seed")
        code, kind = given.get("code"), given.get("kind", "python")
        if not isinstance(code, str) or not code.strip():
            raise AskError(400, "code is missing; paste a function, or start from a template")
        if not isinstance(kind, str) or kind not in FILES:
            raise AskError(400, f"kind must be one of {', '.join(FILES)}, got {str(kind)[:80]!r}")
        work = checker.check(code, kind, read_options(given))
        report = await run_while_connected(request.receive, work)
        return JSONResponse(report)

    return [
        Route("/api/exercises", get_exercises),
        Route("/api/check", check, methods=["POST"]),
    ]
