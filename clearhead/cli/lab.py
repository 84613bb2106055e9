"""clearhead lab [EXPERIMENT]: run an experiment, print what was seen, draw it."""

import json as json_format
from pathlib import Path
from typing import Annotated

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

__all__ = ["lab"]


def lab(
    name: Annotated[str | None, typer.Argument(help="Which one; none lists them.")] = None,
    out: Out = Path("pictures"),
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment: the claim, the numbers, a picture."""
    if name is None and json:
        typer.echo(json_format.dumps(EXPERIMENTS, ensure_ascii=False))
        return
    if name is None:
        for known, claim in EXPERIMENTS.items():
            typer.echo(f"{known:12} {claim}")
        return

    check_name(name)
    thread_count(threads)
    finding = run(name, seed=seed, device=str(device_named(device)))
    path = finding.picture.save(out / f"{name}.png")
    if json:
        typer.echo(json_format.dumps({**finding.numbers, "picture": str(path)}, ensure_ascii=False))
        return
    if not quiet:
        typer.echo(f"{finding.claim}\n")
    typer.echo(finding.text)
    typer.echo(f"\npicture: {path}")
