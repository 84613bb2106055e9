"""clearhead bench [CASE]: measure speed, as ratios within one run."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from clearhead.bench import CASE_NAMES
from clearhead.cli.options import Json, Quiet, Threads, print_json, set_threads
from clearhead.config import suggest

Case = Annotated[
    str | None,
    typer.Argument(
        metavar="CASE", help=f"One of {', '.join(CASE_NAMES)}; without it, all are run."
    ),
]


def bench(
    case: Case = None,
    seconds: Annotated[float, typer.Option(help="Time for each comparison.")] = 3.0,
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed, as ratios to PyTorch and to other libraries."""
    if case is not None and case not in CASE_NAMES:
        known, near = ", ".join(CASE_NAMES), suggest(case, CASE_NAMES)
        raise ValueError(f"case must be one of {known}, got {case!r}{near}")
    from clearhead.bench.cases import CASES

    n_threads = set_threads(threads)
    if not quiet:
        print(f"{n_threads} thread(s); each pair takes turns in one run", file=sys.stderr)
    rows = []
    for name in [case] if case else CASES:
        for row in CASES[name](seconds):
            rows.append({"case": name, "threads": n_threads, "ratio": row.ratio, **asdict(row)})
            if not json:
                typer.echo(row.text())
    if json:
        print_json({"rows": rows})
