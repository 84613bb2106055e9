"""The output of a command: results go to stdout, everything else to stderr.

Both streams exist even if the caller closed them, and replace characters that the terminal cannot
show. A result that cannot be written is an error. A note that cannot be written is not: stderr
becomes silent, and the command ends with the exit code it would have had.
"""

import io
import os
import sys
from typing import Any, TextIO


class Notes:
    """stderr, for notes beside the result: becomes silent once it cannot be written to."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError:
            self.stream = open(os.devnull, "w")  # noqa: SIM115  # open until the end
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError:
            self.stream = open(os.devnull, "w")  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def prepare_streams() -> None:
    """Prepare the streams of this process for a command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller; print would use the other one
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without √ shows ?
    if not isinstance(sys.stderr, Notes):
        sys.stderr = Notes(sys.stderr)
