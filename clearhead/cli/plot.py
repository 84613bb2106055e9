"""clearhead plot WHAT: one picture of a part of the library, or the report of a run."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.interrupts import leaving_at_once
from clearhead.cli.options import Json, Out

if TYPE_CHECKING:
    from clearhead.inspection.figures import Picture

__all__ = ["PICTURES", "plot"]

PICTURES = ("waves", "table", "mask", "alibi")


def plot(
    what: Annotated[
        str, typer.Argument(help=f"One of {', '.join(PICTURES)}; or a run, for its report.html.")
    ],
    out: Out = Path("pictures"),
    svg: Annotated[bool, typer.Option("--svg", help="Draw SVG instead of PNG.")] = False,
    json: Json = False,
) -> None:
    """Draw a part: position waves or table, a mask, ALiBi. Of a run, write its report anew."""
    if Path(what).is_dir():
        with leaving_at_once():
            from clearhead.inspection.report import write_report

        report = write_report(what)
        typer.echo(json_format.dumps({"report": str(report)}) if json else f"report: {report}")
        return
    if what not in PICTURES:
        raise ValueError(f"picture must be one of {', '.join(PICTURES)}, got {what!r}")
    path = _picture(what).save(out / (what + (".svg" if svg else ".png")))
    typer.echo(json_format.dumps({"picture": str(path)}) if json else f"picture: {path}")


def _picture(what: str) -> "Picture":
    with leaving_at_once():
        import torch

        from clearhead.attention import Mask
        from clearhead.inspection import figures
        from clearhead.positions import AlibiBias

    if what == "waves":
        return figures.position_waves(d_model=20, dimensions=(4, 5, 6, 7), n_positions=100)
    if what == "table":
        return figures.position_table(d_model=128, n_positions=60)
    if what == "mask":
        return figures.mask_picture(Mask.causal() & Mask.padding(torch.tensor([8, 5])), 8, 8)
    return figures.toeplitz_matrices(AlibiBias(4)(16))
