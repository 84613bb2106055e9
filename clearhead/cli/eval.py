"""clearhead eval RUN: measure a trained model on all its validation examples."""

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import (
    Device,
    Json,
    Quiet,
    Threads,
    Which,
    check_threads,
    check_which,
    find_device,
    set_threads,
)
from clearhead.cli.progress import format_metrics
from clearhead.runs.folder import RunFolder
from clearhead.timing import Timer, format_duration

if TYPE_CHECKING:
    from clearhead.runs import Run

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/substring-0001.")
]


def evaluate(
    run: RunPath,
    which: Which = "best",
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a trained model on all its validation examples."""
    loaded = open_run(run, which, device, threads)
    timer = Timer()
    metrics = loaded.evaluate()
    seconds = timer.seconds
    if json:
        facts = {"run": str(run), "seconds": round(seconds, 3), "metrics": metrics}
        typer.echo(json_format.dumps(facts))
        return
    words = f"{run.name} after step {loaded.step}: "
    rest = f" ({format_duration(seconds)})"
    typer.echo(format_metrics(metrics) if quiet else words + format_metrics(metrics) + rest)


def open_run(path: Path, which: str, device: str, threads: str) -> "Run":
    """Load a run with these options; refuse wrong ones before anything slow is imported."""
    check_which(which)
    check_threads(threads)
    RunFolder(path).check()
    with exit_on_interrupt():
        from clearhead.runs import load_run

    set_threads(threads)
    return load_run(path, which=which, device=str(find_device(device)), tell=warn)


def warn(sentence: str) -> None:
    """Print a message beside the result, such as that a bad checkpoint was skipped."""
    print(sentence, file=sys.stderr)
