"""The sequences of a program, and their arithmetic; what they mean is in interpreter.py."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from clearhead.programs.selectors import Selector

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = COMPARISONS | {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}


MAX_LABEL = 200  # letters: labels double in length where a part is used twice


@dataclass(frozen=True, eq=False)
class Named:
    """A part of a program; its label is its name, or else a description of what it computes."""

    name: str = field(default="", kw_only=True)

    def named(self, name: str) -> Self:
        """The same part under another name, which the compiler uses for directions and heads.

        `selector_width(same).named("count")` reads as an expression, hence the participle.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {name!r}")
        return replace(self, name=name)

    @cached_property
    def label(self) -> str:
        label = self.name or self.describe()
        return label if len(label) <= MAX_LABEL else f"{label[:MAX_LABEL]}…"

    def describe(self) -> str:
        """What this part computes, in words."""
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        return self.label

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self.label} has no truth value before the program runs; use &, | and ~ in place of "
            f"and, or and not"
        )


# Sequences


def _operator(symbol: str, is_swapped: bool = False) -> "Callable[[Any, Any], Sequence]":
    """The method of a sequence for an operation of OPERATIONS."""

    def method(self: "Sequence", other: Any) -> "Sequence":
        return _combine(symbol, other, self) if is_swapped else _combine(symbol, self, other)

    return method


class Sequence(Named):
    """One value for each token of the input."""

    is_numeric = False
    __hash__ = object.__hash__  # `==` compares position by position

    def map(self, function: Callable[..., Any], *others: "Sequence", label: str = "") -> "Sequence":
        """Apply function(a, b, …) at each position; at most one of the sequences is numeric."""
        if not callable(function):
            raise TypeError(f"map needs a function of the values, got {function!r}")
        for other in others:
            check_sequence("map", other)
        return Map(function, (self, *others), name=label)

    def numeric(self) -> "Sequence":
        """The same values as numbers; `aggregate` then takes their mean."""
        return self if self.is_numeric else Linear(((Fraction(1), self),), name=self.name)

    def categorical(self) -> "Sequence":
        """The same values, stored one-hot by a feed-forward layer."""
        return self.map(_keep, label=f"{self.label} by value") if self.is_numeric else self

    __add__, __radd__ = _operator("+"), _operator("+", is_swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", is_swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", is_swapped=True)
    __floordiv__, __mod__ = _operator("//"), _operator("%")
    __eq__, __ne__ = _operator("=="), _operator("!=")  # type: ignore[assignment]
    __lt__, __le__ = _operator("<"), _operator("<=")
    __gt__, __ge__ = _operator(">"), _operator(">=")
    __and__, __or__ = _operator("and"), _operator("or")

    def __truediv__(self, number: Any) -> "Sequence":
        divisor = as_fraction(number)
        if not divisor:
            raise ValueError(f"{self.label} cannot be divided by 0; give another number")
        return self.numeric() * (1 / divisor)

    def __neg__(self) -> "Sequence":
        return 0 - self

    def __invert__(self) -> "Sequence":
        return self.map(operator.not_, label=f"not {self.label}")


@dataclass(frozen=True, eq=False, repr=False)
class Tokens(Sequence):
    """The input."""


@dataclass(frozen=True, eq=False, repr=False)
class Indices(Sequence):
    """The positions 0, 1, 2, …"""


@dataclass(frozen=True, eq=False, repr=False)
class Map(Sequence):
    """function(…) of the inputs at each position: categorical."""

    function: Callable[..., Any]
    inputs: tuple[Sequence, ...]

    def describe(self) -> str:
        name = getattr(self.function, "__name__", "f").replace("<lambda>", "f")
        return f"{name}({', '.join(part.label for part in self.inputs)})"


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Sequence):
    """Σ factor · sequence + constant: numeric."""

    terms: tuple[tuple[Fraction, Sequence], ...]
    constant: Fraction = Fraction(0)
    is_numeric = True

    def describe(self) -> str:
        shown = [part.label if f == 1 else f"{f}·{part.label}" for f, part in self.terms]
        shown += [str(self.constant)] if self.constant else []
        return " + ".join(shown).replace("+ -1·", "- ").replace("+ -", "- ")


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(Sequence):
    """The value of the selected keys: their mean, if numeric; a copy, if categorical."""

    selector: "Selector"
    values: Sequence
    default: Any = None

    @property
    def is_numeric(self) -> bool:  # type: ignore[override]
        return self.values.is_numeric

    def describe(self) -> str:
        return f"{self.values.label} where {self.selector.label}"


@dataclass(frozen=True, eq=False, repr=False)
class SelectorWidth(Sequence):
    """The number of selected keys: categorical."""

    selector: "Selector"

    def describe(self) -> str:
        return f"number of {self.selector.label}"


# Arithmetic


def _combine(symbol: str, left: Any, right: Any) -> Sequence:
    """Apply an operation of OPERATIONS at each position; one side may be a constant."""
    operation = OPERATIONS[symbol]
    parts = [part for part in (left, right) if isinstance(part, Sequence)]
    if any(part.is_numeric for part in parts):
        return _combine_numbers(symbol, left, right)
    label = f"({left!r} {symbol} {right!r})"
    if len(parts) == 2:
        return Map(operation, (left, right), name=label)
    if isinstance(left, Sequence):
        return Map(lambda value: operation(value, right), (left,), name=label)
    return Map(lambda value: operation(left, value), (right,), name=label)


def _combine_numbers(symbol: str, left: Any, right: Any) -> Sequence:
    """Sums and multiples stay numeric; a comparison is a map of the difference."""
    a, b = _as_linear(left), _as_linear(right)
    if symbol == "+":
        return _add(a, b, Fraction(1))
    if symbol == "-":
        return _add(a, b, Fraction(-1))
    if symbol == "*" and not (a.terms and b.terms):
        number, linear = (a, b) if b.terms else (b, a)
        return _add(Linear(()), linear, number.constant)
    if symbol in COMPARISONS:
        compare, difference = COMPARISONS[symbol], _add(a, b, Fraction(-1))
        return difference.map(lambda number: compare(number, 0), label=f"({difference} {symbol} 0)")
    raise TypeError(
        f"numeric sequences have no {symbol!r} with {right!r}; add, subtract, scale by a number or "
        f"compare them, or use .categorical() first"
    )


def _as_linear(part: Any) -> Linear:
    """A number, or a sequence of numbers, as a linear combination."""
    if not isinstance(part, Sequence):
        return Linear((), as_fraction(part))
    numeric = part.numeric()
    return numeric if isinstance(numeric, Linear) else Linear(((Fraction(1), numeric),))


def _add(a: Linear, b: Linear, factor: Fraction) -> Linear:
    """a + factor · b; a sequence that occurs in both becomes one term."""
    factors = {part: own for own, part in a.terms}
    for own, part in b.terms:
        factors[part] = factors.get(part, Fraction(0)) + factor * own
    terms = tuple((own, part) for part, own in factors.items())
    return Linear(terms, a.constant + factor * b.constant)


def as_fraction(number: Any) -> Fraction:
    """An exact fraction; booleans are 0 and 1."""
    try:
        return Fraction(number)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise TypeError(
            f"a numeric sequence needs numbers, got {number!r}; map its values to numbers first"
        ) from None


def _keep(value: Any) -> Any:
    return value


def check_sequence(name: str, value: Any) -> Sequence:
    """Check that a value is a sequence, and return it."""
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence such as tokens or indices, got {value!r}")
    return value


def make_depth_error() -> ValueError:
    """The error for a program that exceeds Python's recursion limit."""
    return ValueError(
        "the program is nested too deeply; use fewer operations, such as one .map(f) in place of "
        "several in a row"
    )
