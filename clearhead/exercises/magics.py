"""Remove magics and shell lines from notebook cells, since only a notebook can run them.

    %matplotlib inline      pass
    files = !ls             files = None
    %%time                  the other lines of the cell
    %%bash                  nothing: the cell is not Python

Only a line that Python cannot parse is replaced: "% 4" may continue an expression, and "%d items"
may be part of a string. Line numbers stay the same.
"""

import ast
import re

MAGIC = re.compile(r"^\s*[%!?]|^\s*[\w.]+\?+\s*$")
ASSIGNED = re.compile(r"^(\s*[\w., ]+=)\s*[%!]")
PYTHON_CELLS = ("time", "timeit", "capture", "prun", "writefile", "file", "python", "python3")
MAX_STEPS = 50  # each parses the cell; then every line that looks like a magic is replaced


class BadCell(Exception):
    """A cell that is not Python; the message says why it is not run."""


def parse(source: str) -> ast.Module:
    """Parse a source text; raise BadCell if it is not Python."""
    try:
        return ast.parse(source)
    except SyntaxError as fault:
        raise BadCell(f"{fault.msg} in line {fault.lineno}") from fault
    except (RecursionError, MemoryError, ValueError) as fault:
        raise BadCell(str(fault) or "it is nested too deeply") from fault


def find_language(cell: str) -> str | None:
    """The magic of a cell that is not Python, such as %%bash."""
    found = re.match(r"\s*(%%(\w+))", cell)
    return found[1] if found and found[2] not in PYTHON_CELLS else None


def replace_magics(cell: str) -> tuple[str, int]:
    """The cell as Python, and how many lines with magics or shell commands it had."""
    lines, n_replaced = cell.split("\n"), 0
    if re.match(r"\s*%%\w", cell):
        first = next(n for n, line in enumerate(lines) if line.strip())
        lines[first], n_replaced = "", 1
    for _ in range(MAX_STEPS):
        line = _find_fault("\n".join(lines))
        magics = [n for n, each in enumerate(lines) if MAGIC.match(each) or ASSIGNED.match(each)]
        if line is None or not magics:
            return "\n".join(lines), n_replaced
        before = [n for n in magics if n < line]
        n_replaced += _replace(lines, before[-1] if before else magics[0])
    for n in magics:
        n_replaced += _replace(lines, n)
    return "\n".join(lines), n_replaced


def _find_fault(source: str) -> int | None:
    """The line that Python cannot read; None if there is none, or none that has a number."""
    try:
        parse(source)
    except BadCell as fault:
        return fault.__cause__.lineno if isinstance(fault.__cause__, SyntaxError) else None
    return None


def _replace(lines: list[str], n: int) -> int:
    """Replace the line, and those that continue it after a backslash; the number of magics, 1."""
    assigned = ASSIGNED.match(lines[n])
    is_continued = lines[n].endswith("\\")
    indent = lines[n][: len(lines[n]) - len(lines[n].lstrip())]
    lines[n] = f"{assigned[1]} None" if assigned else f"{indent}pass"
    while is_continued and n + 1 < len(lines):
        n += 1
        is_continued = lines[n].endswith("\\")
        lines[n] = ""
    return 1
