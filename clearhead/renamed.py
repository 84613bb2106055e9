"""Old names that still work for one release: each forwards to the new one and warns.

    from clearhead.training.place import Place
    DeprecationWarning: clearhead.training.place.Place is now clearhead.training.state.State

A finder, which Python asks for each module before it looks at the disk, adds the old names to
modules that still exist and stands in for those that are gone. So no other file mentions old names.
The names themselves are in renamed.txt.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def _read_tables(path: Path) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, str]]]:
    """The sections of renamed.txt; its lines have an old and a new name, without "clearhead."."""
    modules, names, members = path.read_text(encoding="utf-8").split("\n\n")
    classes: dict[str, dict[str, str]] = {}
    for line in members.splitlines()[1:]:
        old, new = line.split()
        owner, _, member = old.rpartition(".")
        classes.setdefault(f"clearhead.{owner}", {})[member] = new
    return _read_pairs(modules), _read_pairs(names), classes


def _read_pairs(section: str) -> dict[str, str]:
    pairs = (line.split() for line in section.splitlines()[1:])
    return {f"clearhead.{old}": f"clearhead.{new}" for old, new in pairs}


# Old module → the module that now holds its names; old name → new name, where more than the module
# changed; class → old and new names of its members.
MODULES, NAMES, MEMBERS = _read_tables(Path(__file__).with_suffix(".txt"))


def forward(module: str, own: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A `__getattr__` for a module: looks an old name up, warns, and returns the new object.

    own: the module's own `__getattr__`, if it has one, which is asked first.
    """

    def look_up(name: str) -> Any:
        if own is not None:
            with suppress(AttributeError):
                return own(name)
        old = f"{module}.{name}"
        new = NAMES.get(old, f"{MODULES[module]}.{name}" if module in MODULES else "")
        if not new or name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new_name = new.rpartition(".")
        value = getattr(import_module(home), new_name)
        _warn(old, new)
        return value

    return look_up


def rename_members(**names: str) -> Callable[[type[T]], type[T]]:
    """A class decorator: members with an old name, old="new", still work, and warn.

    They can be read and set, and subclasses can still define them.
    """

    def decorate(cls: type[T]) -> type[T]:
        def adopt(sub: type, **options: Any) -> None:
            super(cls, sub).__init_subclass__(**options)  # type: ignore[misc]
            for old in names.keys() & vars(sub).keys():
                _warn(f"{sub.__name__}.{old}", names[old])
                setattr(sub, names[old], vars(sub)[old])

        for old, new in names.items():
            setattr(cls, old, _OldMember(f"{cls.__name__}.{old}", new))
        setattr(cls, "__init_subclass__", classmethod(adopt))  # noqa: B010  # typed as a method
        return cls

    return decorate


class _OldMember:
    """A class attribute that stands for the one with the new name."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def __get__(self, instance: Any, owner: type) -> Any:
        _warn(self.old, self.new)
        return getattr(owner if instance is None else instance, self.new)

    def __set__(self, instance: Any, value: Any) -> None:
        _warn(self.old, self.new)
        setattr(instance, self.new, value)


def _warn(old: str, new: str) -> None:
    words = f"{old} is now {new}; the old name goes with the next release"
    warnings.warn(words, DeprecationWarning, stacklevel=3)


class _Finder(MetaPathFinder):
    """Finds each module with old names, runs it if it still exists, and adds them to it."""

    modules = {name.rpartition(".")[0] for name in (*NAMES, *MEMBERS)} | MODULES.keys()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.modules:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:  # gone; None: only a __pycache__ was left there
            spec = ModuleSpec(fullname, Loader(), is_package=True)
        execute = getattr(spec.loader, "exec_module", lambda module: None)

        def exec_module(module: ModuleType) -> None:
            execute(module)
            vars(module)["__getattr__"] = forward(fullname, vars(module).get("__getattr__"))
            for name, members in MEMBERS.items():
                home, _, cls = name.rpartition(".")
                if home == fullname:
                    rename_members(**members)(vars(module)[cls])

        vars(spec.loader)["exec_module"] = exec_module
        return spec


sys.meta_path.insert(0, _Finder())  # first, so that it also sees the modules that still exist
