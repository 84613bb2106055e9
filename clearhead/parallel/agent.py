"""The agent of a machine: it starts the processes of a run, and decides what a fault means.

    agent = Agent(spec, node_rank, host, tell)
    agent.work()                                    the exit code

PyTorch's elastic agent starts and watches the processes. This one adds what launch.py promises:
our ranks, restarts only where they can help, time to save after a signal, and plain sentences.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from torch.distributed import Store, TCPStore
from torch.distributed.elastic.agent.server import RunResult, Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs, SubprocessContext
from torch.distributed.elastic.rendezvous import RendezvousClosedError

from clearhead.parallel.faults import (
    LOST,
    STOPPED,
    STOPPING,
    describe_end,
    find_cause,
    find_exit_code,
    is_curable,
)

SAVE_WITHIN = 120  # seconds that processes have to save after a signal
END_WITHIN = 10.0  # seconds that they have to end after the first of them has
END = "clearhead/end"  # a key of the store: the exit code of a final error
LEAVE_WITHIN = 5.0  # seconds that machine 0 waits for the others at the end of a run
LOOK_EVERY = 0.05  # seconds between two checks
OTHERS_ENDED = "error: the other machines have ended; their messages name the cause"
Tell = Callable[[str], None]


class Agent(LocalElasticAgent):
    """PyTorch's agent, with our ranks, restarts, signals and sentences."""

    def __init__(self, spec: WorkerSpec, node_rank: int, host: str, tell: Tell) -> None:
        super().__init__(spec, logs_specs=_NoLogs())
        self._shutdown_timeout = SAVE_WITHIN
        self.node_rank, self.host, self.tell = node_rank, host, tell
        self.stopped: dict[int, Any] = {}  # by rank, the processes that ran at the last shutdown

    def work(self) -> int:
        """Run until the processes have ended; returns the exit code."""
        try:
            result = self.run()
        except SignalException as stop:
            return self._explain_stop(stop.sigval)
        except RendezvousClosedError:
            self.tell(OTHERS_ENDED)
            return self._find_end()
        if result is None:  # the other machines have ended
            return self._find_end()
        if not result.failures:
            return 0
        _, code = find_cause({rank: failure.exitcode for rank, failure in result.failures.items()})
        store: Any = self._worker_group.store
        if not is_curable(code):
            with suppress(RuntimeError):  # machine 0 has ended
                store.set(END, str(code))
        return find_exit_code(code)

    def _find_end(self) -> int:
        """The exit code of a final error on another machine; LOST if that machine gave none."""
        store: Any = self._worker_group.store  # None before the first rendezvous
        with suppress(RuntimeError):
            if store is not None and store.check([END]):
                return int(store.get(END))
        return LOST

    def leave(self, nodes: int) -> None:
        """Leave the rendezvous. Its store is on machine 0, so machine 0 leaves last."""
        store: Any = self._worker_group.store  # None before the first rendezvous
        if nodes == 1 or store is None:
            return
        with suppress(RuntimeError):  # machine 0 was killed
            store.add("clearhead/left", 1)
        limit = time.monotonic() + LEAVE_WITHIN
        while self.node_rank == 0 and store.add("clearhead/left", 0) < nodes:
            if time.monotonic() > limit:
                break
            time.sleep(LOOK_EVERY)

    def _explain_stop(self, number: signal.Signals) -> int:
        """The exit code after a signal; prints a sentence if no process has printed one."""
        codes = {rank: process.poll() for rank, process in self.stopped.items()}
        if codes and not any(codes.values()):
            return 0
        failures = {rank: code for rank, code in codes.items() if code}
        rank, code = find_cause(failures) if failures else (0, -number)
        if code == -signal.SIGKILL:
            self.tell(f"rank {rank} was killed: it did not end after {number.name}")
        elif code in STOPPED or not is_curable(code):
            return code
        else:
            self.tell(f"stopped by {number.name}")
        return 128 + number

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Check the processes; if one has failed, decide whether they may start again."""
        running = self._find_running()
        result = super()._monitor_workers(worker_group)  # ends the others if one has failed
        if result.is_failed():
            codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
            rank, code = find_cause(codes, running_before=running)
            allowed = worker_group.spec.max_restarts
            count = allowed - self._remaining_restarts + 1
            if not is_curable(code):
                self._remaining_restarts = 0
            elif count <= allowed:
                again = f"starting all processes again ({count} of {allowed})"
                self.tell(f"rank {rank} {describe_end(code)}; {again}")
            else:
                self.tell(
                    f"rank {rank} {describe_end(code)}; no more restarts (allowed: {allowed})"
                )
        return result

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Meet the other agents. Every attempt has a store of its own, without old entries."""
        super()._rendezvous(worker_group)
        group: Any = worker_group
        if self.node_rank == 0:
            self.server = TCPStore(self.host, 0, is_master=True, wait_for_workers=False)
            group.store.set("clearhead/port", str(self.server.port))
        group.master_addr = self.host
        group.master_port = int(group.store.get("clearhead/port"))

    def _assign_worker_ranks(
        self, store: Store, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Ranks in the order of node_rank; torch's own order changes with every attempt."""
        n = spec.local_world_size
        store.set(f"clearhead/node/{group_rank}", f"{self.node_rank} {n}")
        answers = [store.get(f"clearhead/node/{i}").split() for i in range(group_world_size)]
        numbers, counts = zip(
            *sorted((int(rank), int(count)) for rank, count in answers), strict=True
        )
        if numbers != tuple(range(group_world_size)):
            raise ValueError(
                f"node_rank must be a different number on each machine, 0 to "
                f"{group_world_size - 1}, got {', '.join(map(str, numbers))}"
            )
        if set(counts) != {n}:
            given = ", ".join(map(str, counts))
            raise ValueError(f"processes must be the same number on each machine, got {given}")
        size = group_world_size * n
        ranks = range(self.node_rank * n, (self.node_rank + 1) * n)
        return [Worker(i, rank, rank, size, size) for i, rank in enumerate(ranks)]

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        """End the processes. A signal meanwhile kills them, and is raised when they have ended."""
        received = []
        running = self._find_running()
        self.stopped = running or self.stopped

        def kill(number: int, frame: FrameType | None) -> None:
            received.append(number)
            _send(running.values(), signal.SIGKILL)

        _send(running.values(), signal.SIGCONT)  # a suspended process could not save
        with handle_signals(kill), _kill_late(list(running.values())):
            super()._shutdown(*args, **kwargs)
        if received:
            raise_signal(received[0], None)

    def end_at_once(self, sentence: str) -> None:
        """End the processes and this agent, from any thread, with the exit code LOST."""
        self.tell(sentence)
        _send(self._find_running().values(), signal.SIGKILL)
        sys.stderr.flush()
        os._exit(LOST)

    def _find_running(self) -> dict[int, Any]:
        """The processes that have not ended, by rank."""
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        handlers, first = self._pcontext.subprocess_handlers, self._worker_group.workers[0]
        processes = {first.global_rank + i: handler.proc for i, handler in handlers.items()}
        return {rank: process for rank, process in processes.items() if process.poll() is None}


def _send(processes: Iterable[Any], number: signal.Signals) -> None:
    """Send a signal to processes, and to those that they have started."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


@contextmanager
def _kill_late(running: Sequence[Any]) -> Iterator[None]:
    """In a `with` block, kill what still runs END_WITHIN seconds after the first process ended.

    They save together, so one that has not ended by then hangs, or waits for one that hangs.
    """
    done = threading.Event()

    def watch() -> None:
        while all(process.poll() is None for process in running):
            if done.wait(LOOK_EVERY):
                return
        if not done.wait(END_WITHIN):
            _send((process for process in running if process.poll() is None), signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class _NoLogs(LogsSpecs):
    """The processes write to our own stdout and stderr."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        here = dict.fromkeys(envs, "")
        return LogsDest(stdouts=here, stderrs=here, error_files=dict.fromkeys(envs, os.devnull))

    @property
    def root_log_dir(self) -> str:
        return os.devnull


@contextmanager
def handle_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[list[str]]:
    """Handle Ctrl-C and SIGTERM in a `with` block, unless they were ignored; gives their names."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    ignored = (signal.SIG_IGN, None)  # None: a handler from outside Python, which we cannot restore
    ours = [number for number in STOPPING if before[number] not in ignored]
    for number in ours:
        signal.signal(number, handle)
    try:
        yield [number.name for number in ours]
    finally:
        for number in ours:
            signal.signal(number, before[number])


def raise_signal(number: int, frame: FrameType | None) -> None:
    """A handler that raises SignalException, which torch's agent expects."""
    name = signal.Signals(number).name
    raise SignalException(f"received {name}", signal.Signals(number))
