"""Which folders checked code may read: Python and its libraries, but nothing of clearhead.

clearhead holds the right answers, so its package, its repository and its tests are in no list.
All paths are real ones, without links. The zygote reads this file, so it imports nothing else of
clearhead.
"""

import os
import sys
import sysconfig
from pathlib import Path

PACKAGE = "clearhead"
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def find_search_path() -> list[str]:
    """The folders of sys.path that hold libraries; a repository or the current folder does not."""
    return [folder for folder in sys.path if folder and _holds_libraries(folder)]


def find_readable() -> list[str]:
    """Folders and files that a Python program needs, without any that lies inside another."""
    found = {os.path.realpath(each) for each in _find_links() if os.path.exists(each)}
    outer: list[str] = []
    for each in sorted(found):
        if not any(_is_inside(each, other) for other in outer):
            outer.append(each)
    return outer


def find_hidden() -> list[str]:
    """The entries of library folders that belong to clearhead, installed or editable."""
    names = [*find_search_path(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders = {os.path.realpath(each) for each in names if os.path.isdir(each)}
    return [entry.path for each in folders for entry in os.scandir(each) if _is_ours(entry.name)]


def find_links() -> dict[str, str]:
    """Names under which the readable folders are known, where they are not the real ones."""
    return {
        each: os.path.realpath(each) for each in _find_links() if os.path.realpath(each) != each
    }


def expand(readable: list[str], hidden: list[str]) -> list[str]:
    """The same view as a list of folders and files with nothing hidden inside."""
    found: list[str] = []
    for each in readable:
        if each in hidden:
            continue
        if any(_is_inside(other, each) for other in hidden):
            found += expand([entry.path for entry in os.scandir(each)], hidden)
        else:
            found.append(each)
    return found


def _find_links() -> list[str]:
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return [*find_search_path(), *standard, os.path.join(sys.base_prefix, "lib"), *SYSTEM]


def _holds_libraries(folder: str) -> bool:
    is_standard = any(_is_inside(folder, base) for base in (sys.base_prefix, sys.prefix))
    is_installed = Path(folder).name in ("site-packages", "dist-packages")
    holds_torch = os.path.isdir(os.path.join(folder, "torch", "nn"))
    is_repository = os.path.isdir(os.path.join(folder, PACKAGE)) and not is_installed
    return (is_standard or is_installed or holds_torch) and not is_repository


def _is_inside(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _is_ours(name: str) -> bool:
    return name.lower().lstrip("_").removeprefix("editable___").startswith(PACKAGE)
