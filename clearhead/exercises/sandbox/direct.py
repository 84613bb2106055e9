"""A worker inside this process: no sandbox at all, for code of one's own and for tests.

It answers the same requests and sends everything through the same frames, so a verdict is the same
as with a process of its own.
"""

import sys
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

from clearhead.exercises.sandbox import frames
from clearhead.exercises.sandbox.supervisor import read_reply


class DirectSession:
    """Requests answered here; a loop without end is not stopped."""

    def __init__(self) -> None:
        self.student = _worker().Student()

    def request(self, do: str, **values: Any) -> Any:
        """Send a request and read its answer."""
        request = frames.read(BytesIO(frames.pack({"number": 1, "do": do, **values})).read)
        reply = frames.read(BytesIO(_worker().answer(self.student, request)).read)
        return read_reply(reply, 1)


def open_direct() -> DirectSession:
    """A worker inside this process."""
    return DirectSession()


@cache
def _worker() -> ModuleType:
    """worker.py, imported as it is in its own process: by path, beside frames.py."""
    folder = str(Path(__file__).parent)
    sys.modules.setdefault("frames", frames)
    sys.path.insert(0, folder)
    try:
        return import_module("worker")
    finally:
        sys.path.remove(folder)
