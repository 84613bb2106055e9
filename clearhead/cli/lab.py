"""clearhead lab [EXPERIMENT]: run an experiment, print what was seen, draw it; all: on one page."""

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
    device_named,
    thread_count,
)
from clearhead.lab import EXPERIMENTS, check_name, run
from clearhead.timing import Timer, format_duration

if TYPE_CHECKING:
    from clearhead.lab.tools.finding import Finding

ALL = "all"


def lab(
    name: Annotated[
        str | None, typer.Argument(help=f"Which one; {ALL} for one page of all; none lists them.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The large sizes: minutes instead of seconds.")
    ] = False,
    out: Out = Path("pictures"),
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment: the claim, the numbers, a picture."""
    if name is None:
        _list(json)
        return
    if name != ALL:
        check_name(name)
    thread_count(threads)
    on = str(device_named(device))
    out.mkdir(parents=True, exist_ok=True)  # before anything long is begun
    findings: dict[str, Finding] = {}
    for each in EXPERIMENTS if name == ALL else (name,):
        timer = Timer()
        finding = findings[each] = run(each, seed=seed, full=full, device=on)
        path = _drawn(finding, out, each)
        if name == ALL:
            _tell(f"{each}: {format_duration(timer.seconds)}, {path}", quiet or json)
    if name == ALL:
        _say_all(findings, out, json)
    else:
        _say(findings[name], path, json, quiet)


def _list(json: bool) -> None:
    if json:
        typer.echo(json_format.dumps(EXPERIMENTS, ensure_ascii=False))
        return
    for known, claim in EXPERIMENTS.items():
        typer.echo(f"{known:20} {claim}")


def _drawn(finding: "Finding", out: Path, name: str) -> Path:
    """The picture as PNG and as SVG; returns the first."""
    path = finding.picture.save(out / f"{name}.png")
    finding.picture.save(path.with_suffix(".svg"))
    return path


def _tell(sentence: str, silent: bool) -> None:
    if not silent:
        print(sentence, file=sys.stderr)


def _say(finding: "Finding", path: Path, json: bool, quiet: bool) -> None:
    if json:
        facts = {**finding.numbers, "picture": str(path)}
        typer.echo(json_format.dumps(facts, ensure_ascii=False))
        return
    if not quiet:
        typer.echo(f"{finding.claim}\n")
    typer.echo(finding.text)
    typer.echo(f"\npicture: {path}")


def _say_all(findings: "dict[str, Finding]", out: Path, json: bool) -> None:
    from clearhead.lab.tools.page import write_page

    page = write_page(findings, out / "index.html")
    if json:
        numbers = {name: dict(finding.numbers) for name, finding in findings.items()}
        typer.echo(json_format.dumps({"page": str(page), "numbers": numbers}, ensure_ascii=False))
        return
    typer.echo(f"page: {page}")
