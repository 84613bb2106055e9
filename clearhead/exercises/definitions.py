"""Read what a file defines from its syntax, and find the definition for an exercise."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
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


def read_definitions(source: str | ast.Module) -> dict[str, Definition]:
    """The definitions at the top level, also under `if` and `try`, and the methods of classes."""
    tree = ast.parse(source) if isinstance(source, str) else source
    return {found.name: found for node in tree.body for found in _read_node(node)}


def _read_node(node: ast.stmt, prefix: str = "") -> Iterable[Definition]:
    lines = (node.lineno, node.end_lineno or node.lineno)
    if isinstance(node, ast.FunctionDef):
        yield Definition(prefix + node.name, "function", _read_parameters(node), lines)
    elif isinstance(node, ast.ClassDef):
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        start = next((each for each in methods if each.name == "__init__"), None)
        yield Definition(node.name, "class", _read_parameters(start) if start else (), lines)
        for each in methods:
            yield from _read_node(each, f"{node.name}.")
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for name in names:
                if isinstance(name, ast.Name):
                    yield Definition(name.id, "value", (), lines)
    elif isinstance(node, ast.If | ast.Try | ast.With) and not _is_main(node):
        handlers = [each for h in getattr(node, "handlers", ()) for each in h.body]
        for each in (*node.body, *getattr(node, "orelse", ()), *handlers):
            yield from _read_node(each)


def _is_main(node: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__"`, which is not run here."""
    return isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)


def _read_parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return tuple(each.arg for each in every if each.arg not in ("self", "cls"))


def find_definition(
    names: Iterable[str], definitions: Mapping[str, Definition], is_asked: bool = False
) -> Definition | None:
    """Find the definition that has one of the names, exactly or nearly.

    A capitalised name means a class. Names that several exercises share have a condition:

        phi(x, W)               phi, if it has two parameters
        Km + pos                Km, if the file also defines pos; Km - pos, if it does not
        Head with mask lens     Head, if it has a parameter mask or lens; without: if it has none
        *.generate              the method of any class, if the exercise was asked for

    is_asked: the exercise was asked for; if nothing else fits, the condition is ignored.
    """
    names = tuple(names)
    found = _find_named(names, definitions, _meets_condition)
    if found is None and is_asked:
        found = _find_named(names, definitions, lambda *_: True)
    if found is None and is_asked:
        methods = tuple(name[1:] for name in names if name.startswith("*."))
        found = next((d for name, d in definitions.items() if name.endswith(methods)), None)
    return found


def _find_named(
    names: Iterable[str], definitions: Mapping[str, Definition], is_right: Callable[..., bool]
) -> Definition | None:
    nearly = {(_simplify(name), d.is_class): d for name, d in definitions.items()}
    plain = [(name, drop_condition(name)) for name in names]
    exact = ((name, definitions.get(own)) for name, own in plain)
    near = ((name, nearly.get((_simplify(own), own[:1].isupper()))) for name, own in plain)
    return next(
        (d for name, d in (*exact, *near) if d is not None and is_right(name, d, definitions)), None
    )


def drop_condition(name: str) -> str:
    """Drop the condition after a name of an exercise."""
    return re.split(r"[ (]", name)[0]


def _meets_condition(name: str, own: Definition, definitions: Mapping[str, Definition]) -> bool:
    """Whether the condition in a name holds: its parameters, or names beside it."""
    parameters = re.search(r"\((.*)\)", name)
    if parameters and len(own.parameters) != len(parameters[1].split(",")):
        return False
    words = re.search(r" (with|without) (.*)", name)
    given = {each.lower() for each in own.parameters}
    if words and bool(given & set(words[2].split())) != (words[1] == "with"):
        return False
    beside = re.findall(r" ([+-]) (\w+)", name)
    return all((other in definitions) == (sign == "+") for sign, other in beside)


def _simplify(name: str) -> str:
    """Drop capitals, underscores and digits: AttentionHead and attention_head become equal."""
    return re.sub(r"[_\d]", "", name).lower()
