"""clearhead eval RUN: how good a trained model is, on its whole validation part."""

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.interrupts import leaving_at_once
from clearhead.cli.options import (
    Device,
    Json,
    Quiet,
    Threads,
    Which,
    check_threads,
    check_which,
    device_named,
    thread_count,
)
from clearhead.cli.progress import measures
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
    """Measure a trained model on its validation examples."""
    loaded = loaded_run(run, which, device, threads)
    timer = Timer()
    found = loaded.evaluate()
    seconds = timer.seconds
    if json:
        facts = {"run": str(run), "seconds": round(seconds, 3), "metrics": found}
        typer.echo(json_format.dumps(facts))
        return
    words = f"{run.name} after step {loaded.step}: "
    rest = f" ({format_duration(seconds)})"
    typer.echo(measures(found) if quiet else words + measures(found) + rest)


def loaded_run(path: Path, which: str, device: str, threads: str) -> "Run":
    """A run as the options want it; what is no run is refused before anything slow."""
    check_which(which)
    check_threads(threads)
    RunFolder(path).check()
    with leaving_at_once():
        from clearhead.runs import load_run

    thread_count(threads)
    return load_run(path, which=which, device=str(device_named(device)), tell=warn)


def warn(sentence: str) -> None:
    """What should be known beside the result, such as a checkpoint that was passed over."""
    print(sentence, file=sys.stderr)
