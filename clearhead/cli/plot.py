"""clearhead plot WHAT [OF…]: draw a part of the library, or runs.

clearhead plot waves [DIMENSION…]           sinusoidal positions: the waves of some dimensions;
                                            d_model=32 n_positions=60 choose the table
clearhead plot table | mask | alibi         all sinusoids; a causal mask; the ALiBi biases
clearhead plot schedule [RECIPE or RUN…]    the learning rate over the steps; section.name=value
                                            after a recipe or run changes its settings
clearhead plot curves RUN [RUN…]            the metrics of runs, side by side
clearhead plot attention RUN INPUT          the attention of a run's model on an input; 3,17,42
                                            are numbers of validation pictures
clearhead plot RUN                          write the report.html of a run again
clearhead plot RUN --tensorboard            write its metrics as an event file for TensorBoard
"""

import os
import re
import shlex
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.eval import open_run
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Device, Json, Out, Trust, find_device, print_json, warn
from clearhead.cli.recipes import build_recipe, check_recipe
from clearhead.config import suggest
from clearhead.runs.folder import CONFIG, RunFolder

if TYPE_CHECKING:
    from clearhead.inspection.figures import Picture
    from clearhead.training import TrainingConfig

PARTS = ("waves", "table", "mask", "alibi")
PICTURES = (*PARTS, "schedule", "curves", "attention")
WAVES = {"d_model": 20, "n_positions": 100}  # the table whose waves are drawn, unless given
MAX_NAME = 80  # characters of the name of a picture
WARMUP, STEPS, COOLDOWN = 800, 5000, 1000  # of the schedules that are drawn without a recipe

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT", help=f"One of {', '.join(PICTURES)}; or a run folder, to write its report."
    ),
]
Of = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OF",
        help="For waves: dimensions, d_model=32, n_positions=60; for schedule: recipes or runs, "
        "each with its changes such as training.warmup=0.1; for curves: runs; "
        "for attention: a run and an input.",
    ),
]
Svg = Annotated[bool, typer.Option("--svg", help="Draw SVG instead of PNG.")]
Tensorboard = Annotated[
    bool, typer.Option("--tensorboard", help="For a run: write its metrics for TensorBoard.")
]


def plot(
    what: What,
    of: Of = None,
    out: Out = Path("pictures"),
    svg: Svg = False,
    tensorboard: Tensorboard = False,
    trust: Trust = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Draw masks, positions, schedules and runs."""
    _check_arguments(what, of or [], tensorboard)
    if what not in PICTURES:
        _write_about_run(Path(what), tensorboard, device, trust, json)
        return
    name = _name_file(what, of or []) + (".svg" if svg else ".png")
    path = _draw(what, of or [], device, trust).save(out / name)
    _print_path("picture", path, json)


def _name_file(what: str, of: Sequence[str]) -> str:
    """The name of the picture; of runs and inputs, one for each: attention-substring-0001-abc-c."""
    if what not in ("curves", "attention"):
        return what
    words = [Path(of[0]).resolve().name, of[1]] if what == "attention" else _make_labels(of)
    whole = "-".join([what, *words])
    name = re.sub(r"[^\w.+,=]+", "-", whole).strip("-")[:MAX_NAME]
    # Two inputs that differ in other characters only, or far behind, get two files.
    return (
        name
        if name == whole
        else f"{name}-{sha256(whole.encode(errors='replace')).hexdigest()[:6]}"
    )


def _print_path(name: str, path: Path, json: bool) -> None:
    if json:
        print_json({name: str(path)})
    else:
        typer.echo(f"{name}: {path}")


def _check_arguments(what: str, of: Sequence[str], tensorboard: bool) -> None:
    """Refuse wrong arguments before anything slow is imported."""
    is_run = what not in PICTURES and Path(what).is_dir()
    if os.sep in what and not is_run:
        RunFolder(what).check()
    if what not in PICTURES and not is_run:
        known = ", ".join(PICTURES)
        near = suggest(what, PICTURES)
        raise ValueError(f"picture must be one of {known}, or a run, got {what!r}{near}")
    if tensorboard and not is_run:
        raise ValueError(f"--tensorboard takes the folder of a run, got {what!r:.80}")
    if what == "waves":
        _read_waves(of)
    if of and (is_run or what in PARTS[1:]):
        raise ValueError(f"{what} takes nothing else; got {of[0]!r:.80}")
    if what == "curves" and not of:
        raise ValueError("curves needs one run or more: clearhead plot curves RUN [RUN…]")
    if what == "attention" and len(of) != 2:
        raise ValueError(
            f"attention needs a run and one input, got {len(of)} words: "
            f"clearhead plot attention RUN INPUT"
        )


def _write_about_run(run: Path, tensorboard: bool, device: str, trust: bool, json: bool) -> None:
    """Write the report of a run, or its metrics for TensorBoard."""
    with exit_on_interrupt():
        from clearhead.inspection.report import write_report
        from clearhead.inspection.tensorboard import write_events

    if not tensorboard:
        report = write_report(run, device=str(find_device(device)), trust=trust, tell=warn)
        _print_path("report", report, json)
        return
    _print_path("events", write_events(run), json)
    if not json:
        get = "" if find_spec("tensorboard") else "pip install 'clearhead[tb]' && "
        typer.echo(f"next:   {get}tensorboard --logdir {shlex.quote(str(run.parent))}")


def _draw(what: str, of: Sequence[str], device: str, trust: bool) -> "Picture":
    match what:
        case "attention":
            return _draw_attention(Path(of[0]), of[1], device, trust)
        case "curves":
            return _draw_curves([Path(run) for run in of])
        case "schedule":
            return _draw_schedules(of, trust)
        case _:
            return _draw_part(what, of)


def _read_waves(words: Sequence[str]) -> tuple[list[int], dict[str, int]]:
    """The dimensions, and the sizes of the table they are taken from."""
    dimensions, sizes = [], dict(WAVES)
    for word in words:
        name, is_size, value = word.rpartition("=")
        if not (value.isascii() and value.isdecimal()) or (is_size and name not in WAVES):
            raise ValueError(
                f"waves takes numbers of dimensions, d_model=NUMBER and n_positions=NUMBER, "
                f"got {word!r:.80}"
            )
        if is_size:
            sizes[name] = int(value)
        else:
            dimensions.append(int(value))
    return dimensions, sizes


def _draw_part(what: str, of: Sequence[str]) -> "Picture":
    with exit_on_interrupt():
        import torch

        from clearhead.attention import Mask
        from clearhead.inspection import figures, position_figures
        from clearhead.positions import AlibiBias

    if what == "waves":
        dimensions, sizes = _read_waves(of)
        return position_figures.position_waves(dimensions=dimensions or (4, 5, 6, 7), **sizes)
    if what == "table":
        return position_figures.position_table(d_model=128, n_positions=60)
    if what == "mask":
        return figures.mask_picture(Mask.causal() & Mask.padding(torch.tensor([8, 5])), 8, 8)
    return position_figures.toeplitz_matrices(AlibiBias(4)(16))


def _draw_schedules(words: Sequence[str], trust: bool) -> "Picture":
    """The learning rate of recipes or runs; without any, of each kind of schedule."""
    wanted = _split_changes(words)
    for name, _ in wanted:
        if not _is_run(name):
            check_recipe(name)
    with exit_on_interrupt():
        from clearhead.inspection.report.curves import schedules_picture
        from clearhead.training.schedule import SCHEDULES, make_schedule

    if not wanted:
        kinds = {kind: make_schedule(kind, WARMUP, STEPS, cooldown=COOLDOWN) for kind in SCHEDULES}
        return schedules_picture({kind: (schedule, 1.0) for kind, schedule in kinds.items()})
    names = _make_labels([name for name, _ in wanted])
    labels = [" ".join([name, *changes]) for name, (_, changes) in zip(names, wanted, strict=True)]
    configs = {
        label: _read_training(*one, trust) for label, one in zip(labels, wanted, strict=True)
    }
    return schedules_picture({name: (c.make_schedule(), c.lr) for name, c in configs.items()})


def _split_changes(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Recipes or runs, each with the changes that follow it."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word or _is_run(word):
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
        else:
            raise ValueError(
                f"the change {word!r:.80} must follow the recipe it changes: "
                f"clearhead plot schedule RECIPE section.name=value"
            )
    return found


def _is_run(name: str) -> bool:
    return (Path(name) / CONFIG).is_file()


def _read_training(name: str, changes: Sequence[str], trust: bool) -> "TrainingConfig":
    """The training settings of a recipe or a run, with changes."""
    from clearhead.runs.own_code import find_kinds
    from clearhead.runs.run import read_recipe
    from clearhead.training import with_changes

    if not _is_run(name):
        return with_changes(build_recipe(name), changes).training
    folder = RunFolder(name)
    recipe = read_recipe(folder.config, find_kinds(folder, trust=trust))
    return with_changes(recipe, changes).training


def _draw_curves(runs: Sequence[Path]) -> "Picture":
    folders = [RunFolder(run) for run in runs]
    for folder in folders:
        folder.check()
        if not any(line.keys() - {"step", "lr"} for line in folder.read_metrics()):
            raise ValueError(f"{folder.path} has no metrics yet; train it longer")
    with exit_on_interrupt():
        from clearhead.inspection.report import collect_series
        from clearhead.inspection.report.curves import compare_runs

    series = [collect_series(folder.read_metrics()) for folder in folders]
    for metrics in series:
        metrics.pop("lr", None)
    return compare_runs(dict(zip(_make_labels(runs), series, strict=True)))


def _draw_attention(run: Path, text: str, device: str, trust: bool) -> "Picture":
    """Draw the attention of the best checkpoint of a run; print its caption on stderr."""
    loaded = open_run(run, "best", device, "auto", trust)
    from clearhead.inspection.report import look_at

    look = look_at(loaded, text)
    warn(look.caption)
    return look.picture


def _make_labels(paths: Sequence[str | Path]) -> list[str]:
    """The names of recipes or runs, or, if two are equal, their paths."""
    names = [Path(path).resolve().name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))
