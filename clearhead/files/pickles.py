"""A pickle read as a list of facts: nothing in it is run.

A pickle is a program for a small machine with a stack. Most instructions put a value on the stack;
GLOBAL fetches any Python object by its name and REDUCE calls it, which is how a data file can run a
command. The python batches of CIFAR-10 need both, for one NumPy array. Here a name stays a word,
and a call stays a note of what would have been called with what:

    read_pickle(data, "data_batch_1")[b"labels"]             # a list of numbers
    read_byte_table(read_pickle(…)[b"data"], "data_batch_1")      # (N, 3072), from the note

The machine knows the instructions that Python 2 writes for such a dictionary (protocol 2), and four
names. Any other instruction or name is refused, and the file with it.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.files.reading import BadFile, quote

NAMES = {
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
}
MOST_STEPS = 1_000_000  # an official batch has about 30,000


@dataclass(frozen=True)
class Name:
    """The name of something in a Python module, as a word."""

    word: str


@dataclass(eq=False)
class Call:
    """A call that nobody makes: what, with what, and the state the result would be given."""

    name: Name
    arguments: tuple[Any, ...]
    state: Any = None


def read_pickle(data: bytes, file: str) -> Any:
    """The one value that the pickle describes, of plain types, Name and Call; file: for errors."""
    return _Machine(data, file).run()


def read_byte_table(value: Any, file: str) -> NDArray[np.uint8]:
    """The table of bytes that a Call describes, (rows, columns); file: for errors."""
    match value:
        case Call(Name(maker), _, (1, (int(rows), int(columns)), Call(kind, code), False, data)):
            described = (maker.rpartition(".")[2], kind.word, code[:1])
            bytes_of_numpy = described == ("_reconstruct", "numpy.dtype", (b"u1",))
            whole = type(data) is bytes and rows > 0 and rows * columns == len(data)
            if bytes_of_numpy and whole:
                return np.frombuffer(data, np.uint8).reshape(rows, columns)
    raise BadFile(f"{file} has no whole table of bytes where one belongs; nothing in it was run")


class _Machine:
    """The stack, the marks on it, the values put aside, and the place in the file."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data, self.file, self.place = data, file, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.aside: dict[int, Any] = {}

    def run(self) -> Any:
        if self.take(2) != b"\x80\x02":
            raise self.bad("is no pickle of protocol 2, which the official batches are")
        for _ in range(MOST_STEPS):
            code = self.take(1)
            if code == b".":
                return self.result()
            if code not in STEPS:
                raise self.bad(f"has the instruction {code!r}, which no batch of CIFAR-10 contains")
            STEPS[code](self)
        raise self.bad(f"has more than {MOST_STEPS:,} instructions")

    def result(self) -> Any:
        value = self.pop()
        if self.stack or self.marks or self.place != len(self.data):
            raise self.bad("goes on where it should end")
        return value

    def bad(self, fault: str) -> BadFile:
        return BadFile(f"{self.file} {fault} (byte {self.place:,}); nothing in it was run")

    # What the file gives

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if n < 0 or n > len(self.data) - self.place:
            raise self.bad(f"is cut off: {n:,} bytes should follow")
        self.place += n
        return self.data[self.place - n : self.place]

    def number(self, form: str) -> int:
        """The next whole number, in a form of the struct module."""
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def line(self) -> str:
        """The rest of a line of at most 80 characters, as it may be shown."""
        end = self.data.find(b"\n", self.place, self.place + 81)
        if end < 0:
            raise self.bad("has a name that does not end")
        return self.take(end + 1 - self.place)[:-1].decode("latin-1")

    # What the stack gives

    def pop(self, kind: type | None = None) -> Any:
        """The value on top, which must be of this kind."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.bad("takes a value that is not there")
        value = self.stack.pop()
        if kind is not None and type(value) is not kind:
            raise self.bad(f"has {_kind(value)} where {kind.__name__} belongs")
        return value

    def pop_several(self, n: int) -> list[Any]:
        return [self.pop() for _ in range(n)][::-1]

    def pop_to_mark(self) -> list[Any]:
        """All values above the last mark."""
        if not self.marks:
            raise self.bad("looks for a mark that is not there")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    # The instructions that do more than put a value on the stack

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def put_aside(self, number: int) -> None:
        self.aside[number] = self.pop()
        self.stack.append(self.aside[number])

    def bring_back(self, number: int) -> None:
        if number not in self.aside:
            raise self.bad(f"brings back value {number}, which was never put aside")
        self.stack.append(self.aside[number])

    def append(self, values: list[Any]) -> None:
        target = self.pop(list)
        target.extend(values)
        self.stack.append(target)

    def set_items(self, pairs: list[Any]) -> None:
        target = self.pop(dict)
        if len(pairs) % 2:
            raise self.bad("has a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) is not bytes or key in target:
                raise self.bad(f"has {_kind(key)} as a key, or a key twice")
            target[key] = value
        self.stack.append(target)

    def name(self) -> None:
        word = f"{self.line()}.{self.line()}"
        if word not in NAMES:
            raise self.bad(f"names {quote(word)}, which no batch of CIFAR-10 needs")
        self.stack.append(Name(word))

    def call(self) -> None:
        arguments = self.pop(tuple)
        self.stack.append(Call(self.pop(Name), arguments))

    def give_state(self) -> None:
        state, made = self.pop(tuple), self.pop(Call)
        made.state = state
        self.stack.append(made)


def _kind(value: Any) -> str:
    return value.word if isinstance(value, Name) else type(value).__name__


def _push(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(value(m))


STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"N": _push(lambda m: None),
    b"\x88": _push(lambda m: True),
    b"\x89": _push(lambda m: False),
    b"K": _push(lambda m: m.number("<B")),
    b"M": _push(lambda m: m.number("<H")),
    b"J": _push(lambda m: m.number("<i")),
    b"U": _push(lambda m: m.take(m.number("<B"))),
    b"T": _push(lambda m: m.take(m.number("<i"))),
    b"]": _push(lambda m: []),
    b"}": _push(lambda m: {}),
    b")": _push(lambda m: ()),
    b"\x85": _push(lambda m: tuple(m.pop_several(1))),
    b"\x86": _push(lambda m: tuple(m.pop_several(2))),
    b"\x87": _push(lambda m: tuple(m.pop_several(3))),
    b"t": _push(lambda m: tuple(m.pop_to_mark())),
    b"(": _Machine.mark,
    b"q": lambda m: m.put_aside(m.number("<B")),
    b"r": lambda m: m.put_aside(m.number("<I")),
    b"h": lambda m: m.bring_back(m.number("<B")),
    b"j": lambda m: m.bring_back(m.number("<I")),
    b"a": lambda m: m.append(m.pop_several(1)),
    b"e": lambda m: m.append(m.pop_to_mark()),
    b"s": lambda m: m.set_items(m.pop_several(2)),
    b"u": lambda m: m.set_items(m.pop_to_mark()),
    b"c": _Machine.name,
    b"R": _Machine.call,
    b"b": _Machine.give_state,
}
