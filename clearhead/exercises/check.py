"""Check a submission part by part; each part runs in a worker of its own.

check("my_attention.py")           a file, a notebook or a folder
check(my_attention)                a function or a class, also one defined in a notebook
"""

import ast
import inspect
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.exercises.catalogue import Entry, read_catalogue
from clearhead.exercises.contracts import check_name, find_exercise
from clearhead.exercises.definitions import Definition, find_definition
from clearhead.exercises.intake import Submission, read_source, read_submission
from clearhead.exercises.report import Part, Report

SEED_BITS = 62
OFTEN_IMPORTED = ("matplotlib.pyplot",)  # by students' files; it takes as long as two parts


def check(
    target: Any,
    exercise: str | None = None,
    *,
    map: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> Report:
    """Check a file, notebook or folder by its path, or a function or class.

    exercise: which one; None checks all that are found. map: the name in the file for an exercise,
    such as {"attention": "MyAttn.forward"}. seed: of the inputs; None draws a secret one.
    """
    exercises = [] if exercise is None else [exercise]
    if isinstance(target, str | Path):
        return check_submission(read_submission(Path(target)), exercises, map=map, seed=seed)
    submission = read_source(_get_source(target), f"{target.__name__}.py")
    if exercise is not None:
        map = {exercise: target.__name__}
    own = {name: d for name, d in submission.definitions.items() if name == target.__name__}
    if map is None:
        submission.definitions = own
    return check_submission(submission, [], map=map, seed=seed)


def _get_source(target: Any) -> str:
    """The text of the file or of the notebook cells that define a function or a class."""
    if not inspect.isfunction(target) and not inspect.isclass(target):
        raise TypeError(f"target must be a path, a function or a class, got {target!r:.80}")
    cells = getattr(sys.modules.get("__main__"), "In", None)  # what was typed in a notebook
    if target.__module__ == "__main__" and isinstance(cells, list):
        return "\n".join(each for each in cells if _is_python(each))
    try:
        path = inspect.getsourcefile(target)
        return Path(path or "").read_text(encoding="utf-8")
    except (OSError, TypeError):
        raise ValueError(
            f"the source of {target.__name__} is not known; save it to a file and check that"
        ) from None


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


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
    from clearhead.exercises.sandbox import Sandbox  # imports torch

    imports = [name for name in OFTEN_IMPORTED if name.split(".")[0] in submission.source]
    with Sandbox(imports=imports) as sandbox:
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
    found = find_definition(entry.names, submission.definitions, by_signature)
    if found is not None or not by_signature:
        return found
    fitting = [d for d in submission.definitions.values() if _fits(d, entry)]
    if len(fitting) != 1:
        return None
    owner, _, method = fitting[0].name.rpartition(".")
    return submission.definitions[owner] if method == "forward" else fitting[0]


def _fits(definition: Definition, entry: Entry) -> bool:
    """Whether a function's first parameters have the names of the exercise's, in its order."""
    optional = find_exercise(entry.name).optional
    needed = (words for name, words in entry.parameters.items() if name not in optional)
    words = [set(each.lower().split()) for each in needed]
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
