"""Pickles read without running them.

A pickle is a program for a small stack machine. Most instructions push a value; GLOBAL looks up any
Python object by its name and REDUCE calls it, so unpickling a data file can run a command. The
Python batches of CIFAR-10 need both, for one NumPy array. Here a name stays a string, and a call
stays a record of what would have been called with which arguments:

    read_pickle(data, "data_batch_1")[b"labels"]                # a list of numbers
    read_byte_table(read_pickle(…)[b"data"], "data_batch_1")    # (N, 3072), from the record

The machine knows the instructions that Python 2 writes for such a dictionary (protocol 2), and four
names. Any other instruction or name refuses the file.
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
MAX_INSTRUCTIONS = 1_000_000  # an official batch has about 30,000


@dataclass(frozen=True)
class Name:
    """The name of an object in a Python module, as a string."""

    word: str


@dataclass(eq=False)
class Call:
    """A call that is never made: its name, its arguments, and the state its result would get."""

    name: Name
    arguments: tuple[Any, ...]
    state: Any = None


def read_pickle(data: bytes, file: str) -> Any:
    """The value of a pickle, as plain types, Name and Call. Error messages start with `file`."""
    return _Machine(data, file).run()


def read_byte_table(value: Any, file: str) -> NDArray[np.uint8]:
    """The table of bytes a Call describes, (rows, columns); `file` starts errors."""
    match value:
        case Call(Name(maker), _, (1, (int(rows), int(columns)), Call(kind, code), False, data)):
            described = (maker.rpartition(".")[2], kind.word, code[:1])
            is_of_bytes = described == ("_reconstruct", "numpy.dtype", (b"u1",))
            is_complete = type(data) is bytes and rows > 0 and rows * columns == len(data)
            if is_of_bytes and is_complete:
                return np.frombuffer(data, np.uint8).reshape(rows, columns)
    raise BadFile(f"{file} has no complete table of bytes where one belongs; nothing in it was run")


class _Machine:
    """The stack, the marks on it, the memo of stored values, and the position in the file."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data, self.file, self.position = data, file, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        if self.read(2) != b"\x80\x02":
            raise self.error("is not a pickle of protocol 2, which the official batches are")
        for _ in range(MAX_INSTRUCTIONS):
            code = self.read(1)
            if code == b".":
                return self.finish()
            if code not in INSTRUCTIONS:
                raise self.error(
                    f"has the instruction {code!r}, which no batch of CIFAR-10 contains"
                )
            INSTRUCTIONS[code](self)
        raise self.error(f"has more than {MAX_INSTRUCTIONS:,} instructions")

    def finish(self) -> Any:
        value = self.pop()
        if self.stack or self.marks or self.position != len(self.data):
            raise self.error("continues after its end")
        return value

    def error(self, fault: str) -> BadFile:
        return BadFile(f"{self.file} {fault} (byte {self.position:,}); nothing in it was run")

    # Reading the file

    def read(self, n: int) -> bytes:
        """The next n bytes."""
        if n < 0 or n > len(self.data) - self.position:
            raise self.error(f"is cut off: {n:,} bytes should follow")
        self.position += n
        return self.data[self.position - n : self.position]

    def read_number(self, form: str) -> int:
        """The next whole number, in a format of the struct module."""
        value: int = struct.unpack(form, self.read(struct.calcsize(form)))[0]
        return value

    def read_line(self) -> str:
        """The rest of a line of at most 80 characters."""
        end = self.data.find(b"\n", self.position, self.position + 81)
        if end < 0:
            raise self.error("has a name that does not end")
        return self.read(end + 1 - self.position)[:-1].decode("latin-1")

    # Taking values off the stack

    def pop(self, kind: type | None = None) -> Any:
        """The value on top, which must be of this kind."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self.error("takes a value that is not there")
        value = self.stack.pop()
        if kind is not None and type(value) is not kind:
            raise self.error(f"has {_name_kind(value)} where {kind.__name__} belongs")
        return value

    def pop_several(self, n: int) -> list[Any]:
        return [self.pop() for _ in range(n)][::-1]

    def pop_to_mark(self) -> list[Any]:
        """All values above the last mark."""
        if not self.marks:
            raise self.error("looks for a mark that is not there")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    # Instructions that do more than push a value

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def store(self, number: int) -> None:
        self.memo[number] = self.pop()
        self.stack.append(self.memo[number])

    def recall(self, number: int) -> None:
        if number not in self.memo:
            raise self.error(f"recalls value {number}, which was never stored")
        self.stack.append(self.memo[number])

    def append(self, values: list[Any]) -> None:
        target = self.pop(list)
        target.extend(values)
        self.stack.append(target)

    def set_items(self, pairs: list[Any]) -> None:
        target = self.pop(dict)
        if len(pairs) % 2:
            raise self.error("has a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) is not bytes or key in target:
                raise self.error(f"has {_name_kind(key)} as a key, or a key twice")
            target[key] = value
        self.stack.append(target)

    def push_name(self) -> None:
        word = f"{self.read_line()}.{self.read_line()}"
        if word not in NAMES:
            raise self.error(f"names {quote(word)}, which no batch of CIFAR-10 needs")
        self.stack.append(Name(word))

    def push_call(self) -> None:
        arguments = self.pop(tuple)
        self.stack.append(Call(self.pop(Name), arguments))

    def set_state(self) -> None:
        state, call = self.pop(tuple), self.pop(Call)
        call.state = state
        self.stack.append(call)


def _name_kind(value: Any) -> str:
    return value.word if isinstance(value, Name) else type(value).__name__


def _push(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(value(m))


INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"N": _push(lambda m: None),
    b"\x88": _push(lambda m: True),
    b"\x89": _push(lambda m: False),
    b"K": _push(lambda m: m.read_number("<B")),
    b"M": _push(lambda m: m.read_number("<H")),
    b"J": _push(lambda m: m.read_number("<i")),
    b"U": _push(lambda m: m.read(m.read_number("<B"))),
    b"T": _push(lambda m: m.read(m.read_number("<i"))),
    b"]": _push(lambda m: []),
    b"}": _push(lambda m: {}),
    b")": _push(lambda m: ()),
    b"\x85": _push(lambda m: tuple(m.pop_several(1))),
    b"\x86": _push(lambda m: tuple(m.pop_several(2))),
    b"\x87": _push(lambda m: tuple(m.pop_several(3))),
    b"t": _push(lambda m: tuple(m.pop_to_mark())),
    b"(": _Machine.mark,
    b"q": lambda m: m.store(m.read_number("<B")),
    b"r": lambda m: m.store(m.read_number("<I")),
    b"h": lambda m: m.recall(m.read_number("<B")),
    b"j": lambda m: m.recall(m.read_number("<I")),
    b"a": lambda m: m.append(m.pop_several(1)),
    b"e": lambda m: m.append(m.pop_to_mark()),
    b"s": lambda m: m.set_items(m.pop_several(2)),
    b"u": lambda m: m.set_items(m.pop_to_mark()),
    b"c": _Machine.push_name,
    b"R": _Machine.push_call,
    b"b": _Machine.set_state,
}
