"""clearhead runs [FOLDER]: list runs, the newest first, each with the command to run next."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import Json, count_columns, print_json
from clearhead.files.reading import quote
from clearhead.runs.description import describe_run
from clearhead.runs.folder import list_runs

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with the runs.")]
COLUMNS = ("run", "recipe", "step", "best", "age")
AGES = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))


def runs(folder: Folder = Path("runs"), json: Json = False) -> None:
    """List runs: recipe, step, best metric, age and the command to run next."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {quote(folder)}; clearhead train RECIPE starts a run")
    rows = [describe_run(run) for run in reversed(list_runs(folder))]
    if json:
        print_json({"folder": str(folder), "runs": rows})
        return
    if not rows:
        typer.echo(f"no runs in {quote(folder)}; clearhead train RECIPE starts one")
        return
    lines = _format_table([COLUMNS, *(_format_row(row) for row in rows)])
    typer.echo(lines[0])
    for line, row in zip(lines[1:], rows, strict=True):
        typer.echo(f"{line}\n    {row['next']}")


def _format_table(table: list[tuple[str, ...]]) -> list[str]:
    """The rows as lines; in a narrow terminal without the column of recipes."""
    columns = list(zip(*table, strict=True))
    for shown in (columns, [columns[0], *columns[2:]]):
        widths = [max(map(len, column)) for column in shown]
        if sum(widths) + 2 * len(widths) - 2 <= count_columns():
            break
    rows = zip(*shown, strict=True)
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _format_row(row: dict[str, Any]) -> tuple[str, ...]:
    steps = "?" if row["steps"] is None else row["steps"]
    best = "–" if row["best"] is None else f"{quote(row['measure'])} {row['best']:.4g}"
    recipe = "?" if row["recipe"] is None else quote(row["recipe"])
    return quote(Path(row["run"]).name), recipe, f"{row['step']}/{steps}", best, _format_age(row)


def _format_age(row: dict[str, Any]) -> str:
    """3 min, 2 h, 5 days; running if it is being trained now."""
    if row["running"]:
        return "running"
    unit, size = next((each for each in AGES if row["age"] >= 2 * each[1]), AGES[-1])
    return f"{row['age'] // size:.0f} {unit}"
