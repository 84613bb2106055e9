"""The exercises and their mistakes, without importing torch: read from catalogue.json.

`clearhead check --list` and `clearhead exercise` must answer at once, and a check says what it has
found before anything slow is imported. The contracts import torch, so their descriptions are
kept in a file. `make pages` writes it and a test compares it with the contracts.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.exercises.categories import find_category
from clearhead.exercises.contracts import EXERCISES, find_exercise

FILE = Path(__file__).parent / "catalogue.json"
MAX_EXAMPLE = 240  # characters
BEHAVIOUR = {  # possible in every exercise, although the values are right
    "modifies_input": "the input tensors are modified",
    "not_repeatable": "a second call with the same inputs gives another answer",
}


@dataclass(frozen=True)
class Entry:
    """The description of an exercise; the fields are those of Exercise.

    mistakes: term, sentence and category (of categories.py, or None) by id. example: inputs and
    expected result of a small case, None for an exercise whose answer depends on the weights of
    a module.
    """

    name: str
    title: str
    formula: str
    signature: str
    page: str
    names: tuple[str, ...]
    points: float
    terms: Mapping[str, str]
    parameters: Mapping[str, str]
    forbidden: tuple[str, ...] = ()
    mistakes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    example: Mapping[str, Any] | None = None


def read_entry(name: str) -> Entry:
    """The entry of one exercise; one that the file does not have yet is imported."""
    values = _read_file().get(name)
    if values is None:
        return make_entry(name)
    lists = {key: tuple(values[key]) for key in ("names", "forbidden")}
    return Entry(**{**values, **lists})


def read_catalogue() -> dict[str, Entry]:
    """All exercises, in reading order."""
    return {name: read_entry(name) for name in EXERCISES}


@cache
def _read_file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


# Made from the contracts


def make_catalogue() -> str:
    """The text of catalogue.json, a line for each exercise."""
    entries = ({name: asdict(make_entry(name))} for name in EXERCISES)
    lines = (json.dumps(entry, ensure_ascii=False)[1:-1] for entry in entries)
    return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def make_entry(name: str) -> Entry:
    """The entry of an exercise, from its contract."""
    exercise = find_exercise(name)
    own = {key: getattr(exercise, key) for key in Entry.__dataclass_fields__ if key != "example"}
    own["parameters"] = dict(exercise.parameters)
    own["terms"] = dict(exercise.terms)
    own["mistakes"] = {
        id: {
            "term": each.term,
            "sentence": each.sentence,
            "category": find_category(name, each.term, id),
        }
        for id, each in exercise.mistakes.items()
    }
    return Entry(**own, example=_make_example(exercise))


def _make_example(exercise: Any) -> dict[str, Any] | None:
    """The largest of the small cases that fits into a few lines."""
    from clearhead.exercises.draw import Draw
    from clearhead.exercises.judge import to_plain

    best = None
    for case in exercise.small_cases(Draw(3)):
        if case.says != "a small example":  # one with large or random numbers
            continue
        try:
            expected = next(iter(exercise.results(case.inputs).values()))
        except (TypeError, AttributeError, KeyError):  # it needs the weights of a module
            return None
        except ValueError:  # the right answer is to raise
            continue
        asked = {key: x for key, x in case.inputs.items() if key in exercise.parameters}
        inputs = {key: to_plain(x) for key, x in asked.items()}
        example = {"inputs": inputs, "expected": to_plain(expected)}
        if inputs and len(json.dumps(example)) <= MAX_EXAMPLE:
            best = example
    return best
