"""How the processes of a run meet: at a store, which is torchrun's small server of keys and values.

After a fault torchrun starts all processes again, with the same store (clearhead launch makes a new
one). The store still holds the keys of the processes that have ended, such as their addresses. So
the processes of each attempt first agree on a new random word, the prefix of all later keys:

    each rank    writes a random word of its own
    rank 0       reads the words of all ranks and writes them to the store as a list, again and
                 again, until all have answered
    the others   answer when the list contains their own word: then it is not an old list

The word of rank 0 becomes the prefix.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from clearhead.runtime import Place

DEFAULT_TIMEOUT = 600.0  # seconds, unless CLEARHEAD_TIMEOUT is set
LOOK_EVERY = 0.02  # seconds between two questions to the store


class NoAnswer(RuntimeError):
    """Another process of the run has ended or does not answer."""


def meet(place: Place, seconds: float) -> dist.Store:
    """Wait until all processes are there; returns the store of this attempt."""
    if place.size == 1 and "MASTER_ADDR" not in os.environ:
        return dist.HashStore()
    with explain_absence(None, place.size, seconds):
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=seconds)))
    return agree_on_word(store, place, seconds)


def agree_on_word(store: dist.Store, place: Place, seconds: float) -> dist.Store:
    """Agree on a prefix that only this attempt has; returns the store with this prefix."""
    own, others = secrets.token_hex(8), range(1, place.size)
    limit = time.monotonic() + seconds
    store.set(f"word/{place.rank}", own)
    new_store = dist.PrefixStore(own, store)
    if place.rank == 0:
        new_store.set("here/0", "")
        with explain_absence(new_store, place.size, seconds):
            while not all(new_store.check([f"here/{rank}"]) for rank in others):
                words = [read_key(store, f"word/{rank}").decode() for rank in range(place.size)]
                store.set("words", json.dumps(words))
                _wait_a_little(limit)
        return new_store
    with explain_absence(None, place.size, seconds):
        while own not in (words := json.loads(read_key(store, "words") or "[]")):
            _wait_a_little(limit)
    new_store = dist.PrefixStore(words[0], store)
    new_store.set(f"here/{place.rank}", "")
    return new_store


def _wait_a_little(limit: float) -> None:
    """Wait until the next question to the store; an error if the time is over."""
    if time.monotonic() > limit:
        raise RuntimeError("nobody answered")
    time.sleep(LOOK_EVERY)


def read_key(store: dist.Store, key: str) -> bytes:
    """The value of a key; empty if there is none."""
    return bytes(store.get(key)) if store.check([key]) else b""


@contextmanager
def explain_absence(store: dist.Store | None, size: int, seconds: float) -> Iterator[None]:
    """Turn an error in this `with` block into NoAnswer, which names the ranks that did not come.

    store: where each rank writes "here/rank". Without it, rank 0 is named: its machine has the
    store.
    """
    try:
        yield
    except RuntimeError as fault:
        absent = "rank 0"
        if store is not None:
            with suppress(RuntimeError):
                missing = [str(r) for r in range(size) if not store.check([f"here/{r}"])]
                word = "rank" if len(missing) == 1 else "ranks"
                absent = f"{word} {', '.join(missing)}" if missing else "the others"
        raise NoAnswer(
            f"{absent} of {size} could not be reached within {seconds:g} s "
            f"({str(fault).splitlines()[0]:.200})"
        ) from None


def read_timeout() -> float:
    """How many seconds a process waits for another: CLEARHEAD_TIMEOUT, or DEFAULT_TIMEOUT."""
    text = os.environ.get("CLEARHEAD_TIMEOUT", "")
    try:
        seconds = float(text or DEFAULT_TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86400:
        raise ValueError(
            f"CLEARHEAD_TIMEOUT must be a number of seconds from 1 to 86400, got {text!r:.80}"
        )
    return seconds
