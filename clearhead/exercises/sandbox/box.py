"""One box: the processes between the zygote and a student's file.

    zygote → keeper → process 1 of the namespace → worker      with namespaces
    zygote → keeper → worker                                   without

The keeper leads a session of its own and collects every process that loses its parent. The worker
applies the layers one after the other and then serves requests. If a layer cannot be applied, it
reports this and ends: a student's file is never run outside the layers that the level names. The
zygote reads this file.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from typing import Any

from clearhead.exercises.sandbox import kernel, landlock, limits, namespaces, seccomp, view

LAYERS = ("Landlock", "namespaces", "seccomp", "unused user")
CANNOT_CLOSE = 125  # the exit status of a box whose layers could not be applied


@dataclass(frozen=True)
class Plan:
    """The settings of a box. layers: those to apply; folder: an empty one for this box."""

    layers: Sequence[str]
    folder: str
    limits: limits.Limits
    readable: list[str]
    hidden: list[str]
    number: int = 0  # of the box


def start(plan: Plan, kept: Sequence[int], output: int, serve: Callable[[], None]) -> int:
    """Fork a keeper with a worker below it; return the number of the keeper.

    kept: the files the worker needs, numbered from 3 when `serve` is called. output: where it
    prints.
    """
    process = os.fork()
    if process:
        return process
    with _always_exit():
        os.setsid()
        _set_death_signal()
        empty = os.open(os.devnull, os.O_RDONLY)
        for number, each in enumerate((empty, output, output)):
            os.dup2(each, number)
        limits.keep_files(*kept)
        limits.reset_signals()
        if "namespaces" in plan.layers:
            os.umask(0o022)
            namespaces.enter(plan.folder, plan.readable, plan.hidden, plan.limits.disk)
            _fork_and_wait()
            _set_death_signal()
        else:
            adopt_orphans()
            os.chdir(plan.folder)
        _fork_and_wait()
        close_layers(plan)
        serve()
    raise AssertionError("unreachable")


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)


def forbid_reading() -> None:
    """Forbid other processes of the same user to read or write the memory of this one."""
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def close_layers(plan: Plan) -> None:
    """Apply every layer of the plan to this process."""
    uses_own_root = "namespaces" in plan.layers
    folder = namespaces.BOX if uses_own_root else plan.folder
    is_alone = uses_own_root or "unused user" in plan.layers
    threads = 0 if is_alone else limits.count_threads(os.getuid())
    limits.give_up_rights()
    forbid_reading()
    if "Landlock" in plan.layers:
        hidden = [] if uses_own_root else plan.hidden
        landlock.restrict(view.expand(plan.readable, hidden), list(view.DEVICES), folder)
    limits.set_limits(plan.limits, threads)
    if "unused user" in plan.layers:
        limits.become_unused_user(plan.number, plan.readable)
    _set_death_signal()  # becoming another user has cleared it
    if "seccomp" in plan.layers:
        seccomp.install()


def probe(layer: str, plan: Plan) -> str:
    """Try one layer in a process of its own: empty if it works, else why it does not."""
    source, sink = os.pipe()
    process = os.fork()
    if not process:
        with _always_exit(sink):
            _try_layer(layer, plan)
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        reason = file.read().decode(errors="replace")
    _, status = os.waitpid(process, 0)
    return reason.strip() or (f"status {status}" if status else "")


def _try_layer(layer: str, plan: Plan) -> None:
    if layer == "namespaces":
        namespaces.enter(plan.folder, plan.readable, plan.hidden, plan.limits.disk)
    elif layer == "unused user":
        limits.become_unused_user(0, plan.readable)
    else:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if layer == "Landlock":
            landlock.restrict(plan.readable, list(view.DEVICES), plan.folder)
        else:
            seccomp.install()


def hide_clearhead() -> None:
    """Make `import clearhead` fail: the weakest of the layers that protect the right answers."""
    for name in [name for name in sys.modules if name.split(".")[0] == view.PACKAGE]:
        del sys.modules[name]
    sys.meta_path.insert(0, _NoClearhead())


class _NoClearhead(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        if name.split(".")[0] == view.PACKAGE:
            raise ModuleNotFoundError(f"{name} is not available to checked code", name=name)


def _fork_and_wait() -> None:
    """Continue in a child; the parent waits for it and exits with its status."""
    process = os.fork()
    while process:
        ended, status = os.wait()
        if ended == process:
            os._exit(_to_exit_status(status))


@contextlib.contextmanager
def _always_exit(errors: int = 2) -> Iterator[None]:
    """End this process after the block in any case; write an exception to `errors`."""
    try:
        yield
    except BaseException as fault:
        os.write(errors, f"{type(fault).__name__}: {fault}".encode())
    finally:
        os._exit(CANNOT_CLOSE)


def _to_exit_status(status: int) -> int:
    """Convert to the exit status a shell reports: 128 + the number of the signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _set_death_signal() -> None:
    """Let the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
