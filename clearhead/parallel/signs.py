"""Signs of life: how the processes of a run notice that one of them is gone, and which one.

Every second each process writes a sign of life to the store. If an exchange fails or takes longer
than the time limit, the remaining processes check whose signs have stopped, and name that rank:

    rank 1 of 4 gave no sign of life: killed, stopped or cut off

A process that ends with an error of its own says so in the store, because its message names the
cause better than the others can.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch.distributed as dist

from clearhead.parallel.meeting import NoAnswer, read_key

BEAT = 1.0  # seconds between signs of life


class Signs:
    """The signs of life of this process, and what it sees of the others."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: float) -> None:
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self._end = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Give no more signs.

        The thread must have left the store before Python ends, or torch would abort.
        """
        self._end.set()
        self.thread.join(2 * BEAT)

    def say_end(self, fault: BaseException) -> None:
        """Tell the others that this process ends with an error."""
        if isinstance(fault, Exception) and not isinstance(fault, NoAnswer):
            with suppress(RuntimeError):
                self.store.set(f"ended/{self.rank}", "")

    @contextmanager
    def explain_faults(self) -> Iterator[None]:
        """If an exchange in this `with` block fails, name the rank that is the cause."""
        try:
            yield
        except RuntimeError as fault:
            if not isinstance(fault, dist.DistError) and "gloo" not in str(fault):
                raise
            raise NoAnswer(self._find_reason(fault)) from None

    def _beat(self) -> None:
        number = 0
        with suppress(RuntimeError):  # the store is gone, so this process ends soon, too
            while not self._end.wait(BEAT):
                number += 1
                self.store.set(f"beat/{self.rank}", str(number))

    def _read_beats(self) -> dict[int, bytes]:
        others = [rank for rank in range(self.size) if rank != self.rank]
        return {rank: read_key(self.store, f"beat/{rank}") for rank in others}

    def _find_reason(self, fault: RuntimeError) -> str:
        """Why an exchange failed.

        The first process that finds out writes it to the store and ends. The others fail only
        because it has ended, so they take its reason.
        """
        try:
            if not (reason := read_key(self.store, "reason").decode()):
                found = self._look_for_reason(fault)
                reason = self.store.compare_set("reason", "", found).decode()  # the first one stays
            return reason
        except RuntimeError:
            return "the program that started the processes has ended; start it again to resume"

    def _look_for_reason(self, fault: RuntimeError) -> str:
        before = self._read_beats()
        for _ in range(25):  # the others have 2.5 s to write a sign
            if ended := [rank for rank in before if self.store.check([f"ended/{rank}"])]:
                return f"rank {ended[0]} ended with an error; its own message names it"
            self._end.wait(BEAT / 10)
        after = self._read_beats()
        silent = [str(rank) for rank in after if after[rank] == before[rank]]
        if silent:
            which = f"rank {silent[0]}" if len(silent) == 1 else f"ranks {', '.join(silent)}"
            return (
                f"{which} of {self.size} gave no sign of life: killed, stopped or cut off; all "
                f"others waited at most {self.timeout:g} s; the same command resumes the run"
            )
        reason = str(fault).splitlines()[0]
        return f"an exchange with the other processes failed ({reason:.300})"
