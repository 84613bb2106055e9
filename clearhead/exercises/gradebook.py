"""The grades of a class on a disk: one file for each submission, replaced after every part.

    submissions-grades/
      run.json                  the seed of the inputs
      alice.py.json             name, SHA-256 of the files, parts
      report.html               which mistakes, how many

A run that was killed continues: what is in a file counts if the submission, the assignment and the
seed are still the same. The seed is secret, so only the teacher may read the folder.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearhead import __version__
from clearhead.exercises.assignment import Assignment
from clearhead.exercises.intake import MAX_BYTES, SUFFIXES, list_files
from clearhead.exercises.report import Part
from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.files.strict_json import hash_json, read_json, write_json

SEED_BITS = 62
MAX_NAME = 150
MAX_EXAMPLE = 20_000  # characters of JSON: an answer may be a tensor with a million numbers
MAX_PART = 80_000  # bytes of JSON
MAX_NOTES = 20


@dataclass
class Grade:
    """The result of one submission.

    sha256: of its files. key: of the assignment and the seed it was graded with. sandbox: the
    level of protection. notes: what was left out of the files.
    """

    submission: str
    sha256: str
    key: str
    sandbox: str
    is_complete: bool = False
    seconds: float = 0.0
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def points(self) -> float:
        return round(sum(part.points for part in self.parts), 6)

    @property
    def max_points(self) -> float:
        return round(sum(part.max_points for part in self.parts), 6)

    def to_json(self) -> dict[str, Any]:
        """For the teacher: everything that is known."""
        return {
            "submission": self.submission,
            "sha256": self.sha256,
            "sandbox": self.sandbox,
            "points": self.points,
            "max_points": self.max_points,
            "parts": [part.to_json() for part in self.parts],
            "notes": self.notes,
        }


class Gradebook:
    """The folder of the grades of one class."""

    def __init__(self, folder: Path, assignment: Assignment, seed: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.seed = self._find_seed(assignment.seed if seed is None else seed)
        self.key = make_key(assignment, self.seed)

    def _find_seed(self, seed: int | None) -> int:
        """The seed that is asked for; else that of the last run, or a new secret one."""
        path = self.folder / "run.json"
        if seed is None and path.exists():
            seed = read_json(path).get("secret_seed")
        if not isinstance(seed, int):
            seed = secrets.randbits(SEED_BITS)
            write_json(path, {"secret_seed": seed})
        return seed

    def read(self, name: str, sha256: str) -> Grade | None:
        """The saved grade of a submission, if it was graded in the same way and has not changed."""
        try:
            values = read_json(self._find_path(name))
            parts = [Part(**part) for part in values.pop("parts")]
            grade = Grade(**values, parts=parts)
        except (BadFile, TypeError, KeyError, AttributeError):
            return None
        is_same = (grade.submission, grade.sha256, grade.key) == (quote(name), sha256, self.key)
        return grade if is_same else None

    def write(self, name: str, grade: Grade) -> None:
        """Save a grade; the file is replaced whole or not at all."""
        write_json(self._find_path(name), {**vars(grade), "parts": [vars(p) for p in grade.parts]})

    def _find_path(self, name: str) -> Path:
        is_plain = name.isprintable() and len(name.encode()) <= MAX_NAME and name != "run"
        stem = name if is_plain else hashlib.sha256(name.encode(errors="replace")).hexdigest()
        return self.folder / f"{stem}.json"


def make_key(assignment: Assignment, seed: int) -> str:
    """A hash of everything but the submission that decides a grade."""
    return hash_json({"assignment": assignment.sha256, "seed": seed, "version": __version__})


def make_storable(part: Part) -> Part:
    """Drop an example that is too large; replace a part that cannot be saved by an error."""
    try:
        if len(json.dumps(part.example)) > MAX_EXAMPLE:
            note = "the example is too large to be shown"
            part = replace(part, example=None, notes=[*part.notes, note])
        text = json.dumps(vars(part), allow_nan=False, ensure_ascii=False)
        is_storable = len(text.encode()) <= MAX_PART
    except (TypeError, ValueError):
        is_storable = False
    if is_storable:
        return part
    sentence = "the result could not be saved; grade this part by hand"
    return Part(part.exercise, "error", sentence=sentence, max_points=part.max_points)


def shorten_notes(notes: Sequence[str]) -> list[str]:
    """The first notes; a notebook may have thousands of cells that cannot be read."""
    more = [f"and {len(notes) - MAX_NOTES} more"] if len(notes) > MAX_NOTES else []
    return [*(note[:400] for note in notes[:MAX_NOTES]), *more]


# The submissions of a folder


def find_submissions(folder: Path, out: Path) -> list[Path]:
    """Every .py file, notebook and subfolder except `out`, by name."""
    if not folder.is_dir():
        raise BadFile(f"{quote(folder)} is not a folder of submissions")
    found = [
        path
        for path in _list_visible(folder)
        if path.suffix in SUFFIXES or (path.is_dir() and path.resolve() != out.resolve())
    ]
    if not found:
        raise BadFile(f"{quote(folder)} has no .py file, notebook or subfolder to grade")
    return found


def find_others(folder: Path) -> list[Path]:
    """Find the files of a folder that are not submissions, such as an archive."""
    files = [path for path in _list_visible(folder) if not path.is_dir()]
    return [path for path in files if path.suffix not in SUFFIXES]


def _list_visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "__"))]


def find_root(path: Path) -> Path:
    """The folder that holds the files: often an archive has a single folder around them."""
    while path.is_dir() and not path.is_symlink() and not any(_list_files(path)):
        inner = [each for each in path.iterdir() if each.is_dir() and not each.is_symlink()]
        inner = [each for each in inner if not each.name.startswith((".", "__"))]
        if len(inner) != 1:
            break
        path = inner[0]
    return path


def hash_submission(path: Path) -> str:
    """The SHA-256 of the names and the bytes of a submission's files; links are refused."""
    total = hashlib.sha256()
    for each in [path] if not path.is_dir() else [path, *list_files(path)]:
        if each.is_symlink():
            raise BadFile(f"{quote(each.name)} is a symbolic link; hand in the file itself")
        if not each.is_dir():
            data = read_bytes(each, 8 * MAX_BYTES)
            name = quote(each.relative_to(path)) if each != path else quote(each.name)
            total.update(f"{name} {len(data)}\n".encode(errors="replace") + data)
    return total.hexdigest()


def _list_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES)
