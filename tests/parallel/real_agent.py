"""Runs that torchrun or clearhead launch starts, and what is left of their processes.

Every process has a word in its environment, by which it is found even if its parent has ended.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from parallel import planted_faults
from parallel.forked_ranks import LIMIT, wait_until

import clearhead

WORD = "CLEARHEAD_TEST_WORD"


class Agent:
    """torchrun and its processes."""

    def __init__(self, size, words, folder, *, restarts=0, faults=None, own=False, **environment):
        """faults: a list as planted_faults.py has them; own: clearhead launch instead of
        torchrun."""
        self.word, self.path = secrets.token_hex(8), Path(folder) / "agent.txt"
        program = ["-m", "clearhead"] if faults is None else [planted_faults.__file__]
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", size]
        start += ["--max-restarts", restarts, *program]
        if own:
            assert faults is None
            start = ["-m", "clearhead", "launch", "--processes", size, "--restarts", restarts]
        with open(self.path, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, [*start, *words])],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(clearhead.__file__).parents[1]),
                    "OMP_NUM_THREADS": "1",
                    "CLEARHEAD_TIMEOUT": "60",
                    planted_faults.FAULTS: json.dumps(faults or []),
                    WORD: self.word,
                    **environment,
                },
            )

    def read(self):
        """What all have printed."""
        return self.path.read_text()

    def end(self, seconds=LIMIT):
        """The exit code of torchrun; all its processes have ended soon after."""
        try:
            code = self.process.wait(seconds)
            wait_until(lambda: not self.list_processes(), "the end of all processes", seconds)
        except BaseException:
            self.kill()
            raise
        return code

    def kill(self):
        """Kill what is left."""
        for number in self.list_processes():
            os.kill(number, signal.SIGKILL)
        self.process.wait()

    def list_processes(self):
        """{process: rank}, torchrun itself with None."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    lines = (folder / "environ").read_bytes().split(b"\0")
                except (OSError, IndexError):
                    continue  # has ended, or is another user's
                variables = dict(line.split(b"=", 1) for line in lines if b"=" in line)
                if variables.get(WORD.encode()) == self.word.encode() and state != "Z":
                    rank = variables.get(b"RANK")
                    found[int(folder.name)] = None if rank is None else int(rank)
        return found

    def find_rank(self, rank):
        """The process of a rank, None if there is none."""
        found = self.list_processes()
        return next((number for number, its in found.items() if its == rank), None)
