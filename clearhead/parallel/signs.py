"""Signs of life: how the processes of a run notice that one of them is gone, and which one.

Every second each process writes a sign of life to the store. If an exchange fails or takes longer
than the time limit, the remaining processes check whose signs have stopped, and name that rank:

    rank 1 of 4 gave no sign of life: killed, suspended or cut off

A sign of life contains how many exchanges the process has begun. If all are alive, the one that has
begun fewer than the others hangs, or is slow.

A process that ends with an error of its own says so in the store, because its message names the
cause better than the others can.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

import torch.distributed as dist

from clearhead.parallel.meeting import NoAnswer, read_key

BEAT = 1.0  # seconds between signs of life
ANSWER_WITHIN = 10.0  # seconds that a process waits for the store after a fault

ENDED = "rank {} ended with an error; its own message names the cause"
SILENCE = (
    "the machine of rank 0 does not answer: it has stopped, or the network is cut; the same "
    "command resumes the run"
)

Answer = TypeVar("Answer")


class Sign(NamedTuple):
    """The last sign of life of a process."""

    number: int  # 0 before the first one
    n_exchanges: int  # that the process had begun


class Signs:
    """The signs of life of this process, and what it sees of the others."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: float) -> None:
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self.n_exchanges = 0  # begun so far; all processes make the same ones
        self.is_cut_off = False  # whether the store has stopped answering
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
            ask_store(lambda: self.store.set(f"ended/{self.rank}", ""), otherwise=None)

    @contextmanager
    def explain_faults(self) -> Iterator[None]:
        """If an exchange in this `with` block fails, name the rank that is the cause."""
        self.n_exchanges += 1
        try:
            yield
        except RuntimeError as fault:
            if not isinstance(fault, dist.DistError) and "gloo" not in str(fault):
                raise
            message = str(fault).splitlines()[0]
            reason = ask_store(lambda: self._find_reason(message), otherwise=SILENCE)
            self.is_cut_off = reason == SILENCE
            raise NoAnswer(reason) from None

    def _beat(self) -> None:
        """Write signs until `stop` is called."""
        number = 0
        with suppress(RuntimeError):  # the store is gone, so this process ends soon, too
            while not self._end.wait(BEAT):
                number += 1
                self.store.set(f"beat/{self.rank}", f"{number} {self.n_exchanges}")

    def _read_signs(self) -> dict[int, Sign]:
        """The last sign of each other rank."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        found = {rank: read_key(self.store, f"beat/{rank}") or b"0 0" for rank in others}
        return {rank: Sign(*map(int, text.split())) for rank, text in found.items()}

    def _find_reason(self, message: str) -> str:
        """Why an exchange failed with this message.

        The first process that finds out writes it to the store and ends. The others fail only
        because it has ended, so they take its reason.
        """
        try:
            if not (reason := read_key(self.store, "reason").decode()):
                found = self._look_for_reason(message)
                reason = self.store.compare_set("reason", "", found).decode()  # the first one stays
            return reason
        except RuntimeError:
            return "the program that started the processes has ended; start it again to resume"

    def _look_for_reason(self, message: str) -> str:
        """Watch the signs of the others for a moment; returns the reason in a sentence."""
        before = self._read_signs()
        for _ in range(25):  # the others have 2.5 s to write a sign
            if ended := [rank for rank in before if self.store.check([f"ended/{rank}"])]:
                return ENDED.format(ended[0])
            self._end.wait(BEAT / 10)
        after = self._read_signs()
        if silent := [rank for rank in after if after[rank].number == before[rank].number]:
            return (
                f"{_list_ranks(silent)} of {self.size} gave no sign of life: killed, suspended or "
                f"cut off (time limit {self.timeout:g} s); the same command resumes the run"
            )
        if late := [rank for rank in after if after[rank].n_exchanges < self.n_exchanges]:
            return (
                f"{_list_ranks(late)} of {self.size} did not come to an exchange for which the "
                f"others waited {self.timeout:g} s: it hangs, or needs a longer --timeout, as for "
                f"a long evaluation; the same command resumes the run"
            )
        return f"an exchange with the other processes failed ({message:.300})"


def _list_ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def ask_store(
    question: Callable[[], Answer], otherwise: Answer, seconds: float = ANSWER_WITHIN
) -> Answer:
    """The answer to a question about the store; `otherwise` if there is none in time.

    torch waits for a silent store without limit, so a thread asks it.
    """
    answers: SimpleQueue[Answer] = SimpleQueue()

    def ask() -> None:
        with suppress(RuntimeError):  # the store is gone
            answers.put(question())
            return
        answers.put(otherwise)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except Empty:
        return otherwise
