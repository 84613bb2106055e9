"""The progress of a run, on stderr.

On a terminal: a bar that is updated in place, and above it one line per evaluation. In a file or a
pipe: only those lines. Each ends with the speed, in tokens or examples per second, and the time
left. Messages of the training loop are printed as lines in both. In a narrow terminal the line with
the bar leaves out the parts that matter least; the bar and the time left stay.
"""

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clearhead.cli.streams import escape_controls, find_raw
from clearhead.timing import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.training import Progress

BARS = ((70, 16), (44, 8))  # columns of the terminal, and of the bar in it
# Left out in this order until the line fits.
LEAST = ("sparkline", "val_loss", "speed", "other measures", "loss")
BLOCKS = "▁▂▃▄▅▆▇█"
N_BLOCKS = 10  # of the sparkline


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


def _format_status(
    event: "Progress", latest: Mapping[str, float], sparkline: str, columns: int
) -> str:
    """The text beside the bar: as much as fits into so many columns."""
    for n_left_out in range(len(LEAST) + 1):
        text = _join_status(event, latest, sparkline, LEAST[:n_left_out])
        if len(text) <= columns:
            break
    return text


def _join_status(
    event: "Progress", latest: Mapping[str, float], sparkline: str, left_out: Collection[str]
) -> str:
    shown = {
        name: value
        for name, value in latest.items()
        if (name if name in ("loss", "val_loss") else "other measures") not in left_out
    }
    parts = [f"{event.step}/{event.steps}", format_metrics(shown)]
    parts += ["" if "speed" in left_out else _format_speed(event), _format_left(event)]
    parts += ["" if "sparkline" in left_out else sparkline]
    return "  ".join(filter(None, parts))


def draw_sparkline(values: Sequence[float]) -> str:
    """The course of the values as a row of blocks, each the mean of equally many: ▇▅▃▂▁."""
    n, size = min(N_BLOCKS, len(values)), len(values)
    chunks = [values[i * size // n : (i + 1) * size // n] for i in range(n)]
    means = [sum(chunk) / len(chunk) for chunk in chunks]
    low, high = min(means, default=0.0), max(means, default=0.0)
    return "".join(BLOCKS[round(7 * (mean - low) / (high - low or 1))] for mean in means)


def _format_pace(event: "Progress", separator: str) -> str:
    """The speed and the time left, each after the separator."""
    return "".join(separator + part for part in (_format_speed(event), _format_left(event)) if part)


def _format_speed(event: "Progress") -> str:
    return "" if event.rate is None else f"{event.rate:,.0f} {event.unit}/s"


def _format_left(event: "Progress") -> str:
    left = f"{format_duration(event.seconds_left)} left"
    return left if event.step < event.steps else ""


@contextmanager
def _show_live() -> Iterator["Callable[[Progress | str], None]"]:
    from rich.console import Console

    console = Console(file=find_raw(sys.stderr), highlight=False, soft_wrap=True)
    if console.is_dumb_terminal:  # it cannot update a line
        yield _print_line
        return
    with _show_bar(console) as show:
        yield show


@contextmanager
def _show_bar(console: "Console") -> Iterator["Callable[[Progress | str], None]"]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    bar_width = next((width for columns, width in BARS if console.width >= columns), 0)
    bar_column = (BarColumn(bar_width=bar_width),) if bar_width else ()
    has_blocks = console.encoding.startswith("utf")
    text = TextColumn("{task.description}", markup=False)
    latest: dict[str, float] = {}
    losses: list[float] = []
    with Bar(*bar_column, text, console=console, transient=True, refresh_per_second=4) as bar:
        console.show_cursor()  # a second Ctrl-C exits at once and must not leave it hidden
        line = bar.add_task("reading the data", total=None)

        def show(event: "Progress | str") -> None:
            if isinstance(event, str):
                console.print(escape_controls(event), markup=False)
                return
            latest.update(event.metrics)
            if _is_evaluation(event):
                console.print(_format_line(event), markup=False)
            if math.isfinite(loss := event.metrics.get("loss", math.nan)):
                losses.append(loss)
            sparkline = draw_sparkline(losses) if has_blocks else ""
            room = console.width - bar_width - 1
            words = _format_status(event, latest, sparkline, room)
            bar.update(line, total=event.steps, completed=event.step, description=words)

        yield show
