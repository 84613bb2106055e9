"""The processes of a run, forked from this one: what torchrun does, without importing torch again.

    ranks = Ranks(2, ["train", "substring", …], folder)
    ranks.end()                 the exit codes
    ranks.read()                what they have printed on stderr

Each is a process of its own with its own connections, which can be killed and stopped.
"""

import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
from torch.distributed import TCPStore

LIMIT = 120.0  # seconds, for anything that must happen
LOOK_EVERY = 0.002


def wait_until(is_true, what, seconds=LIMIT):
    """Look again and again until it is true; returns what it was."""
    limit = time.monotonic() + seconds
    while not (found := is_true()):
        assert time.monotonic() < limit, f"{what} did not happen within {seconds} s"
        time.sleep(LOOK_EVERY)
    return found


class Ranks:
    """Processes that run the same command, or each its own, and meet at a store of this process."""

    def __init__(self, size, commands, folder, *, prepare=lambda rank: None, **environment):
        """commands: the words after `clearhead`, one list for all or one for each, or a function
        of the rank; prepare: called in each process before it starts."""
        self.size, self.folder = size, Path(folder)
        self.codes, self.numbers = {}, []
        self.environment = {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "localhost",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        self.port, port = os.pipe()
        for rank in range(size):
            sys.stdout.flush()
            sys.stderr.flush()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
                number = os.fork()
            if not number:
                words = commands if callable(commands) or isinstance(commands[0], str) else None
                os._exit(self._work(rank, words or commands[rank], prepare))
            self.numbers.append(number)
        # The store has a thread. A process forked beside it could inherit a lock that this thread
        # holds, and wait for it forever, so the store starts after all forks.
        self.store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        os.write(port, f"{self.store.port:05}".encode() * size)
        os.close(port)
        os.close(self.port)

    def _work(self, rank, words, prepare):
        """In the process of a rank: the exit code."""
        os.setsid()
        with open(self._path(rank), "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        port = str(int(os.read(self.port, 5)))
        places = {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": port}
        os.environ.update(self.environment, **places)
        torch.set_num_threads(1)
        try:
            prepare(rank)
            if callable(words):
                words(rank)
                return 0
            return run_command(words)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def _path(self, rank):
        return self.folder / f"rank-{rank}.txt"

    def read(self, rank=None):
        """What all, or one of them, have printed."""
        ranks = range(self.size) if rank is None else [rank]
        return "".join(self._path(r).read_text() for r in ranks if self._path(r).exists())

    def send(self, rank, number=signal.SIGKILL):
        """Send a signal, unless the process has ended."""
        if self.look(rank) is None:
            os.kill(self.numbers[rank], number)

    def look(self, rank):
        """The exit code of a rank, negative for a signal; None if it still runs."""
        if rank not in self.codes:
            number, status = os.waitpid(self.numbers[rank], os.WNOHANG)
            if number:
                self.codes[rank] = os.waitstatus_to_exitcode(status)
        return self.codes.get(rank)

    def look_all(self):
        return [self.look(rank) for rank in range(self.size)]

    def end(self, seconds=LIMIT, but=()):
        """The exit codes of all, or of all but some."""
        others = [rank for rank in range(self.size) if rank not in but]
        try:
            wait_until(
                lambda: all(self.look(rank) is not None for rank in others),
                "the end of all processes",
                seconds,
            )
        except AssertionError:
            ended = dict(self.codes)
            self.kill()
            raise AssertionError(f"only {ended} have ended in time: {self.read()}") from None
        return [self.codes[rank] for rank in others]

    def kill(self):
        """Kill those that still run."""
        for rank in range(self.size):
            self.send(rank)
        wait_until(lambda: None not in self.look_all(), "the end of killed processes")

    def stop(self):
        """As an agent does: SIGTERM to all, and their exit codes."""
        for rank in range(self.size):
            self.send(rank, signal.SIGTERM)
        return self.end()


def run_command(words):
    """Run `clearhead words…` in this process; returns its exit code."""
    from clearhead.cli import main, train

    train._write_report = lambda result, *, silent: None  # drawing takes seconds
    sys.argv = ["clearhead", *map(str, words)]
    try:
        main.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0
