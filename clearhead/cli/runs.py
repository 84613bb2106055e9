"""clearhead runs [FOLDER]: list runs, the newest first, each with the command to run next."""

import re
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import Json, count_columns, print_json
from clearhead.files.lock import is_locked
from clearhead.files.reading import BadFile, quote
from clearhead.runs.folder import METRICS, RunFolder, list_runs

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with the runs.")]
COLUMNS = ("run", "recipe", "step", "best", "age")
AGES = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))
N_PROMPT = 20  # characters of a sample to use as a prompt


def runs(folder: Folder = Path("runs"), json: Json = False) -> None:
    """List runs: recipe, step, best metric, age and the command to run next."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {quote(folder)}; clearhead train RECIPE starts a run")
    rows = [_describe(run) for run in reversed(list_runs(folder))]
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


def _describe(run: RunFolder) -> dict[str, Any]:
    """The facts about a run; what cannot be read is None."""
    config, state = {}, run.read_state()
    with suppress(BadFile):
        config = run.config
    measure, value = _choose_measure(state.get("best_metrics"))
    finished = state.get("finished") is True
    running = not finished and is_locked(run.path)
    return {
        "run": str(run.path),
        "recipe": config.get("recipe"),
        "step": state.get("step", 0),
        "steps": _get(config, "training", "steps"),
        "finished": finished,
        "running": running,
        "measure": measure,
        "best": value,
        "age": max(0.0, time.time() - _find_last_change(run)),
        "next": _choose_next(run, config, finished, running),
    }


def _get(config: dict[str, Any], section: str, name: str) -> Any:
    values = config.get(section)
    return values.get(name) if isinstance(values, dict) else None


def _choose_measure(metrics: Any) -> tuple[str | None, float | None]:
    """The name and value of the best metric: the first other than val_loss, if there is one."""
    if not isinstance(metrics, dict) or not metrics:
        return None, None
    name = next((name for name in metrics if name != "val_loss"), "val_loss")
    value = metrics.get(name)
    return (name, float(value)) if isinstance(value, int | float) else (None, None)


def _find_last_change(run: RunFolder) -> float:
    """When the run last wrote a measurement, or else when it was started."""
    path = run / METRICS
    return (path if path.exists() else run.path).stat().st_mtime


def _choose_next(run: RunFolder, config: dict[str, Any], finished: bool, running: bool) -> str:
    """Look at a running run, resume a stopped one, try a finished one with a known input."""
    path = str(run.path)
    if running:
        return shlex.join(["clearhead", "plot", "curves", path])
    if not finished:
        return shlex.join(["clearhead", "train", "--resume", path])
    if (run / "example.png").exists():
        return shlex.join(["clearhead", "predict", path, str(run / "example.png")])
    line = _read_sample_line(run)
    if not line:
        return shlex.join(["clearhead", "eval", path])
    if _get(config, "model", "kind") == "GPTConfig":
        return shlex.join(["clearhead", "generate", path, "--prompt", line[:N_PROMPT]])
    return shlex.join(["clearhead", "predict", path, re.split(r" → |  ", line)[0]])


def _read_sample_line(run: RunFolder) -> str:
    """The first line of the last sample; empty if there is none that can be shown."""
    with suppress(BadFile):
        lines = [line for _, text in run.read_samples()[-1:] for line in text.splitlines()]
        line = next((line for line in lines if any(map(str.isalpha, line))), "").strip()
        return line if line.isprintable() else ""
    return ""


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
