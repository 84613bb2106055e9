"""Submissions as students hand them in: what a file defines, found without running it."""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """A function, class or value that a file defines.

    name: dotted for a method. parameters: of the function, or of a class's constructor. lines:
    the first and the last one.
    """

    name: str
    kind: str  # function, class or value
    parameters: tuple[str, ...]
    lines: tuple[int, int]

    @property
    def is_class(self) -> bool:
        return self.kind == "class"


def read_definitions(source: str) -> dict[str, Definition]:
    """What a source text defines at its top level, and the methods of its classes."""
    found = {}
    for node in ast.parse(source).body:
        for definition in _read_node(node):
            found[definition.name] = definition
    return found


def _read_node(node: ast.stmt, prefix: str = "") -> Iterable[Definition]:
    lines = (node.lineno, node.end_lineno or node.lineno)
    if isinstance(node, ast.FunctionDef):
        yield Definition(prefix + node.name, "function", _parameters(node), lines)
    elif isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        start = next((each for each in methods if each.name == "__init__"), None)
        yield Definition(node.name, "class", _parameters(start) if start else (), lines)
        for each in methods:
            yield from _read_node(each, f"{node.name}.")
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield Definition(target.id, "value", (), lines)


def _parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return tuple(each.arg for each in every if each.arg not in ("self", "cls"))


def find_definition(
    names: Iterable[str], definitions: Mapping[str, Definition]
) -> Definition | None:
    """The definition that has one of the names: spelled so, or else nearly so."""
    names = tuple(names)
    nearly = {_simplify(name): definition for name, definition in definitions.items()}
    exact = (definitions[name] for name in names if name in definitions)
    near = (nearly[_simplify(name)] for name in names if _simplify(name) in nearly)
    return next(exact, None) or next(near, None)


def _simplify(name: str) -> str:
    """attention_head, AttentionHead and attentionHead are one name."""
    return re.sub(r"[_\d]", "", name).lower()
