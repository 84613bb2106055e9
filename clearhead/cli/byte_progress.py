"""How many bytes are done, on stderr: on a terminal one line or a bar, in a file a few lines."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clearhead.cli.streams import find_raw

KB_BELOW = 100_000  # fewer bytes are given in kB
Show = Callable[[str, int, int], None]  # words, bytes done, bytes in all


@contextmanager
def show_bytes(quiet: bool) -> Iterator[Show]:
    """Inside this block: a function that shows how many bytes are done; on a terminal, a bar."""
    if quiet:
        yield lambda words, done, total: None
    elif not sys.stderr.isatty():
        yield ByteLines("")
    else:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        words_column = TextColumn("{task.description}", markup=False)
        columns = (BarColumn(16), words_column, DownloadColumn(), TransferSpeedColumn())
        console = Console(file=find_raw(sys.stderr), highlight=False)
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            console.show_cursor()  # a kill must not leave it hidden
            line, latest = bar.add_task("", total=None), ""

            def show(words: str, done: int, total: int) -> None:
                nonlocal latest
                if words != latest:
                    bar.reset(line)
                latest = words
                bar.update(line, description=words, completed=done, total=total or None)

            yield show


class ByteLines:
    """Progress on stderr: on a terminal one line, updated in place; in a file a few lines."""

    def __init__(self, heading: str) -> None:
        self.heading = heading  # printed before the first message, if there is one
        self.is_terminal = sys.stderr.isatty()
        self.is_line_open = False
        self.latest = ("", -1)  # the words and the quarter that were printed last

    def __call__(self, words: str, done: int, total: int) -> None:
        if self.heading:
            print(self.heading, file=sys.stderr)
            self.heading = ""
        if not total:
            self.end_line()
            print(words, file=sys.stderr, flush=True)
            return
        line = f"{words}: {_count_bytes(done, total)} of {format_size(total)}"
        line += f", {100 * done // total} %"
        if self.is_terminal:
            print(f"\r{line:79.79}", end="", file=find_raw(sys.stderr), flush=True)
            self.is_line_open = True
        elif self.latest != (words, 4 * done // total):
            print(line, file=sys.stderr, flush=True)
            self.latest = words, 4 * done // total

    def end_line(self) -> None:
        """End the line that is updated in place."""
        if self.is_line_open:
            print(file=sys.stderr)
        self.is_line_open, self.latest = False, ("", -1)


def format_size(n_bytes: int) -> str:
    """1,115,394 → 1.1 MB; 42 → 0.042 kB."""
    unit = "MB" if n_bytes >= KB_BELOW else "kB"
    return f"{_count_bytes(n_bytes, n_bytes)} {unit}"


def _count_bytes(n_bytes: int, total: int) -> str:
    """A part of `total`, in the unit that format_size gives to the total."""
    return f"{n_bytes / 1e6:.1f}" if total >= KB_BELOW else f"{n_bytes / 1e3:.3g}"
