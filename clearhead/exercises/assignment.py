"""An assignment: which exercises are graded, for how many points, and what students are shown.

    title = "Attention from scratch"
    hints = "term"                  # none, property, term or line: how much students are told
    seed = 7                        # of the inputs; left out: a secret one for each run
    seconds = 60                    # for one part
    memory = 512                    # MB, for one part

    [[parts]]
    exercise = "attention"
    points = 5                      # left out: those of the exercise

    [[parts]]
    exercise = "self_attention"
    name = "MyAttention"            # the name on the sheet, if it is none of the usual ones
    visibility = "hidden"           # hidden, after_due_date, after_published or visible

A part may have hints, seconds and memory of its own. torch is not imported here.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clearhead.config import Config, suggest
from clearhead.exercises.catalogue import read_entry
from clearhead.exercises.contracts import check_name
from clearhead.exercises.report import LEVELS
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.files.strict_json import hash_json
from clearhead.files.text import read_text

VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")  # Gradescope's words
MAX_BYTES = 1 << 20
MAX_POINTS = 10_000.0
MAX_SECONDS = 3600.0
MEMORY = (64, 16_384)  # MB


@dataclass(frozen=True)
class AssignedPart(Config):
    """One exercise of an assignment; None takes the value of the exercise or the assignment."""

    exercise: str
    points: float | None = None
    name: str | None = None
    visibility: str = "visible"
    hints: str | None = None
    seconds: float | None = None
    memory: int | None = None

    def check(self) -> None:
        check_name(self.exercise)
        _check_word("visibility", self.visibility, VISIBILITIES)
        _check_settings(self.hints, self.seconds, self.memory)
        if self.points is not None and not 0 <= self.points <= MAX_POINTS:
            raise ValueError(f"points must be from 0 to {MAX_POINTS:,.0f}, got {self.points}")


@dataclass(frozen=True)
class Assignment(Config):
    """What is graded. parts: none means all exercises that are found in a submission."""

    title: str = "assignment"
    hints: str = "line"
    seed: int | None = None
    seconds: float = 60.0
    memory: int = 512
    parts: tuple | list = ()

    def check(self) -> None:
        _check_settings(self.hints, self.seconds, self.memory)
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        parts = tuple(_read_part(number, each) for number, each in enumerate(self.parts, 1))
        names = [part.exercise for part in parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{twice} is in two parts; an exercise may be in one part only")
        object.__setattr__(self, "parts", parts)

    def find_part(self, exercise: str) -> AssignedPart:
        """The part of an exercise, with every value filled in."""
        given = next((part for part in self.parts if part.exercise == exercise), None)
        part = given or AssignedPart(exercise)
        points = read_entry(exercise).points
        return replace(
            part,
            points=points if part.points is None else part.points,
            hints=part.hints or self.hints,
            seconds=part.seconds or self.seconds,
            memory=part.memory or self.memory,
        )

    def show_students(self) -> "Assignment":
        """The same assignment without the parts that students do not see."""
        return replace(self, parts=[part for part in self.parts if part.visibility == "visible"])

    @property
    def exercises(self) -> list[str]:
        return [part.exercise for part in self.parts]

    @property
    def sha256(self) -> str:
        """A hash of everything that may change a grade."""
        return hash_json({**self.to_dict(), "parts": [part.to_dict() for part in self.parts]})


def read_assignment(path: Path) -> Assignment:
    """Read a TOML file; an unknown key is refused, and the nearest known one suggested."""
    text = read_text(path, max_bytes=MAX_BYTES)
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        raise BadFile(f"{quote(path)} is not TOML: {fault}") from None
    with prefix_errors(path):
        if not isinstance(values.get("parts", []), list):
            raise TypeError("parts must be tables, each under a line [[parts]]")
        assignment = Assignment.from_dict(values)
        if not assignment.parts:
            raise ValueError("an assignment needs at least one part, under a line [[parts]]")
        return assignment


def assign_exercises(exercises: Iterable[str]) -> Assignment:
    """An assignment of these exercises, with their usual points."""
    return Assignment(parts=tuple(AssignedPart(name) for name in exercises))


def _read_part(number: int, values: AssignedPart | Mapping[str, Any]) -> AssignedPart:
    if isinstance(values, AssignedPart):
        return values
    try:
        return AssignedPart.from_dict(values)
    except (TypeError, ValueError) as fault:
        raise ValueError(f"part {number}: {fault}") from None


def _check_settings(hints: str | None, seconds: float | None, memory: int | None) -> None:
    if hints is not None:
        _check_word("hints", hints, LEVELS)
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"seconds must be above 0 and at most {MAX_SECONDS:g}, got {seconds}")
    if memory is not None and not MEMORY[0] <= memory <= MEMORY[1]:
        raise ValueError(f"memory must be from {MEMORY[0]} to {MEMORY[1]} MB, got {memory}")


def _check_word(name: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(known)}, got {word!r:.40}{suggest(word, known)}"
        )
