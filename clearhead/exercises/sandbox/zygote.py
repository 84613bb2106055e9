"""The zygote: a process without secrets that has imported torch and forks a box for each session.

Importing torch takes seconds, forking milliseconds. The zygote never runs a student's file; it
watches the boxes. Every 50 ms it looks at their memory, and it keeps the first bytes they print.
Messages of the supervisor arrive on a socket, each with three files: where the worker reads
requests, where it writes answers, and the life line. When the supervisor closes the life line, the
zygote ends the box; when the box has ended, the zygote writes a report to the life line.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from clearhead.exercises.sandbox import box, limits, processes, view

TICK = 0.05  # seconds
REMOVE = '{ chmod -R u+rwx "$0"; rm -rf "$0"; } 2> /dev/null'
MAX_ENTRIES = 4096  # in the folder of a box
MESSAGE = 512  # bytes of a request to open a box, padded


@dataclass
class Running:
    """A running box: its first process, its files and its limits."""

    keeper: int
    life: socket.socket
    output: int
    folder: str
    limits: limits.Limits
    printed: bytearray = field(default_factory=bytearray)

    def read_output(self) -> bool:
        """Keep the first bytes that were printed, drop the rest; whether there were any."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.output, 1 << 16)
            self.printed += data[: max(0, self.limits.output - len(self.printed))]
            return bool(data)
        return False


class Zygote:
    """Opens boxes on request and ends them."""

    def __init__(self, control: socket.socket, folder: str) -> None:
        self.control, self.folder = control, folder
        self.layers: list[str] = []
        self.readable, self.hidden = view.find_readable(), view.find_hidden()
        self.running: list[Running] = []
        self.cleaners: set[int] = set()
        self.number, self.baseline = 0, 0

    def plan(self, bounds: limits.Limits, folder: str) -> box.Plan:
        self.number += 1
        plan = (tuple(self.layers), folder, bounds, self.readable, self.hidden, self.number)
        return box.Plan(*plan)

    def probe(self, without: list[str]) -> dict[str, str]:
        """Find the layers that work here; return the others with the reason."""
        missing = {}
        is_root = os.geteuid() == 0  # only root can become another user, the last layer
        for layer in box.LAYERS if is_root else box.LAYERS[:-1]:
            folder = tempfile.mkdtemp(dir=self.folder)
            reason = "switched off" if layer in without else ""
            reason = reason or box.probe(layer, self.plan(limits.Limits(), folder))
            os.rmdir(folder)
            if reason:
                missing[layer] = reason
            else:
                self.layers.append(layer)
        return missing

    def run(self, serve: Callable[[], None]) -> None:
        """Open boxes until the supervisor closes the control socket; each one calls `serve`."""
        next_look = 0.0
        while True:
            files = [self.control, *(f for r in self.running for f in (r.life, r.output))]
            ready, _, _ = select.select(files, [], [], TICK if self.running else None)
            for each in [r for r in self.running if r.output in ready]:
                each.read_output()
            for each in [r for r in self.running if r.life in ready]:
                self.end(each, "closed")
            if self.control in ready and not self.open(serve):
                break
            if time.monotonic() >= next_look:
                for each in list(self.running):
                    self.watch(each)
                self.cleaners -= {p for p in self.cleaners if os.waitpid(p, os.WNOHANG)[0]}
                next_look = time.monotonic() + TICK

    def open(self, serve: Callable[[], None]) -> bool:
        """Read one message and fork a box; False at the end of the messages."""
        data, ancillary, _, _ = self.control.recvmsg(MESSAGE, socket.CMSG_SPACE(12))
        if len(data) < MESSAGE:
            return False
        requests, answers, life = array.array("i", ancillary[0][2])
        source, sink = os.pipe()
        os.set_blocking(source, False)
        bounds = limits.Limits(**json.loads(data))
        folder = tempfile.mkdtemp(dir=self.folder)
        if "unused user" in self.layers:
            os.chmod(folder, 0o777)
        keeper = box.start(self.plan(bounds, folder), (requests, answers), sink, serve)
        for each in (requests, answers, sink):
            os.close(each)
        self.running.append(Running(keeper, socket.socket(fileno=life), source, folder, bounds))
        return True

    def watch(self, each: Running) -> None:
        """End a box whose worker has ended or uses too much memory or disk."""
        ended = os.waitid(os.P_PID, each.keeper, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended:
            return self.end(each, "ended")
        used = processes.find_descendants(each.keeper)
        memory = sum(max(0, processes.measure_memory(p) - self.baseline) for p in used)
        if memory > each.limits.memory:
            self.end(each, "memory")
        elif is_full(each.folder, each.limits.disk):
            self.end(each, "disk")

    def end(self, each: Running, reason: str) -> None:
        """End every process of a box, remove its folder, and report."""
        processes.end_all(each.keeper)
        _, status = os.waitpid(each.keeper, 0)
        self.running.remove(each)
        self.end_orphans()
        while each.read_output():
            pass
        report = json.dumps(
            {"reason": reason, "status": os.waitstatus_to_exitcode(status)}
        ).encode()
        with contextlib.suppress(OSError):
            each.life.sendall(report + b"\n" + bytes(each.printed))
        each.life.close()
        os.close(each.output)
        if cleaner := start_removing(each.folder):
            self.cleaners.add(cleaner)

    def end_orphans(self, all_boxes: bool = False) -> None:
        """Kill what a dead keeper has left, or every box: the zygote is the parent of both."""
        known = self.cleaners | (set() if all_boxes else {each.keeper for each in self.running})
        while orphans := set(processes.find_children(os.getpid())) - known:
            for each in orphans:
                processes.end_all(each)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(each, 0)


def is_full(folder: str, size: int) -> bool:
    """Whether the files below a folder are too many, too large together, or too deep to see."""
    folders, count, used = [folder], 0, 0
    while folders:
        try:
            for entry in islice(os.scandir(folders.pop()), MAX_ENTRIES):
                count += 1
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        except FileNotFoundError:  # removed in the meantime
            continue
        except OSError:
            return True
        if count >= MAX_ENTRIES or used > size:
            return True
    return False


def start_removing(folder: str) -> int | None:
    """Remove a folder; one that is not empty is removed by a shell, whose process id is returned.

    A student's folder may hold folders without rights, or be nested too deeply for Python.
    """
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    if not os.path.exists(folder):
        return None
    with contextlib.suppress(FileNotFoundError):  # inside bubblewrap; the supervisor removes it
        return os.posix_spawn("/bin/sh", ["sh", "-c", REMOVE, folder], {})
    return None


def main() -> None:
    """Run as `python -I -c … CONTROL SETTINGS`: the number of a socket, and JSON."""
    control, settings = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    sys.argv[1:] = []
    sys.path[:] = settings["path"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    box.adopt_orphans()
    zygote = Zygote(control, settings["folder"])
    missing = zygote.probe(settings["without"])
    control.sendall(json.dumps({"layers": zygote.layers, "missing": missing}).encode() + b"\n")
    if "namespaces" not in zygote.layers:
        box.forbid_reading()
    serve = _import_worker(settings["imports"])
    box.hide_clearhead()
    gc.freeze()  # the collector does not touch, and so copy, the memory shared with the boxes
    zygote.baseline = processes.measure_memory(os.getpid())
    try:
        zygote.run(serve)
    finally:
        zygote.end_orphans(all_boxes=True)
        for each in zygote.cleaners:
            os.waitpid(each, 0)
        start_removing(zygote.folder)
        os._exit(0)


def _import_worker(imports: list[str]) -> Callable[[], None]:
    """Import torch and these; return the function that serves requests from file 3 to file 4."""
    from clearhead.exercises.sandbox import worker

    worker.prepare()
    for name in imports:
        with contextlib.suppress(Exception):  # it is not installed, or broken
            importlib.import_module(name)

    def serve() -> None:
        worker.serve(os.fdopen(3, "rb"), os.fdopen(4, "wb"))
        os._exit(0)

    return serve
