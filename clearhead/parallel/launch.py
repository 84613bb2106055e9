"""Start the processes of a run on this machine, and start them again after a fault.

    launch(["python", "-m", "clearhead", "train", …], processes=4)

PyTorch's elastic agent, the engine of torchrun, starts the processes and tells each its rank by
environment variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Each machine of a
run has one agent. The agents meet at an address of machine 0, and start again together. These
are the differences from torchrun:

- Only faults that a second attempt can cure start the processes again: one of them was killed,
  raised an unknown error, or lost contact with another.
- Ranks follow the number of the machine, so rank 0, which writes the run, stays on machine 0.
- After a signal the processes have two minutes to save the run, and 10 seconds to end after the
  first of them has. A second signal kills them.
- If machine 0 is lost without a word, the other machines end soon after the time limit.
- It prints a sentence for each event instead of a log.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from torch.distributed.elastic.agent.server import WorkerSpec
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError

from clearhead.parallel.agent import OTHERS_ENDED, Agent, Tell, handle_signals, raise_signal
from clearhead.parallel.faults import LOST
from clearhead.parallel.machines import NoConnection, make_rendezvous, watch_first_machine

# Environment variables of the processes.
TIMEOUT = "CLEARHEAD_TIMEOUT"  # seconds that a process waits for another
AGENT = "CLEARHEAD_AGENT"  # process id of the agent; its processes end when it does


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

    processes: how many on this machine, which is number `node_rank` of `nodes` machines. Each
    machine calls this function with the same rendezvous, "host:port" of machine 0. timeout: the
    seconds that machines and processes wait for one another. Call this function in the main
    thread, because it handles signals.
    """
    _silence_logs()
    settings = {TIMEOUT: str(timeout), AGENT: str(os.getpid())}
    if processes * nodes > 1:
        settings["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    with handle_signals(raise_signal) as names, _set_environment(settings):
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ",".join(names)
        try:
            handler = make_rendezvous(nodes, node_rank, rendezvous, timeout)
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
            watch = watch_first_machine(rendezvous, timeout, agent.end_at_once)
            with watch if node_rank > 0 else nullcontext():
                try:
                    return agent.work()
                finally:
                    handler.shutdown()
                    agent.leave(nodes)
        except SignalException as stop:
            tell(f"stopped by {stop.sigval.name}")
            return 128 + stop.sigval
        except RendezvousTimeoutError:
            tell(f"error: not all {nodes} machines reached {rendezvous} within {timeout} seconds")
        except NoConnection as fault:
            tell(f"error: {fault}")
        except RendezvousError:
            tell(OTHERS_ENDED)
        return LOST


def _silence_logs() -> None:
    """Drop what torch's agent logs: our sentences take its place."""
    logger = logging.getLogger("torch.distributed.elastic")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """In a `with` block, set these variables; its end also undoes all other changes."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
