"""Ctrl-C and SIGTERM: the run finishes its step, is saved, and ends.

Only an evaluation, which may take long, is interrupted at once; it is repeated when the run
resumes. (With parallel=fsdp all processes compute it together, and it is not interrupted.) A second
signal ends the process at once, as the system does by default; the checkpoints on the disk stay
good.

A process with an agent, such as torchrun, ignores the second signal: where a service manager
signals all processes, the agent sends the same signal once more. The agent kills those that take
too long.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A signal stopped the run; it is saved. The process should exit with 128 + number."""

    def __init__(self, number: int, run: Path, *, finished: bool = False) -> None:
        """finished: the signal came during the last save, and no step is left to do."""
        super().__init__(f"stopped by {signal.Signals(number).name}; saved in {run}")
        self.number, self.run, self.finished = number, run, finished


class Signals:
    """Calls `stop` at the first signal, whose number it keeps."""

    def __init__(self, stop: Callable[[], None], *, has_agent: bool = False) -> None:
        """has_agent: another program decides how long this process may take to end."""
        self.stop = stop
        self.second = signal.SIG_IGN if has_agent else signal.SIG_DFL
        self.number: int | None = None

    @contextmanager
    def catch(self) -> Iterator[Self]:
        """In a `with` block the first signal calls `stop`. A second one ends the program, or is
        ignored if the program has an agent.

        The end of the block restores the earlier handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self  # Python runs signal handlers in the main thread only
            return
        before = {number: signal.getsignal(number) for number in STOPPING}
        ignored = (signal.SIG_IGN, None)  # for instance SIGINT in a background job of a shell
        ours = {number: handler for number, handler in before.items() if handler not in ignored}
        try:
            for number in ours:
                signal.signal(number, self._receive)
            yield self
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for each in STOPPING:
            signal.signal(each, self.second)
        self.stop()
