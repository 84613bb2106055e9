"""clearhead audit HANDOUT: check the claims, numbers and tests of a handout."""

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
    from clearhead.exercises.audit.handout import read_handout

    found = read_handout(handout)
    from clearhead.exercises.audit.audit import audit_handout

    report = audit_handout(found)
    options.print_report(report, json)
    if report.findings:
        raise typer.Exit(1)
