"""Ctrl-C while modules are imported: leave at once.

Python raises KeyboardInterrupt wherever it is, also in the middle of an import. There is nothing to
clean up then, and not every extension survives it: torch ends the process with an abort.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Within, Ctrl-C ends the process with 130 and a word; afterwards all is as before."""
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
