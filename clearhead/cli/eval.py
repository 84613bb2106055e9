"""clearhead eval RUN: measure a trained model on all its validation examples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Device, Json, Quiet, Threads, Trust, Which
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
    trust: Trust = False,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a trained model on all its validation examples."""
    loaded = open_run(run, which, device, threads, trust)
    timer = Timer()
    metrics = loaded.evaluate()
    seconds = timer.seconds
    if json:
        facts = {"run": str(run), "seconds": round(seconds, 3), "metrics": metrics}
        options.print_json(facts)
    elif quiet:
        typer.echo(format_metrics(metrics))
    else:
        words = f"{run.name} after step {loaded.step}: {format_metrics(metrics)}"
        typer.echo(f"{words} ({format_duration(seconds)})")


def open_run(path: Path, which: str, device: str, threads: str, trust: bool) -> "Run":
    """Load a run with these options; refuse wrong ones before anything slow is imported."""
    options.check_which(which)
    options.check_threads(threads)
    RunFolder(path).check()
    with exit_on_interrupt():
        from clearhead.runs import load_run

    options.set_threads(threads)
    on = str(options.find_device(device))
    return load_run(path, which=which, device=on, trust=trust, tell=options.warn)
