"""Find functions in a source text that an exercise forbids, without running it.

The scan reports; it does not decide. It follows imports and plain assignments, so `F.softmax` is
torch.nn.functional.softmax after `import torch.nn.functional as F`. A student's own function with
the same name is not reported. A student can hide a call from the scan, so the worker also replaces
forbidden functions by ones that raise.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

LIBRARY = "torch"


@dataclass(frozen=True)
class Use:
    """One use of a forbidden name: its line, the full name, and the text of the use."""

    line: int
    name: str
    text: str


def find_forbidden(source: str, names: Iterable[str]) -> list[Use]:
    """Every use of one of these dotted names, such as torch.nn.MultiheadAttention, by line."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    wanted = {name.split(".")[-1]: name for name in names}
    known = _read_bindings(tree)
    found = {use for node in ast.walk(tree) for use in _examine(node, wanted, known)}
    return sorted(found, key=lambda use: (use.line, use.text))


def _read_bindings(tree: ast.AST) -> dict[str, str]:
    """Map each imported or assigned name to the dotted name it stands for."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                first = each.name.split(".")[0]
                known[each.asname or first] = each.name if each.asname else first
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                known[each.asname or each.name] = f"{node.module}.{each.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (path := _resolve(node.value, known)):
            known.update({t.id: path for t in node.targets if isinstance(t, ast.Name)})
    return known


def _resolve(node: ast.AST, known: dict[str, str]) -> str:
    """The dotted name of an expression in the library; empty if it is something else."""
    if isinstance(node, ast.Name):
        path = known.get(node.id, "")
        return path if path.split(".")[0] == LIBRARY else ""
    if isinstance(node, ast.Attribute):
        path = _resolve(node.value, known)
        return f"{path}.{node.attr}" if path else ""
    if isinstance(node, ast.Call) and (texts := _read_texts(node)):
        if LIBRARY in (each.split(".")[0] for each in texts):  # __import__("torch")
            return texts[-1]
        path = _resolve(node.args[0], known)  # getattr(torch.nn, "MultiheadAttention")
        return f"{path}.{texts[-1]}" if path else ""
    return ""


def _read_texts(node: ast.Call) -> list[str]:
    values = (each.value for each in node.args if isinstance(each, ast.Constant))
    return [value for value in values if isinstance(value, str)]


def _examine(node: ast.AST, wanted: dict[str, str], known: dict[str, str]) -> Iterable[Use]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == LIBRARY:
        for each in node.names:
            if each.name in wanted:
                yield Use(node.lineno, wanted[each.name], f"from {node.module} import {each.name}")
    elif isinstance(node, ast.Name | ast.Attribute | ast.Call):
        last = _resolve(node, known).split(".")[-1]
        name = next(
            (full for short, full in wanted.items() if last.lstrip("_").startswith(short)), None
        )
        if name:
            yield Use(node.lineno, name, ast.unparse(node))
