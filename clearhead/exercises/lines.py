"""The line of a submission where a mistake probably stands, found by syntax."""

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence

from clearhead.exercises.definitions import Definition


def find_line(source: str, definition: Definition, pieces: Sequence[str]) -> int | None:
    """The first line of a definition with one of the pieces of text, the surest piece first.

    Comments and docstrings do not count. A class is searched from `forward`, then what it calls,
    then the rest; functions that the definition calls are searched, too. None if no piece is there.
    """
    lines = dict(_code_lines(source))
    ranges = [*_forward(source, definition), *_find_called(source, definition), definition.lines]
    if not definition.is_class:
        ranges.insert(0, definition.lines)
    for piece in pieces:
        wanted = _squeeze(piece)
        for first, last in ranges:
            for number in range(first, last + 1):
                if wanted in lines.get(number, "") and not _is_header(lines[number]):
                    return number
    return None


def _is_header(line: str) -> bool:
    return line.startswith(("def", "class", "import", "from"))


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _code_lines(source: str) -> Iterator[tuple[int, str]]:
    """Line number and code without blanks, comments and texts that stand alone."""
    found: dict[int, str] = {}
    alone = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT or token.start in alone:
                continue
            found[token.start[0]] = found.get(token.start[0], "") + _squeeze(token.string)
    except (tokenize.TokenError, IndentationError):
        pass
    yield from found.items()


def _forward(source: str, definition: Definition) -> list[tuple[int, int]]:
    """Lines of the method of a class that is called."""
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__call__")
        if definition.lines[0] <= node.lineno <= definition.lines[1]
    ]


def _find_called(source: str, definition: Definition) -> list[tuple[int, int]]:
    """Lines of the other functions and classes of the file whose names the definition uses."""
    tree = ast.parse(source)
    nodes = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    reached, todo = set(), [definition.name.split(".")[0]]
    while todo:
        name = todo.pop()
        if name in reached or name not in nodes:
            continue
        reached.add(name)
        todo += [n.id for n in ast.walk(nodes[name]) if isinstance(n, ast.Name)]
    reached.discard(definition.name)
    return [(nodes[n].lineno, nodes[n].end_lineno or nodes[n].lineno) for n in sorted(reached)]
