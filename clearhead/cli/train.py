"""clearhead train RECIPE [section.name=value …]: train a model in a run folder."""

import dataclasses
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options
from clearhead.cli.interrupts import exit_on_interrupt
from clearhead.cli.options import Device, Json, OptionalSeed, Quiet, Threads, Trust
from clearhead.cli.progress import format_metrics, show_progress
from clearhead.cli.recipes import build_recipe, check_recipe, is_file, read_kinds
from clearhead.files.reading import prefix_errors, quote
from clearhead.runs.folder import CONFIG, RunFolder, find_runs, list_runs
from clearhead.timing import format_duration
from clearhead.training.recipes import RECIPES

if TYPE_CHECKING:
    from clearhead.runs import Interrupted, RunResult
    from clearhead.training import Recipe


RecipeName = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        help=f"One of {', '.join(RECIPES)}; or a Python file with your own recipe.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SECTION.NAME=VALUE", help="Settings to change, such as training.lr=3e-4."
    ),
]
Runs = Annotated[Path, typer.Option("--out", help="Folder for runs.")]
Resume = Annotated[
    str | None, typer.Option("--resume", help="Resume a run: its folder, or last for the newest.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Resume although settings, threads or versions have changed."),
]
Overfit = Annotated[
    int | None, typer.Option("--overfit", help="Train and evaluate on only this many examples.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Test all parts with two steps, then delete the run.")
]


def train(
    name: RecipeName = None,
    changes: Changes = None,
    out: Runs = Path("runs"),
    resume: Resume = None,
    force: Force = False,
    trust: Trust = False,
    overfit: Overfit = None,
    dry_run: DryRun = False,
    seed: OptionalSeed = None,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model. Stop it at any time: the same command resumes it."""
    name, given = split_words(name, changes or [])
    if seed is not None:
        given.append(f"training.seed={seed}")
    check_options(name, given, out, resume, overfit, dry_run)
    options.check_threads(threads)
    run = None if resume is None else find_run(out, resume, name)
    with exit_on_interrupt():
        from clearhead import runs, training
        from clearhead.runs import train_recipe  # noqa: F401  # else imported at its first use
        from clearhead.runs.resume import find_unreported
        from clearhead.runtime import read_place

    is_first = read_place().rank == 0  # of several processes, this one prints and draws
    recipe, overfit = choose_recipe(name, run, overfit, trust)
    recipe = training.with_changes(recipe, given)

    def find_finished() -> RunFolder | None:
        return None if run or dry_run else find_unreported(out, recipe, overfit)

    try:
        with _choose_folder(out, dry_run) as where:
            try:
                with show_progress(quiet or not is_first) as tell:
                    result = runs.train(
                        _shorten(recipe) if dry_run else recipe,
                        where,
                        resume=None if run is None else str(run.path),
                        overfit=overfit,
                        device=str(options.find_device(device)),
                        threads=threads,
                        force=force,
                        tell=tell,
                        find_finished=find_finished,
                    )
            except runs.Finished as found:
                if is_first:
                    _draw_missing_report(RunFolder(found.run), recipe, device, json, quiet)
                return
            if not is_first:
                return
            with _stop_at_signal(result.run):
                if dry_run:
                    _write_report(result, silent=True)  # one of the parts that must work
                _finish(result, json=json, quiet=quiet, dry_run=dry_run)
    except runs.Interrupted as stop:
        if is_first:
            _print_how_to_resume(stop, dry_run, is_alone=read_place().size == 1)
        sys.exit(128 + stop.number)


def _draw_missing_report(
    run: RunFolder, recipe: "Recipe", device: str, json: bool, quiet: bool
) -> None:
    """Draw the report of a finished run, without training again.

    The user's classes come from the given recipe, so no code from the run folder is executed.
    """
    from clearhead.runs.run import load_run
    from clearhead.runs.train_recipe import sum_up

    if not quiet:
        options.warn(f"{run.path} is finished, but its report is missing; drawing the report")
    with _stop_at_signal(run.path):
        kinds = [type(section) for section in recipe.sections.values()]
        on = str(options.find_device(device))
        result = sum_up(load_run(run.path, device=on, kinds=kinds, tell=options.warn))
        _finish(result, json=json, quiet=quiet, dry_run=False)


@contextmanager
def _stop_at_signal(run: Path) -> Iterator[None]:
    """Ctrl-C and SIGTERM end this block at once: it comes after training, and the run is saved."""
    from clearhead.runs.signals import Interrupted, Signals

    def stop() -> None:
        raise KeyboardInterrupt  # which no `except Exception` catches

    signals = Signals(stop)
    try:
        with signals.catch():
            yield
    except KeyboardInterrupt:
        raise Interrupted(signals.number or signal.SIGINT, run, finished=True) from None


def _finish(result: "RunResult", *, json: bool, quiet: bool, dry_run: bool) -> None:
    """Print the result, and write the report even if stdout is closed."""
    try:
        _print_result(result, json=json, quiet=quiet, dry_run=dry_run)
    finally:
        if not dry_run:
            _write_report(result, silent=json or quiet)


def split_words(name: str | None, changes: list[str]) -> tuple[str | None, list[str]]:
    """Find the recipe among the words: the one without "="; with --resume there may be none."""
    words = [*([] if name is None else [name]), *changes]
    names = [word for word in words if "=" not in word][:1]
    return (names[0] if names else None), [word for word in words if word not in names]


def check_options(
    name: str | None,
    changes: list[str],
    out: Path,
    resume: str | None,
    overfit: int | None,
    dry_run: bool,
) -> None:
    """Refuse wrong options before anything slow is imported."""
    if name is None and resume is None:
        raise ValueError(f"a recipe is missing; choose one of {', '.join(RECIPES)}")
    if name is not None:
        check_recipe(name)
    for change in changes:
        if "=" not in change:
            raise ValueError(f"a change is written section.name=value, got {change!r:.80}")
    if overfit is not None and overfit < 1:
        raise ValueError(f"--overfit must be at least 1, got {overfit}")
    if dry_run and resume is not None:
        raise ValueError("--dry-run keeps nothing, so it cannot --resume a run; leave one out")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out is {out}, which is a file; give a folder")


def find_run(out: Path, resume: str, name: str | None) -> RunFolder:
    """The run that --resume names; `last` is the newest of the recipe, or of all."""
    if name is not None and is_file(name):
        name = build_recipe(name).name
    if resume == "last":
        runs = list_runs(out) if name is None else find_runs(out, name)
        if not runs:
            of = "" if name is None else f" of {name}"
            raise ValueError(f"--resume last: {quote(out)} has no run{of}; start one without it")
        return runs[-1]
    run = RunFolder(resume)
    its = run.config.get("recipe")
    if name not in (None, its):
        raise ValueError(
            f"{quote(run.path)} is a run of {its!r:.80}, not of {name!r}; leave the recipe out"
        )
    return run


def choose_recipe(
    name: str | None, run: RunFolder | None, overfit: int | None, trust: bool
) -> "tuple[Recipe, int | None]":
    """The recipe and the value of --overfit; a resumed run has its own.

    The classes of a resumed run come from the given file or, without one, from its recipe.py.
    """
    if run is None:
        return build_recipe(str(name)), overfit
    from clearhead.runs.own_code import find_kinds
    from clearhead.runs.run import read_recipe

    kinds = read_kinds(name) if name and is_file(name) else find_kinds(run, trust=trust)
    if overfit is None:
        overfit = run.config.get("overfit")
    with prefix_errors(run / CONFIG):
        return read_recipe(run.config, kinds), overfit


def _shorten(recipe: "Recipe") -> "Recipe":
    short = dataclasses.replace(recipe.training, steps=2, log_every=1, eval_every=2, save_every=1)
    return dataclasses.replace(recipe, training=short)


@contextmanager
def _choose_folder(out: Path, dry_run: bool) -> Iterator[Path]:
    """The folder for runs; for a dry run, one that is deleted afterwards."""
    if not dry_run:
        yield out
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _print_result(result: "RunResult", *, json: bool, quiet: bool, dry_run: bool) -> None:
    """Print the result on stdout."""
    run = None if dry_run else str(result.run)
    if json:
        facts = {"run": run, "steps": result.steps, "seconds": round(result.seconds, 3)}
        options.print_json({**facts, "metrics": result.metrics})
        return
    name = "dry run" if dry_run else result.run.name
    best = "" if result.best_step in (None, result.steps) else f"best at step {result.best_step}: "
    seconds = format_duration(result.seconds)
    metrics = format_metrics(result.metrics)
    typer.echo(f"{name}: {result.steps} steps in {seconds}, {best}{metrics}")
    if dry_run:
        typer.echo("all parts work; nothing is kept")
    elif result.sample and not quiet:
        typer.echo(f"\n{result.sample}\n")


def _write_report(result: "RunResult", *, silent: bool) -> None:
    """Write report.html, and print what to do next."""
    with exit_on_interrupt():
        from clearhead.inspection.report import write_report

    if not silent:
        print("drawing the report …", file=sys.stderr)
    report = write_report(result.trained)
    if not silent:
        typer.echo(f"report: {report}\nnext:   {result.next_command}")


_FINISHED = (
    "the run is finished and saved; the same command, or clearhead plot {}, draws its report"
)


def _print_how_to_resume(stop: "Interrupted", dry_run: bool, is_alone: bool) -> None:
    if dry_run:
        print("stopped; this was a dry run: nothing is kept", file=sys.stderr)
        return
    run = shlex.quote(str(stop.run))
    if stop.finished:
        print(f"stopped; {_FINISHED.format(run)}", file=sys.stderr)
        return
    print(f"stopped; the run is saved in {stop.run}", file=sys.stderr)
    other = f", or clearhead train --resume {run}" if is_alone else ""
    print(f"resume: the same command again{other}", file=sys.stderr)
