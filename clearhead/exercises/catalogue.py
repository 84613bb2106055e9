"""The exercises and their mistakes, read from the files of the contracts without importing torch.

`clearhead check --list` and `clearhead exercise` must answer at once, and a check says what it has
found before anything slow is imported. So the tables of a contract are literals, and are read from
the syntax of its file.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.exercises.contracts import EXERCISES

FOLDER = Path(__file__).parent / "contracts"


@dataclass(frozen=True)
class Entry:
    """What can be known of an exercise without running it; the fields are those of Exercise."""

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
    mistakes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # term and sentence


@cache
def read_entry(name: str) -> Entry:
    """The entry of one exercise."""
    file, kind = EXERCISES[name]
    values, mistakes = _read_class(file, kind)
    known = {key: values[key] for key in Entry.__dataclass_fields__ if key in values}
    return Entry(**{"points": 10.0, **known, "mistakes": mistakes})


def read_catalogue() -> dict[str, Entry]:
    """All exercises, in reading order."""
    return {name: read_entry(name) for name in EXERCISES}


def _read_class(file: str, kind: str) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """The literal fields of a class and its mistakes, with those of a base in another contract."""
    tree = ast.parse((FOLDER / f"{file}.py").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imported = {
        alias.name: node.module.rpartition(".")[2]
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and "exercises.contracts." in (node.module or "")
        for alias in node.names
        if node.module
    }
    values: dict[str, Any] = {}
    mistakes: dict[str, dict[str, str]] = {}
    node = classes[kind]
    for base in node.bases:
        name = ast.unparse(base)
        if name in classes or name in imported:
            inherited = _read_class(imported.get(name, file), name)
            values |= inherited[0]
            mistakes |= inherited[1]
    values |= dict(_read_fields(node))
    mistakes |= dict(_read_mistakes(node))
    return values, mistakes


def _read_fields(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            try:
                yield each.targets[0].id, ast.literal_eval(each.value)
            except ValueError:
                continue


def _read_mistakes(node: ast.ClassDef) -> Iterator[tuple[str, dict[str, str]]]:
    for each in node.body:
        for call in getattr(each, "decorator_list", []):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "mistake":
                term, sentence = (ast.literal_eval(argument) for argument in call.args[:2])
                assert isinstance(each, ast.FunctionDef)
                yield each.name, {"term": term, "sentence": sentence}
