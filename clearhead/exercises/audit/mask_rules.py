"""Inverted masks, and masks that keep one key too many, recognised by their syntax."""

import ast
import re
from collections.abc import Iterator

LENS = re.compile(r"len|valid", re.IGNORECASE)
FILLS = re.compile(r"inf\b|finfo|-\s*(1e\d|10000+)", re.IGNORECASE)


def find_masks(scope: ast.AST, names: dict[str, ast.expr]) -> Iterator[tuple[str, int]]:
    """Find masks of lengths that are inverted, or that keep one key too many."""
    for node in ast.walk(scope):
        if (
            isinstance(node, ast.Compare)
            and _is_length(node)
            and isinstance(node.ops[0], ast.LtE | ast.GtE)
        ):
            is_kept = isinstance(node.ops[0], ast.LtE) == ("arange" in ast.unparse(node.left))
            if is_kept:
                yield "length_off_by_one", node.lineno
        call = _read_fill(node)
        if call is not None and _is_true_if_allowed(call, names):
            yield "inverted_mask", node.lineno  # type: ignore[attr-defined]


def _read_fill(node: ast.AST) -> ast.expr | None:
    """The mask of masked_fill(mask, −∞), where(mask, −∞, x) or x[mask] = −∞."""
    if isinstance(node, ast.Call):
        name, args = ast.unparse(node.func), node.args
        if name.endswith(("masked_fill", "masked_fill_")) and len(args) == 2:
            return args[0] if FILLS.search(ast.unparse(args[1])) else None
        if name.endswith("where") and len(args) == 3:
            return args[0] if FILLS.search(ast.unparse(args[1])) else None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0].slice if FILLS.search(ast.unparse(node.value)) else None
    return None


def _is_true_if_allowed(mask: ast.expr, names: dict[str, ast.expr], depth: int = 0) -> bool:
    """Whether a mask is True for keys that may be attended to, as far as its text shows."""
    mask = resolve(mask, names)
    if depth > 8:
        return False
    if isinstance(mask, ast.Compare):
        if ast.unparse(mask.comparators[0]) in ("1", "True"):
            return _is_true_if_allowed(mask.left, names, depth + 1)
        is_less = isinstance(mask.ops[0], ast.Lt | ast.LtE)
        return _is_length(mask) and is_less == ("arange" in ast.unparse(mask.left))
    if isinstance(mask, ast.Call):
        name = ast.unparse(mask.func)
        if re.search(r"\btril$", name):
            return not isinstance(mask.func, ast.Attribute) or "ones" in ast.unparse(mask)
        if isinstance(mask.func, ast.Attribute) and mask.func.attr in (
            "bool",
            "unsqueeze",
            "view",
            "to",
            "expand",
        ):
            return _is_true_if_allowed(mask.func.value, names, depth + 1)
    if isinstance(mask, ast.Subscript):
        return _is_true_if_allowed(mask.value, names, depth + 1)
    return False


def _is_length(node: ast.Compare) -> bool:
    """Whether positions are compared with lengths, not with other positions."""
    left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
    is_plain = not any(isinstance(each, ast.BinOp) for each in (node.left, node.comparators[0]))
    if "arange" in left:
        return is_plain and "arange" not in right and bool(LENS.search(right))
    return is_plain and "arange" in right and bool(LENS.search(left))


def resolve(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    """Replace a name by the expression assigned to it; other expressions stay as they are."""
    return names.get(node.id, node) if isinstance(node, ast.Name) else node
