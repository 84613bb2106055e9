"""Wrong lines of code that are recognised by their syntax, in code blocks and in `inline code`."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clearhead.exercises.audit.findings import Finding, Note
from clearhead.exercises.audit.formulas import is_refuted
from clearhead.exercises.audit.handout import Block
from clearhead.exercises.audit.mask_rules import find_masks, resolve
from clearhead.exercises.audit.rules import CODE_RULES, RULES

BY_ID = {rule.id: (rule.sentence, rule.proof) for rule in RULES} | CODE_RULES
LEAST_RTOL = 0.5  # larger ones are flagged; estimates from random numbers need up to 0.2
SLICE = re.compile(r"\[[^\[\]\n]*?(?<![\w:])[01]\s*:\s*2\s*:\s*[\],]")
RANDINT = re.compile(r"\b(?:np|numpy|torch)(?:\.random)?\.randint\(\s*(\d+)\s*,\s*(\d+)")
CLOSE = re.compile(r"allclose\(|assert_close\(")
RTOL = re.compile(r"\brtol\s*=\s*([\d.]+(?:e[-+]?\d+)?)")
DOUBLED = re.compile(r"2(?:\.0)? \* (?:torch|np)\.arange\(0, [^,]+, 2\b")
HEADS = re.compile(r"(self\.)?(h|n_?heads?|num_?heads?|heads|nhead)", re.IGNORECASE)
TIMES = re.compile(
    r"(t|s|l|n|seq_?len|length|seq|n_?tokens|seq_length|x\.shape\[1\]|x\.size\(1\))", re.I
)
PROJECTION = re.compile(
    r"\b(self\.)?(w_?[qkv]|[qkv]_?proj|proj_?[qkv]|query|key|value|to_[qkv]|linear\w*|fc_?[qkv]?)\b",
    re.I,
)


def check_code(block: Block, before: str) -> Iterator[Finding | Note | int]:
    """Check a block of code, or the inline code of a text. before: the paragraph before it, which
    may say that the code is wrong."""
    found = {*_check_lines(block)}
    if block.kind == "code":
        tree = _parse(block.text)
        found |= (
            {(id, line + block.line - 1) for id, line in _check_tree(tree, before)}
            if tree
            else set()
        )
    else:
        for span in re.finditer(r"`([^`\n]+)`", block.text):
            row = block.line + block.text[: span.start()].count("\n")
            found |= (
                {(id, row) for id, _ in _check_tree(tree, "")}
                if (tree := _parse(span[1]))
                else set()
            )
    said = block.text if block.kind == "text" else before + "".join(re.findall(r"#.*", block.text))
    for id, line in sorted(found, key=lambda each: each[1]):
        sentence, proof = BY_ID[id]
        if is_refuted(said):
            yield Note(line, f"{id}: the text itself calls it wrong")
        else:
            yield Finding(line, "weak test" if id == "rtol" else "wrong", sentence, proof)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _check_lines(block: Block) -> Iterator[tuple[str, int]]:
    """Apply the rules that need one line only: yield (id, line)."""
    for number, line in enumerate(block.text.split("\n"), block.line):
        if SLICE.search(line):
            yield "slice", number
        if _is_end_claimed(line):
            yield "randint", number
        tolerance = RTOL.search(line) if CLOSE.search(line) else None
        if tolerance and float(tolerance[1]) >= LEAST_RTOL:
            yield "rtol", number


def _is_end_claimed(line: str) -> bool:
    """Whether a line says that randint also draws its upper end."""
    drawn = RANDINT.search(line)
    if not drawn:
        return False
    low, high = drawn[1], drawn[2]
    ends = rf"\b{low}\s*(?:to|and|-|–|…|\.\.+|through)\s*{high}\b"
    return bool(re.search(rf"{ends}|inclusive|including {high}\b", line))


def _check_tree(tree: ast.Module, before: str) -> Iterator[tuple[str, int]]:
    """Apply the rules that need the syntax: yield (id, line in the block)."""
    scopes: list[ast.AST] = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    rest = ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef)], [])
    for scope in [*scopes, rest]:
        names = _read_names(scope)
        yield from _find_overflow(scope, names)
        yield from find_masks(scope, names)
        yield from _find_exponent(scope)
        yield from _find_features(scope)
    yield from _find_heads(tree)
    text = ast.unparse(tree)
    if re.search(r"/ \(2 \* sigma \*\* 2\)", text + before) and "exp(-" in text + before:
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and re.match(
                r"sigma \* (torch|np\.random)\.randn\(", ast.unparse(node)
            ):
                yield "fourier_width", node.lineno
    for node in tree.body:
        if re.match(r"Km = np\.(ones|zeros)\(", ast.unparse(node)) and re.search(
            r"\bfirst\b", before
        ):
            yield "same_keys", node.lineno


def _read_names(scope: ast.AST) -> dict[str, ast.expr]:
    """Each variable → the expression that was assigned to it last."""
    return {
        node.targets[0].id: node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _find_overflow(scope: ast.AST, names: dict[str, ast.expr]) -> Iterator[tuple[str, int]]:
    """Find exp(s) / exp(s).sum(), also through a name for exp(s), where no maximum is taken."""
    if re.search(r"max|logsumexp|clamp", ast.unparse(scope).replace("softmax", "")):
        return
    for node in ast.walk(scope):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            top, below = ast.unparse(node.left), ast.unparse(resolve(node.right, names))
            power = ast.unparse(resolve(node.left, names))
            argument = re.match(
                r"(?:(?:(?:np|torch|math|numpy)\.)?exp\((.+)\)|(.+)\.exp\(\))$", power
            )
            if (
                argument
                and "sum" in below
                and top in below
                and not power.split("(")[-1].startswith("-")
            ):
                yield "softmax_overflow", node.lineno


def _find_exponent(scope: ast.AST) -> Iterator[tuple[str, int]]:
    """Find 10000 ** (2 * i / d) where i already counts dimensions: 0, 2, 4, …"""
    text = ast.unparse(scope)
    for node in ast.walk(scope):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if re.search(DOUBLED, ast.unparse(node.right)) and "10000" in ast.unparse(node.left):
                yield "doubled_exponent", node.lineno
            doubled = re.search(r"2(?:\.0)? \* \(?(\w+)\)? /", ast.unparse(node.right))
            if doubled and "10000" in ast.unparse(node.left):
                i = doubled[1]
                loop, range_ = rf"\bfor {i} in range", rf"\b{i} = (?:torch|np)\.arange"
                if re.search(rf"(?:{loop}|{range_})\(0, [^,]+, 2\b", text):
                    yield "doubled_exponent", node.lineno


def _find_features(scope: ast.AST) -> Iterator[tuple[str, int]]:
    """Find a concatenation of 1, √2·x and x² without products of two entries."""
    products = r"triu|tril|combinations|outer|einsum|None\]|unsqueeze|range\(|\bi < j"
    if re.search(products, ast.unparse(scope)):
        return
    parts = (
        r"^[\w.]*(cat|concatenate|hstack)\(",
        r"ones",
        r"sqrt\(2|2 \*\* 0\.5",
        r"\*\* 2\b|square",
    )
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and all(re.search(p, ast.unparse(node)) for p in parts):
            yield "features_without_cross_terms", node.lineno


def _find_heads(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Find x.view(B, H, T, d) of a projection (B, T, D), which needs a transpose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            sizes: list[Any] = [ast.unparse(each) for each in node.args]
            is_split = node.func.attr in ("view", "reshape") and len(sizes) == 4
            if is_split and HEADS.fullmatch(sizes[1]) and TIMES.fullmatch(sizes[2]):
                source = node.func.value
                is_linear = isinstance(source, ast.Call) and PROJECTION.search(
                    ast.unparse(source.func)
                )
                if is_linear or ast.unparse(source) in ("x", "X") or isinstance(source, ast.BinOp):
                    yield "heads_without_transpose", node.lineno
