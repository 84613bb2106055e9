"""Code blocks as cells for the sandbox: the same statements, with calls that record beside them.

    scores = q @ k.mT  # (2, 5, 7)            →  …; audit_shape(3, scores, lambda: (2, 5, 7))
    x.sum()                                   →  audit_show(4, x.sum(), True)
    assert torch.allclose(x, y, atol=10)      →  audit_close(5, lambda: y, 1e-5, 10); assert …

Text is only inserted, so every statement keeps its line.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from clearhead.exercises.audit.handout import Block
from clearhead.exercises.definitions import Definition
from clearhead.exercises.magics import replace_magics

CLOSE = {  # function → its tolerances if none are given
    "torch.allclose": (1e-5, 1e-8),
    "np.allclose": (1e-5, 1e-8),
    "numpy.allclose": (1e-5, 1e-8),
    "torch.testing.assert_close": (1.3e-6, 1e-5),
    "np.testing.assert_allclose": (1e-7, 0.0),
    "numpy.testing.assert_allclose": (1e-7, 0.0),
}
WORDS = r"(?:#|->|→|=>|:|=|≈|\.|shape|size|of|is|has|the|\w+\.shape|\b[a-z]\w{0,12}:|\s)*"
SIZES = r"(?:torch\.Size\()?[(\[]\s*([\w*+/ -]+(?:,\s*[\w*+/ -]+)*,?)\s*[)\]]\)?"
SHAPE = re.compile(rf"{WORDS}{SIZES}\s*(?:$|[;,–—:=.])")
SAID = re.compile(
    r"`?\b([A-Za-z_]\w*)`?(?:\.shape`?)?(?:\s+(?:is|has|of|are|the|a|=|==)|\s*[:=])*\s+"
    rf"shape\s*(?:is|of|=|:)?\s*`?{SIZES}"
)
SAID_SHORT = re.compile(rf"`?\b([A-Za-z_]\w*)\.shape`?\s*(?:is|==?|:|→|->|gives)\s*`?{SIZES}")
MARKS = r"prints?|outputs?|expected(?: output)?|gives|should be|out|result"
MARKED = rf"#\s*(?:->|→|=>|≈|=|(?:it )?(?:{MARKS})\b:?|\s)*"
VALUE = re.compile(
    MARKED
    + r"((?:tensor|array|torch\.Size|dtype=[\w.]+|True|False|nan|inf|[\d\s.,()\[\]+\-−e…])+)$"
)


@dataclass
class Program:
    """The cells of a block. claims: line → the value that a comment says is printed there.
    tests: lines of statements that compare; shapes: lines whose comment claims a shape. calls:
    functions and classes that are called by name. fault: why the block cannot be parsed."""

    cells: list[tuple[int, str]] = field(default_factory=list)
    claims: dict[int, str] = field(default_factory=dict)
    tests: list[int] = field(default_factory=list)
    shapes: list[int] = field(default_factory=list)
    calls: list[Definition] = field(default_factory=list)
    fault: str = ""


def instrument(block: Block, without: Collection[str] = (), *, is_test: bool = False) -> Program:
    """Turn a code block into cells. without: definitions to leave out, since one of our answers
    replaces them. is_test: a comparison that the handout only prints becomes an assert."""
    text, _ = replace_magics(block.text)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        return Program(fault=str(getattr(fault, "msg", fault)))
    program = Program(calls=list(_read_calls(tree)))
    lines = [each.encode() for each in text.split("\n")]
    comments = [_find_comment(each) for each in text.split("\n")]
    inserts: list[tuple[int, int, str]] = []  # line, byte, text
    last = tree.body[-1] if tree.body and block.is_shown else None
    offset = block.line - 1
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            new = list(_record(node, node in tree.body, node is last, comments, offset, is_test))
            inserts += new
            if any("audit_shape(" in text for *_, text in new):
                program.shapes.append((node.end_lineno or node.lineno) + offset)
            if _is_test(node):
                program.tests.append(node.lineno + offset)
            _read_claim(node, comments, program.claims, offset)
    for number, byte, insert in sorted(inserts, key=lambda each: each[:2], reverse=True):
        row = lines[number - 1]
        lines[number - 1] = row[:byte] + insert.encode() + row[byte:]
    program.cells = list(_split(tree, [each.decode() for each in lines], without, offset))
    return program


def _read_calls(tree: ast.Module) -> Iterator[Definition]:
    """A definition for each function or class the code calls by name, with its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = "class" if node.func.id[:1].isupper() else "function"
            arguments = ("",) * (len(node.args) + len(node.keywords))
            yield Definition(node.func.id, kind, arguments, (node.lineno, node.lineno))


def _split(
    tree: ast.Module, lines: list[str], without: Collection[str], offset: int
) -> Iterator[tuple[int, str]]:
    """Make a cell of each statement, or of those on one line; call tests that are never called."""
    called = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    spans: list[list[int]] = []
    calls: dict[int, str] = {}
    for node in tree.body:
        is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if is_definition and node.name in without:  # type: ignore[attr-defined]
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if spans and first <= spans[-1][1]:
            spans[-1][1] = max(node.end_lineno or first, spans[-1][1])
        else:
            spans.append([first, node.end_lineno or first])
        is_test = isinstance(node, ast.FunctionDef) and re.match(r"_?test", node.name)
        if is_test and not node.args.args and node.name not in called:  # type: ignore[attr-defined]
            calls[first] = f"{node.name}()"  # type: ignore[attr-defined]
    for first, end in spans:
        yield first + offset, "\n".join(lines[first - 1 : end])
        if first in calls:
            yield first + offset, calls[first]


def _record(
    node: ast.stmt, is_top: bool, is_last: bool, comments: list[str], offset: int, is_test: bool
) -> Iterator[tuple[int, int, str]]:
    """The calls to insert for one statement."""
    line, end = node.lineno + offset, node.end_lineno or node.lineno
    shape = read_shape(comments[end - 1])
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign) and shape and (names := _read_targets(node.targets)):
        insert = f"; audit_shape({end + offset}, [{', '.join(names)}], lambda: ({shape},))"
        yield end, node.end_col_offset or 0, insert
    elif isinstance(node, ast.Return | ast.Expr) and isinstance(value, ast.expr):
        before = after = ""
        if isinstance(node, ast.Expr) and is_top and not _is_print(value):
            before, after = f"audit_show({line}, (", f"), {is_last})"
        if shape and not _is_print(value):
            before = f"audit_shape({end + offset}, (" + before
            after += f"), lambda: ({shape},))"
        for call, _ in _find_closes(value) if is_test and is_top else ():
            before = f"assert {ast.unparse(call)} is not False; " + before
        yield value.lineno, value.col_offset, before
        yield value.end_lineno or 0, value.end_col_offset or 0, after
    if isinstance(node, ast.Assert | ast.Expr | ast.Assign | ast.Return):
        for _, found in _find_closes(node):
            yield node.lineno, node.col_offset, f"audit_close({line}, lambda: {found}); "


def read_shape(comment: str) -> str | None:
    """The sizes in a comment such as "# (B, T, 512)"; None if it does not claim a shape."""
    found = SHAPE.match(comment)
    if not found or ("," not in found[1] and "shape" not in comment and "Size" not in comment):
        return None
    sizes = found[1].rstrip(", ")
    is_size = all(
        re.fullmatch(r"\w+(?:\s*(?:\*|//?|\+|-)\s*\w+)*", s.strip()) for s in sizes.split(",")
    )
    return sizes if is_size else None


def read_stated_shapes(text: str) -> Iterator[tuple[int, str, str]]:
    """(offset, name, sizes) of sentences such as "`out` has shape (2, 5, 256)"."""
    for pattern in (SAID, SAID_SHORT):
        for found in pattern.finditer(text):
            if re.fullmatch(r"[\d,\s]+", found[2]):
                yield found.start(), found[1], found[2].rstrip(", ")


def _find_comment(line: str) -> str:
    """The comment of a line: its text from the last # on, even if that # is inside a string."""
    return line[line.rfind("#") :] if "#" in line else ""


def _read_targets(targets: list[ast.expr]) -> list[str]:
    first = targets[0]
    names = first.elts if isinstance(first, ast.Tuple) else [first]
    return [ast.unparse(each) for each in names if isinstance(each, ast.Name)]


def _read_claim(node: ast.stmt, comments: list[str], claims: dict[int, str], offset: int) -> None:
    """Store the value that a comment beside a print or an expression claims."""
    end = node.end_lineno or node.lineno
    if not isinstance(node, ast.Expr) or isinstance(node.value, ast.Constant):
        return
    found = VALUE.match(comments[end - 1])
    is_shape = read_shape(comments[end - 1]) and not re.search(r"\.shape|size\(", ast.unparse(node))
    if found and re.search(r"\d|True|False", found[1]) and not is_shape:
        claims[node.lineno + offset] = found[1].strip()


def _is_print(value: Any) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "print" and bool(value.args)


def _find_closes(node: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Each comparison with a tolerance: the call; its expected value and tolerances as text."""
    for call in ast.walk(node):
        defaults = CLOSE.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
        if defaults is None or not isinstance(call, ast.Call) or len(call.args) < 2:
            continue
        given = {key.arg: ast.unparse(key.value) for key in call.keywords}
        given |= dict(zip(("rtol", "atol"), map(ast.unparse, call.args[2:]), strict=False))
        rtol, atol = (given.get(n, d) for n, d in zip(("rtol", "atol"), defaults, strict=True))
        yield call, f"{ast.unparse(call.args[1])}, {rtol}, {atol}"


def _is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.For | ast.With | ast.If):
        return False
    calls = (ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call))
    names = re.compile(r"allclose|assert_close|array_equal|torch\.equal|self\.assert|assert_equal")
    return isinstance(node, ast.Assert) or any(names.search(each) for each in calls)
