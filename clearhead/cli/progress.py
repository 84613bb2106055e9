"""The progress of a run, on stderr.

On a terminal: a bar that is updated in place, and above it one line per evaluation. In a file or a
pipe: only those lines. Each ends with the speed, in tokens or examples per second, and the time
left. Messages of the training loop are printed as lines in both.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clearhead.timing import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.training import Progress

WIDE = 70  # columns needed for a bar beside the numbers


@contextmanager
def show_progress(quiet: bool) -> Iterator["Callable[[Progress | str], None]"]:
    """Inside this block: a function that shows progress and messages of a run."""
    if quiet:
        yield lambda event: None
    elif not sys.stderr.isatty():
        yield _print_line
    else:
        with _show_live() as show:
            yield show


def format_metrics(values: Mapping[str, float]) -> str:
    """loss 0.3704, val_accuracy 0.8067"""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "lr")


def _print_line(event: "Progress | str") -> None:
    if isinstance(event, str):
        print(event, file=sys.stderr, flush=True)
    elif _is_evaluation(event):
        print(_format_line(event), file=sys.stderr, flush=True)


def _is_evaluation(event: "Progress") -> bool:
    return any(name.startswith("val_") for name in event.metrics)


def _format_line(event: "Progress") -> str:
    pace = _format_pace(event, ", ")
    return f"step {event.step}/{event.steps}: {format_metrics(event.metrics)}{pace}"


def _format_pace(event: "Progress", separator: str) -> str:
    """The speed and the time left, each after the separator."""
    parts = [] if event.rate is None else [f"{event.rate:,.0f} {event.unit}/s"]
    if event.step < event.steps:
        parts.append(f"{format_duration(event.seconds_left)} left")
    return "".join(separator + part for part in parts)


@contextmanager
def _show_live() -> Iterator["Callable[[Progress | str], None]"]:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if console.is_dumb_terminal:  # it cannot update a line
        yield _print_line
        return
    with _show_bar(console) as show:
        yield show


@contextmanager
def _show_bar(console: "Console") -> Iterator["Callable[[Progress | str], None]"]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    bar_column = (BarColumn(bar_width=16),) if console.width >= WIDE else ()
    text = TextColumn("{task.description}", markup=False)
    latest: dict[str, float] = {}
    with Bar(*bar_column, text, console=console, transient=True, refresh_per_second=4) as bar:
        console.show_cursor()  # a second Ctrl-C exits at once and must not leave it hidden
        line = bar.add_task("reading the data", total=None)

        def show(event: "Progress | str") -> None:
            if isinstance(event, str):
                console.print(event, markup=False)
                return
            latest.update(event.metrics)
            if _is_evaluation(event):
                console.print(_format_line(event), markup=False)
            pace = _format_pace(event, "  ")
            words = f"{event.step}/{event.steps}  {format_metrics(latest)}{pace}"
            bar.update(line, total=event.steps, completed=event.step, description=words)

        yield show
