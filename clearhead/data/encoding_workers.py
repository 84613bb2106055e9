"""Encode texts in several processes; the ids do not depend on how many there are.

    with EncodingWorkers("tokenizer.json", n=4) as workers:
        for piece, ids in workers.encode(pieces): …         in the order of the pieces

A worker is this file run as a program. It reads pieces from its standard input and writes their
ids to its standard output, each preceded by its length:

    → length (8 bytes) | text in UTF-8
    ← "i" | length | ids, uint32           or           "e" | length | what is wrong, a sentence

A worker that dies or that gives no answer in time is an error. Every worker ends with the `with`
block. If this process is killed, each worker finds the end of its input and ends by itself.
"""

import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, NamedTuple, Self

import numpy as np

from clearhead.data.token_encoders import Ids, make_encoder
from clearhead.data.tokenizers import load_tokenizer
from clearhead.files.reading import BadFile, prefix_errors
from clearhead.shapes import check_above_zero, check_positive

REQUEST, ANSWER = struct.Struct("<Q"), struct.Struct("<cQ")
TIMEOUT = 120.0  # seconds for an answer; a piece takes 0.2 s, the start of a worker 2 s
PACKAGES = str(Path(__file__).parents[2])  # where this package was imported from


class WorkerFailed(ValueError):
    """A process that encodes has died or gives no answer."""


class Piece(NamedTuple):
    """A part of a text file."""

    path: str  # for error messages
    text: str
    starts_file: bool = False


class EncodingWorkers:
    """n processes that encode, each with the tokenizer saved in this file."""

    def __init__(
        self, tokenizer: str | os.PathLike[str], n: int, *, timeout: float = TIMEOUT
    ) -> None:
        check_positive(n=n)
        check_above_zero(timeout=timeout)
        self.tokenizer, self.n, self.timeout = tokenizer, n, timeout
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._threads = ThreadPoolExecutor(self.n)  # each waits for one process
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        try:
            for _ in range(self.n):
                self.processes.append(_start(self.tokenizer))
                self._free.put(self.processes[-1])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)  # ends, because no process answers any more
        for process in self.processes:
            with suppress(BrokenPipeError), process:  # closes the pipes and waits for its end
                pass

    def encode(self, pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Ids]]:
        """Each piece with its ids. Only a few pieces are in memory at a time."""
        waiting: deque[tuple[Piece, Future[Ids]]] = deque()
        for piece in pieces:
            waiting.append((piece, self._threads.submit(self._ask, piece)))
            if len(waiting) > 2 * self.n:
                yield self._wait(*waiting.popleft())
        while waiting:
            yield self._wait(*waiting.popleft())

    def _wait(self, piece: Piece, answer: Future[Ids]) -> tuple[Piece, Ids]:
        try:
            return piece, answer.result(self.timeout)
        except TimeoutError:
            raise WorkerFailed(
                f"a process that encodes gave no answer for {self.timeout:g} s, so all were ended; "
                f"try again with fewer workers"
            ) from None

    def _ask(self, piece: Piece) -> Ids:
        """Let a free process encode a piece; runs in a thread."""
        process = self._free.get()
        try:
            kind, data = _exchange(process, piece.text.encode())
        except (OSError, EOFError):
            code = process.wait()
            reason = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
            raise WorkerFailed(
                f"the encoding process {process.pid} ended {reason}, maybe for lack of memory; "
                f"try again with fewer workers"
            ) from None
        finally:
            self._free.put(process)  # also a dead one, or another thread might wait for it forever
        if kind == b"e":
            with prefix_errors(piece.path):
                raise ValueError(data.decode())
        return np.frombuffer(data, np.uint32)


def _start(tokenizer: str | os.PathLike[str]) -> "subprocess.Popen[bytes]":
    paths = filter(None, [PACKAGES, os.environ.get("PYTHONPATH")])
    return subprocess.Popen(
        # -P: a file of the user's folder must not be imported in place of a library.
        [sys.executable, "-P", "-m", "clearhead.data.encoding_workers", os.fspath(tokenizer)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal is for the first process alone
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )


def _exchange(process: "subprocess.Popen[bytes]", text: bytes) -> tuple[bytes, bytes]:
    """Send a piece to a process and read its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(REQUEST.pack(len(text)) + text)
    process.stdin.flush()
    kind, length = ANSWER.unpack(_read(process.stdout, ANSWER.size))
    return kind, _read(process.stdout, length)


def _read(pipe: IO[bytes], n: int) -> bytes:
    """Read exactly n bytes."""
    data = pipe.read(n)
    if len(data) < n:
        raise EOFError
    return data


def work(path: str) -> None:
    """Encode the pieces that come from standard input, until it ends."""
    try:
        encoder = make_encoder(load_tokenizer(path))
    except BadFile:  # the other process has ended, and its folder is gone
        sys.exit(1)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):  # the other process has ended
        while True:
            (length,) = REQUEST.unpack(_read(source, REQUEST.size))
            try:
                kind, data = b"i", encoder.encode(_read(source, length).decode()).tobytes()
            except ValueError as fault:
                kind, data = b"e", str(fault).encode()
            sink.write(ANSWER.pack(kind, len(data)) + data)
            sink.flush()


if __name__ == "__main__":
    work(sys.argv[1])
