"""Where a command writes: results to stdout, all else to stderr.

No stream is missing, and none fails for want of a letter. A result that cannot be written is a
fault. A note that nobody reads is none: stderr falls silent, and what the command does, and the
code with which it ends, stay as they are.
"""

import io
import os
import sys
from typing import Any, TextIO


class Notes:
    """A stream that becomes silent when it can no longer be written to."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError:
            self.stream = open(os.devnull, "w")  # noqa: SIM115  # as long as we run
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError:
            self.stream = open(os.devnull, "w")  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def prepare_streams() -> None:
    """Make the streams of this process such as a command needs."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called; print would take the other one
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without √ shows ?
    if not isinstance(sys.stderr, Notes):
        sys.stderr = Notes(sys.stderr)
