"""Start the processes of a run on this machine, and start them again after a fault.

    launch(["python", "-m", "clearhead", "train", …], processes=4)

PyTorch's elastic agent, the engine of torchrun, starts the processes and tells each its rank by
environment variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Each machine of a
run has one agent. The agents meet at an address of machine 0, and start again together. These
are the differences from torchrun:

- Only faults that a second attempt can cure start the processes again: one of them was killed,
  raised an unknown error, or lost contact with another.
- Ranks follow the number of the machine, so rank 0, which writes the run, stays on machine 0.
- After a signal the processes have two minutes to save the run. A second signal kills them.
- It prints a sentence for each event instead of a log.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from torch.distributed import Store, TCPStore
from torch.distributed.elastic.agent.server import RunResult, Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs, SubprocessContext
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from clearhead.parallel.faults import (
    LOST,
    STOPPED,
    STOPPING,
    describe_end,
    find_cause,
    find_exit_code,
    is_curable,
)

TIMEOUT = "CLEARHEAD_TIMEOUT"  # seconds that a process waits for another
AGENT = "CLEARHEAD_AGENT"  # process id of the agent; its processes end when it does
SAVE_WITHIN = 120  # seconds that processes have to save after a signal
END = "clearhead/end"  # a key of the store: the exit code of a final error
LEAVE_WITHIN = 5.0  # seconds that machine 0 waits for the others at the end of a run
LOOK_EVERY = 0.05  # seconds between two looks
Tell = Callable[[str], None]


class NoConnection(RendezvousError):
    """The store of the rendezvous cannot be reached."""


def launch(
    command: Sequence[str],
    *,
    processes: int,
    nodes: int = 1,
    node_rank: int = 0,
    rendezvous: str = "localhost:0",
    restarts: int = 3,
    timeout: int = 600,
    tell: Tell = lambda sentence: print(sentence, file=sys.stderr),
) -> int:
    """Run a command in several processes; returns the exit code of the one that ended the run.

    processes: how many on this machine, which is number `node_rank` of `nodes` machines. Each of
    them calls this function with the same rendezvous, "host:port" of machine 0. timeout: the
    seconds that machines and processes wait for one another. Call this function in the main
    thread, because it handles signals.
    """
    _silence_logs()
    settings = {TIMEOUT: str(timeout), AGENT: str(os.getpid())}
    if processes * nodes > 1:
        settings["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    with _handle_signals(_raise_signal) as names, _set_environment(settings):
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ",".join(names)
        try:
            handler = _make_handler(nodes, node_rank, rendezvous, timeout)
            spec = WorkerSpec(
                role="train",
                local_world_size=processes,
                entrypoint=command[0],
                args=tuple(word.replace("$", "$$") for word in command[1:]),  # torch expands ${…}
                rdzv_handler=handler,
                max_restarts=restarts,
                monitor_interval=0.1,
            )
            agent = Agent(spec, node_rank, rendezvous.rpartition(":")[0], tell)
            try:
                return agent.work()
            finally:
                handler.shutdown()
                agent.leave(nodes)
        except SignalException as stop:
            tell(f"stopped by {stop.sigval.name}")
            return 128 + stop.sigval
        except RendezvousTimeoutError:
            tell(f"error: not all {nodes} nodes reached {rendezvous} within {timeout} seconds")
        except NoConnection as fault:
            tell(f"error: {fault}")
        except RendezvousError:
            tell("error: the other nodes have ended")
        return LOST


class Agent(LocalElasticAgent):
    """PyTorch's agent, with our ranks, restarts, signals and sentences."""

    def __init__(self, spec: WorkerSpec, node_rank: int, host: str, tell: Tell) -> None:
        super().__init__(spec, logs_specs=_NoLogs())
        self._shutdown_timeout = SAVE_WITHIN
        self.node_rank, self.host, self.tell = node_rank, host, tell
        self.stopped: dict[int, Any] = {}  # by rank, the processes that a signal has ended

    def work(self) -> int:
        """Run until the processes have ended; returns the exit code."""
        try:
            result = self.run()
        except SignalException as stop:
            return self._explain_stop(stop.sigval)
        except RendezvousClosedError:
            self.tell("error: the other nodes have ended")
            return self._find_end()
        if result is None:  # the other nodes have ended
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
        """Leave the rendezvous. Machine 0 has its store, so it waits for the others to leave."""
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
        """Look at the processes, and decide whether they may start again."""
        running = self._find_running()
        result = super()._monitor_workers(worker_group)  # ends the others if one has failed
        if result.is_failed():
            codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
            rank, code = find_cause(codes, ended_by_us=running)
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
                f"node_rank must be a different number on each node, 0 to {group_world_size - 1}, "
                f"got {', '.join(map(str, numbers))}"
            )
        if set(counts) != {n}:
            given = ", ".join(map(str, counts))
            raise ValueError(f"processes must be the same number on each node, got {given}")
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
            for process in running.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

        with _handle_signals(kill):
            super()._shutdown(*args, **kwargs)
        if received:
            _raise_signal(received[0], None)

    def _find_running(self) -> dict[int, Any]:
        """The processes that have not ended, by rank."""
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        handlers, first = self._pcontext.subprocess_handlers, self._worker_group.workers[0]
        processes = {first.global_rank + i: handler.proc for i, handler in handlers.items()}
        return {rank: process for rank, process in processes.items() if process.poll() is None}


class _NoLogs(LogsSpecs):
    """The processes write to our own stdout and stderr."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        here = dict.fromkeys(envs, "")
        return LogsDest(stdouts=here, stderrs=here, error_files=dict.fromkeys(envs, os.devnull))

    @property
    def root_log_dir(self) -> str:
        return os.devnull


def _make_handler(nodes: int, node_rank: int, rendezvous: str, timeout: int) -> RendezvousHandler:
    """The rendezvous of the agents, in a store on machine 0."""
    parameters = RendezvousParameters(
        "c10d",
        rendezvous,
        "clearhead",
        nodes,
        nodes,
        local_addr="localhost" if nodes == 1 else None,
        is_host=node_rank == 0,
        join_timeout=timeout,
        read_timeout=timeout,
    )
    try:
        return get_rendezvous_handler(parameters)
    except RendezvousError as fault:
        way_out = "take another port" if node_rank == 0 else "start node 0, or correct the address"
        raise NoConnection(f"no connection at {rendezvous}; {way_out}") from fault


def _silence_logs() -> None:
    logger = logging.getLogger("torch.distributed.elastic")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _handle_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[list[str]]:
    """Handle Ctrl-C and SIGTERM in a `with` block, unless they were ignored; gives their names."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    ours = [number for number in STOPPING if before[number] is not signal.SIG_IGN]
    for number in ours:
        signal.signal(number, handle)
    try:
        yield [number.name for number in ours]
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _raise_signal(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    raise SignalException(f"received {name}", signal.Signals(number))
