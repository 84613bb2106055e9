"""What the residual stream stores, and what can be read from it.

    Variable    a stored sequence: one direction for each value (one-hot), or one for a number
    Number      a number read from the stream: Σ amount · direction + constant
    Form        any categorical sequence, as a function of variables and at most one number

A form of one variable is *free*: its one-hot values are sums of that variable's directions, so it
needs no layer. `tokens == "("` is the direction "tokens = (" under another name.

Errors are bounds that follow from the softness of attention: for a one-hot variable Σ |x − one-hot|
over its directions, for a number |x − number|.
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
    """A sequence in the residual stream from a slot on: 2l is attention, 2l + 1 feed-forward.

    values: those it can have, for a number in ascending order.
    """

    sequence: Sequence
    label: str
    values: tuple[Any, ...]
    is_numeric: bool = False
    slot: int = -1
    error: float = 0.0

    def __post_init__(self) -> None:
        words = list(map(str, self.values))
        if has_equal(words):  # such as 1 and "1"
            words = list(map(repr, self.values))
        if has_equal(words):  # of objects that do not say who they are
            words = [f"{word} ({number})" for number, word in enumerate(words, 1)]
        self.words = dict(zip(self.values, words, strict=True))

    @property
    def directions(self) -> list[str]:
        return [self.label] if self.is_numeric else [self.direction(v) for v in self.values]

    def direction(self, value: Any) -> str:
        return f"{self.label} = {self.words[value]}"


@dataclass(frozen=True)
class Number:
    """amounts: for each variable, one for each of its directions."""

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
        """The numbers it can be, ascending; some may never occur together."""
        sums = {self.constant}
        for variable, amounts in self.amounts.items():
            values = variable.values
            steps = {amounts[0] * v for v in values} if variable.is_numeric else set(amounts)
            check_size(len(sums) * len(steps), variable.label)
            sums = {a + b for a in sums for b in steps}
        return tuple(sorted(sums))

    @property
    def reads(self) -> list[tuple[str, Fraction]]:
        """(direction, amount); the constant is read where there is a token."""
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
        """The absolute value that no direction's term exceeds; floating point rounds by it."""
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
        """Equal for equal numbers."""
        return frozenset(self.amounts.items()), self.constant


@dataclass(frozen=True)
class Form:
    """function(value of each variable, …, the number if there is one)."""

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
        numbers = 1 if self.number is None else len(self.number.values)
        return numbers * prod(len(variable.values) for variable in self.variables)

    @cached_property
    def table(self) -> dict[tuple[Any, ...], list[Any]]:
        """For each combination of values: the result, or a list of them by ascending number."""
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
        """All results, in their order."""
        return order(value for results in self.table.values() for value in results)


def call(function: Callable[..., Any], values: tuple[Any, ...], label: str) -> Any:
    """function(*values); if it fails, one sentence says where."""
    try:
        result = function(*values)
        hash(result)
        if result != result:
            raise ValueError("the result is not equal to itself")  # NaN
    except ValueProblem:
        raise
    except Exception as fault:
        given = ", ".join(map(repr, values))
        hint = ", None standing for aggregate's default" if None in values else ""
        raise ValueProblem(
            f"the function of {label!r} fails for ({given}): {type(fault).__name__}: {fault}; it "
            f"must accept every value that its inputs can have{hint}"
        ) from fault
    return result


class ValueProblem(ValueError):
    """A function of the program fails for a value of its inputs."""


def has_equal(words: list[str]) -> bool:
    return len(set(words)) < len(words)


def order(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value once: sorted, or if they cannot be compared, by first appearance."""
    distinct = list(dict.fromkeys(values))
    try:
        return tuple(sorted(distinct))
    except TypeError:
        return tuple(distinct)


def list_means(values: Iterable[Fraction], max_len: int, label: str) -> tuple[Fraction, ...]:
    """All means of 1 to max_len of these values, ascending."""
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
