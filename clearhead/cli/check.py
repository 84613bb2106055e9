"""clearhead check FILE: find the mistakes in somebody's own code, part by part."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli import options
from clearhead.cli.options import Json, OptionalSeed

File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="A .py file, a notebook, or a folder.")
]
Exercises = Annotated[
    list[str] | None,
    typer.Option("--exercise", help="Check this exercise, even if its name is not found."),
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="EXERCISE=NAME", help="What is meant: attention=MyAttn.forward."),
]
Hints = Annotated[
    str, typer.Option("--hints", help="How much to tell: property, term or line (everything).")
]
SelfTest = Annotated[
    bool, typer.Option("--self-test", help="Check the corpus of known answers; takes minutes.")
]
List = Annotated[bool, typer.Option("--list", help="List the exercises and their mistakes.")]


def check(
    file: File = None,
    exercise: Exercises = None,
    map: Map = None,
    hints: Hints = "line",
    list_: List = False,
    self_test: SelfTest = False,
    seed: OptionalSeed = None,
    json: Json = False,
) -> None:
    """Find the mistakes in your own code: what is wrong, in which term, on which line."""
    from clearhead.exercises.report import LEVELS

    if hints not in LEVELS:
        raise ValueError(f"--hints must be one of {', '.join(LEVELS)}, got {hints!r}")
    if list_:
        _print_list(json)
        return
    if self_test:
        _run_self_test(exercise or [], seed, json)
        return
    if file is None:
        raise ValueError("FILE is missing; clearhead check --list lists the exercises")
    from clearhead.exercises.check import check_submission, find_parts
    from clearhead.exercises.intake import read_submission

    mapping = _read_map(map or [])
    submission = read_submission(file)
    found = find_parts(submission, exercise or (), mapping)
    if not found:
        raise ValueError(
            f"{file} has no part of a known exercise; clearhead check --list names them, and "
            f"--map EXERCISE=NAME says what is meant"
        )
    if not json:
        names = ", ".join(name for name, definition in found.items() if definition)
        options.warn(f"checking {submission.name}: {names or 'nothing found'}")
    report = check_submission(submission, exercise or (), map=mapping, seed=seed).limit(hints)
    if json:
        options.print_json(report.to_json())
    else:
        typer.echo(report.text)
    if not report.is_passed:
        raise typer.Exit(1)


def _run_self_test(exercises: list[str], seed: int | None, json: bool) -> None:
    from clearhead.exercises.self_test import run_self_test

    score = run_self_test([1 if seed is None else seed], exercises)
    if json:
        options.print_json(score.to_json())
    else:
        typer.echo(score.text)
    if score.misses:
        raise typer.Exit(1)


def _read_map(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if pair.count("=") != 1:
            raise ValueError(f"--map must be EXERCISE=NAME, got {pair!r}")
    return dict(pair.split("=") for pair in pairs)


def _print_list(json: bool) -> None:
    from clearhead.exercises.catalogue import BEHAVIOUR, read_catalogue

    catalogue = read_catalogue()
    if json:
        shown = [
            {
                "name": entry.name,
                "title": entry.title,
                "signature": entry.signature,
                "formula": entry.formula,
                "points": entry.points,
                "mistakes": [{"id": id, **mistake} for id, mistake in entry.mistakes.items()],
            }
            for entry in catalogue.values()
        ]
        options.print_json({"exercises": shown, "in_every_exercise": BEHAVIOUR})
        return
    for entry in catalogue.values():
        typer.echo(f"{entry.name:24} {entry.title}; {len(entry.mistakes)} named mistakes")
