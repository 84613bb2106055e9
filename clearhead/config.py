"""Typed settings: the base class of every config, and how values are read from files and text.

    @dataclass(frozen=True)
    class KiteConfig(Config):
        n_tails: int
        lift: float = 0.5

    KiteConfig.from_dict({"n_tails": 3})      from a file; names and types are checked
    read_text("lift", "3e-4", float)          from a command line; typed by the field
    write_text(3e-4)                          the reverse
    find_nearest("n_tail", ["n_tails"])       the known name most like a misspelt one
    suggest("n_tail", ["n_tails"])            "; did you mean n_tails?", to end an error message
    read_dataclass(State, values)             a plain dataclass; every field must be given

A recipe leaves open the sizes that the data decide; they are filled in when the data are opened:

    config = GPTConfig(vocab_size=UNDECIDED, max_len=64, d_model=128, n_layers=2, n_heads=4)
    config.undecided                                       # ("vocab_size",)
    GPT(config)                                            # ValueError, which names vocab_size
    GPT(dataclasses.replace(config, vocab_size=65))        # a model

In a file or on a command line UNDECIDED is the word `undecided`. `Config.check` stops where it
first computes with an undecided value, so a subclass checks the sizes that data decide last.
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

T = TypeVar("T")


class UndecidedError(ValueError):
    """An undecided value was used as if it were a number."""


class _Undecided:
    """The type of UNDECIDED: equal only to itself, refused by every computation."""

    def _refuse(self, *_: Any) -> Any:
        raise UndecidedError("this value is undecided until the data are opened")

    __lt__ = __le__ = __gt__ = __ge__ = __index__ = __float__ = __getitem__ = __iter__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _refuse

    def __reduce__(self) -> str:
        return "UNDECIDED"  # a copy is the same object

    def __repr__(self) -> str:
        return "UNDECIDED"

    def __str__(self) -> str:
        return "undecided"


UNDECIDED: Any = _Undecided()  # Any: it may stand in a field of any type


@dataclasses.dataclass(frozen=True)
class Config:
    """The base of all configs; a subclass is a frozen dataclass that may define `check`."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for name, value in self._values().items():
            if value is not UNDECIDED:
                object.__setattr__(self, name, check_type(name, value, hints[name]))
        with suppress(UndecidedError):
            self.check()

    def check(self) -> None:
        """Raise ValueError where values do not fit together."""

    @property
    def undecided(self) -> tuple[str, ...]:
        """The names of the fields that are still undecided."""
        return tuple(name for name, value in self._values().items() if value is UNDECIDED)

    def check_complete(self) -> None:
        """Raise ValueError if a field is undecided."""
        if names := self.undecided:
            raise ValueError(
                f"{type(self).__name__} leaves {' and '.join(names)} undecided; "
                f"open the data, which decide such sizes, or give a value for {names[0]}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: _to_plain(value) for name, value in self._values().items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A config from plain values; unknown names and missing values are refused."""
        fields = dataclasses.fields(cls)
        required = [field.name for field in fields if field.default is dataclasses.MISSING]
        return cls(**_read_fields(cls, values, required))

    def _values(self) -> dict[str, Any]:
        """The fields in the order of the arguments: those by position, then those by name only."""
        fields = sorted(dataclasses.fields(self), key=lambda field: field.kw_only is True)
        return {field.name: getattr(self, field.name) for field in fields}


def read_dataclass(kind: type[T], values: Mapping[str, Any]) -> T:
    """A plain dataclass from plain values: all fields and no other names, types checked."""
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)  # type: ignore[arg-type]
    read = _read_fields(kind, values, [field.name for field in fields])
    return kind(**{name: check_type(name, value, hints[name]) for name, value in read.items()})


def find_nearest(name: str, known: Iterable[str], *, cutoff: float = 0.0) -> str | None:
    """The known name most like this one, None if there is none; "lr" is like "training.lr".

    cutoff: how alike they must be, from 0 to 1, as in difflib.
    """
    names = list(known)
    endings = {each.rpartition(".")[2]: each for each in names}
    if name in endings:
        return endings[name]
    found = difflib.get_close_matches(str(name)[:80], names, n=1, cutoff=cutoff)
    return found[0] if found else None


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of an error message that suggests a known name; empty if none is alike."""
    near = find_nearest(name, known, cutoff=0.6)
    return f"; did you mean {near}?" if near else ""


def read_text(name: str, text: str, hint: Any) -> Any:
    """The value that a text such as "3e-4" stands for in a field of this type."""
    kinds = _list_types(hint)
    if types.NoneType in kinds and text.lower() in ("none", "null"):
        return None
    if text == str(UNDECIDED) and str not in kinds:
        return UNDECIDED
    for option in kinds:
        if (value := _parse(text, option)) is not None:
            return value
    raise ValueError(f"{name} must be {describe_type(hint)}, got {text!r:.80}")


def write_text(value: Any) -> str:
    """The text that `read_text` reads as this value, which may be plain or a field's own."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def check_type(name: str, value: Any, hint: Any) -> Any:
    """`value`, if it has the type of its field; True is not a number, and NaN is refused.

    A whole number becomes a float where the field is one.
    """
    for option in _list_types(hint):
        parts = typing.get_args(option)
        if typing.get_origin(option) is tuple:
            if isinstance(value, tuple) and len(value) == len(parts):
                items = enumerate(zip(value, parts, strict=True))
                return tuple(check_type(f"{name}[{i}]", item, part) for i, (item, part) in items)
        elif typing.get_origin(option) is dict:
            if isinstance(value, dict):
                for key, item in value.items():
                    check_type(f"{name}[{key!r:.40}]", item, parts[1])
                return value
        elif _is_a(value, option):
            return _convert_number(name, value, option) if option in (int, float) else value
    raise TypeError(f"{name} must be {describe_type(hint)}, got {_describe(value)}")


def _read_fields(kind: Any, values: Any, required: Iterable[str]) -> dict[str, Any]:
    """The values by the names of the fields, with tuples where JSON has lists."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} is made from names and values, got {_describe(values)}")
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in names:
            given = name[:80] if isinstance(name, str) else type(name).__name__
            near = find_nearest(given, names)
            raise ValueError(f"{kind.__name__} has no {given!r}; the nearest is {near!r}")
    for name in required:
        if name not in values:
            raise ValueError(f"{kind.__name__} needs {name!r}, which is missing")
    return {name: _from_plain(value, hints[name]) for name, value in values.items()}


def _from_plain(value: Any, hint: Any) -> Any:
    """A value from JSON as the field holds it: a list becomes a tuple, a word UNDECIDED."""
    kinds = _list_types(hint)
    if isinstance(value, list) and any(typing.get_origin(option) is tuple for option in kinds):
        return tuple(value)
    return UNDECIDED if value == str(UNDECIDED) and str not in kinds else value


def _to_plain(value: Any) -> Any:
    """The reverse of _from_plain."""
    if value is UNDECIDED:
        return str(UNDECIDED)
    return list(value) if isinstance(value, tuple) else value


def _list_types(hint: Any) -> tuple[Any, ...]:
    """The types that a field allows."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _is_a(value: Any, kind: type) -> bool:
    """Whether a field of this type may hold value: a float may be an int, an int no bool."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _convert_number(name: str, value: int | float, kind: type) -> int | float:
    """`value` as an int or float, if a machine can count or compute with it."""
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{name} must be less than 2^63 in size, got {_describe(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    number: int | float = kind(value)
    return number


def _parse(text: str, kind: Any) -> Any:
    """The value of a text as this type, None if it cannot be read."""
    if kind is str:
        return text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower())
    if typing.get_origin(kind) is tuple:
        parts, kinds = text.strip("()[] ").split(","), typing.get_args(kind)
        if len(parts) != len(kinds):
            return None
        values = tuple(_parse(part.strip(), each) for part, each in zip(parts, kinds, strict=True))
        return None if None in values else values
    with suppress(ValueError):
        if kind is int:
            return int(text.replace("_", ""))
        if kind is float:
            return float(text)
    return None


TYPE_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "none",
}


def describe_type(hint: Any) -> str:
    """A type in words: "a whole number or none", "(a number, a number)" for a tuple."""
    if isinstance(hint, types.UnionType):
        return " or ".join(map(describe_type, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return f"({', '.join(map(describe_type, typing.get_args(hint)))})"
    return TYPE_WORDS.get(hint, str(hint))


def _describe(value: Any) -> str:
    """A value in a few words: a file may hold one that is too long or too deep to write out."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a whole number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return f"{value} of type {type(value).__name__}"
    return f"{value[:80]!r} of type str" if isinstance(value, str) else f"a {type(value).__name__}"
