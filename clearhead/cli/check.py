"""clearhead check FILE: find the mistakes in somebody's own code, part by part."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options
from clearhead.cli.options import Json, OptionalSeed

if TYPE_CHECKING:
    from clearhead.exercises.report import Report

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
AssignmentFile = Annotated[
    Path | None,
    typer.Option("--assignment", metavar="FILE.toml", help="Check as this assignment is graded."),
]
Hints = Annotated[
    str,
    typer.Option("--hints", help="How much to tell: none, property, term or line (everything)."),
]
SelfTest = Annotated[
    bool, typer.Option("--self-test", help="Check the corpus of known answers; takes minutes.")
]
List = Annotated[bool, typer.Option("--list", help="List the exercises and their mistakes.")]


def check(
    file: File = None,
    exercise: Exercises = None,
    map: Map = None,
    assignment: AssignmentFile = None,
    hints: Hints = "line",
    list_: List = False,
    self_test: SelfTest = False,
    seed: OptionalSeed = None,
    json: Json = False,
) -> None:
    """Find the mistakes in your own code: what is wrong, in which term, on which line."""
    from clearhead.exercises.report import check_level

    check_level(hints, "--hints")
    if list_:
        _print_list(json)
        return
    if self_test:
        _run_self_test(exercise or [], seed, json)
        return
    if file is None:
        raise ValueError("FILE is missing; clearhead check --list lists the exercises")
    if assignment is None:
        report = _check_parts(file, exercise or [], map or [], seed, json).limit(hints)
    elif exercise or map or hints != "line":
        raise ValueError("exercises, names and hints stand in the assignment; leave them out here")
    else:
        report = _check_assignment(file, assignment, seed, json)
    options.print_report(report, json)
    if not report.is_passed:
        raise typer.Exit(1)


def _check_parts(
    file: Path, exercises: list[str], map: list[str], seed: int | None, json: bool
) -> "Report":
    from clearhead.exercises.check import check_submission, find_parts
    from clearhead.exercises.intake import read_submission

    mapping = _read_map(map)
    submission = read_submission(file)
    found = find_parts(submission, exercises, mapping)
    if not found:
        raise ValueError(f"{file} has no part of a known exercise")
    _say_start(submission.name, [name for name, definition in found.items() if definition], json)
    return check_submission(submission, exercises, map=mapping, seed=seed)


def _check_assignment(file: Path, path: Path, seed: int | None, json: bool) -> "Report":
    from clearhead.exercises.assignment import read_assignment
    from clearhead.exercises.intake import read_submission

    assignment = read_assignment(path).show_students()
    read_submission(file)  # says what cannot be read before anything slow is imported
    _say_start(file.name, assignment.exercises, json)
    from clearhead.exercises.grading import check_assignment

    return check_assignment(file, assignment, seed)


def _say_start(name: str, exercises: list[str], json: bool) -> None:
    if not json:
        options.warn(f"checking {name}: {', '.join(exercises) or 'nothing found'}")


def _run_self_test(exercises: list[str], seed: int | None, json: bool) -> None:
    from clearhead.exercises.self_test import run_self_test

    score = run_self_test([1 if seed is None else seed], exercises)
    options.print_report(score, json)
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
