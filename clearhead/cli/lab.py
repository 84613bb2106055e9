"""clearhead lab [EXPERIMENT]: run an experiment, print its numbers, draw it; all: on one page."""

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import (
    Device,
    Json,
    Out,
    Quiet,
    Seed,
    Threads,
    find_device,
    set_threads,
)
from clearhead.lab import EXPERIMENTS, check_name, run
from clearhead.timing import Timer, format_duration

if TYPE_CHECKING:
    from clearhead.lab.tools.finding import Finding

ALL = "all"


def lab(
    name: Annotated[
        str | None,
        typer.Argument(
            help=f"An experiment, or {ALL} for one page with all; without it, list them."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Large sizes: minutes instead of seconds.")
    ] = False,
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
    set_threads(threads)
    on = str(find_device(device))
    out.mkdir(parents=True, exist_ok=True)  # before anything slow starts
    findings: dict[str, Finding] = {}
    for each in EXPERIMENTS if name == ALL else (name,):
        timer = Timer()
        finding = findings[each] = run(each, seed=seed, full=full, device=on)
        path = _save_pictures(finding, out, each)
        if name == ALL:
            _print_note(f"{each}: {format_duration(timer.seconds)}, {path}", quiet or json)
    if name == ALL:
        _print_page(findings, out, json)
    else:
        _print_finding(findings[name], path, json, quiet)


def _print_list(json: bool) -> None:
    if json:
        typer.echo(json_format.dumps(EXPERIMENTS, ensure_ascii=False))
        return
    for known, claim in EXPERIMENTS.items():
        typer.echo(f"{known:20} {claim}")


def _save_pictures(finding: "Finding", out: Path, name: str) -> Path:
    """Save the picture as PNG and as SVG; returns the path of the PNG."""
    path = finding.picture.save(out / f"{name}.png")
    finding.picture.save(path.with_suffix(".svg"))
    return path


def _print_note(sentence: str, silent: bool) -> None:
    if not silent:
        print(sentence, file=sys.stderr)


def _print_finding(finding: "Finding", path: Path, json: bool, quiet: bool) -> None:
    if json:
        facts = {**finding.numbers, "picture": str(path)}
        typer.echo(json_format.dumps(facts, ensure_ascii=False))
        return
    if not quiet:
        typer.echo(f"{finding.claim}\n")
    typer.echo(finding.text)
    typer.echo(f"\npicture: {path}")


def _print_page(findings: "dict[str, Finding]", out: Path, json: bool) -> None:
    from clearhead.lab.tools.page import write_page

    page = write_page(findings, out / "index.html")
    if json:
        numbers = {name: dict(finding.numbers) for name, finding in findings.items()}
        typer.echo(json_format.dumps({"page": str(page), "numbers": numbers}, ensure_ascii=False))
        return
    typer.echo(f"page: {page}")
