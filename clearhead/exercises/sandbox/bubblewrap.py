"""bubblewrap: namespaces made by a program, where the system forbids them to Python.

Some systems let only programs of a list make user namespaces, and `bwrap` is on it. Then the zygote
itself is started inside: one root folder and one network for all its boxes, which see neither
clearhead's answers nor the files of the user.
"""

import os
import shutil
import sys
from pathlib import Path

from clearhead.exercises.sandbox import view


def find_program() -> str | None:
    """The path of bwrap, if it is installed."""
    return shutil.which("bwrap")


def build_command(program: str, folder: str) -> list[str]:
    """The words before the command of the zygote; folder: the one it may write to."""
    words = [program, "--unshare-all", "--new-session", "--proc", "/proc"]
    for path in view.find_readable():
        words += ["--ro-bind", path, path]
    for path in view.find_hidden():
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    for name, target in view.find_links().items():
        if not any(Path(name).is_relative_to(path) for path in view.find_readable()):
            words += ["--symlink", target, name]
    for device in view.DEVICES:
        words += ["--dev-bind", device, device]
    here = str(Path(__file__).parent)  # the zygote reads these files; none holds an answer
    for path in (here, os.path.realpath(sys.executable)):
        words += ["--ro-bind", path, path]
    return [*words, "--bind", folder, folder, "--remount-ro", "/", "--chdir", "/", "--"]
