"""clearhead exercise NAME: write a file to start from."""

from pathlib import Path
from typing import Annotated

import typer

ALL = "all"
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"An exercise, or {ALL}: a whole sheet.")]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", help=f"The file; without it, it is printed. For {ALL}: the folder."),
]


def exercise(name: Name, out: OutFile = None) -> None:
    """Write the start of an exercise: signature, formula, example; only the body is missing."""
    from clearhead.exercises.contracts import check_name
    from clearhead.exercises.template import write_sheet, write_template
    from clearhead.files.writing import write_new_text

    if name == ALL:
        for path in write_sheet(out or Path("exercises")):
            typer.echo(f"wrote {path}")
        return
    check_name(name)
    text = write_template(name)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_new_text(out, text)
    typer.echo(f"wrote {out}; when it is done: clearhead check {out}")
