"""clearhead plot WHAT: one picture of a part of the library; of a run, its report or its measures.

The report is report.html; with --tensorboard, the measures are an event file for TensorBoard.
"""

import json as json_format
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.eval import warn
from clearhead.cli.interrupts import leaving_at_once
from clearhead.cli.options import Device, Json, Out, device_named

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
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Of a run: its measures for TensorBoard, no report."),
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Draw a part: position waves or table, a mask, ALiBi. Of a run, write its report anew."""
    if Path(what).is_dir():
        _of_run(Path(what), tensorboard, device, json)
        return
    if tensorboard:
        raise ValueError(f"--tensorboard takes the folder of a run, got {what!r:.80}")
    if what not in PICTURES:
        raise ValueError(f"picture must be one of {', '.join(PICTURES)}, got {what!r}")
    path = _picture(what).save(out / (what + (".svg" if svg else ".png")))
    typer.echo(json_format.dumps({"picture": str(path)}) if json else f"picture: {path}")


def _of_run(run: Path, tensorboard: bool, device: str, json: bool) -> None:
    with leaving_at_once():
        from clearhead.inspection.report import write_report
        from clearhead.inspection.tensorboard import write_events

    if tensorboard:
        name, path = "events", write_events(run)
    else:
        name, path = "report", write_report(run, device=str(device_named(device)), tell=warn)
    typer.echo(json_format.dumps({name: str(path)}) if json else f"{name}: {path}")
    if tensorboard and not json:
        get = "" if find_spec("tensorboard") else "pip install 'clearhead[tb]' && "
        typer.echo(f"next:   {get}tensorboard --logdir {shlex.quote(str(run.parent))}")


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
