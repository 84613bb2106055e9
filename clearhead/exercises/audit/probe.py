"""The recording side of an audit. Its text is sent to the sandbox and runs beside the handout.

instrument.py inserts calls of these functions into the handout's code; `audit_take` returns what
they recorded. The values that the handout claims are not known here.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch

MAX_TEXT = 20_000
audit_records: dict[str, list[Any]] = {}


def audit_start(seed: int) -> None:
    """Clear all records, and seed every random generator."""
    import random

    audit_take()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def audit_take() -> dict[str, list[Any]]:
    """Return all records so far and clear them."""
    taken = dict(audit_records)
    audit_records.update({name: [] for name in ("shown", "values", "shapes", "closes", "outputs")})
    return taken


def audit_print(*values: Any, sep: str = " ", end: str = "\n", **_: Any) -> None:
    """Record what is printed, in place of print."""
    text = (sep or "").join(str(each)[:MAX_TEXT] for each in values)
    audit_records["shown"].append([sys._getframe(1).f_lineno, text])


def audit_show(line: int, value: Any, is_shown: bool) -> Any:
    """Record the value of an expression; is_shown: as the last line of a notebook cell."""
    if value is not None:
        text = repr(value)[:MAX_TEXT]
        audit_records["values"].append([line, text])
        if is_shown:
            audit_records["shown"].append([line, text])
    return value


def audit_shape(line: int, value: Any, claim: Callable[[], Any]) -> Any:
    """Record the claimed shape and that of a value, or those of several values."""
    try:
        claimed = [int(size) for size in claim()]
    except (NameError, TypeError, ValueError, AttributeError):
        audit_records["shapes"].append([line, None, []])
        return value
    values = list(value) if isinstance(value, tuple | list) else [value]
    if values and all(isinstance(each, int) for each in values):
        shapes = [[int(each) for each in values]]
    else:
        shapes = [[int(n) for n in each.shape] for each in values if hasattr(each, "shape")]
    audit_records["shapes"].append([line, claimed, shapes])
    return value


def audit_close(line: int, expected: Callable[[], Any], rtol: Any, atol: Any) -> None:
    """Note whether zeros would pass a comparison with these tolerances."""
    try:
        size = torch.as_tensor(expected()).detach().double().abs()
        accepts = bool((size <= float(atol) + float(rtol) * size).all()) and bool((size > 0).any())
        largest = float(size.max())
    except Exception:  # the comparison itself will raise, and is reported
        return
    audit_records["closes"].append([line, accepts, largest, float(rtol), float(atol)])


def audit_watch(function: Any) -> Any:
    """Wrap a function or a class so that its outputs are recorded."""

    def record(output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) and output else output
        is_sent = isinstance(first, torch.Tensor | numpy.ndarray | float | int)
        audit_records["outputs"].append(first if is_sent else repr(first)[:MAX_TEXT])
        return output

    if not isinstance(function, type):
        return lambda *args, **kwargs: record(function(*args, **kwargs))

    class Watched(function):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return record(super().__call__(*args, **kwargs))

    Watched.__name__ = function.__name__
    return Watched
