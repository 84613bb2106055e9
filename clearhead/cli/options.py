"""The options that mean the same in every verb, and how tables and --json print."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.config import suggest

if TYPE_CHECKING:
    import torch

NO_TERMINAL = 1000  # columns where output is not wrapped, such as in a pipe
LEAST_ROOM = 24  # columns of a wrapped text; with less room it gets a line of its own
WRONG_DEVICE = "--device {!r:.40} cannot be used on this machine; use auto or cpu"
_SEED = typer.Option("--seed", help="Random seed; the same seed gives the same numbers.")
Out = Annotated[Path, typer.Option("--out", help="Folder for pictures.")]
Seed = Annotated[int, _SEED]
OptionalSeed = Annotated[int | None, _SEED]
Device = Annotated[str, typer.Option("--device", help="Where to compute: auto, cpu, cuda, mps, …")]
Threads = Annotated[
    str,
    typer.Option(
        "--threads",
        help="CPU threads: a number, or auto: OMP_NUM_THREADS if set, else the fastest.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results only.")]
Unknown = Annotated[bool, typer.Option("--unknown", help="Allow a word model to write <unk>.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run the recipe.py of the run even if it is not known."),
]
Which = Annotated[str, typer.Option("--which", help="Which checkpoint: best or last.")]


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; what the terminal cannot show is escaped."""
    text = json.dumps(values, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(values)
    typer.echo(text)


def count_columns() -> int:
    """The width of the terminal; without one, such as in a pipe, no line is too long."""
    return shutil.get_terminal_size((NO_TERMINAL, 0)).columns


class Report(Protocol):
    """A result with a form for people and one for programs."""

    @property
    def text(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


def print_report(report: Report, as_json: bool) -> None:
    """Print a report as one JSON object, or as text."""
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(report.text)


def print_table(rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; in a terminal, the last column is wrapped to its width."""
    table = list(rows)
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    indent = sum(widths) + 2 * len(widths)
    columns = count_columns()
    is_narrow = columns - indent < LEAST_ROOM
    indent = 4 if is_narrow else indent
    for *cells, last in table:
        line = "".join(cell.ljust(width + 2) for cell, width in zip(cells, widths, strict=True))
        wrapped = textwrap.wrap(last, max(LEAST_ROOM, columns - indent), break_on_hyphens=False)
        first = line.rstrip() + "\n" + " " * indent if is_narrow else line
        typer.echo(first + ("\n" + " " * indent).join(wrapped))


def warn(sentence: str) -> None:
    """Print a message beside the result, such as that a bad checkpoint was skipped."""
    print(sentence, file=sys.stderr)


def find_device(device: str) -> "torch.device":
    """The device of this name; refused if this machine cannot compute on it."""
    with exit_on_interrupt():
        from clearhead.runtime import pick_device

    reason = None
    try:
        found = pick_device(device)
        if found.type != "meta":  # shapes without numbers
            return found
    except ValueError as fault:
        reason = fault
    raise ValueError(WRONG_DEVICE.format(device)) from reason


def check_threads(threads: str) -> None:
    """Refuse a wrong number of threads, before anything slow is imported."""
    if threads != "auto" and (not threads.isdecimal() or int(threads) < 1):
        raise ValueError(f"--threads must be auto or a number of at least 1, got {threads!r}")


def set_threads(threads: str) -> int:
    """Set the number of threads that the option asks for, and return it."""
    check_threads(threads)
    with exit_on_interrupt():
        from clearhead import runtime

    return runtime.set_threads("auto" if threads == "auto" else int(threads))


def check_which(which: str) -> None:
    """Refuse any other name of a checkpoint than best and last."""
    if which not in ("best", "last"):
        near = suggest(which, ("best", "last"))
        raise ValueError(f"--which must be best or last, got {which!r:.40}{near}")
