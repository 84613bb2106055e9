"""The arguments of a question: JSON values, checked by the annotations of the function.

    def attend(sources: Sources, model: str, text: str, layer: int | None = None): …

    read_arguments(attend, {"model": "substring", "text": "abc|c"})
    read_arguments(attend, {"model": 3, "text": "abc|c"})      TypeError: model must be a word, …

The first parameter is left out: the worker passes its Sources there. A frozen dataclass is given as
a JSON object with the names of its fields.
"""

import dataclasses
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

from clearhead.config import check_type, suggest

MAX_ITEMS = 100_000  # of a list


def read_arguments(function: Callable[..., Any], values: Any) -> dict[str, Any]:
    """Check JSON values against the annotations of a function; returns its keyword arguments.

    The error names the first value that is wrong.
    """
    return _read_object("the question", values, *_list_parameters(function))


@cache
def _list_parameters(function: Callable[..., Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of all parameters but the first, and the names of those without a default."""
    hints = typing.get_type_hints(function)
    _, *parameters = inspect.signature(function).parameters.values()
    required = {each.name for each in parameters if each.default is each.empty}
    return {each.name: hints[each.name] for each in parameters}, frozenset(required)


@cache
def _list_fields(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of all fields of a dataclass, and the names of those without a default."""
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    nothing = dataclasses.MISSING
    required = {f.name for f in fields if f.default is nothing and f.default_factory is nothing}
    return {field.name: hints[field.name] for field in fields}, frozenset(required)


def _read_object(
    owner: str, values: Any, hints: Mapping[str, Any], required: frozenset[str], prefix: str = ""
) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise TypeError(f"{owner} must be an object with names, got {type(values).__name__}")
    for name in values:
        if name not in hints:
            raise ValueError(f"{owner} has no argument {name[:80]!r}{suggest(name, hints)}")
    for name in sorted(required - values.keys()):
        raise ValueError(f"{prefix}{name} is missing")
    return {name: read_value(prefix + name, value, hints[name]) for name, value in values.items()}


def read_value(name: str, value: Any, hint: Any) -> Any:
    """Check a JSON value against a type; returns it, with objects turned into dataclasses."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        origin = typing.get_origin(option)
        if origin is typing.Literal and isinstance(value, str):
            return _check_choice(name, value, typing.get_args(option))
        if origin is list and isinstance(value, list):
            return _read_list(name, value, typing.get_args(option)[0])
        if origin is tuple and isinstance(value, list):
            return _read_tuple(name, value, typing.get_args(option))
        if origin is dict and isinstance(value, dict):
            kind = typing.get_args(option)[1]
            return {
                key: read_value(f"{name}.{key[:40]}", item, kind) for key, item in value.items()
            }
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            fields = _list_fields(typing.cast(type, option))
            return typing.cast(Any, option)(**_read_object(name, value, *fields, f"{name}."))
    simple = [option for option in options if _is_simple(option)]
    if not simple:
        raise TypeError(f"{name} must be {_describe(hint)}, got {type(value).__name__}")
    return check_type(name, value, reduce(operator.or_, simple))


def _is_simple(option: Any) -> bool:
    return option in (str, int, float, bool, types.NoneType)


def _check_choice(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        near = suggest(value, known)
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value[:80]!r}{near}")
    return value


def _read_list(name: str, value: list[Any], kind: Any) -> list[Any]:
    if len(value) > MAX_ITEMS:
        raise ValueError(f"{name} has {len(value):,} items, but may have at most {MAX_ITEMS:,}")
    return [read_value(f"{name}[{i}]", item, kind) for i, item in enumerate(value)]


def _read_tuple(name: str, value: list[Any], kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(value) != len(kinds):
        raise ValueError(f"{name} must have {len(kinds)} items, got {len(value)}")
    pairs = enumerate(zip(value, kinds, strict=True))
    return tuple(read_value(f"{name}[{i}]", item, kind) for i, (item, kind) in pairs)


def _describe(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is list or origin is tuple:
        return "a list"
    if origin is typing.Literal:
        return f"one of {', '.join(typing.get_args(hint))}"
    return "an object"
