"""Old names that still work: each forwards to the new one and warns. For one release.

    from clearhead.training.place import Place
    DeprecationWarning: clearhead.training.place.Place is now clearhead.training.state.State

A module that is gone is imported through a finder that Python asks last, after all real modules.
A module that still exists but lost a name forwards it by `__getattr__ = forward(__name__)`.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Old module → the module that now holds its names.
MODULES: dict[str, str] = {
    # attention, positions
    # config, layers, models
    # data, files
    # generation
    # training, runs
    # inspection, lab, bench
    # interop, cli
}

# Old name → new name, where more than the module changed.
NAMES: dict[str, str] = {
    # attention, positions
    # config, layers, models
    # data, files
    # generation
    # training, runs
    # inspection, lab, bench
    # interop, cli
}


def find(old: str) -> str | None:
    """The new full name of an old one, None if nothing is known of it."""
    module, _, name = old.rpartition(".")
    return NAMES.get(old) or (f"{MODULES[module]}.{name}" if module in MODULES else None)


def forward(module: str) -> Callable[[str], Any]:
    """A `__getattr__` for a module: looks an old name up, warns, and returns the new object."""

    def look_up(name: str) -> Any:
        old = f"{module}.{name}"
        new = None if name.startswith("__") else find(old)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new_name = new.rpartition(".")
        value = getattr(import_module(home), new_name)
        words = f"{old} is now {new}; the old name goes with the next release"
        warnings.warn(words, DeprecationWarning, stacklevel=2)
        return value

    return look_up


class _Finder(MetaPathFinder, Loader):
    """Finds modules that are gone but whose names are still known."""

    def __init__(self) -> None:
        old = {name.rpartition(".")[0] for name in NAMES} | MODULES.keys()
        self.packages = {name.rpartition(".")[0] for name in old}
        self.known = old | self.packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.known:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in self.packages)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary, empty module

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = forward(module.__name__)


sys.meta_path.append(_Finder())  # last: a module that exists is found before it
