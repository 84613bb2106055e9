"""clearhead lab [EXPERIMENT]: run an experiment, or all of them, shown on one page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options
from clearhead.cli.options import Device, Json, Out, Quiet, Seed, Threads
from clearhead.lab import EXPERIMENTS, check_name, run
from clearhead.timing import Timer, format_duration

if TYPE_CHECKING:
    from clearhead.lab.tools.finding import Finding

ALL = "all"
Experiment = Annotated[
    str | None,
    typer.Argument(
        metavar="EXPERIMENT", help=f"Its name, or {ALL}; without it, the experiments are listed."
    ),
]
Slides = Annotated[bool, typer.Option("--slides", help="Also write slides for a lecture.")]
Full = Annotated[bool, typer.Option("--full", help="Large sizes: minutes instead of seconds.")]


def lab(
    name: Experiment = None,
    full: Full = False,
    slides: Slides = False,
    out: Out = Path("pictures"),
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment: its claim, its numbers, a picture."""
    if name is None:
        _print_list(json)
        return
    if name != ALL:
        check_name(name)
    options.set_threads(threads)
    on = str(options.find_device(device))
    out.mkdir(parents=True, exist_ok=True)  # before anything slow starts
    findings: dict[str, Finding] = {}
    for each in EXPERIMENTS if name == ALL else (name,):
        timer = Timer()
        findings[each] = run(each, seed=seed, full=full, device=on)
        path = _save_picture(findings[each], out / f"{each}.png")
        if name == ALL and not (quiet or json):
            print(f"{each}: {format_duration(timer.seconds)}, {path}", file=sys.stderr)
    shown = _write_slides(findings, out / f"{name}-slides.html") if slides else None
    if name == ALL:
        _write_page(findings, out / "index.html", shown, json)
    else:
        _print_finding(findings[name], path, shown, json, quiet)


def _print_list(json: bool) -> None:
    if json:
        options.print_json(EXPERIMENTS)
        return
    options.print_table(EXPERIMENTS.items())
    typer.echo("\nrun one: clearhead lab NAME")


def _save_picture(finding: "Finding", path: Path) -> Path:
    """Save the picture as PNG, and beside it as SVG; returns the path of the PNG."""
    finding.picture.save(path)
    finding.picture.save(path.with_suffix(".svg"))
    return path


def _write_slides(findings: "dict[str, Finding]", path: Path) -> Path:
    from clearhead.lab.tools.page import write_slides

    return write_slides(findings, path)


def _print_finding(
    finding: "Finding", path: Path, slides: Path | None, json: bool, quiet: bool
) -> None:
    if json:
        paths = {"picture": str(path)} | ({"slides": str(slides)} if slides else {})
        options.print_json({**finding.numbers, **paths})
        return
    if not quiet:
        typer.echo(f"{finding.claim}\n")
    typer.echo(f"{finding.text}\n\npicture: {path}")
    if slides:
        typer.echo(f"slides:  {slides}")


def _write_page(
    findings: "dict[str, Finding]", path: Path, slides: Path | None, json: bool
) -> None:
    """Write the page with all findings, and print where it is."""
    from clearhead.lab.tools.page import write_page

    page = write_page(findings, path)
    if json:
        numbers = {name: dict(finding.numbers) for name, finding in findings.items()}
        paths = {"page": str(page)} | ({"slides": str(slides)} if slides else {})
        options.print_json({**paths, "numbers": numbers})
    else:
        typer.echo(f"page: {page}" + (f"\nslides: {slides}" if slides else ""))
