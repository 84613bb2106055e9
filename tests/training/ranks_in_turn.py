"""Several ranks in one process: threads that take turns, and change over at every exchange.

No two ranks run at once, so what they draw from torch's generator is disturbed in the same way at
every run. A rank that needs an undisturbed generator between exchanges is found out.
"""

import json
import threading

from clearhead.training.chunks import add_tree
from clearhead.training.group import Group, Stop


class Table:
    """Where the ranks put their values and wait for one another."""

    def __init__(self, size):
        self.size, self.turn, self.rounds = size, 0, {}
        self.changed, self.fault = threading.Condition(), None

    def wait_for_turn(self, rank):
        with self.changed:
            assert self.changed.wait_for(lambda: self.turn == rank or self.fault, 60)
            if self.fault:
                raise RuntimeError("another rank has failed")

    def pass_on(self, rank):
        with self.changed:
            self.turn = (rank + 1) % self.size
            self.changed.notify_all()

    def exchange(self, rank, number, value):
        """The values of all ranks in their exchange of this number."""
        values = self.rounds.setdefault(number, {})
        values[rank] = value
        self.pass_on(rank)
        self.wait_for_turn(rank)
        assert len(values) == self.size, "the ranks exchange different things"
        return [values[r] for r in range(self.size)]


class InTurn(Group):
    """A rank of several that share a table."""

    def __init__(self, rank, table):
        self.rank, self.size, self.table, self.n_exchanges = rank, table.size, table, 0

    def exchange(self, kind, value):
        self.n_exchanges += 1
        given = self.table.exchange(self.rank, self.n_exchanges, (kind, value))
        assert {each for each, _ in given} == {kind}
        return [value for _, value in given]

    def add_up(self, parts, n, length):
        copies = {span: part.clone() for span, part in parts.items()}
        assert all(len(part) == length for part in copies.values())
        known = {}
        for given in self.exchange("add_up", copies):
            assert not known.keys() & given.keys()
            known |= {span: part.clone() for span, part in given.items()}
        return add_tree((0, n), known.get)

    def any(self, flag):
        return any(self.exchange("any", flag))

    def ask_first(self, question):
        answer, stop = None, False
        if self.rank == 0:
            try:
                answer = json.dumps(question())
            except Stop:
                stop = True
        answer, stop = self.exchange("ask_first", (answer, stop))[0]
        if stop:
            raise Stop
        return json.loads(answer)

    def copy_first(self, tensors):
        given = self.exchange("copy_first", [tensor.clone() for tensor in tensors])[0]
        for tensor, value in zip(tensors, given, strict=True):
            tensor.copy_(value)

    def wait(self):
        self.exchange("wait", None)


def run_ranks(size, work):
    """The results of work(group) on each of several ranks."""
    table, results, faults = Table(size), {}, []

    def run(rank):
        try:
            table.wait_for_turn(rank)
            results[rank] = work(InTurn(rank, table))
        except BaseException as fault:
            with table.changed:
                faults.append(fault)
                table.fault = fault
                table.changed.notify_all()
        else:
            table.pass_on(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return [results[rank] for rank in range(size)]
