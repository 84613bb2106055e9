"""The config.json of another project, read value by value.

Every value that changes a number is read: as a size, a number, a flag or a choice. A value of the
wrong type, an impossible size or an unsupported variant is refused by its name, never ignored.
The rest of the file – classes and modules to import, addresses, training settings – is not read:
nothing is imported, fetched or opened.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from clearhead.files import BadFile, read_json
from clearhead.files.reading import quote

MAX_SIZE = 1 << 24  # 16 million words, positions or columns: more than any model has
REQUIRED: Any = object()

ACTIVATIONS = {  # their names of the activations, and ours
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "squared_relu",
}


class TheirConfig:
    """The values of one config.json; null counts as absent."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values

    @classmethod
    def read(cls, folder: Path) -> "TheirConfig":
        """Read folder/config.json."""
        path = folder / "config.json"
        values = read_json(path)
        if not isinstance(values, dict):
            raise BadFile(f"{quote(path)} must hold names and values, got {values!r:.60}")
        return cls(path, values)

    @property
    def kind(self) -> str:
        """model_type, which names the family."""
        return self._get("model_type", REQUIRED, str, "a word")

    def get_size(self, name: str, default: Any = REQUIRED) -> int:
        """A whole number from 1 to 16 million."""
        value = self._get(name, default, int, "a whole number")
        if value is not default and not 1 <= value <= MAX_SIZE:
            raise self.error(f"{name} is {value}; it must be from 1 to {MAX_SIZE:,}")
        return value

    def get_number(self, name: str, default: Any = REQUIRED) -> float:
        return self._get(name, default, (int, float), "a number")

    def get_flag(self, name: str, default: Any = REQUIRED) -> bool:
        return self._get(name, default, bool, "true or false")

    def get_choice(self, name: str, default: str, supported: Collection[str]) -> str:
        """One of the supported words."""
        value = self._get(name, default, str, "a word")
        if value not in supported:
            raise self._unsupported(name, value, " or ".join(supported))
        return value

    def get_activation(self, name: str, default: str) -> str:
        """Our name of their activation."""
        return ACTIVATIONS[self.get_choice(name, default, ACTIVATIONS)]

    def require(self, **supported: Any) -> None:
        """Refuse a named value that is neither absent nor the supported one."""
        for name, value in supported.items():
            given = self.values.get(name)
            if given is not None and (type(given) is not type(value) or given != value):
                raise self._unsupported(name, given, json.dumps(value))

    def refuse(self, *names: str) -> None:
        """Refuse any value of these names."""
        for name in names:
            if self.values.get(name) is not None:
                raise self._unsupported(name, self.values[name], "a config without it")

    def error(self, fault: object) -> BadFile:
        """The error to raise; it starts with the name of this file."""
        return BadFile(f"{quote(self.path)}: {fault}")

    def _get(self, name: str, default: Any, kinds: Any, words: str) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is REQUIRED:
                raise self.error(f"{name} is missing")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise self.error(f"{name} must be {words}, got {value!r:.60}")
        return value

    def _unsupported(self, name: str, value: Any, supported: str) -> BadFile:
        return self.error(f"{name} is {value!r:.60}, which is not supported; use {supported}")
