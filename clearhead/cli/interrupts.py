"""Ctrl-C while modules are imported: exit at once.

Python raises KeyboardInterrupt anywhere, also in the middle of an import. Not every extension
survives that (torch aborts the process), and there is nothing to clean up yet. During training,
runs/signals.py handles Ctrl-C.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Inside this block, Ctrl-C prints a word and exits with code 130."""
    before = signal.getsignal(signal.SIGINT)
    if (
        before is not signal.default_int_handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(130)
