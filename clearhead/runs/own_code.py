"""Classes of your own: the Python file that defines them is kept in the run folder.

    clearhead train parity.py                  copies parity.py to runs/parity-0001/recipe.py
    clearhead predict runs/parity-0001 0110    runs this copy, to get its classes

A config.json names classes: clearhead's own, or others, which the copy must define. Code from a run
folder is executed only by `find_kinds`. It reads the copy once, compares its SHA-256 with that in
config.json, checks that it is trusted, and executes exactly these bytes. Code is trusted if this
user has run a file with this SHA-256 before, or with trust=True (--trust on the command line).
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from clearhead.runs.folder import CODE, COPY, MAX_CODE, RunFolder
from clearhead.training.progress import Tell
from clearhead.training.recipe import Recipe, TrainingConfig

MAX_KNOWN = 16 << 20  # bytes of the list of known files
MAX_MESSAGE = 400  # characters of an error message from a user's file

Kinds = Mapping[str, type[Config]]  # config classes by name: the "kind" of a section in config.json

_loading: ContextVar[Path | None] = ContextVar("_loading", default=None)  # the file being run


class NotTrusted(ValueError):
    """Loading a run would run code that this user has neither run before nor trusted."""


class OwnCodeError(BadFile):
    """An error in a user's file; the message names the file, the line and the exception."""


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
        return cls(Path(path), name or Path(path).name, read_bytes(path, MAX_CODE))

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
    """Executes the bytes that were read; neither reads the file again nor uses cached bytecode."""

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
    """Name the user's file and line in an error that their code caused; None for any other error.

    An AttributeError or TypeError inside clearhead counts too: user code may have returned a value
    of the wrong type.
    """
    if where := _locate(fault):
        return OwnCodeError(f"{where}: {_describe(fault)}")
    loaded = _find_loaded()
    if not loaded or not isinstance(fault, AttributeError | TypeError):
        return None
    last = traceback.extract_tb(fault.__traceback__)[-1]
    return OwnCodeError(
        f"{quote(loaded[-1].path)}: {_describe(fault)} (raised at {quote(last.filename)}, line "
        f"{last.lineno}, which uses a value that a class of this file returned)"
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
    """Refuse to train while a user's file is loaded, which should only define classes."""
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
    """The config classes of a run: clearhead's, and those of the recipe.py in its folder.

    Raises NotTrusted instead of executing an unknown recipe.py. kinds: classes to use instead of
    those in recipe.py, which is then not executed.
    """
    about = folder.config.get(CODE)
    if about is None or kinds:
        return add_kinds(kinds)
    code = _read_copy(folder, about)
    if not trust and not is_known(code):
        n_lines = len(code.data.splitlines())
        raise NotTrusted(
            f"loading {quote(folder.path)} would run the Python file {quote(folder / COPY)} "
            f"({n_lines} lines, a copy of {quote(code.name)}, SHA-256 {code.sha256}), which you "
            f"have not run before; read it, and if you trust it, give --trust, or trust=True in "
            f"Python"
        )
    remember(code)
    return collect_kinds(code.run())


def collect_kinds(module: ModuleType) -> Kinds:
    """The config classes in a module, and clearhead's."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type)]
    return add_kinds(kind for kind in found if issubclass(kind, Config))


def add_kinds(kinds: Iterable[type[Config]]) -> Kinds:
    """Clearhead's config classes together with these."""
    return {**config_kinds(), **{kind.__name__: kind for kind in kinds}}


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
            f"{code.sha256}, but config.json says {about['sha256']!r:.70}; restore that file"
        )
    return code


def find_code(recipe: Recipe, tell: Tell) -> OwnCode | None:
    """The file that defines the user's classes of a recipe; None without such classes or file."""
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
    tell(f"{names} {why}, so the run keeps no copy; load it with load_run(run, kinds=[{names}])")
    return None


def _find_file(kind: type[Config]) -> OwnCode | None:
    """The file that defines a class; None if there is none, as for a notebook cell."""
    module = sys.modules.get(kind.__module__)
    if isinstance(loader := getattr(module, "__loader__", None), _Loader):
        return loader.code  # not read again: the file may have changed
    path = getattr(module, "__file__", None)
    return OwnCode.read(path) if path and path.endswith(".py") and os.path.isfile(path) else None


# Code that this user has run before


def is_known(code: OwnCode) -> bool:
    """Whether this user has run these bytes before."""
    path = find_known_list()
    known = read_bytes(path, MAX_KNOWN) if path.exists() else b""
    return re.search(rb"^%s " % code.sha256.encode(), known, re.MULTILINE) is not None


def remember(code: OwnCode) -> None:
    """Add a file to the list of those that this user has run, if the list can be written."""
    with suppress(OSError, BadFile):
        if not is_known(code):
            find_known_list().parent.mkdir(parents=True, exist_ok=True)
            with open(find_known_list(), "a", encoding="utf-8") as file:
                file.write(f"{code.sha256}  {quote(code.name)}\n")


def find_known_list() -> Path:
    """The path of the list of known files, SHA-256 and name in each line, in the state folder."""
    import platformdirs

    return platformdirs.user_state_path("clearhead", appauthor=False) / "known-recipes.txt"
