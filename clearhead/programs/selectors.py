"""The selectors of a program: for each query, a set of keys."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.programs.sequences import Named, Sequence


class Selector(Named):
    """For each query, which keys are selected."""

    def __and__(self, other: "Selector") -> "Selector":
        return Both(self, check_selector("&", other))

    def __or__(self, other: "Selector") -> "Selector":
        return Either(self, check_selector("|", other))

    def __invert__(self) -> "Selector":
        return Complement(self)


@dataclass(frozen=True, eq=False, repr=False)
class Select(Selector):
    """The keys for which predicate(key, query) is true."""

    keys: Sequence
    queries: Sequence
    predicate: Callable[[Any, Any], Any]
    symbol: str = ""

    def describe(self) -> str:
        symbol = self.symbol or getattr(self.predicate, "__name__", "predicate")
        return f"{self.keys.label} {symbol.replace('<lambda>', 'fits')} {self.queries.label}"


@dataclass(frozen=True, eq=False, repr=False)
class Pair(Selector):
    """Two selectors joined by `word`; its label has brackets only around the other word."""

    left: Selector
    right: Selector
    word: ClassVar[str]

    def describe(self) -> str:
        inside = Either if isinstance(self, Both) else Both
        return f"{_bracket(self.left, inside)} {self.word} {_bracket(self.right, inside)}"


class Both(Pair):
    """The keys that both select."""

    word = "and"


class Either(Pair):
    """The keys that at least one selects."""

    word = "or"


@dataclass(frozen=True, eq=False, repr=False)
class Complement(Selector):
    """The keys that a selector does not select."""

    selector: Selector

    def describe(self) -> str:
        return f"not {_bracket(self.selector, Selector)}"


def _bracket(selector: Selector, kind: type[Selector]) -> str:
    """The label, in brackets if it describes a selector of this kind."""
    is_described = isinstance(selector, kind) and not selector.name
    return f"({selector.label})" if is_described else selector.label


def check_selector(name: str, value: Any) -> Selector:
    """Check that a value is a selector, and return it; name: the operation, for the error."""
    if not isinstance(value, Selector):
        raise TypeError(f"{name} needs a selector made by select(…), got {value!r}")
    return value
