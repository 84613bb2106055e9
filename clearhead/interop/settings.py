"""The config.json of other people, asked by name.

Every value that changes a number is asked for: as a size, a number, a flag or a choice. A value of
the wrong type, a size no model has, or a variant that we do not compute is refused with its name;
it is never ignored. Everything else in such a file – names of classes and modules to import,
addresses, settings of a training – is not looked at: nothing is imported, fetched or opened.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.files import BadFile, read_json
from clearhead.files.reading import quote

LARGEST = 1 << 24  # no size of a model is larger: 16 million words, positions or columns
MISSING: Any = object()

ACTIVATIONS = {  # their names of the activations, and ours
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "squared_relu",
}


class Settings:
    """The values of one config.json; a null counts as absent."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values

    @classmethod
    def read(cls, folder: Path) -> "Settings":
        """From folder/config.json."""
        path = folder / "config.json"
        values = read_json(path)
        if not isinstance(values, dict):
            raise BadFile(f"{quote(path)} must hold names and values, got {values!a:.60}")
        return cls(path, values)

    @property
    def kind(self) -> str:
        """model_type, the word by which the families are told apart."""
        return self._value("model_type", MISSING, str, "a word")

    def size(self, name: str, default: Any = MISSING) -> int:
        """A whole number from 1 to 16 million."""
        value = self._value(name, default, int, "a whole number")
        if value is not default and not 1 <= value <= LARGEST:
            raise self.bad(f"{name} is {value}; it must be from 1 to {LARGEST:,}")
        return value

    def number(self, name: str, default: Any = MISSING) -> float:
        return self._value(name, default, (int, float), "a number")

    def flag(self, name: str, default: Any = MISSING) -> bool:
        return self._value(name, default, bool, "true or false")

    def activation(self, name: str, default: str) -> str:
        """Our name of their activation."""
        value = self._value(name, default, str, "a word")
        if value not in ACTIVATIONS:
            raise self._unknown(name, value, " or ".join(ACTIVATIONS))
        return ACTIVATIONS[value]

    def must_be(self, **allowed: Any) -> None:
        """Each named value is absent or the one that we compute."""
        for name, value in allowed.items():
            given = self.values.get(name)
            if given is not None and (type(given) is not type(value) or given != value):
                raise self._unknown(name, given, json.dumps(value))

    def must_be_absent(self, *names: str) -> None:
        for name in names:
            if self.values.get(name) is not None:
                raise self._unknown(name, self.values[name], "a config without it")

    def bad(self, fault: object) -> BadFile:
        """The error that names this file."""
        return BadFile(f"{quote(self.path)}: {fault}")

    def _value(self, name: str, default: Any, kinds: Any, words: str) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is MISSING:
                raise self.bad(f"{name} is missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise self.bad(f"{name} must be {words}, got {value!a:.60}")
        return value

    def _unknown(self, name: str, value: Any, known: str) -> BadFile:
        return self.bad(f"{name} is {value!a:.60}, which is not computed here; known is {known}")
