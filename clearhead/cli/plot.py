"""clearhead plot WHAT [OF…]: one picture of a part of the library, or of runs.

    clearhead plot waves | table | mask | alibi         parts that need no training
    clearhead plot waves 4 5 8 9                        the sinusoids of these dimensions
    clearhead plot schedule [RECIPE or RUN…]            the learning rate over the steps
    clearhead plot curves RUN [RUN…]                    how runs went, beside each other
    clearhead plot attention RUN INPUT                  what its model attends to in this input;
                                                        3,17,42: in these validation pictures
    clearhead plot RUN                                  its report.html anew

With --tensorboard, the measures of a run are written as an event file for TensorBoard instead.
"""

import json as json_format
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.eval import loaded_run, warn
from clearhead.cli.interrupts import leaving_at_once
from clearhead.cli.options import Device, Json, Out, device_named
from clearhead.cli.recipes import check_recipe, recipe_named
from clearhead.runs.folder import CONFIG, RunFolder

if TYPE_CHECKING:
    from clearhead.inspection.figures import Picture
    from clearhead.training import TrainingConfig

PARTS = ("waves", "table", "mask", "alibi")
PICTURES = (*PARTS, "schedule", "curves", "attention")
WARMUP, STEPS, COOLDOWN = 800, 5000, 1000  # of the three schedules, if no recipe is named


def plot(
    what: Annotated[
        str, typer.Argument(help=f"One of {', '.join(PICTURES)}; or a run, for its report.html.")
    ],
    of: Annotated[
        list[str] | None,
        typer.Argument(help="Of schedule: recipes, runs; curves: runs; attention: RUN INPUT."),
    ] = None,
    out: Out = Path("pictures"),
    svg: Annotated[bool, typer.Option("--svg", help="Draw SVG instead of PNG.")] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Of a run: its measures for TensorBoard, no report."),
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Draw a part, the schedule, the curves or the attention of runs; of a run, its report."""
    _check(what, of or [], tensorboard)
    if what not in PICTURES:
        _of_run(Path(what), tensorboard, device, json)
        return
    path = _picture(what, of or [], device).save(out / (what + (".svg" if svg else ".png")))
    typer.echo(json_format.dumps({"picture": str(path)}) if json else f"picture: {path}")


def _check(what: str, of: Sequence[str], tensorboard: bool) -> None:
    """What can be refused before anything slow is imported."""
    is_run = what not in PICTURES and Path(what).is_dir()
    if what not in PICTURES and not is_run:
        raise ValueError(f"picture must be one of {', '.join(PICTURES)}, or a run, got {what!r}")
    if tensorboard and not is_run:
        raise ValueError(f"--tensorboard takes the folder of a run, got {what!r:.80}")
    if what == "waves" and not all(word.isdecimal() for word in of):
        raise ValueError(f"waves takes numbers of dimensions, got {' '.join(of)!r:.80}")
    if of and (is_run or what in PARTS[1:]):
        raise ValueError(f"{what} is drawn as it is, of nothing else; got {of[0]!r:.80}")
    if what == "curves" and not of:
        raise ValueError("curves needs one run or more: clearhead plot curves RUN [RUN…]")
    if what == "attention" and len(of) != 2:
        raise ValueError(
            f"attention needs a run and one input, got {len(of)} words: "
            f"clearhead plot attention RUN INPUT"
        )


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


def _picture(what: str, of: Sequence[str], device: str) -> "Picture":
    if what == "attention":
        return _attention(Path(of[0]), of[1], device)
    if what == "curves":
        return _curves([Path(run) for run in of])
    return _schedule(of) if what == "schedule" else _part(what, [int(word) for word in of])


def _part(what: str, dimensions: Sequence[int]) -> "Picture":
    with leaving_at_once():
        import torch

        from clearhead.attention import Mask
        from clearhead.inspection import figures
        from clearhead.positions import AlibiBias

    if what == "waves":
        shown = dimensions or (4, 5, 6, 7)
        return figures.position_waves(d_model=20, dimensions=shown, n_positions=100)
    if what == "table":
        return figures.position_table(d_model=128, n_positions=60)
    if what == "mask":
        return figures.mask_picture(Mask.causal() & Mask.padding(torch.tensor([8, 5])), 8, 8)
    return figures.toeplitz_matrices(AlibiBias(4)(16))


def _schedule(names: Sequence[str]) -> "Picture":
    """Of recipes or runs, or of the three kinds of schedule."""
    for name in names:
        if not (Path(name) / CONFIG).is_file():
            check_recipe(name)
    with leaving_at_once():
        from clearhead.inspection.report.curves import schedules_picture
        from clearhead.training.schedule import SCHEDULES, make_schedule

    if not names:
        kinds = {kind: make_schedule(kind, WARMUP, STEPS, cooldown=COOLDOWN) for kind in SCHEDULES}
        return schedules_picture({kind: (schedule, 1.0) for kind, schedule in kinds.items()})
    configs = dict(zip(_labels(names), map(_training, names), strict=True))
    return schedules_picture({name: (c.make_schedule(), c.lr) for name, c in configs.items()})


def _training(name: str) -> "TrainingConfig":
    """The training settings of a recipe or a run."""
    from clearhead.runs.run import read_recipe

    is_run = (Path(name) / CONFIG).is_file()
    return (read_recipe(RunFolder(name).config) if is_run else recipe_named(name)).training


def _curves(runs: Sequence[Path]) -> "Picture":
    folders = [RunFolder(run) for run in runs]
    for folder in folders:
        folder.check()
        if not any(line.keys() - {"step", "lr"} for line in folder.read_metrics()):
            raise ValueError(f"{folder.path} has nothing measured yet; let it train longer")
    with leaving_at_once():
        from clearhead.inspection.report import collect_series
        from clearhead.inspection.report.curves import compare_runs

    lines = [folder.read_metrics() for folder in folders]
    found = dict(zip(_labels(runs), map(collect_series, lines), strict=True))
    return compare_runs(
        {run: {n: v for n, v in s.items() if n != "lr"} for run, s in found.items()}
    )


def _attention(run: Path, text: str, device: str) -> "Picture":
    loaded = loaded_run(run, "best", device, "auto")
    from clearhead.inspection.report import look_at

    look = look_at(loaded, text)
    warn(look.caption)
    return look.picture


def _labels(paths: Sequence[str | Path]) -> list[str]:
    """The names of recipes or runs, or where two are alike, their paths."""
    names = [Path(path).resolve().name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))
