"""A run that is asked to stop finishes its step, saves, and says so.

SIGINT (Ctrl-C) and SIGTERM are noted, and the loop looks at the note after each step. Only an
evaluation, which may be long, is broken off; it is done again when the run goes on. A second
signal ends the process at once, in the way of the system: the checkpoints are whole at any moment.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

HEARD = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A signal stopped the run; all of it is saved. The process should end with 128 + number."""

    def __init__(self, number: int, run: Path, *, finished: bool = False) -> None:
        """finished: the signal came during the last save, and nothing is left to do."""
        super().__init__(f"stopped by {signal.Signals(number).name}; saved in {run}")
        self.number, self.run, self.finished = number, run, finished


class Stop(BaseException):
    """Leave the loop and save. No Exception, so that nothing on the way takes it for a fault."""


class Signals:
    """The signal that came, if one did."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._may_break = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Within, the first signal is noted; afterwards all is as before."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python hears signals in the main thread alone
            return
        before = {number: signal.getsignal(number) for number in HEARD}
        ignored = (signal.SIG_IGN, None)  # in the background a Ctrl-C is not meant for us
        mine = {number: way for number, way in before.items() if way not in ignored}
        try:
            for number in mine:
                signal.signal(number, self._note)
            yield
        finally:
            for number, way in mine.items():
                signal.signal(number, way)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Within, a signal raises Stop at once."""
        self._may_break = True
        try:
            if self.number is not None:
                raise Stop
            yield
        finally:
            self._may_break = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for each in HEARD:
            signal.signal(each, signal.SIG_DFL)
        if self._may_break:
            raise Stop
