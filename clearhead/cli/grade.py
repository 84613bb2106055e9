"""clearhead grade FOLDER: grade the submissions of a class; gradescope-zip: an autograder."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options
from clearhead.cli.options import Json, OptionalSeed, Quiet
from clearhead.cli.streams import escape_controls, find_raw
from clearhead.files.reading import quote
from clearhead.timing import Timer, format_duration

if TYPE_CHECKING:
    from clearhead.exercises.assignment import Assignment
    from clearhead.exercises.gradebook import Grade

EVERY_SECONDS = 5.0  # a line of progress where there is no terminal
N_NAMED = 10  # files that are not graded
MAX_NAME = 40  # characters of a name in the table

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        help="Each .py file, notebook and subfolder is a submission; with --gradescope, the whole.",
    ),
]
AssignmentFile = Annotated[
    Path | None,
    typer.Option("--assignment", metavar="FILE.toml", help="Parts, points, hints and limits."),
]
Exercises = Annotated[
    list[str] | None, typer.Option("--exercise", help="Grade this exercise; may be repeated.")
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder for the grades; the default is FOLDER-grades.")
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a table.")]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit's XML.")]
Gradescope = Annotated[
    Path | None,
    typer.Option("--gradescope", metavar="results.json", help="Write Gradescope's results.json."),
]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Grade even where the sandbox cannot be closed well.")
]


def grade(
    folder: Folder,
    assignment: AssignmentFile = None,
    exercise: Exercises = None,
    out: OutFolder = None,
    csv: Csv = None,
    junit: Junit = None,
    gradescope: Gradescope = None,
    seed: OptionalSeed = None,
    unsafe: Unsafe = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Grade the submissions of a class; a run that was stopped continues."""
    from clearhead.exercises.gradebook import Gradebook, find_others, find_submissions
    from clearhead.exercises.grading import Grader, open_sandbox

    work = _choose_assignment(assignment, exercise or [])
    if gradescope is not None:
        _grade_one(folder, work, gradescope, seed, unsafe)
        return
    out = out or folder.resolve().parent / f"{folder.resolve().name}-grades"
    files = {"csv": csv, "junit": junit, "html": out / "report.html"}
    _check_places(files)
    paths = find_submissions(folder, out)
    _name_others(find_others(folder))
    book = Gradebook(out, work, seed)
    with open_sandbox(is_unsafe=unsafe) as sandbox, _show_count(len(paths), quiet) as show:
        grader = Grader(work, sandbox, book, book.seed)
        grades = []
        for path in paths:
            show(path.name)
            grades.append(grader.grade(path))
        level = sandbox.level
    written = _write_files(work, grades, files)
    if json:
        shown = [each.to_json() for each in grades]
        options.print_json({"sandbox": level, "submissions": shown, "files": written})
        return
    _print_grades(grades, written)


def _check_places(files: dict[str, Path | None]) -> None:
    """Refuse files that cannot be written, before an hour of grading and not after it."""
    for kind in ("csv", "junit"):
        path = files[kind]
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"--{kind} {path}: no such folder; make it first")


def _name_others(paths: Sequence[Path]) -> None:
    """Say which files are not graded: a student may have handed in an archive."""
    if paths:
        names = ", ".join(quote(path.name) for path in paths[:N_NAMED])
        more = f" and {len(paths) - N_NAMED} more" if len(paths) > N_NAMED else ""
        options.warn(f"not graded, neither .py file, notebook nor folder: {names}{more}")


def _choose_assignment(path: Path | None, exercises: list[str]) -> "Assignment":
    from clearhead.exercises.assignment import assign_exercises, read_assignment

    if path is not None and exercises:
        raise ValueError("--assignment lists the exercises already; leave out --exercise")
    return assign_exercises(exercises) if path is None else read_assignment(path)


def _grade_one(
    folder: Path, work: "Assignment", results: Path, seed: int | None, unsafe: bool
) -> None:
    """Grade a folder as one submission, as Gradescope lays it out; nothing else is kept."""
    from secrets import randbits

    from clearhead.exercises.gradebook import SEED_BITS
    from clearhead.exercises.gradescope import write_results
    from clearhead.exercises.grading import Grader, open_sandbox

    if not folder.exists():
        raise ValueError(f"FOLDER {folder} is not there")
    seed = work.seed if seed is None else seed
    with open_sandbox(is_unsafe=unsafe) as sandbox:
        grader = Grader(work, sandbox, None, randbits(SEED_BITS) if seed is None else seed)
        done = grader.grade(folder.resolve(), lambda so_far: write_results(results, so_far, work))
        write_results(results, done, work)
    typer.echo(f"sandbox: {done.sandbox}; {done.points:g} of {done.max_points:g} points")


def _write_files(
    work: "Assignment", grades: Sequence["Grade"], paths: dict[str, Path | None]
) -> list[str]:
    """Write the files that are asked for; the list of their names."""
    from clearhead.exercises.class_report import write_class_report
    from clearhead.exercises.grade_tables import write_csv, write_junit
    from clearhead.files.writing import replace_file

    makers: dict[str, Callable[[], str]] = {
        "csv": lambda: write_csv(grades),
        "junit": lambda: write_junit(grades),
        "html": lambda: write_class_report(work.title, grades),
    }
    for kind, path in paths.items():
        if path is not None:
            with replace_file(path) as file:
                file.write(makers[kind]().encode())
    return [str(path) for path in paths.values() if path is not None]


def _print_grades(grades: Sequence["Grade"], written: list[str]) -> None:
    from clearhead.exercises.class_report import count, count_mistakes

    rows = [
        (_shorten(each.submission), f"{each.points:g}/{each.max_points:g}", _describe(each))
        for each in grades
    ]
    options.print_table(rows)
    typer.echo(count(len(grades), "submission"))
    for finding, n in [item for item in count_mistakes(grades) if item[0].mistake][:3]:
        typer.echo(f"{n:5} × {finding.mistake} in {finding.exercise}")
    typer.echo(f"wrote {', '.join(written)}")


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 11]}…{name[-10:]}"


def _describe(each: "Grade") -> str:
    """What is wrong, in a few words."""
    wrong = [part for part in each.parts if part.verdict != "passed"]
    words = [f"{part.exercise}: {part.mistake or part.verdict}" for part in wrong]
    return ", ".join(words) or ("right" if each.parts else "; ".join(each.notes) or "nothing found")


@contextmanager
def _show_count(total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Inside this block: a function that is called before each submission, with its name."""
    if quiet:
        yield lambda name: None
    elif not sys.stderr.isatty():
        yield _print_counts(total)
    else:
        with _show_bar(total) as show:
            yield show


def _print_counts(total: int) -> Callable[[str], None]:
    """Print how many are graded, at most every few seconds."""
    timer, done, last = Timer(), 0, time.monotonic()

    def show(name: str) -> None:
        nonlocal done, last
        if done and time.monotonic() - last >= EVERY_SECONDS:
            left = format_duration(timer.seconds / done * (total - done))
            options.warn(f"graded {done}/{total}, {left} left")
            last = time.monotonic()
        done += 1

    return show


@contextmanager
def _show_bar(total: int) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = Console(file=find_raw(sys.stderr), highlight=False)
    name_column = TextColumn("{task.description:.30}", markup=False)
    columns = (BarColumn(bar_width=16), MofNCompleteColumn(), TimeLeft(), name_column)
    with Progress(*columns, console=console, transient=True) as bar:
        line = bar.add_task("", total=total)
        done = 0

        def show(name: str) -> None:
            nonlocal done
            bar.update(line, completed=done, description=escape_controls(name))
            done += 1

        yield show


ZipAssignment = Annotated[
    Path, typer.Argument(metavar="ASSIGNMENT.toml", help="Parts, points, hints and limits.")
]
ZipOut = Annotated[Path, typer.Option("--out", help="The zip file.")]


def gradescope_zip(assignment: ZipAssignment, out: ZipOut = Path("autograder.zip")) -> None:
    """Write an autograder for Gradescope: a zip file to upload as it is."""
    from clearhead.exercises.gradescope_zip import write_gradescope_zip

    write_gradescope_zip(assignment, out)
    typer.echo(f"wrote {out}; upload it in Gradescope under Configure Autograder")
