"""Check a submission part by part; each part runs in a worker of its own.

report = check_file(Path("my_attention.py"))
print(report.text)
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from clearhead.exercises.catalogue import Entry, read_catalogue
from clearhead.exercises.contracts import check_name
from clearhead.exercises.intake import (
    Definition,
    Submission,
    find_definition,
    read_submission,
)
from clearhead.exercises.report import Part, Report

SEED_BITS = 62


def check_file(
    path: Path,
    exercises: Sequence[str] = (),
    *,
    map: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> Report:
    """Check the parts found in a file, notebook or folder, or these exercises.

    map: the name in the file for an exercise, such as {"attention": "MyAttn.forward"}. seed: of
    the inputs; None draws a secret one.
    """
    return check_submission(read_submission(path), exercises, map=map, seed=seed)


def check_submission(
    submission: Submission,
    exercises: Sequence[str] = (),
    *,
    map: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> Report:
    """Check a submission that is already read."""
    found = find_parts(submission, exercises, map or {})
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    from clearhead.exercises.sandbox.supervisor import Sandbox  # imports torch

    with Sandbox() as sandbox:
        report = Report(submission.name, sandbox.level, notes=list(submission.notes))
        for name, definition in found.items():
            report.parts.append(check_part(submission, name, definition, sandbox, seed))
    return report


def find_parts(
    submission: Submission, exercises: Sequence[str], map: Mapping[str, str]
) -> dict[str, Definition | None]:
    """The definition for each exercise; None if one that was asked for is missing."""
    for name in (*exercises, *map):
        check_name(name)
    catalogue = read_catalogue()
    found: dict[str, Definition | None] = {}
    for name in [*exercises, *map] or catalogue:
        definition = _find_part(submission, catalogue[name], map.get(name), bool(exercises))
        if definition is not None or exercises or name in map:
            found[name] = definition
    return found


def _find_part(
    submission: Submission, entry: Entry, mapped: str | None, by_signature: bool
) -> Definition | None:
    """By the name it is mapped to, by its usual names, or if asked for, by its parameters."""
    if mapped is not None:
        if mapped not in submission.definitions:
            known = ", ".join(submission.definitions)
            raise ValueError(f"{submission.name} does not define {mapped!r}; it has {known}")
        return submission.definitions[mapped]
    found = find_definition(entry.names, submission.definitions)
    if found is not None or not by_signature:
        return found
    fitting = [d for d in submission.definitions.values() if _fits(d, entry)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(definition: Definition, entry: Entry) -> bool:
    """Whether a function's first parameters have the names of the exercise's, in its order."""
    words = [set(each.lower().split()) for each in entry.parameters.values()]
    given = [each.lower() for each in definition.parameters]
    return (
        definition.kind == "function"
        and len(given) >= len(words) > 0
        and all(name in each for name, each in zip(given, words, strict=False))
    )


def check_part(
    submission: Submission, name: str, definition: Definition | None, sandbox: object, seed: int
) -> Part:
    """Check one exercise in a worker of its own."""
    from clearhead.exercises.judge import judge

    return judge(submission, name, definition, sandbox, seed)
