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
        yield lambda news: None
    elif not sys.stderr.isatty():
        yield _print_line
    else:
        with _show_live() as show:
            yield show


def format_metrics(values: Mapping[str, float]) -> str:
    """loss 0.3704, val_accuracy 0.8067"""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "lr")


def _print_line(news: "Progress | str") -> None:
    if isinstance(news, str):
        print(news, file=sys.stderr, flush=True)
    elif _is_evaluation(news):
        print(_format_line(news), file=sys.stderr, flush=True)


def _is_evaluation(news: "Progress") -> bool:
    return any(name.startswith("val_") for name in news.metrics)


def _format_line(news: "Progress") -> str:
    return (
        f"step {news.step}/{news.steps}: {format_metrics(news.metrics)}{_format_pace(news, ', ')}"
    )


def _format_pace(news: "Progress", joint: str) -> str:
    rate = "" if news.rate is None else f"{joint}{news.rate:,.0f} {news.unit}/s"
    left = f"{joint}{format_duration(news.seconds_left)} left" if news.step < news.steps else ""
    return rate + left


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

        def show(news: "Progress | str") -> None:
            if isinstance(news, str):
                console.print(news, markup=False)
                return
            latest.update(news.metrics)
            if _is_evaluation(news):
                console.print(_format_line(news), markup=False)
            words = f"{news.step}/{news.steps}  {format_metrics(latest)}{_format_pace(news, '  ')}"
            bar.update(line, total=news.steps, completed=news.step, description=words)

        yield show
