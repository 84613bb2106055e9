"""What a program means: this file defines the language, by evaluating a program on one input.

A sequence is a list with one value for each position, and a selector is a matrix of booleans, one
row for each query:

    select           matrix[q][k] = predicate(keys[k], queries[q])
    aggregate        the mean, or the common value, of {values[k] : matrix[q][k]}
    selector_width   the number of k with matrix[q][k]
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from clearhead.programs.selectors import Both, Complement, Either, Select
from clearhead.programs.sequences import (
    Aggregate,
    Indices,
    Linear,
    Map,
    Named,
    SelectorWidth,
    Sequence,
    Tokens,
    as_fraction,
    check_sequence,
    make_depth_error,
)


def interpret(program: Sequence, sequence: Iterable[Any]) -> list[Any]:
    """The values of a program on an input such as "abca" or [3, 1, 2], one for each token."""
    check_sequence("program", program)
    inputs = list(sequence)
    if not inputs:
        raise ValueError("the sequence is empty, so there is no position to answer at")
    try:
        return _Run(inputs)[program]
    except RecursionError:
        raise make_depth_error() from None


class _Run:
    """One run of a program; each part is evaluated once and its result kept."""

    def __init__(self, inputs: list[Any]) -> None:
        self.inputs = inputs
        self.results: dict[Named, list[Any]] = {}

    def __getitem__(self, part: Named) -> list[Any]:
        if part not in self.results:
            self.results[part] = self.evaluate(part)
        return self.results[part]

    def evaluate(self, part: Named) -> list[Any]:
        """The result of a part: a list for a sequence, a list of rows for a selector."""
        match part:
            case Tokens():
                return self.inputs
            case Indices():
                return list(range(len(self.inputs)))
            case Map():
                columns = [self[each] for each in part.inputs]
                return [part.function(*row) for row in zip(*columns, strict=True)]
            case Linear():
                columns = [[f * as_fraction(x) for x in self[each]] for f, each in part.terms]
                return [sum(row, part.constant) for row in zip(*columns, strict=True)]
            case Select():
                return [
                    [bool(part.predicate(key, query)) for key in self[part.keys]]
                    for query in self[part.queries]
                ]
            case Both():
                return self.join(lambda a, b: a and b, part.left, part.right)
            case Either():
                return self.join(lambda a, b: a or b, part.left, part.right)
            case Complement():
                return self.join(lambda a, _: not a, part.selector, part.selector)
            case SelectorWidth():
                return [sum(row) for row in self[part.selector]]
            case Aggregate():
                return [self.mix(part, query) for query in range(len(self.inputs))]
        raise TypeError(f"{part!r} is not a part of a program")

    def join(self, function: Any, left: Named, right: Named) -> list[Any]:
        """Combine two selectors entry by entry."""
        rows = zip(self[left], self[right], strict=True)
        return [[function(a, b) for a, b in zip(*pair, strict=True)] for pair in rows]

    def mix(self, part: Aggregate, query: int) -> Any:
        """Aggregate for one query: the mean of the selected values, or their common value."""
        row = self[part.selector][query]
        chosen = [value for value, is_in in zip(self[part.values], row, strict=True) if is_in]
        if not chosen:
            return part.default
        if part.is_numeric:
            return sum(chosen, Fraction(0)) / len(chosen)
        for value in chosen:
            if value != chosen[0]:
                raise ValueError(
                    f"aggregate copies one value, but at position {query} {part.selector.label!r} "
                    f"selects {chosen[0]!r} and {value!r} of {part.values.label!r}; select one, or "
                    f"take the mean of .numeric() values"
                )
        return chosen[0]
