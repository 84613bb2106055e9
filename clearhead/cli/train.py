"""clearhead train RECIPE [section.name=value …]: learn, and keep all of it in a run folder."""

import dataclasses
import json as json_format
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.interrupts import leaving_at_once
from clearhead.cli.options import Device, Json, Quiet, Threads, check_threads, device_named
from clearhead.cli.progress import measures, progress_shown
from clearhead.cli.recipes import check_recipe, is_file, recipe_named
from clearhead.files.reading import prefix_errors, quote
from clearhead.runs.folder import CONFIG, RunFolder, find_runs
from clearhead.timing import format_duration
from clearhead.training.recipes import RECIPES

if TYPE_CHECKING:
    from clearhead.runs import Interrupted, RunResult
    from clearhead.training import Recipe


def train(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE", help=f"One of {', '.join(RECIPES)}; or your own file of a recipe."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SECTION.NAME=VALUE]...", help="Such as training.lr=3e-4."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for runs.")] = Path("runs"),
    resume: Annotated[
        str | None, typer.Option("--resume", help="A run to go on with, or last.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on with other training.…, threads or versions.")
    ] = False,
    overfit: Annotated[
        int | None, typer.Option("--overfit", help="Learn only this many examples, by heart.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Two steps of everything, kept nowhere.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed, same numbers.")] = None,
    device: Device = "auto",
    threads: Threads = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model. Stop it as you like: the same command goes on where it was."""
    name, given = _recipe_and_changes(name, changes or [])
    if seed is not None:
        given.append(f"training.seed={seed}")
    _check(name, given, out, resume, overfit, dry_run)
    check_threads(threads)
    run = None if resume is None else _run_to_go_on_with(out, resume, name)
    with leaving_at_once():
        from clearhead import runs, training
        from clearhead.runs import train_recipe  # noqa: F401  # now, not when it is used

    recipe, overfit = _recipe(name, run, overfit)
    recipe = training.with_changes(recipe, given)
    try:
        with _place(out, dry_run) as where:
            with progress_shown(quiet) as tell:
                result = runs.train(
                    _two_steps(recipe) if dry_run else recipe,
                    where,
                    resume=None if run is None else str(run.path),
                    overfit=overfit,
                    device=str(device_named(device)),
                    threads=threads,
                    force=force,
                    tell=tell,
                )
            if dry_run:
                _report(result, device, silent=True)  # before it is said that all parts work
            try:
                _say(result, json=json, quiet=quiet, dry_run=dry_run)
            finally:  # also if nobody reads what was said
                if not dry_run:
                    _report(result, device, silent=json or quiet)
    except runs.Interrupted as stop:
        _say_how_to_go_on(stop, dry_run)
        sys.exit(128 + stop.number)


def _recipe_and_changes(name: str | None, changes: list[str]) -> tuple[str | None, list[str]]:
    """The one word that is no change, wherever it stands; with --resume there may be none."""
    words = [*([] if name is None else [name]), *changes]
    names = [word for word in words if "=" not in word][:1]
    return (names[0] if names else None), [word for word in words if word not in names]


def _check(
    name: str | None,
    changes: list[str],
    out: Path,
    resume: str | None,
    overfit: int | None,
    dry_run: bool,
) -> None:
    """What can be refused before anything slow is imported."""
    if name is None and resume is None:
        raise ValueError(f"a recipe is missing; take one of {', '.join(RECIPES)}")
    if name is not None:
        check_recipe(name)
    for change in changes:
        if "=" not in change:
            raise ValueError(f"a change is written section.name=value, got {change!r:.80}")
    if overfit is not None and overfit < 1:
        raise ValueError(f"--overfit must be at least 1, got {overfit}")
    if dry_run and resume is not None:
        raise ValueError("--dry-run keeps nothing, so it cannot go on with a run; leave one out")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out is {out}, which is a file; give a folder")


def _run_to_go_on_with(out: Path, resume: str, name: str | None) -> RunFolder:
    """The run that --resume names; last: the newest of the recipe, or of all."""
    if name is not None and is_file(name):
        name = recipe_named(name).name
    if resume == "last":
        runs = _newest_last(out) if name is None else find_runs(out, name)
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


def _newest_last(out: Path) -> list[RunFolder]:
    started = sorted(out.glob(f"[!.]*/{CONFIG}"), key=lambda path: path.stat().st_mtime)
    return [RunFolder(path.parent) for path in started]


def _recipe(
    name: str | None, run: RunFolder | None, overfit: int | None
) -> "tuple[Recipe, int | None]":
    """What to train, and on how many examples: as the run began, or as the recipe says."""
    if run is None:
        return recipe_named(str(name)), overfit
    from clearhead.runs.run import read_recipe

    with prefix_errors(run / CONFIG):
        return read_recipe(run.config), run.config.get("overfit") if overfit is None else overfit


def _two_steps(recipe: "Recipe") -> "Recipe":
    short = dataclasses.replace(recipe.training, steps=2, log_every=1, eval_every=2, save_every=1)
    return dataclasses.replace(recipe, training=short)


@contextmanager
def _place(out: Path, dry_run: bool) -> Iterator[Path]:
    """Where runs are kept; those of a dry run nowhere."""
    if not dry_run:
        yield out
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _say(result: "RunResult", *, json: bool, quiet: bool, dry_run: bool) -> None:
    """The result, on stdout."""
    run = None if dry_run else str(result.run)
    if json:
        facts = {"run": run, "steps": result.steps, "seconds": round(result.seconds, 3)}
        typer.echo(json_format.dumps({**facts, "metrics": result.metrics}))
        return
    name = "dry run" if dry_run else result.run.name
    best = "" if result.best_step in (None, result.steps) else f"best at step {result.best_step}: "
    seconds = format_duration(result.seconds)
    told = f"{result.steps} steps in {seconds}, {best}{measures(result.metrics)}"
    typer.echo(f"{name}: {told}")
    if dry_run:
        typer.echo("all parts work; nothing is kept")
    elif result.sample and not quiet:
        typer.echo(f"\n{result.sample}\n")


def _report(result: "RunResult", device: str, *, silent: bool) -> None:
    """Draw the run, and say what to do next."""
    with leaving_at_once():
        from clearhead.inspection.report import write_report

    if not silent:
        print("drawing the report …", file=sys.stderr)
    try:
        report = write_report(result.run, device=device)
    except KeyboardInterrupt:
        print(_FINISHED.format(shlex.quote(str(result.run))), file=sys.stderr)
        raise
    if not silent:
        typer.echo(f"report: {report}\nnext:   {result.next_command}")


_FINISHED = "the run is finished and saved; its report is drawn by clearhead plot {}"


def _say_how_to_go_on(stop: "Interrupted", dry_run: bool) -> None:
    if dry_run:
        print("stopped; this was a dry run: nothing is kept", file=sys.stderr)
        return
    run = shlex.quote(str(stop.run))
    if stop.finished:
        print(f"stopped; {_FINISHED.format(run)}", file=sys.stderr)
        return
    print(f"stopped; all is saved in {stop.run}", file=sys.stderr)
    print(f"go on: the same command again, or clearhead train --resume {run}", file=sys.stderr)
