"""A small language for what a transformer can compute (after RASP, Weiss et al. 2021).

A program is an expression that describes a sequence: one value for each token of the input.

    tokens, indices                         the input, and 0, 1, 2, …
    a + 1, a == b, a & b, a.map(f, b)       a function of the values at each position
    select(keys, queries, predicate)        for each query, the keys to attend to: a selector
    s & t, s | t, ~s                        selectors combined as sets of keys
    aggregate(s, values, default=None)      for each query, the value of the selected keys
    selector_width(s)                       for each query, how many keys are selected

A categorical sequence has finitely many values, such as letters. `aggregate` copies them, so all
values it selects for one query must be equal. A numeric sequence has exact fractions as values, and
`aggregate` takes their mean. Every sequence is categorical until a.numeric() converts it;
a.categorical() converts it back. Numeric sequences can be added, subtracted, scaled by a number,
compared and mapped. Values that are equal in Python, such as 1 and True, count as one value.

`interpret` (interpreter.py) evaluates a program; `compile` (compiler.py) turns it into weights.
"""

from collections.abc import Callable, Hashable
from typing import Any

from clearhead.programs.selectors import Select, Selector, check_selector
from clearhead.programs.sequences import (
    COMPARISONS,
    Aggregate,
    Indices,
    SelectorWidth,
    Sequence,
    Tokens,
    as_fraction,
    check_sequence,
)

tokens = Tokens()
indices = Indices()


def select(
    keys: Sequence, queries: Sequence, predicate: str | Callable[[Any, Any], Any]
) -> Selector:
    """For each query, the keys for which predicate(key, query) is true.

    predicate: a function, or a comparison such as "==": key == query.
    """
    for role, sequence in (("keys", keys), ("queries", queries)):
        check_sequence(f"{role} of select", sequence)
        if sequence.is_numeric:
            raise TypeError(
                f"{role} of select must be categorical, but {sequence.label} is numeric; "
                f"use .categorical(), or .map(f) to group its values"
            )
    if isinstance(predicate, str):
        if predicate not in COMPARISONS:
            known = ", ".join(COMPARISONS)
            raise ValueError(f"predicate must be a function or one of {known}, got {predicate!r}")
        return Select(keys, queries, COMPARISONS[predicate], predicate)
    if not callable(predicate):
        raise TypeError(f"predicate must be a function or a comparison, got {predicate!r}")
    return Select(keys, queries, predicate)


def where(condition: Sequence) -> Selector:
    """For every query, the keys where a condition holds."""
    check_sequence("condition", condition)
    selector = select(condition, tokens, lambda key, query: bool(key))
    return selector.named(condition.label)


everything = select(tokens, tokens, lambda key, query: True).named("everything")


def aggregate(selector: Selector, values: Sequence, default: Any = None) -> Sequence:
    """For each query, the mean of the selected values; if categorical, the one selected value.

    default: the value where nothing is selected; None is 0 for numeric values.
    """
    check_selector("aggregate", selector)
    check_sequence("values of aggregate", values)
    if values.is_numeric:
        default = as_fraction(0 if default is None else default)
    elif not isinstance(default, Hashable):
        raise TypeError(f"default must be a value such as a letter or a number, got {default!r}")
    return Aggregate(selector, values, default)


def selector_width(selector: Selector) -> Sequence:
    """For each query, how many keys are selected."""
    return SelectorWidth(check_selector("selector_width", selector))
