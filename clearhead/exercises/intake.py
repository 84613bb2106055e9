"""Read submissions as students hand them in: a .py file, a notebook, or a folder of them.

Nothing is run here: what a file defines is read from its syntax. A submission is a list of cells,
each with its first line in one common source text. The worker runs them in order, and a cell that
fails stops only what depends on it. A .py file has a cell for each statement at its top level.
"""

import ast
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from clearhead.exercises.definitions import Definition, read_definitions
from clearhead.exercises.magics import BadCell, find_language, parse, replace_magics
from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text

SUFFIXES = (".py", ".ipynb")
MAX_BYTES = 2 << 20
MAX_FILES = 200  # of a folder
ONLY_IMPORTED = (
    "test_*.py",
    "*_test.py",
    "conftest.py",
    "setup.py",
)  # run only if another file imports them
NOT_READ = (".*", "__*", "venv", "env", "site-packages", "node_modules")


@dataclass
class Submission:
    """A student's submission. source: all cells in one text, to which line numbers refer.

    starts: the first line of each file or notebook cell, and its name. files: modules that the
    cells may import, by their path in the folder. notes: what was left out.
    """

    name: str
    source: str
    cells: list[tuple[int, str]]
    starts: list[tuple[int, str]] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    definitions: Mapping[str, Definition] = field(default_factory=dict)

    def describe_line(self, line: int) -> str:
        """Name a line: "line 7", or in a notebook "cell 3, line 2"."""
        return describe_line(self.starts, line)


def describe_line(starts: Sequence[tuple[int, str]], line: int) -> str:
    """Name a line. starts: the first line of each file or cell, and its name."""
    before = [start for start in starts if start[0] <= line]
    if not before:
        return f"line {line}"
    first, name = before[-1]
    return f"{name}, line {line - first + 1}"


def read_submission(path: Path) -> Submission:
    """Read a file or a folder, without running anything."""
    return _read_folder(path) if path.is_dir() else _read_file(path, path.name)


def _read_file(path: Path, name: str) -> Submission:
    if path.suffix == ".ipynb":
        size = 8 * MAX_BYTES  # also per line: a picture is stored as one line
        return read_notebook(read_text(path, max_bytes=size, max_line=size), name)
    return read_source(read_text(path, max_bytes=MAX_BYTES), name)


def read_source(source: str, name: str) -> Submission:
    """A submission from the text of a .py file."""
    try:
        tree = parse(source)
    except BadCell as fault:
        raise BadFile(f"{quote(name)} cannot be read as Python: {fault}") from None
    return Submission(name, source, _split(source, tree), definitions=read_definitions(tree))


def _split(source: str, tree: ast.Module) -> list[tuple[int, str]]:
    """(first line, source) of each statement at the top level; those on one line together."""
    lines = source.split("\n")  # not splitlines, which also splits at a form feed
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


# Notebooks


def read_notebook(text: str, name: str) -> Submission:
    """A submission from the JSON of a notebook: its code cells, without magics and shell lines."""
    found = Submission(name, "", [])
    texts, line, n_magics = [], 1, 0
    for number, cell in enumerate(_read_cells(text, name), 1):
        source, n_replaced = _read_cell(cell, number, found.notes)
        n_magics += n_replaced
        found.starts.append((line, f"cell {number}"))
        found.cells += [(line + first - 1, part) for first, part in _split(source, parse(source))]
        texts.append(source)
        line += source.count("\n") + 1
    found.source = "\n".join(texts)
    found.definitions = read_definitions(found.source)
    if n_magics:
        n = "1 line" if n_magics == 1 else f"{n_magics} lines"
        found.notes.append(f"{n} with magics or shell commands ignored")
    return found


def _read_cells(text: str, name: str) -> list[str]:
    """The source of each code cell."""
    try:
        cells = json.loads(text)["cells"]
        sources = [each.get("source") or "" for each in cells if each["cell_type"] == "code"]
        return [each if isinstance(each, str) else "".join(each) for each in sources]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFile(f"{quote(name)} is not a notebook: its JSON has no list of cells") from None


def _read_cell(cell: str, number: int, notes: list[str]) -> tuple[str, int]:
    """A cell as Python, and how many lines were replaced; blank lines if it is not Python."""
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    blank = "\n" * cell.count("\n")
    if language := find_language(cell):
        notes.append(f"cell {number} is ignored: it is for {language}")
        return blank, 0
    source, n_replaced = replace_magics(cell)
    try:
        parse(source)
    except BadCell as fault:
        notes.append(f"cell {number} is left out: {fault}")
        return blank, 0
    return source, n_replaced


# Folders


def _read_folder(path: Path) -> Submission:
    """All .py files and notebooks of a folder, in one name space; they may import each other."""
    paths = list_files(path)
    if not paths:
        raise BadFile(f"{quote(path)} has no .py file and no notebook")
    whole = Submission(path.name, "", [])
    definitions: dict[str, Definition] = {}
    files: dict[str, str] = {}
    for each in paths[:MAX_FILES]:
        name = each.relative_to(path).as_posix()
        try:
            part = _read_file(each, name)
        except BadFile as fault:
            whole.notes.append(f"left out: {fault}")
            continue
        files[str(Path(name).with_suffix(".py").as_posix())] = part.source
        whole.notes += [f"{name}: {note}" for note in part.notes]
        if not any(fnmatch(each.name, pattern) for pattern in ONLY_IMPORTED):
            definitions |= _append(whole, part, name)
    if len(paths) > MAX_FILES:
        n = len(paths) - MAX_FILES
        whole.notes.append(f"left out: {n} files, since a submission has at most {MAX_FILES}")
    if not files:
        raise BadFile(whole.notes[0].removeprefix("left out: "))
    whole.files, whole.definitions = files, definitions
    return whole


def list_files(folder: Path) -> list[Path]:
    """The .py files and notebooks of a folder and those below it; linked folders are not read."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not any(fnmatch(n, p) for p in NOT_READ))
        found += [Path(parent, n) for n in sorted(names) if n.endswith(SUFFIXES) and n[0] != "."]
    return [path for path in found if path.is_file() or path.is_symlink()]


def _append(whole: Submission, part: Submission, name: str) -> dict[str, Definition]:
    """Add the cells of a file to a submission; return its definitions with their new lines."""
    shift = whole.source.count("\n")
    package = ".".join(Path(name).parent.parts)
    whole.cells.append((shift + 1, f"__package__ = {package!r}"))  # for relative imports
    whole.cells += [(first + shift, source) for first, source in part.cells]
    starts = [(first + shift, f"{name}, {cell}") for first, cell in part.starts]
    whole.starts += starts or [(shift + 1, name)]
    whole.source += part.source + "\n"
    return {
        key: replace(each, lines=(each.lines[0] + shift, each.lines[1] + shift))
        for key, each in part.definitions.items()
    }
