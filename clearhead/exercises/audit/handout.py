"""A handout as blocks of text, code and output, each with its first line; nothing is run here.

Markdown and plain text: fenced blocks, `>>>` examples, indented blocks, and in a .txt file
paragraphs that are Python. Notebooks: cells and their printed outputs; lines are counted through
all cells, and `describe_line` names cell and line.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearhead.exercises.intake import describe_line
from clearhead.exercises.magics import find_language, replace_magics
from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text

MAX_BYTES = 16 << 20
MAX_LINES = 20_000
SUFFIXES = (".md", ".txt", ".ipynb", ".rst", ".markdown")
FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*\{?([\w+.-]*)")
PYTHON = ("python", "py", "python3", "pycon", "ipython", "ipython3", "doctest", "code-cell")
PRINTED = re.compile(r"tensor\(|array\(|torch\.Size\(|[-−+\d.\[({]|True\b|False\b|None\b")
RUNS = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.FunctionDef
STATEMENTS = RUNS | ast.ClassDef | ast.Assert | ast.For | ast.With


@dataclass(frozen=True)
class Block:
    """A piece of a handout. kind: text, code, output, or other for another language.

    is_shown: the value of its last expression is printed, as in a notebook."""

    kind: str
    text: str
    line: int
    is_shown: bool = True


@dataclass
class Handout:
    """Blocks in the order of the file. starts: the first line and the name of each cell."""

    name: str
    blocks: list[Block]
    starts: list[tuple[int, str]] = field(default_factory=list)

    def describe_line(self, line: int) -> str:
        """Name a line: "line 7", or in a notebook "cell 3, line 2"."""
        return describe_line(self.starts, line)


def read_handout(path: Path) -> Handout:
    """Read a handout by its suffix."""
    if path.suffix not in SUFFIXES:
        raise BadFile(f"{quote(path)} must be a .md, .txt or .ipynb file; save the handout as one")
    text = read_text(path, max_bytes=MAX_BYTES, max_line=MAX_BYTES)
    if path.suffix == ".ipynb":
        handout = _read_notebook(text, path.name)
    else:
        handout = Handout(path.name, list(split_blocks(text, path.suffix == ".txt")))
    if handout.blocks and handout.blocks[-1].line > MAX_LINES:
        raise BadFile(f"{quote(path)} has more than {MAX_LINES:,} lines; audit it in parts")
    return handout


def split_blocks(text: str, is_plain: bool = False, line: int = 1) -> Iterator[Block]:
    """The blocks of a Markdown or plain text whose first line has this number."""
    lines, start = text.split("\n"), 0
    i = 0
    while i < len(lines):
        fence = FENCE.match(lines[i])
        if not fence:
            i += 1
            continue
        end = i + 1
        while end < len(lines) and not lines[end].lstrip().startswith(fence[2]):
            end += 1
        yield from _split_prose(lines[start:i], line + start, is_plain)
        inside = [each.removeprefix(fence[1]) for each in lines[i + 1 : end]]
        yield from _read_fenced("\n".join(inside), line + i + 1, fence[3].lower())
        i = start = end + 1
    yield from _split_prose(lines[start:], line + start, is_plain)


def _read_fenced(text: str, line: int, language: str) -> Iterator[Block]:
    if re.search(r"^\s*>>> ", text, re.MULTILINE):
        yield from _split_examples(text, line)
    elif language in PYTHON:
        yield Block("code", text, line)
    elif language in ("", "text", "output", "console", "out", "txt"):
        yield Block("code" if is_code(text) else "output", text, line)
    else:
        yield Block("other", text, line)


def _split_examples(text: str, line: int) -> Iterator[Block]:
    """Split `>>>` examples: a code block for each, followed by a block with its output."""
    import doctest  # slow, and a missing file must be answered at once

    try:
        examples = doctest.DocTestParser().get_examples(text)
    except ValueError:
        yield Block("other", text, line)
        return
    for example in examples:
        first = line + example.lineno
        yield Block("code", example.source.rstrip("\n"), first)
        if example.want:
            kind = "other" if example.want.startswith("Traceback") else "output"
            yield Block(kind, example.want.rstrip("\n"), first + example.source.count("\n"))


def is_code(text: str) -> bool:
    """Whether a text is Python with statements or calls, not only values or words."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [
        n.value.func for n in body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)
    ]
    names = {ast.unparse(each) for each in calls} - {"tensor", "array", "torch.Size", "Parameter"}
    return any(isinstance(node, STATEMENTS) for node in body) or bool(names)


def _split_prose(lines: list[str], line: int, is_plain: bool) -> Iterator[Block]:
    """Split prose into paragraphs; examples, and paragraphs that are Python, become code blocks."""
    groups: list[tuple[int, list[str]]] = []
    for number, each in enumerate(lines, line):
        is_gap = not each.strip()
        begins = not groups or (not is_gap and not groups[-1][1][-1].strip())
        if begins and not (groups and _continues(groups[-1][1], each)):
            groups.append((number, [each]))
        else:
            groups[-1][1].append(each)
    for first, group in groups:
        text = "\n".join(group).rstrip("\n")
        is_indented = all(each.startswith(("    ", "\t")) or not each.strip() for each in group)
        plain = "\n".join(each[4:] for each in group) if is_indented else text
        if not text.strip():
            continue
        if text.lstrip().startswith(">>> "):
            yield from _split_examples(text, first)
        elif (is_plain or is_indented) and is_code(plain):
            yield Block("code", plain, first)
        elif (
            (is_plain or is_indented) and PRINTED.match(plain) and not re.match(r"\d+[.)] ", plain)
        ):
            yield Block("output", plain, first)
        else:
            yield Block("text", text, first)


def _continues(group: list[str], line: str) -> bool:
    """Whether a line after a gap belongs to the block before: the body of a function."""
    return line.startswith((" ", "\t")) and (
        group[0].startswith(("    ", "\t"))
        or re.match(r"def |class |for |with ", group[0]) is not None
    )


def _read_notebook(text: str, name: str) -> Handout:
    """Read cells in order: Markdown, code without magics, and the stored text of its output."""
    try:
        cells = [
            (cell["cell_type"], _join(cell["source"]), cell) for cell in json.loads(text)["cells"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadFile(f"{quote(name)} is not a notebook: its JSON has no list of cells") from None
    handout, line = Handout(name, []), 1
    for number, (kind, source, cell) in enumerate(cells, 1):
        handout.starts.append((line, f"cell {number}"))
        if kind == "code" and find_language(source) is None:
            handout.blocks.append(Block("code", replace_magics(source)[0], line))
            printed = _read_outputs(cell)
            handout.blocks += [Block("output", printed, line)] if printed else []
        elif kind == "markdown":
            handout.blocks += [replace(each) for each in split_blocks(source, line=line)]
        line += source.count("\n") + 1
    return handout


def _read_outputs(cell: Any) -> str:
    """The stored output of a cell: what it printed, and the value of its last line."""
    texts = []
    for output in cell.get("outputs") or ():
        if isinstance(output, dict) and output.get("name") != "stderr":
            data = output.get("text") or (output.get("data") or {}).get("text/plain") or ""
            texts.append(_join(data).rstrip("\n"))
    return "\n".join(each for each in texts if each)


def _join(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)
