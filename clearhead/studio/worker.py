"""The process that holds the models and answers questions, one step at a time.

    python -m clearhead.studio.worker '{"paths": ["runs/substring-0001"], "lecture": true}'

Messages to it, on standard input: the length (4 bytes), then JSON.

    {"id": 7, "question": "attend", "arguments": {…}}       answer this question
    {"cancel": 7}                                           nobody waits for the answer any more

Messages from it, on standard output: the length (4 bytes), the id (4 bytes), one letter, the bytes.

    r  ready, once, with id 0            p  one answer of a stream
    d  the only answer, or empty at the end of a stream and of a cancelled question
    e  an error, as JSON: "error", "status", and for a bug the traceback as "log"

All streams take turns, and a new question is answered before the next step of a stream. So a long
text does not keep others waiting. A cancelled question ends where a part of a model, such as a
layer, would begin its next call: before every call, torch asks the worker (stop_cancelled) whether
anyone still waits. The process ends when its standard input does.
"""

import json
import os
import queue
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import GeneratorType
from typing import TYPE_CHECKING, Any, BinaryIO

from clearhead.files.reading import BadFile
from clearhead.studio.arguments import read_arguments
from clearhead.studio.frames import encode_answer
from clearhead.studio.questions import find_question

if TYPE_CHECKING:
    from clearhead.studio.sources import Sources

HEADER = struct.Struct("<IIc")  # length of what follows, id, letter
NO_MEMORY = (
    "this question needs more memory than is free; shorten its input, or use a smaller model"
)
PACKAGE = str(Path(__file__).parents[1])


class CancelledError(BaseException):
    """Nobody waits for the answer. A BaseException, so that no `except Exception` catches it."""


class Worker:
    """Answers the questions in its inbox. active: streams that have not ended, by id.

    current: the question that is being answered. cancelled: questions whose cancellation waits in
    the inbox.
    """

    def __init__(self, sources: "Sources", output: BinaryIO) -> None:
        self.sources, self.output = sources, output
        self.inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.active: dict[int, Iterator[Any]] = {}
        self.current: int | None = None
        self.cancelled: set[int] = set()

    def run(self) -> None:
        """Answer until the inbox ends."""
        self.write(0, b"r", b"")
        while True:
            while not (self.inbox.empty() and self.active):  # waits only if nothing is active
                message = self.inbox.get()
                if message is None:
                    return
                self.receive(message)
            for id in list(self.active):
                self.step(id)

    def put(self, message: dict[str, Any] | None) -> None:
        """Add a message to the inbox; None ends it. Called by the thread that reads messages."""
        if message is not None and "cancel" in message:
            self.cancelled.add(message["cancel"])  # seen at once; the inbox may have to wait
        self.inbox.put(message)

    def stop_cancelled(self) -> None:
        """Raise CancelledError if the question that is being answered has been cancelled."""
        if self.current in self.cancelled:
            raise CancelledError

    def receive(self, message: dict[str, Any]) -> None:
        """Answer a question at once, or begin its stream; or cancel one."""
        if "cancel" in message:
            id = message["cancel"]
            self.end(id)
            self.cancelled.discard(id)
            self.write(id, b"d", b"")  # the server waits for this confirmation
            return
        with self.begin(message["id"]) as id:
            function = find_question(message["question"])
            answer = function(self.sources, **read_arguments(function, message["arguments"]))
            if isinstance(answer, GeneratorType):
                self.active[id] = answer
            else:
                self.write(id, b"d", encode_answer(answer))

    def step(self, id: int) -> None:
        """Send the next answer of a stream."""
        with self.begin(id):
            try:
                self.write(id, b"p", encode_answer(next(self.active[id])))
            except StopIteration:
                self.end(id)
                self.write(id, b"d", b"")

    @contextmanager
    def begin(self, id: int) -> Iterator[int]:
        """Work on one question inside a `with`. An error is its answer, and ends its stream."""
        self.current = id
        try:
            yield id
        except CancelledError:  # the cancellation is in the inbox and will be confirmed
            self.end(id)
        except Exception as fault:
            self.end(id)
            self.write(id, b"e", describe_fault(fault))
        finally:
            self.current = None

    def end(self, id: int) -> None:
        """Close a stream; an id that is unknown or already answered changes nothing."""
        stream: Any = self.active.pop(id, None)
        if stream is not None:
            stream.close()

    def write(self, id: int, letter: bytes, data: bytes) -> None:
        """Send one message: the id of its question, its letter, its data."""
        self.output.write(HEADER.pack(len(data) + 5, id, letter) + data)
        self.output.flush()


def describe_fault(fault: Exception) -> bytes:
    """An error as JSON: 400 for a wrong input, 503 for a file that cannot be read, else 500.

    An error with a status of its own keeps it.
    """
    status = getattr(fault, "status", 503 if isinstance(fault, BadFile | OSError) else 400)
    sentence = str(fault.args[0]) if isinstance(fault, KeyError) and fault.args else str(fault)
    error: dict[str, Any] = {"error": sentence, "status": status}
    if not is_refusal(fault):
        words = "this question failed; the terminal of the studio shows why"
        words = NO_MEMORY if is_out_of_memory(fault) else words
        error = {"error": words, "status": 500, "log": traceback.format_exc()}
    return json.dumps(error).encode()


def is_out_of_memory(fault: Exception) -> bool:
    """Whether memory was missing; torch then raises a RuntimeError with these words."""
    words = ("can't allocate memory", "out of memory")
    is_of_torch = isinstance(fault, RuntimeError) and any(each in str(fault) for each in words)
    return isinstance(fault, MemoryError) or is_of_torch


def is_refusal(fault: Exception) -> bool:
    """Whether an error refuses an input; any other error is a bug.

    TypeError, KeyError and IndexError are refusals if a line `raise …` of this package raised them.
    They are bugs if an operation raised them, such as reading a list at an index it does not have.
    """
    if isinstance(fault, ValueError | OSError):
        return True
    origin = traceback.extract_tb(fault.__traceback__)[-1]
    is_raised = origin.filename.startswith(PACKAGE) and (origin.line or "").startswith("raise ")
    return isinstance(fault, TypeError | LookupError) and is_raised


def read_messages(input: BinaryIO, worker: Worker) -> None:
    """Put every message into the inbox; None at the end."""
    while len(head := input.read(4)) == 4:
        (length,) = struct.unpack("<I", head)
        worker.put(json.loads(input.read(length)))
    worker.put(None)


def main() -> None:
    """Answer until standard input ends."""
    settings = json.loads(sys.argv[1])
    # Standard output carries the answers, so what a library prints goes to the terminal.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from torch.nn.modules.module import register_module_forward_pre_hook

    from clearhead.runtime import set_threads
    from clearhead.studio.sources import Sources

    set_threads(settings.pop("threads", "auto"))
    worker = Worker(Sources(**settings), output)
    register_module_forward_pre_hook(lambda module, inputs: worker.stop_cancelled())
    threading.Thread(target=read_messages, args=(sys.stdin.buffer, worker), daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main()
