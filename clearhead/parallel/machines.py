"""How the machines of a run meet: their agents wait for one another at a store on machine 0.

If machine 0 is lost without a word, as when the network is cut, torch would wait for its store for
a quarter of an hour and more. So each other machine also asks the store every second, over a
connection of its own, and ends its agent if there is no answer within the time limit and 20 more
seconds.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from torch.distributed import Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from clearhead.parallel.signs import ANSWER_WITHIN, ask_store

ASK_EVERY = 1.0  # seconds between two questions


class NoConnection(RendezvousError):
    """The store of the rendezvous cannot be reached."""


def make_rendezvous(
    nodes: int, node_rank: int, rendezvous: str, timeout: float
) -> RendezvousHandler:
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
        way_out = "take another port"
        if node_rank > 0:
            way_out = "start the command on machine 0, or correct --rendezvous"
        raise NoConnection(f"no connection at {rendezvous}; {way_out}") from fault


@contextmanager
def watch_first_machine(
    rendezvous: str, timeout: float, end: Callable[[str], None]
) -> Iterator[None]:
    """In a `with` block, call `end` with a sentence if machine 0 does not answer for too long.

    `end` is called once, in a thread, a little later than after `timeout` seconds. So the processes
    of this machine can name the cause first.
    """
    limit, done = timeout + 2 * ANSWER_WITHIN, threading.Event()
    store = _connect(rendezvous, timeout)

    def watch() -> None:
        while not done.wait(ASK_EVERY):
            if not ask_store(lambda: _ask(store), otherwise=False, seconds=limit):
                end(
                    f"error: machine 0 at {rendezvous} has not answered for {limit:g} seconds: it "
                    f"has stopped, or the network is cut; the same command resumes the run"
                )
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(2 * ASK_EVERY)


def _connect(rendezvous: str, timeout: float) -> Store:
    """A connection of its own to the store of the rendezvous."""
    host, _, port = rendezvous.rpartition(":")
    limit = timedelta(seconds=timeout)
    try:
        return TCPStore(host, int(port), timeout=limit, wait_for_workers=False)
    except RuntimeError as fault:
        raise NoConnection(f"no connection at {rendezvous} any more") from fault


def _ask(store: Store) -> bool:
    """Ask the store. Also True after an error: the agent notices a closed connection itself."""
    with suppress(RuntimeError):
        store.check(["clearhead"])
    return True
