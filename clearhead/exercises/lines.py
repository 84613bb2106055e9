"""Find the line of a submission that probably has the mistake, by its syntax."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from clearhead.exercises.definitions import Definition
from clearhead.exercises.exercise import Exercise


def find_line(source: str, definition: Definition, pieces: Sequence[str]) -> int | None:
    """Find the first line of a definition that has one of the pieces of text, surest piece first.

    Comments and docstrings do not count. In a class, `forward` is searched first, then the
    functions it calls, then the rest. None if no piece is found.
    """
    lines = dict(_read_code_lines(source))
    ranges = [
        *_find_forward(source, definition),
        *_find_called(source, definition),
        definition.lines,
    ]
    if not definition.is_class:
        ranges.insert(0, definition.lines)
    for is_condition, piece in product((False, True), pieces):  # conditions last
        wanted = _compile(piece)
        for first, last in ranges:
            for number in range(first, last + 1):
                line = lines.get(number, "")
                is_wanted = is_condition == _is_condition(line) and wanted.search(line)
                if is_wanted and not _is_header(line):
                    return _follow(lines, first, number)
    return None


def _compile(piece: str) -> re.Pattern[str]:
    """Compile a piece, without blanks, to match at the start of a word: `sum(` not in `einsum(`."""
    start = r"(?<![A-Za-z])" if piece[:1].isalpha() else ""
    return re.compile(start + re.escape(_squeeze(piece)))


def _is_header(line: str) -> bool:
    return line.startswith(("def ", "class ", "import ", "from "))


def _is_condition(line: str) -> bool:
    """Whether a line is like `if mask is not None:`, which is rarely the mistake itself."""
    return line.startswith("if ") and line.endswith(("isnotNone:", "is not None:", "is None:"))


def _follow(lines: Mapping[int, str], first: int, number: int) -> int:
    """Go from `return out` to the line that computes out."""
    returned = re.fullmatch(r"return (\w+)(,\w+)*", lines[number])
    if returned is None:
        return number
    sets = (n for n in range(number - 1, first, -1) if n in lines)
    return next((n for n in sets if lines[n].startswith(returned[1] + "=")), number)


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _read_code_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and code, without blanks, comments and docstrings."""
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
            line, text = found.get(token.start[0], ""), _squeeze(token.string)
            is_apart = bool(re.search(r"\w$", line) and re.match(r"\w", text))
            found[token.start[0]] = line + " " * is_apart + text
    except (tokenize.TokenError, IndentationError):
        pass
    yield from found.items()


def _find_forward(source: str, definition: Definition) -> list[tuple[int, int]]:
    """Find the lines of a class's `forward` or `__call__`."""
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "__call__")
        if definition.lines[0] <= node.lineno <= definition.lines[1]
    ]


def _find_called(source: str, definition: Definition) -> list[tuple[int, int]]:
    """Find the lines of the other functions and classes of the file that the definition uses."""
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


def collect_pieces(exercise: Exercise, mistakes: Sequence[str]) -> list[str]:
    """Collect the pieces of text that point at these mistakes, then at others in their terms."""
    own = [exercise.mistakes[each] for each in mistakes if each in exercise.mistakes]
    terms = {each.term for each in own}
    near = [each for each in exercise.mistakes.values() if each.term in terms and each not in own]
    return [piece for each in (*own, *near) for piece in each.line]
