"""bubblewrap: namespaces made by a program, where the system forbids them to Python.

Some systems allow user namespaces to listed programs only, `bwrap` among them. There the zygote
itself is started by bwrap. All its boxes then share one root folder and one network, in which
neither clearhead's answers nor the user's files exist.
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
    """The command that runs the zygote, whose own command follows; folder: where it may write."""
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
