"""clearhead bench [CASE]: measure speed, as ratios within one run."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from clearhead.cli.options import Json, Quiet, Threads, print_json, set_threads

Case = Annotated[
    str | None,
    typer.Argument(
        metavar="CASE", help="Such as attention, linear, decode or loop; without it, all are run."
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
    from clearhead.bench.cases import CASES

    if case is not None and case not in CASES:
        raise ValueError(f"case must be one of {', '.join(CASES)}, got {case!r}")
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
