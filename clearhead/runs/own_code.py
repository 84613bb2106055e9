"""Classes of your own: the Python file that defines them is kept in the run folder.

    clearhead train parity.py                  copies parity.py to runs/parity-0001/recipe.py
    clearhead predict runs/parity-0001 0110    runs this copy, to get its classes

A config.json names classes. Those of clearhead are known. All others must come from the copy, whose
SHA-256 is in config.json. `find_kinds` is the one door: no code of a run folder runs before it has
decided that the code is trusted, and exactly the bytes that it has checked are run. Code is
trusted if this user has run it before, known by its SHA-256, or if trust is given now.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.abc import InspectLoader
from importlib.util import decode_source, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType
from typing import Any, Self

from clearhead.config import Config
from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.runs.folder import CODE, COPY, RunFolder
from clearhead.training.progress import Tell
from clearhead.training.recipe import Recipe, TrainingConfig

MAX_BYTES = 1 << 20  # of a file with a recipe
MAX_KNOWN = 16 << 20  # of the list of known files
MAX_MESSAGE = 400  # characters of the message of an error in own code

Kinds = Mapping[str, type[Config]]  # classes of configs by their names

_loading: ContextVar[Path | None] = ContextVar("_loading", default=None)  # the file being run


class NotTrusted(ValueError):
    """Loading a run would run code that this user has neither run before nor trusted."""


class OwnCodeError(BadFile):
    """An error in a user's own file: one sentence with the file, the line and the exception."""


# The file


@dataclass(frozen=True)
class OwnCode:
    """A Python file: its name, and the bytes that are hashed, copied and run."""

    path: Path
    name: str  # of the file that was copied
    data: bytes = field(repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str], name: str | None = None) -> Self:
        """Read a file, without running it."""
        return cls(Path(path), name or Path(path).name, read_bytes(path, MAX_BYTES))

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the bytes, in hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

    def describe(self) -> dict[str, str]:
        """The entry in config.json."""
        return {"file": self.name, "sha256": self.sha256}

    def run(self) -> ModuleType:
        """Run the file and return its module; the same bytes are run once in a process."""
        name = f"clearhead_recipe_{self.sha256}"
        if name in sys.modules:
            return sys.modules[name]
        loader = _Loader(self)
        spec = spec_from_file_location(name, self.path, loader=loader)
        assert spec is not None
        module = sys.modules[name] = module_from_spec(spec)  # dataclasses look it up there
        token = _loading.set(self.path)
        try:
            with explain_errors(self.path):
                loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        finally:
            _loading.reset(token)
        return module


class _Loader(InspectLoader):
    """Runs exactly the bytes that were read: no file again, and no bytecode from a cache."""

    def __init__(self, code: OwnCode) -> None:
        self.code = code

    def get_source(self, fullname: str) -> str:
        return decode_source(self.code.data)  # for tracebacks

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.code.data, str(self.code.path))


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Errors in a user's own file become one sentence with the file and the line."""
    try:
        yield
    except SyntaxError as fault:
        raise OwnCodeError(f"{quote(path)}, line {fault.lineno}: {fault.msg}") from fault
    except ImportError as fault:
        raise OwnCodeError(f"{quote(path)}: {fault}") from fault
    except (Exception, SystemExit) as fault:
        raise OwnCodeError(f"{_locate(fault) or quote(path)}: {_describe(fault)}") from fault


def explain(fault: BaseException) -> OwnCodeError | None:
    """The error to show for one that a user's own classes raised; None if it is not theirs.

    If they return a wrong type, clearhead's own lines raise AttributeError or TypeError.
    """
    if where := _locate(fault):
        return OwnCodeError(f"{where}: {_describe(fault)}")
    loaded = _find_loaded()
    if not loaded or not isinstance(fault, AttributeError | TypeError):
        return None
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return OwnCodeError(
        f"{quote(loaded[-1].path)}: {_describe(fault)} (raised at {quote(last.filename)}, line "
        f"{last.lineno}, which uses what the classes of this file return)"
    )


def _locate(fault: BaseException) -> str:
    """The innermost line of the user's own files in a traceback; empty if there is none."""
    calls = [(frame.f_globals.get("__loader__"), n) for frame, n in walk_tb(fault.__traceback__)]
    found = [f"{quote(by.code.path)}, line {n}" for by, n in calls if isinstance(by, _Loader)]
    return found[-1] if found else ""


def _find_loaded() -> list[OwnCode]:
    """The user's own files that this process has loaded."""
    loaders = [getattr(module, "__loader__", None) for module in list(sys.modules.values())]
    return [loader.code for loader in loaders if isinstance(loader, _Loader)]


def _describe(fault: BaseException) -> str:
    """The kind and the message of an error, in one line."""
    message = " ".join(str(fault).split())[:MAX_MESSAGE]
    if isinstance(fault, ValueError):
        return message
    return f"{type(fault).__name__}: {message}" if message else type(fault).__name__


def check_not_loading() -> None:
    """Refuse to train while a file with own classes is being loaded: loading must only define."""
    if path := _loading.get():
        raise ValueError(
            f"{quote(path)} calls train whenever it is loaded; put the call below "
            f"`if __name__ == '__main__':`"
        )


# Which classes a run may name


@cache
def config_kinds() -> dict[str, type[Config]]:
    """The classes of configs that come with clearhead, by their names."""
    from clearhead import models
    from clearhead.training import tasks

    found = [getattr(home, name) for home in (models, tasks) for name in home.__all__]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Config)]
    return {kind.__name__: kind for kind in (*kinds, TrainingConfig)}


def find_kinds(
    folder: RunFolder, *, trust: bool = False, kinds: Sequence[type[Config]] = ()
) -> Kinds:
    """The classes that the config of a run may name: the one door to code in a run folder.

    kinds: classes given instead of the run's own code, which is then not run.
    """
    about = folder.config.get(CODE)
    if about is None or kinds:
        return {**config_kinds(), **{kind.__name__: kind for kind in kinds}}
    code = _read_copy(folder, about)
    if not trust and not is_known(code):
        n_lines = len(code.data.splitlines())
        raise NotTrusted(
            f"{quote(folder.path)} has Python code of its own, and to load it is to run "
            f"{quote(folder / COPY)} ({n_lines} lines, a copy of {quote(code.name)}, SHA-256 "
            f"{code.sha256}); read that file, and if you trust it, give --trust, or trust=True "
            f"in Python"
        )
    remember(code)
    return collect_kinds(code.run())


def collect_kinds(module: ModuleType) -> Kinds:
    """The classes of configs that a recipe of this module may have: its own, and clearhead's."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type)]
    configs = [kind for kind in found if issubclass(kind, Config)]
    return {**config_kinds(), **{kind.__name__: kind for kind in configs}}


def _read_copy(folder: RunFolder, about: Any) -> OwnCode:
    """The copy of the recipe file in a run folder, checked against config.json, but not run."""
    values = about.values() if isinstance(about, Mapping) else ()
    if (
        not values
        or about.keys() != {"file", "sha256"}
        or not all(isinstance(x, str) for x in values)
    ):
        raise BadFile(f"{quote(folder / 'config.json')}: {CODE!r} must hold file and sha256")
    code = OwnCode.read(folder / COPY, about["file"])
    if code.sha256 != about["sha256"]:
        raise BadFile(
            f"{quote(folder / COPY)} is not the file that the run was trained with: its SHA-256 is "
            f"{code.sha256}, and by config.json {about['sha256']!r:.70}; bring back that file"
        )
    return code


def find_code(recipe: Recipe, tell: Tell) -> OwnCode | None:
    """The file that defines the own classes of a recipe; None if it has none, or no such file."""
    kinds = [type(section) for section in recipe.sections.values()]
    own = [kind for kind in kinds if config_kinds().get(kind.__name__) is not kind]
    found = [_find_file(kind) for kind in own]
    files = {code.sha256: code for code in found if code is not None}
    if not own:
        return None
    if len(files) == 1 and None not in found:
        return files.popitem()[1]
    names = ", ".join(kind.__name__ for kind in own)
    why = "are defined in several files" if files else "are not defined in a file"
    tell(f"{names} {why}, so the run keeps no copy; load it by load_run(run, kinds=[{names}])")
    return None


def _find_file(kind: type[Config]) -> OwnCode | None:
    """The file that defines a class; None for instance for a cell of a notebook."""
    module = sys.modules.get(kind.__module__)
    if isinstance(loader := getattr(module, "__loader__", None), _Loader):
        return loader.code  # not read again: the file may have changed
    path = getattr(module, "__file__", None)
    return OwnCode.read(path) if path and path.endswith(".py") and os.path.isfile(path) else None


# Code that this user has run before


def is_known(code: OwnCode) -> bool:
    """Whether this user has run these bytes before."""
    path = find_list()
    known = read_bytes(path, MAX_KNOWN) if path.exists() else b""
    return re.search(rb"^%s " % code.sha256.encode(), known, re.MULTILINE) is not None


def remember(code: OwnCode) -> None:
    """Add a file to the list of those that this user has run, if the list can be written."""
    with suppress(OSError, BadFile):
        if not is_known(code):
            find_list().parent.mkdir(parents=True, exist_ok=True)
            with open(find_list(), "a", encoding="utf-8") as file:
                file.write(f"{code.sha256}  {quote(code.name)}\n")


def find_list() -> Path:
    """The list of known files: SHA-256 and name in each line, in the user's own state folder."""
    import platformdirs

    return platformdirs.user_state_path("clearhead", appauthor=False) / "known-recipes.txt"
