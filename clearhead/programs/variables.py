"""The variables that the residual stream stores, and functions of them.

    Variable    a stored sequence: one direction for each value (one-hot), or one for a number
    Number      a linear function of the stream: Σ amount · direction + constant
    Form        a categorical sequence as a function of variables and at most one Number

A form of a single variable is *free*: it needs no layer, because each of its one-hot values is a
sum of directions of that variable. For example, `tokens == "("` is the direction "tokens = (".

Every variable has an error bound, because a softmax never gives the exact weights 0 and 1. It
bounds Σ |x − one-hot| over the directions of a one-hot variable, and |x − number| of a number.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from clearhead.programs.sequences import Sequence

MAX_VALUES = 20_000


@dataclass(eq=False)
class Variable:
    """A sequence stored in the residual stream.

    values: all values it can have; for a number, in ascending order. slot: which part writes it: 2l
    for the attention of layer l, 2l + 1 for its feed-forward layer, −1 for the embedding. error: a
    bound, as above.
    """

    sequence: Sequence
    label: str
    values: tuple[Any, ...]
    is_numeric: bool = False
    slot: int = -1
    error: float = 0.0

    def __post_init__(self) -> None:
        words = list(map(str, self.values))
        if has_duplicates(words):  # such as 1 and "1"
            words = list(map(repr, self.values))
        if has_duplicates(words):  # objects with equal reprs
            words = [f"{word} ({number})" for number, word in enumerate(words, 1)]
        self.words = dict(zip(self.values, words, strict=True))

    @property
    def directions(self) -> list[str]:
        return [self.label] if self.is_numeric else [self.direction(v) for v in self.values]

    def direction(self, value: Any) -> str:
        return f"{self.label} = {self.words[value]}"


@dataclass(frozen=True)
class Number:
    """Σ amount · direction + constant; amounts: for each variable, one for each direction."""

    amounts: dict[Variable, tuple[Fraction, ...]]
    constant: Fraction = Fraction(0)

    @classmethod
    def of(cls, variable: Variable) -> "Number":
        return cls({variable: (Fraction(1),)})

    def add(self, other: "Number", factor: Fraction) -> "Number":
        """self + factor · other."""
        amounts = dict(self.amounts)
        for variable, own in other.amounts.items():
            before = amounts.get(variable, (Fraction(0),) * len(own))
            amounts[variable] = tuple(a + factor * b for a, b in zip(before, own, strict=True))
        return Number(amounts, self.constant + factor * other.constant)

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        """All values it may have, ascending, as if its variables were independent."""
        sums = {self.constant}
        for variable, amounts in self.amounts.items():
            values = variable.values
            steps = {amounts[0] * v for v in values} if variable.is_numeric else set(amounts)
            check_size(len(sums) * len(steps), variable.label)
            sums = {a + b for a in sums for b in steps}
        return tuple(sorted(sums))

    @property
    def reads(self) -> list[tuple[str, Fraction]]:
        """(direction, amount) pairs; the constant is the amount of the direction "token"."""
        parts = [
            (direction, amount)
            for variable, amounts in self.amounts.items()
            for direction, amount in zip(variable.directions, amounts, strict=True)
        ]
        return [part for part in [*parts, ("token", self.constant)] if part[1]]

    @property
    def error(self) -> float:
        return sum(float(max(map(abs, own))) * v.error for v, own in self.amounts.items())

    @cached_property
    def largest_term(self) -> Fraction:
        """The largest absolute value of a term; rounding errors are proportional to it."""
        terms = [Fraction(0)]
        for variable, own in self.amounts.items():
            values = map(abs, variable.values) if variable.is_numeric else [Fraction(1)]
            terms.append(max(map(abs, own)) * max(values))
        return max(terms)

    @property
    def slot(self) -> int:
        return max((variable.slot for variable in self.amounts), default=-1)

    @property
    def key(self) -> Any:
        """A hashable key, equal for equal linear functions."""
        return frozenset(self.amounts.items()), self.constant


@dataclass(frozen=True)
class Form:
    """A sequence given by function(value of each variable, …, the number if there is one)."""

    variables: tuple[Variable, ...]
    number: Number | None
    function: Callable[..., Any]
    label: str = field(default="", kw_only=True)

    @classmethod
    def of(cls, variable: Variable) -> "Form":
        return cls((variable,), None, lambda value: value, label=variable.label)

    @property
    def is_free(self) -> bool:
        return self.number is None and len(self.variables) == 1

    @property
    def slot(self) -> int:
        slots = [variable.slot for variable in self.variables]
        return max(slots + ([] if self.number is None else [self.number.slot]))

    @property
    def error(self) -> float:
        return sum(variable.error for variable in self.variables)

    @property
    def size(self) -> int:
        """The number of entries of its table."""
        numbers = 1 if self.number is None else len(self.number.values)
        return numbers * prod(len(variable.values) for variable in self.variables)

    @cached_property
    def table(self) -> dict[tuple[Any, ...], list[Any]]:
        """Each combination of the variables' values → the results, one for each number."""
        check_size(self.size, self.label)
        numbers: list[tuple[Any, ...]] = (
            [()] if self.number is None else [(n,) for n in self.number.values]
        )
        return {
            row: [call(self.function, (*row, *number), self.label) for number in numbers]
            for row in product(*(variable.values for variable in self.variables))
        }

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """All distinct results, sorted."""
        return sort_values(value for results in self.table.values() for value in results)


def call(function: Callable[..., Any], values: tuple[Any, ...], label: str) -> Any:
    """function(*values); if that fails, the error names the function and the values."""
    try:
        result = function(*values)
        hash(result)
        if result != result:
            raise ValueError("the result is not equal to itself")  # NaN
    except FunctionError:
        raise
    except Exception as fault:
        given = ", ".join(map(repr, values))
        hint = ", None standing for aggregate's default" if None in values else ""
        raise FunctionError(
            f"the function of {label!r} fails for ({given}): {type(fault).__name__}: {fault}; it "
            f"must accept every value that its inputs can have{hint}"
        ) from fault
    return result


class FunctionError(ValueError):
    """A function of the program fails for a value of its inputs."""


def has_duplicates(words: list[str]) -> bool:
    return len(set(words)) < len(words)


def sort_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """The distinct values, sorted; in order of appearance if they cannot be compared."""
    distinct = list(dict.fromkeys(values))
    try:
        return tuple(sorted(distinct))
    except TypeError:
        return tuple(distinct)


def list_means(values: Iterable[Fraction], max_len: int, label: str) -> tuple[Fraction, ...]:
    """All possible means of 1 to max_len of these values, ascending."""
    steps, sums, means = set(values), {Fraction(0)}, set[Fraction]()
    for count in range(1, max_len + 1):
        sums = {a + b for a in sums for b in steps}
        check_size(len(sums) * max(count, len(steps)), label)
        means |= {total / count for total in sums}
    return tuple(sorted(means))


def check_size(size: int, label: str, most: int = MAX_VALUES) -> None:
    """Refuse a table that would make the model too wide."""
    if size > most:
        raise ValueError(
            f"{label!r} has {size:,} combinations of values, more than {most:,}; shorten "
            f"max_len or the vocabulary, or group values by .map(f) first"
        )
