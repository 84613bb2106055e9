"""The trainings that a studio has started: `clearhead train` in a process of its own.

Each has its own session, so Ctrl-C in the terminal does not reach it. SIGTERM stops it: it then
finishes its step and saves. SIGINT would do the same, but a shell makes its background processes
ignore SIGINT, and a training would inherit this from a studio in the background.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearhead.files.lock import read_owner
from clearhead.runs.folder import list_runs
from clearhead.studio.supervisor import AskError
from clearhead.studio.worker_process import make_environment, print_safely

# -P: a file in the current folder must not be imported in place of a library.
COMMAND = (sys.executable, "-P", "-m", "clearhead.cli.main", "train")
STOPPED = 128 + signal.SIGTERM  # the exit code of a training that SIGTERM has stopped
MAX_STDERR = 1 << 16  # bytes of stderr that are read: the last ones
END_SECONDS = 1.5  # the studio waits this long for a training to save; it saves in any case


class TrainingProcess:
    """One `clearhead train`. runs: the folder of new runs; run: the folder that is resumed.

    If the training fails, the terminal of the studio says why.
    """

    def __init__(self, arguments: Sequence[str], runs: str, *, run: str | None = None) -> None:
        self.arguments, self.runs, self.run = [*arguments, "--out", runs], runs, run
        self.is_stopping = False
        self._error: str | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # _watch closes it
        self.process = subprocess.Popen(
            [*COMMAND, *self.arguments, "--quiet"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
            env=make_environment(),
        )
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def command(self) -> str:
        """The command that starts the same training in a terminal."""
        return shlex.join(["clearhead", "train", *self.arguments])

    def find_run(self) -> str | None:
        """The folder of its run: the one that it has locked. None if it has not begun."""
        if self.run is None:
            for folder in reversed(list_runs(Path(self.runs))):
                if read_owner(folder.path) == self.process.pid:
                    self.run = str(folder.path)
                    break
        return self.run

    def stop(self) -> None:
        """Let it save and end. Only one signal is sent: a second would end it without saving."""
        if not self.is_stopping and self.is_alive:
            self.is_stopping = True
            self.process.send_signal(signal.SIGTERM)

    def describe(self) -> dict[str, Any]:
        """Its state: starting, training, stopping, or ended, then perhaps with an error."""
        run, code = self.find_run(), self.process.poll()
        state = "starting" if run is None else "training"
        if code is not None:
            state = "ended"
        elif self.is_stopping:
            state = "stopping"
        return {"state": state, "command": self.command, "error": self.read_error()}

    def read_error(self) -> str | None:
        """The error of a command that has failed; None if it runs, is done or was stopped."""
        if not self.is_alive:
            self._watcher.join()
        return self._error

    def _watch(self) -> None:
        """Wait for the end; keep the error if there is one, and print it."""
        with self._stderr:
            self._error = self._find_error(self.process.wait())
        if self._error is not None:
            print_safely(f"{self.command} has failed: {self._error}")

    def _find_error(self, code: int) -> str | None:
        if code in (0, STOPPED) or (code < 0 and self.is_stopping):
            return None
        if code < 0:
            return f"{signal.Signals(-code).name} has ended the training; resume it"
        return self._read_stderr() or f"the command ended with code {code}"

    def _read_stderr(self) -> str:
        """The sentence after "error: ", or else the last line."""
        n_bytes = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, n_bytes - MAX_STDERR))
        text = self._stderr.read(MAX_STDERR).decode(errors="replace").strip()
        _, found, rest = f"\n{text}".partition("\nerror: ")
        return rest.partition("\nhint: ")[0].strip() if found else text.rpartition("\n")[2]


class Trainings:
    """The trainings of a studio, one at a time. runs: the folder of new runs.

    last: the training that was started last, which may have ended.
    """

    def __init__(self, runs: str) -> None:
        self.runs = runs
        self.last: TrainingProcess | None = None
        self._lock = threading.Lock()

    @property
    def current(self) -> TrainingProcess | None:
        """The training that runs."""
        last = self.last
        return last if last is not None and last.is_alive else None

    def start(self, arguments: Sequence[str], *, run: str | None = None) -> TrainingProcess:
        """Start `clearhead train` with these arguments. run: the folder that is resumed."""
        with self._lock:  # two threads must not both find that nothing runs
            if (current := self.current) is not None:
                name = Path(current.find_run() or "a run").name
                raise AskError(409, f"{name} is being trained; stop it, or wait until it ends")
            self.last = TrainingProcess(arguments, self.runs, run=run)
            return self.last

    def find(self, run: str) -> TrainingProcess | None:
        """The running training of a run, if it was started here."""
        current = self.current
        own = None if current is None else current.find_run()
        return current if own is not None and Path(own).resolve() == Path(run).resolve() else None

    def close(self) -> None:
        """Stop the training, and say in the terminal how to resume it."""
        with self._lock:
            last, self.last = self.last, None
        if last is None or not last.is_alive:
            return
        last.stop()
        with suppress(subprocess.TimeoutExpired):
            last.process.wait(END_SECONDS)
        run = last.find_run()
        if run is not None:
            word = "is being saved" if last.is_alive else "is saved"
            resume = shlex.join(["clearhead", "train", "--resume", run])
            print_safely(f"the training in {run} was stopped and {word}; resume: {resume}")
