"""Submissions as students hand them in: a .py file, a notebook, or a folder of them.

Nothing is run here: what a file defines is read from its syntax. A submission is a list of cells,
each with its first line in one common source text. The worker runs them in order, and a cell that
fails stops only what depends on it. A .py file has a cell for each statement at its top level.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text

MAX_BYTES = 2 << 20
MAGIC = re.compile(r"^\s*[%!?]|^\s*\w+\?+\s*$")


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


@dataclass
class Submission:
    """What a student handed in. source: all cells in one text, to which lines refer.

    files: modules that the cells may import, by file name. notes: what was left out.
    """

    name: str
    source: str
    cells: list[tuple[int, str]]
    files: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    definitions: Mapping[str, Definition] = field(default_factory=dict)

    def describe_line(self, line: int) -> str:
        """Where a line stands: "line 7", in a notebook "cell 3, line 2"."""
        return f"line {line}"


@dataclass
class NotebookSubmission(Submission):
    """A notebook: lines are counted in each cell."""

    starts: list[tuple[int, int]] = field(default_factory=list)  # number of cell, its first line

    def describe_line(self, line: int) -> str:
        cell, start = max((s for s in self.starts if s[1] <= line), key=lambda s: s[1])
        return f"cell {cell}, line {line - start + 1}"


def read_submission(path: Path) -> Submission:
    """Read a file or a folder, without running anything."""
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".ipynb":
        size = 8 * MAX_BYTES  # also for a line: a picture is one
        return read_notebook(read_text(path, max_bytes=size, max_line=size), path.name)
    return read_source(read_text(path, max_bytes=MAX_BYTES), path.name)


def read_source(source: str, name: str) -> Submission:
    """A submission from the text of a .py file."""
    tree = _parse(source, name)
    return Submission(name, source, _split(source, tree), definitions=_read_tree(tree))


def read_notebook(text: str, name: str) -> Submission:
    """A submission from the JSON of a notebook: its code cells, without magics and shell lines."""
    sources, dropped = [], 0
    for number, cell in enumerate(_read_cells(text, name), 1):
        lines = cell.split("\n")
        kept = ["" if MAGIC.match(line) else line for line in lines]
        dropped += sum(a != b for a, b in zip(lines, kept, strict=True))
        sources.append((number, "\n".join(kept)))
    found = NotebookSubmission(name, "", [])
    line, texts = 1, []
    for number, source in sources:
        found.starts.append((number, line))
        try:
            tree = ast.parse(source)
            found.cells += [(line + first - 1, part) for first, part in _split(source, tree)]
        except SyntaxError as fault:
            found.notes.append(f"cell {number} is left out: {fault.msg} in its line {fault.lineno}")
            source = "\n" * source.count("\n")
        texts.append(source)
        line += source.count("\n") + 1
    found.source = "\n".join(texts)
    found.definitions = _read_tree(ast.parse(found.source))
    if dropped:
        found.notes.append(f"{dropped} lines with magics or shell commands are ignored")
    return found


def _read_cells(text: str, name: str) -> list[str]:
    """The source of each code cell."""
    try:
        cells = json.loads(text)["cells"]
        return [_join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadFile(f"{quote(name)} is not a notebook: its JSON has no list of cells") from None


def _join(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def _read_folder(path: Path) -> Submission:
    """All .py files and notebooks of a folder, in one name space; they may import each other."""
    paths = sorted(p for p in path.iterdir() if p.suffix in (".py", ".ipynb") and p.is_file())
    if not paths:
        raise BadFile(f"{quote(path)} has no .py file and no notebook")
    whole = Submission(path.name, "", [])
    definitions: dict[str, Definition] = {}
    files: dict[str, str] = {}
    line = 1
    for each in paths:
        try:
            part = read_submission(each)
        except BadFile as fault:
            whole.notes.append(f"left out: {fault}")
            continue
        whole.notes += part.notes
        whole.cells += [(first + line - 1, source) for first, source in part.cells]
        definitions |= {
            name: Definition(
                name, d.kind, d.parameters, (d.lines[0] + line - 1, d.lines[1] + line - 1)
            )
            for name, d in part.definitions.items()
        }
        files[each.with_suffix(".py").name] = part.source
        whole.source += part.source + "\n"
        line = whole.source.count("\n") + 1
    if not files:
        raise BadFile(whole.notes[0].removeprefix("left out: "))
    whole.files, whole.definitions = files, definitions
    return whole


def _parse(source: str, name: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as fault:
        raise BadFile(
            f"{quote(name)} cannot be read as Python: {fault.msg} in line {fault.lineno}"
        ) from None
    except (RecursionError, MemoryError, ValueError) as fault:
        raise BadFile(f"{quote(name)} cannot be read as Python: {fault}") from None


def _split(source: str, tree: ast.Module) -> list[tuple[int, str]]:
    """(first line, source) of each statement at the top level; those on one line together."""
    lines = source.splitlines()
    cells: list[tuple[int, int]] = []
    for node in tree.body:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        last = node.end_lineno or first
        if cells and first <= cells[-1][1]:
            cells[-1] = (cells[-1][0], max(last, cells[-1][1]))
        else:
            cells.append((first, last))
    return [(first, "\n".join(lines[first - 1 : last])) for first, last in cells]


# What a file defines


def read_definitions(source: str) -> dict[str, Definition]:
    """What a source text defines at its top level, and the methods of its classes."""
    return _read_tree(ast.parse(source))


def _read_tree(tree: ast.Module) -> dict[str, Definition]:
    return {found.name: found for node in tree.body for found in _read_node(node)}


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
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for name in names:
                if isinstance(name, ast.Name):
                    yield Definition(name.id, "value", (), lines)


def _parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return tuple(each.arg for each in every if each.arg not in ("self", "cls"))


def find_definition(
    names: Iterable[str], definitions: Mapping[str, Definition], is_asked: bool = False
) -> Definition | None:
    """The definition that has one of the names: spelled so, or else nearly so.

    A name with a capital letter first is that of a class. Some names serve several exercises:

        phi(x, W)     phi, if it has two parameters
        Km + pos      Km, if the file also defines pos; Km - pos, if it does not

    is_asked: the exercise was asked for, so the condition need not hold if nothing else fits.
    """
    names = tuple(names)
    plain = [name for name in names if _holds(name, definitions)]
    found = _find_named([_strip(name) for name in plain], definitions)
    if found is None and is_asked:
        found = _find_named([_strip(name) for name in names], definitions)
    return found


def _find_named(names: list[str], definitions: Mapping[str, Definition]) -> Definition | None:
    nearly = {(_simplify(name), d.is_class): d for name, d in definitions.items()}
    keys = [(_simplify(name), name[:1].isupper()) for name in names]
    exact = (definitions[name] for name in names if name in definitions)
    near = (nearly[key] for key in keys if key in nearly)
    return next(exact, None) or next(near, None)


def _strip(name: str) -> str:
    return re.split(r"[ (]", name)[0]


def _holds(name: str, definitions: Mapping[str, Definition]) -> bool:
    """Whether the condition in a name holds: its number of parameters, names beside it."""
    own = definitions.get(_strip(name))
    parameters = re.search(r"\((.*)\)", name)
    if parameters and own and len(own.parameters) != len(parameters[1].split(",")):
        return False
    beside = re.findall(r" ([+-]) (\w+)", name)
    return all((other in definitions) == (sign == "+") for sign, other in beside)


def _simplify(name: str) -> str:
    """attention_head, AttentionHead and attentionHead are one name."""
    return re.sub(r"[_\d]", "", name).lower()
