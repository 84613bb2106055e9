"""A sandbox: the zygote, and the level of isolation that this machine reaches."""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from clearhead.exercises.sandbox import bubblewrap, view
from clearhead.exercises.sandbox.limits import Limits
from clearhead.exercises.sandbox.supervisor import Session, Stopped
from clearhead.exercises.sandbox.zygote import MESSAGE, start_removing

FOLDER = Path(__file__).parent
ENVIRONMENT = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")}
GUARDS_FILES = {"Landlock", "namespaces", "bubblewrap"}


@dataclass(frozen=True)
class Level:
    """The isolation of a sandbox. number: 1 limits only, 2 one more layer guards files and network,
    3 two layers, 4 all. missing: the other layers, and why they are missing."""

    layers: tuple[str, ...]
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        walls = GUARDS_FILES & set(self.layers)
        return 1 + len(walls) + ("seccomp" in self.layers) if walls else 1

    def __str__(self) -> str:
        return " + ".join(("limits", *self.layers))


class Sandbox:
    """Opens sessions for untrusted code.

    limits: of each session. without: layers to leave out, for tests of the lower levels. imports:
    modules besides torch to import once in the zygote, not in every session. The zygote is started
    at once, so that torch is imported while the caller does other things.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        without: Collection[str] = (),
        imports: Collection[str] = (),
    ) -> None:
        self.limits, self.without = limits or Limits(), list(without)
        self.imports = list(imports)
        self.lock = threading.Lock()
        if not hasattr(os, "fork"):
            raise OSError("checking code needs Linux or macOS; on Windows it runs in WSL")
        self.folder = tempfile.mkdtemp(prefix="clearhead-")
        self._start()

    @property
    def level(self) -> str:
        """The layers in words, such as "limits + Landlock + namespaces + seccomp"."""
        return str(self.protection)

    def open(self, **limits: Any) -> Session:
        """A session in a process of its own; keywords replace limits, as in open(seconds=2)."""
        chosen = replace(self.limits, **limits)
        request_end, sink = os.pipe()
        source, answer_end = os.pipe()
        life, far_life = socket.socketpair()
        message = json.dumps(asdict(chosen)).encode().ljust(MESSAGE)
        with self.lock:
            self._send(message, [request_end, answer_end, far_life.fileno()])
        far_life.close()
        os.close(request_end)
        os.close(answer_end)
        return Session(source, sink, life, chosen).wait_until_ready()

    def _send(self, message: bytes, files: list[int]) -> None:
        """Send a message to the zygote; start a new one if a student's code has ended it."""
        try:
            socket.send_fds(self.control, [message], files)
        except OSError:
            self._stop()
            self._start()
            socket.send_fds(self.control, [message], files)

    def _stop(self) -> None:
        self.control.close()
        try:
            self.zygote.wait(60)
        except subprocess.TimeoutExpired:
            self.zygote.kill()
            self.zygote.wait()

    def close(self) -> None:
        """End the zygote and every session."""
        self._stop()
        if cleaner := start_removing(self.folder):
            os.waitpid(cleaner, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        """Start a zygote, inside bubblewrap if it cannot make namespaces itself."""
        found = self._launch([], self.without)
        program = bubblewrap.find_program()
        if "namespaces" not in found["layers"] and "bubblewrap" not in self.without and program:
            self._stop()
            inside = bubblewrap.build_command(program, self.folder)
            try:
                found = self._launch(inside, [*self.without, "namespaces"])
                found["layers"].insert(0, "bubblewrap")
            except Stopped:
                self._stop()
                found = self._launch([], self.without)
                found["missing"]["bubblewrap"] = "it cannot make namespaces either"
        self.protection = Level(tuple(found["layers"]), found["missing"])

    def _launch(self, before: list[str], without: list[str]) -> dict[str, Any]:
        """Start the process of a zygote; return the layers it can apply and those it cannot."""
        os.makedirs(self.folder, exist_ok=True)  # the last zygote has removed it
        os.chmod(self.folder, 0o711)  # an unused user must reach its own folder below
        self.control, far = socket.socketpair()
        settings = {"path": view.find_search_path(), "folder": self.folder, "without": without}
        settings["imports"] = self.imports
        python = [os.path.realpath(sys.executable), "-I", "-c", _START, str(FOLDER)]
        self.zygote = subprocess.Popen(
            [*before, *python, str(far.fileno()), json.dumps(settings)],
            pass_fds=(far.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**ENVIRONMENT, "TMPDIR": self.folder},
            cwd="/",
            start_new_session=True,
        )
        far.close()
        with self.control.makefile() as file:
            line = file.readline()
        if not line:
            raise Stopped("the sandbox could not be started")
        return dict(json.loads(line))


@cache
def find_sandbox() -> Sandbox:
    """The sandbox that `open_session` uses, started once; it ends with this process."""
    found = Sandbox()
    atexit.register(found.close)
    return found


def open_session(**limits: Any) -> Session:
    """A new session in the common sandbox: `with open_session(seconds=5) as session`."""
    return find_sandbox().open(**limits)


# Gives the zygote the files of this folder under their names, without the package around them.
_START = """
import sys, types
folder = sys.argv.pop(1)
for name in ("clearhead", "clearhead.exercises", "clearhead.exercises.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder] if name.endswith("sandbox") else []
from clearhead.exercises.sandbox import zygote
zygote.main()
"""
