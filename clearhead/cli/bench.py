"""clearhead bench [CASE]: measure speed, as ratios within one run."""

import json as json_format
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from clearhead.cli.options import Json, Quiet, Threads, set_threads


def bench(
    case: Annotated[str | None, typer.Argument(help="Which case; without it, run all.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for each comparison.")] = 3.0,
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed, as ratios to PyTorch and to other libraries."""
    from clearhead.bench.cases import CASES

    if case is not None and case not in CASES:
        raise ValueError(f"case must be one of {', '.join(CASES)}, got {case!r}")
    chosen = [case] if case else list(CASES)
    n_threads = set_threads(threads)
    if not quiet:
        print(f"{n_threads} thread(s); each pair takes turns in one run", file=sys.stderr)
    rows = []
    for name in chosen:
        for row in CASES[name](seconds):
            rows.append({"case": name, "threads": n_threads, "ratio": row.ratio, **asdict(row)})
            if not json:
                typer.echo(row.text())
    if json:
        typer.echo(json_format.dumps({"rows": rows}, ensure_ascii=False))
