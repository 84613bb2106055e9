"""What every model has: a config that says all about it, and a table that describes it.

    config = GPTConfig(vocab_size=65, max_len=64, d_model=128, n_layers=2, n_heads=4)
    model = GPT(config)
    GPTConfig.from_dict(config.to_dict()) == config         # how a saved model is built again
    print(model.describe())                                 # each layer, its shapes, its parameters

A config is a frozen dataclass. It checks its own types and, in `check`, its own values, so that a
wrong file is refused by the name of the field before anything is built.
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


@dataclasses.dataclass(frozen=True)
class Config:
    """The base of all configs; a subclass is a frozen dataclass that may define `check`."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = _typed(field.name, getattr(self, field.name), hints[field.name])
            object.__setattr__(self, field.name, value)  # a whole number is a float where one fits
        self.check()

    def check(self) -> None:
        """Raise ValueError where values do not go together."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = dataclasses.asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The config of these values; an unknown or missing name is refused."""
        if not isinstance(values, Mapping):
            raise TypeError(f"{cls.__name__} is made from names and values, got {_shown(values)}")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name in values:
            if name not in fields:
                given = name[:80] if isinstance(name, str) else type(name).__name__
                near = difflib.get_close_matches(given, fields, n=1, cutoff=0.0)[0]
                raise ValueError(f"{cls.__name__} has no {given!r}; the nearest is {near!r}")
        for name, field in fields.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise ValueError(f"{cls.__name__} needs {name!r}, which is missing")
        hints = typing.get_type_hints(cls)
        return cls(**{name: _from_plain(value, hints[name]) for name, value in values.items()})


class Model(nn.Module):
    """The base of all models: `Model(config)`, the numbers of its parameters, its description."""

    config_type: ClassVar[type[Config]]

    def __init__(self, config: Config) -> None:
        super().__init__()
        if not isinstance(config, self.config_type):
            raise TypeError(
                f"{type(self).__name__} is built from a {self.config_type.__name__}, "
                f"got {type(config).__name__}"
            )
        self.config: Any = config

    @classmethod
    def from_config(cls, config: Config | Mapping[str, Any]) -> Self:
        """A new model from its config or from the plain values of one."""
        return cls(cls.config_type.from_dict(config) if isinstance(config, Mapping) else config)

    @property
    def n_parameters(self) -> int:
        """How many numbers are learned; a shared table counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where its numbers are."""
        return next(self.parameters()).device

    def describe(self) -> str:
        """A table of the layers that hold parameters: name, kind, shapes, how many."""
        rows = [("layer", "kind", "shapes", "parameters"), *_rows(self)]
        rows.append((type(self).__name__, "", "", f"{self.n_parameters:,}"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = (
            f"{name:{widths[0]}}  {kind:{widths[1]}}  {shapes:{widths[2]}}  {count:>12}"
            for name, kind, shapes, count in rows
        )
        return "\n".join(line.rstrip() for line in lines)


def _rows(model: nn.Module) -> Iterator[tuple[str, str, str, str]]:
    seen: dict[int, str] = {}
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not own:
            continue
        fresh = {key: value for key, value in own.items() if id(value) not in seen}
        shared = [seen[id(value)] for value in own.values() if id(value) in seen]
        shapes = [f"{key} {'×'.join(map(str, value.shape))}" for key, value in own.items()]
        seen.update({id(value): f"{name}.{key}" for key, value in fresh.items()})
        count = f"{sum(value.numel() for value in fresh.values()):,}"
        note = f" (= {', '.join(shared)})" if shared else ""
        yield name, type(module).__name__, ", ".join(shapes[:2]) + note, count
        for i in range(2, len(shapes), 2):  # a GRU has many
            yield "", "", ", ".join(shapes[i : i + 2]), ""


def _typed(name: str, value: Any, hint: Any) -> Any:
    """value if it is of the type that the field says; True is no number, nan no value."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if typing.get_origin(option) is tuple and isinstance(value, tuple):
            parts = typing.get_args(option)
            if len(parts) == len(value):
                places = zip(range(len(parts)), value, parts, strict=True)
                return tuple(_typed(f"{name}[{i}]", item, part) for i, item, part in places)
        elif _is_a(value, option):
            return _number(name, value, option) if option in (int, float) else value
    expected = " or ".join(_WORDS.get(option, str(option)) for option in options)
    raise TypeError(f"{name} must be {expected}, got {_shown(value)}")


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "nothing",
}


def _is_a(value: Any, option: Any) -> bool:
    """A whole number is a float, too; True is only a bool."""
    if isinstance(value, bool) or typing.get_origin(option) is tuple:
        return option is bool
    return isinstance(value, (int, float) if option is float else option)


def _number(name: str, value: int | float, kind: type) -> int | float:
    """value as an int or float, if it is one that a machine can count or compute with."""
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{name} must be less than 2^63 in size, got {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    number: int | float = kind(value)
    return number


def _shown(value: Any) -> str:
    """A value in a few words: a file may hold one that is too long or too deep to write out."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a whole number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return f"{value} of type {type(value).__name__}"
    return f"{value[:80]!r} of type str" if isinstance(value, str) else f"a {type(value).__name__}"


def _from_plain(value: Any, hint: Any) -> Any:
    """JSON has lists where a config has tuples."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    wants_tuple = any(typing.get_origin(option) is tuple for option in options)
    return tuple(value) if isinstance(value, list) and wants_tuple else value


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients for the length of a `with`; then every part is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


class _NothingDrawn(TorchFunctionMode):
    """No random numbers. On the meta device nobody would see them, and the first one makes PyTorch
    import its compiler for a second or more."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if func in (Tensor.mul, Tensor.__mul__, Tensor.__rmul__):  # 0.02 * randn(…)
            return next(arg for arg in args if isinstance(arg, Tensor))
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


def empty_model(kind: type[Model], config: Config) -> Model:
    """Our model with shapes but without memory."""
    with torch.device("meta"), _NothingDrawn():
        return kind(config)
