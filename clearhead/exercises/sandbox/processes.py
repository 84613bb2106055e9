"""The descendants of a process: list them, measure their memory, and end them all.

Read from /proc; where there is none, nothing is found and only process groups can be ended. The
zygote reads this file, so it imports nothing of clearhead.
"""

import contextlib
import os
import signal
import time


def find_children(process: int) -> list[int]:
    """The processes that this one has started and that have not been collected."""
    try:
        found: list[int] = []
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                found += map(int, file.read().split())
        return found
    except OSError:  # it has ended, or there is no /proc
        return []


def find_descendants(process: int) -> list[int]:
    """Children, their children, and so on."""
    found = find_children(process)
    for each in found:  # the list grows while it is read
        found += find_children(each)
    return found


def measure_memory(process: int) -> int:
    """Bytes of memory in use that no file backs."""
    try:
        with open(f"/proc/{process}/status") as file:
            rows = [row.split() for row in file if row.startswith(("RssAnon:", "RssShmem:"))]
        return sum(int(row[1]) << 10 for row in rows)
    except OSError:
        return 0


def end_all(process: int, seconds: float = 5.0) -> None:
    """Kill the group and every descendant of a process, then the process itself.

    Descendants are stopped first, so that none can start another one while they are killed.
    """
    limit = time.monotonic() + seconds
    stopped: set[int] = set()
    while new := set(find_descendants(process)) - stopped:
        send(signal.SIGSTOP, *new)
        stopped |= new
        if time.monotonic() > limit:
            break
    send(signal.SIGKILL, *stopped)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    send(signal.SIGKILL, process)


def send(kind: signal.Signals, *processes: int) -> None:
    """Send a signal to each of these that still exists."""
    for each in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, kind)
