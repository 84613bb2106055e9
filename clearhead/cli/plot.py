"""clearhead plot WHAT [OF…]: draw a part of the library, or runs.

    clearhead plot waves | table | mask | alibi         parts that need no training
    clearhead plot waves 4 5 8 9                        the sinusoids of these dimensions
    clearhead plot schedule [RECIPE or RUN…]            the learning rate over the steps
    clearhead plot curves RUN [RUN…]                    the metrics of runs, side by side
    clearhead plot attention RUN INPUT                  the attention of its model on this input;
                                                        3,17,42: on these validation pictures
    clearhead plot RUN                                  write its report.html again

With --tensorboard, the metrics of a run are written as an event file for TensorBoard instead.
"""

import json as json_format
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.eval import open_run, warn
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Device, Json, Out, find_device
from clearhead.cli.recipes import build_recipe, check_recipe
from clearhead.runs.folder import CONFIG, RunFolder

if TYPE_CHECKING:
    from clearhead.inspection.figures import Picture
    from clearhead.training import TrainingConfig

PARTS = ("waves", "table", "mask", "alibi")
PICTURES = (*PARTS, "schedule", "curves", "attention")
WARMUP, STEPS, COOLDOWN = 800, 5000, 1000  # for the three schedules, if no recipe is given


def plot(
    what: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(PICTURES)}; or a run folder, to write its report."),
    ],
    of: Annotated[
        list[str] | None,
        typer.Argument(
            help="For schedule: recipes or runs; for curves: runs; for attention: RUN INPUT."
        ),
    ] = None,
    out: Out = Path("pictures"),
    svg: Annotated[bool, typer.Option("--svg", help="Draw SVG instead of PNG.")] = False,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="For a run: write its metrics for TensorBoard, no report."
        ),
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Draw a part of the library, or the schedule, curves or attention of runs."""
    _check(what, of or [], tensorboard)
    if what not in PICTURES:
        _write_for_run(Path(what), tensorboard, device, json)
        return
    path = _draw(what, of or [], device).save(out / (what + (".svg" if svg else ".png")))
    typer.echo(json_format.dumps({"picture": str(path)}) if json else f"picture: {path}")


def _check(what: str, of: Sequence[str], tensorboard: bool) -> None:
    """Refuse wrong arguments before anything slow is imported."""
    is_run = what not in PICTURES and Path(what).is_dir()
    if what not in PICTURES and not is_run:
        raise ValueError(f"picture must be one of {', '.join(PICTURES)}, or a run, got {what!r}")
    if tensorboard and not is_run:
        raise ValueError(f"--tensorboard takes the folder of a run, got {what!r:.80}")
    if what == "waves" and not all(word.isdecimal() for word in of):
        raise ValueError(f"waves takes numbers of dimensions, got {' '.join(of)!r:.80}")
    if of and (is_run or what in PARTS[1:]):
        raise ValueError(f"{what} takes nothing else; got {of[0]!r:.80}")
    if what == "curves" and not of:
        raise ValueError("curves needs one run or more: clearhead plot curves RUN [RUN…]")
    if what == "attention" and len(of) != 2:
        raise ValueError(
            f"attention needs a run and one input, got {len(of)} words: "
            f"clearhead plot attention RUN INPUT"
        )


def _write_for_run(run: Path, tensorboard: bool, device: str, json: bool) -> None:
    with exit_on_interrupt():
        from clearhead.inspection.report import write_report
        from clearhead.inspection.tensorboard import write_events

    if tensorboard:
        name, path = "events", write_events(run)
    else:
        name, path = "report", write_report(run, device=str(find_device(device)), tell=warn)
    typer.echo(json_format.dumps({name: str(path)}) if json else f"{name}: {path}")
    if tensorboard and not json:
        get = "" if find_spec("tensorboard") else "pip install 'clearhead[tb]' && "
        typer.echo(f"next:   {get}tensorboard --logdir {shlex.quote(str(run.parent))}")


def _draw(what: str, of: Sequence[str], device: str) -> "Picture":
    if what == "attention":
        return _draw_attention(Path(of[0]), of[1], device)
    if what == "curves":
        return _draw_curves([Path(run) for run in of])
    return (
        _draw_schedules(of) if what == "schedule" else _draw_part(what, [int(word) for word in of])
    )


def _draw_part(what: str, dimensions: Sequence[int]) -> "Picture":
    with exit_on_interrupt():
        import torch

        from clearhead.attention import Mask
        from clearhead.inspection import figures, position_figures
        from clearhead.positions import AlibiBias

    if what == "waves":
        shown = dimensions or (4, 5, 6, 7)
        return position_figures.position_waves(d_model=20, dimensions=shown, n_positions=100)
    if what == "table":
        return position_figures.position_table(d_model=128, n_positions=60)
    if what == "mask":
        return figures.mask_picture(Mask.causal() & Mask.padding(torch.tensor([8, 5])), 8, 8)
    return position_figures.toeplitz_matrices(AlibiBias(4)(16))


def _draw_schedules(names: Sequence[str]) -> "Picture":
    """The learning rate of recipes or runs, or of the three kinds of schedule."""
    for name in names:
        if not (Path(name) / CONFIG).is_file():
            check_recipe(name)
    with exit_on_interrupt():
        from clearhead.inspection.report.curves import schedules_picture
        from clearhead.training.schedule import SCHEDULES, make_schedule

    if not names:
        kinds = {kind: make_schedule(kind, WARMUP, STEPS, cooldown=COOLDOWN) for kind in SCHEDULES}
        return schedules_picture({kind: (schedule, 1.0) for kind, schedule in kinds.items()})
    configs = dict(zip(_make_labels(names), map(_read_training, names), strict=True))
    return schedules_picture({name: (c.make_schedule(), c.lr) for name, c in configs.items()})


def _read_training(name: str) -> "TrainingConfig":
    """The training settings of a recipe or a run."""
    from clearhead.runs.run import read_recipe

    is_run = (Path(name) / CONFIG).is_file()
    return (read_recipe(RunFolder(name).config) if is_run else build_recipe(name)).training


def _draw_curves(runs: Sequence[Path]) -> "Picture":
    folders = [RunFolder(run) for run in runs]
    for folder in folders:
        folder.check()
        if not any(line.keys() - {"step", "lr"} for line in folder.read_metrics()):
            raise ValueError(f"{folder.path} has no metrics yet; train it longer")
    with exit_on_interrupt():
        from clearhead.inspection.report import collect_series
        from clearhead.inspection.report.curves import compare_runs

    lines = [folder.read_metrics() for folder in folders]
    found = dict(zip(_make_labels(runs), map(collect_series, lines), strict=True))
    return compare_runs(
        {run: {n: v for n, v in s.items() if n != "lr"} for run, s in found.items()}
    )


def _draw_attention(run: Path, text: str, device: str) -> "Picture":
    loaded = open_run(run, "best", device, "auto")
    from clearhead.inspection.report import look_at

    look = look_at(loaded, text)
    warn(look.caption)
    return look.picture


def _make_labels(paths: Sequence[str | Path]) -> list[str]:
    """The names of recipes or runs, or, if two are equal, their paths."""
    names = [Path(path).resolve().name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))
