"""The output of a command: results go to stdout, everything else to stderr.

Both streams exist even if the caller closed them, and replace characters that the terminal cannot
show. A result that cannot be written is an error. A note that cannot be written is not: stderr
becomes silent, and the command ends with the exit code it would have had.

Names, samples and generated texts may hold control characters, by which a terminal can be made to
hide lines, rename its window or type commands. Both streams write them as \\u001b; only newlines
and tabs pass. Our own progress bars use `find_raw`. `--json` has the exact text in any case.
"""

import io
import os
import re
import sys
from typing import Any, TextIO

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0 without \t and \n, DEL, and C1


def escape_controls(text: str) -> str:
    """Replace each control character by its escape as in JSON, so JSON keeps its meaning."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Escaped:
    """A stream without control characters."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(escape_controls(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # typer would write around us to a stream in ASCII
            raise AttributeError(name)
        return getattr(self.stream, name)


def find_raw(stream: Any) -> Any:
    """The stream below, for control characters of our own."""
    return stream.stream if isinstance(stream, Escaped) else stream


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
    if not isinstance(sys.stderr, Escaped):
        sys.stderr = Escaped(Notes(sys.stderr))
    if not isinstance(sys.stdout, Escaped):
        sys.stdout = Escaped(sys.stdout)
