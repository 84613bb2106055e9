"""Open a file only after checking it: BadFile instead of a hang, a traceback or a full memory.

Only a regular file up to a given size is opened; a folder, a pipe or a device is refused in one
sentence. Every reader of the package raises `BadFile` for content it cannot use.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

ANY_SIZE = (1 << 63) - 1  # a max_bytes for files that are read part by part
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends


class BadFile(ValueError):
    """A file that cannot be used; the message names the file and the fault."""


def quote(path: object) -> str:
    """A path, or a name found in a file, as one short printable line for a message."""
    text = os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path)
    text = text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"
    return text if text.isprintable() else repr(text)


@contextmanager
def prefix_errors(path: object) -> Iterator[None]:
    """Errors about a file's content start with its name: TypeError, ValueError → BadFile."""
    try:
        yield
    except BadFile:
        raise
    except (TypeError, ValueError) as reason:
        raise BadFile(f"{quote(path)}: {reason}") from None


def open_regular(path: str | os.PathLike[str], max_bytes: int) -> BinaryIO:
    """Open a regular file for reading; BadFile if it is missing, of another kind or too large."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except FileNotFoundError:
        raise BadFile(f"{quote(path)} is not there") from None
    except ValueError:
        raise BadFile(f"{quote(path)} cannot be opened: its name holds a NUL character") from None
    except OSError as reason:
        words = reason.strerror or str(reason)
        raise BadFile(f"{quote(path)} cannot be opened: {words.lower()}") from None
    try:
        check_regular(path, os.fstat(number), max_bytes)
        return open(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_bytes(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """All bytes of a regular file of at most max_bytes."""
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1)
    if len(data) != size:
        raise BadFile(f"{quote(path)} changed while it was read; try again")
    return data


def check_regular(path: object, found: os.stat_result, max_bytes: int) -> None:
    """Refuse anything but a regular file of at most max_bytes; found: its os.stat."""
    if stat.S_ISDIR(found.st_mode):
        raise BadFile(f"{quote(path)} is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(f"{quote(path)} is not a regular file but a pipe, socket or device")
    if found.st_size > max_bytes:
        raise BadFile(
            f"{quote(path)} has {found.st_size:,} bytes, more than the {max_bytes:,} read here"
        )
