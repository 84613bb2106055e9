"""What a run has written since one last looked, while it may still be training.

    follower = Follower(RunFolder("runs/substring-0001"))
    follower.read_metrics()        News(start=0, items=[{"step": 20, "loss": 0.69, …}, …])
    follower.read_metrics()        News(start=40, items=[…])     None if there is nothing new

`start` is the index of the first new item. It is less than the number of items so far if a run that
resumed has cut off some of them: the reader forgets its items from `start` on.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from clearhead.files.reading import BadFile, open_regular
from clearhead.runs.folder import MAX_METRICS, METRICS, SAMPLES, RunFolder, read_metrics_line

TAIL = 4096  # bytes before the place reached, compared to see whether the file was cut back


@dataclass(frozen=True)
class News:
    """Items to put in the place of those from `start` on."""

    start: int
    items: list[Any]


class Follower:
    """Reads metrics.jsonl from where it stopped, and samples.txt when it changes."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._place, self._tail, self._n_lines = 0, b"", 0
        self._samples: list[tuple[str, str]] = []
        self._samples_version: tuple[int, int] | None = None

    def read_metrics(self) -> News | None:
        """The new whole lines; all lines again if the file was cut back."""
        try:
            with open_regular(self.folder.find(METRICS), MAX_METRICS) as file:
                is_same = self._place == 0 or self._is_continued(file)
                if not is_same:
                    self._place, self._tail = 0, b""
                file.seek(self._place)
                data = file.read()
        except BadFile:  # not there yet, or a link that leads outside
            return self._forget() if self._n_lines else None
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
        values = [read_metrics_line(line) for line in whole.split(b"\n")[:-1]]
        items = [each for each in values if each is not None]
        start = self._n_lines if is_same else 0
        self._place += len(whole)
        self._tail = (self._tail + whole)[-TAIL:]
        self._n_lines = start + len(items)
        return News(start, items) if items or not is_same else None

    def read_samples(self) -> News | None:
        """The new samples, as (heading, text)."""
        version = _find_version(self.folder, SAMPLES)
        if version == self._samples_version:
            return None
        found: list[tuple[str, str]] = []
        if version is not None:
            try:
                found = self.folder.read_samples()
            except BadFile:  # it grew while it was read; the next look finds it
                return None
        self._samples_version = version
        pairs = enumerate(zip(self._samples, found, strict=False))
        shorter = min(len(self._samples), len(found))
        start = next((i for i, (old, new) in pairs if old != new), shorter)
        is_new = len(found) > start or len(self._samples) > start
        self._samples = found
        return News(start, found[start:]) if is_new else None

    def _is_continued(self, file: Any) -> bool:
        """Whether the bytes before the place are those that were read."""
        file.seek(self._place - len(self._tail))
        return bool(file.read(len(self._tail)) == self._tail)

    def _forget(self) -> News:
        self._place, self._tail, self._n_lines = 0, b"", 0
        return News(0, [])


def _find_version(folder: RunFolder, name: str) -> tuple[int, int] | None:
    """Something that changes when a file does; None without the file."""
    with suppress(OSError):
        found = os.stat(folder / name)
        return found.st_size, found.st_mtime_ns
    return None
