"""clearhead audit HANDOUT: what a handout prints, derived again."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli import options
from clearhead.cli.options import Json

Handout = Annotated[
    Path, typer.Argument(metavar="HANDOUT", help="A .md or .txt file, or a notebook.")
]


def audit(handout: Handout, json: Json = False) -> None:
    """Find what cannot be right in a handout, and the tests that a wrong answer passes."""
    from clearhead.exercises.audit import audit as audit_file

    report = audit_file(handout)
    if json:
        options.print_json(report.to_json())
    else:
        typer.echo(report.text)
    if report.findings:
        raise typer.Exit(1)
