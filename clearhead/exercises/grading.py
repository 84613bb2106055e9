"""Grade the submissions of a class, part by part, in one sandbox.

    with open_sandbox() as sandbox:
        grader = Grader(assignment, sandbox, book)
        for path in find_submissions(folder, book.folder):
            grade = grader.grade(path)

Grading uses the judge of `clearhead check`, with the same rules for inputs and the same partial
credit. Parts are independent: whatever goes wrong in one is the result of that part alone.
Only a sandbox that cannot run code at all stops the grading.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any

from clearhead.exercises.assignment import AssignedPart, Assignment
from clearhead.exercises.check import OFTEN_IMPORTED, check_part, find_parts
from clearhead.exercises.definitions import Definition
from clearhead.exercises.gradebook import (
    SEED_BITS,
    Grade,
    Gradebook,
    find_root,
    hash_submission,
    make_storable,
    shorten_notes,
)
from clearhead.exercises.intake import Submission, read_submission
from clearhead.exercises.report import Part, Report
from clearhead.files.reading import BadFile, quote
from clearhead.timing import Timer

if TYPE_CHECKING:
    from clearhead.exercises.sandbox import Sandbox, Session

LEVEL_FOR_FOREIGN_FILES = 2  # the level that keeps files and network out of reach
CALL_SECONDS = 10.0  # for one call of a student's function; a part makes many


class GradingFailed(Exception):
    """Nothing could be graded, for a reason outside the submissions."""


@contextmanager
def open_sandbox(*, is_unsafe: bool = False) -> Iterator["Sandbox"]:
    """Open one sandbox for all submissions; raise GradingFailed if its isolation is too weak."""
    from clearhead.exercises.sandbox import Sandbox, Stopped  # imports torch

    try:
        sandbox = Sandbox(imports=OFTEN_IMPORTED)
    except (Stopped, OSError) as fault:
        raise GradingFailed(f"the sandbox could not be started: {fault}") from fault
    with sandbox:
        level = sandbox.protection
        if level.number < LEVEL_FOR_FOREIGN_FILES and not is_unsafe:
            reasons = "; ".join(f"{name}: {why}" for name, why in level.missing.items())
            raise GradingFailed(
                f"submissions are not run here: the sandbox reaches level {level.number} "
                f"({level}), and {LEVEL_FOR_FOREIGN_FILES} is needed ({reasons}); use a newer "
                f"kernel, or --unsafe on a machine that holds nothing else"
            )
        yield sandbox


class Grader:
    """Grades submissions. book: where results are saved after every part; None saves nothing.

    seed: of the inputs, the same for all submissions.
    """

    def __init__(
        self, assignment: Assignment, sandbox: "Sandbox", book: Gradebook | None, seed: int
    ) -> None:
        self.assignment, self.sandbox, self.book, self.seed = assignment, sandbox, book, seed

    def grade(self, path: Path, on_part: Callable[[Grade], None] | None = None) -> Grade:
        """Grade what is not graded yet. on_part: called with the grade so far after each part."""
        grade, submission = self._start(path)
        if grade.is_complete:
            return grade
        timer, before = Timer(), grade.seconds
        for part in self._grade_parts(submission, grade):
            grade.parts.append(make_storable(part))
            grade.seconds = round(before + timer.seconds, 3)
            self._save(path, grade)
            if on_part:
                on_part(grade)
        grade.is_complete = True
        self._save(path, grade)
        return grade

    def _start(self, path: Path) -> tuple[Grade, Submission | BadFile]:
        """The grade to continue, and the submission or why it cannot be read."""
        key = self.book.key if self.book else ""
        new = Grade(quote(path.name), "", key, self.sandbox.level)
        try:
            root = find_root(path)
            new.sha256 = hash_submission(root)
            saved = self.book.read(path.name, new.sha256) if self.book else None
            if saved is not None:
                return saved, read_submission(root)
            submission = read_submission(root)
            new.notes = shorten_notes(submission.notes)
            return new, submission
        except Exception as fault:  # syntax trees of strange files raise many kinds
            words = (
                str(fault) if isinstance(fault, BadFile) else f"{new.submission}: {fault!r:.200}"
            )
            new.notes = [words]
            return new, BadFile(words)

    def _save(self, path: Path, grade: Grade) -> None:
        if self.book is not None:
            self.book.write(path.name, grade)

    def _grade_parts(self, submission: Submission | BadFile, grade: Grade) -> Iterator[Part]:
        """The parts that are not graded yet, in the order of the assignment."""
        done = {part.exercise for part in grade.parts}
        found = self._find_definitions(submission)
        for name in [name for name in found if name not in done]:
            assigned = self.assignment.find_part(name)
            if isinstance(submission, BadFile):
                yield _write_error(assigned, str(submission))
            else:
                yield self._grade_part(submission, assigned, found[name])

    def _find_definitions(
        self, submission: Submission | BadFile
    ) -> Mapping[str, Definition | None]:
        if isinstance(submission, BadFile):
            return dict.fromkeys(self.assignment.exercises)
        names = {part.exercise: part.name for part in self.assignment.parts}
        known = {name: own for name, own in names.items() if own in submission.definitions}
        return find_parts(submission, self.assignment.exercises, known)

    def _grade_part(
        self, submission: Submission, assigned: AssignedPart, definition: Definition | None
    ) -> Part:
        box = _LimitedSandbox(self.sandbox, assigned)
        try:
            part = check_part(submission, assigned.exercise, definition, box, self.seed)
        except GradingFailed:
            raise
        except Exception as fault:  # a fault of ours must not stop the class
            words = f"it could not be judged ({type(fault).__name__}: {fault!s:.200})"
            return _write_error(assigned, f"{words}; grade this part by hand")
        return _scale(part, assigned)


def check_assignment(path: Path, assignment: Assignment, seed: int | None = None) -> Report:
    """Check a file as it will be graded: the same parts, points, limits and hints."""
    seed = assignment.seed if seed is None else seed
    with open_sandbox(is_unsafe=True) as sandbox:
        grader = Grader(assignment, sandbox, None, randbits(SEED_BITS) if seed is None else seed)
        grade = grader.grade(path)
    hints = {name: assignment.find_part(name).hints or "line" for name in assignment.exercises}
    parts = [part.limit(hints[part.exercise]) for part in grade.parts]
    return Report(grade.submission, grade.sandbox, parts, grade.notes)


def _write_error(assigned: AssignedPart, sentence: str) -> Part:
    return Part(assigned.exercise, "error", sentence=sentence, max_points=assigned.points or 0.0)


def _scale(part: Part, assigned: AssignedPart) -> Part:
    """The same result with the points of the assignment, rounded down to tenths."""
    points = assigned.points or 0.0
    share = part.points / part.max_points if part.max_points else 0.0
    own = points if part.verdict == "passed" else math.floor(10 * share * points + 1e-6) / 10
    sentence = part.sentence.partition("; --map ")[0]  # not on the student's command line
    return replace(part, points=own, max_points=points, sentence=sentence)


class _LimitedSandbox:
    """Opens sessions with the limits of a part."""

    def __init__(self, sandbox: "Sandbox", part: AssignedPart) -> None:
        seconds = part.seconds or CALL_SECONDS
        self.sandbox = sandbox
        self.limits: dict[str, Any] = {"seconds": min(CALL_SECONDS, seconds), "total": seconds}
        self.limits["memory"] = (part.memory or 512) << 20

    def open(self) -> "Session":
        """Open a session; a failure here is not the student's, whose code has not run yet."""
        from clearhead.exercises.sandbox import Stopped

        for is_last in (False, True):
            try:
                return self.sandbox.open(**self.limits)
            except (Stopped, OSError) as fault:
                if is_last:
                    raise GradingFailed(f"the sandbox cannot open a session: {fault}") from fault
        raise AssertionError
