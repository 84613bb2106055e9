"""The run folder is the interface: training writes it, every later command reads it.

    runs/substring-0001/
        config.json          all settings, to build the run again
        environment.json     versions, threads, machine
        metrics.jsonl        a line for each step that was measured, in order, each step once
        samples.txt          what the model wrote at each evaluation
        forced.txt           settings that --force changed, if any
        checkpoints/         checkpoint.py
        tokenizer.json …     what the task's predictor needs
        recipe.py            classes of your own, if it has any: own_code.py
        report.html          the run on one page

A new folder gets its name when all its settings are written. metrics.jsonl and samples.txt only
grow; each checkpoint records how long they were, and a run that resumes from it cuts off what was
written later, so that no step appears twice.

A run folder may be untrusted. Everything written to it goes through `open` and `replace`, which
refuse links and anything else that is not a regular file. Metrics and samples are read
through `find`, which refuses links to files outside the folder.
"""

import errno
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from clearhead import __version__
from clearhead.config import find_nearest
from clearhead.files.lock import PATIENCE, lock_folder
from clearhead.files.names import check_file_name
from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.files.strict_json import hash_json, parse_json, read_json, write_json
from clearhead.files.writing import (
    check_target,
    create_folder,
    open_target,
    replace_file,
    sync_folder,
)

CONFIG, ENVIRONMENT = "config.json", "environment.json"
METRICS, SAMPLES, FORCED = "metrics.jsonl", "samples.txt", "forced.txt"
COPY = "recipe.py"  # a copy of the file that defines the user's classes
MAX_CODE = 1 << 20  # bytes of this file
CODE = "code"  # the entry of config.json about that file
REPORT = "report.html"
GROWING = (METRICS, SAMPLES)
CHANGEABLE = ("training", "asked", CODE)  # parts of config.json that --force may change
MAX_METRICS = 256 << 20  # bytes of metrics.jsonl
MAX_METRIC = 1e100  # float32 ends at 3e38; a picture of larger numbers cannot be drawn
N_NAMED = 5  # runs named in an error message


class RunFolder:
    """The folder of a run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def find(self, name: str) -> Path:
        """The path of a file to read; it may be missing. A link that leads outside is refused."""
        path = self / name
        if path.is_symlink() and not path.resolve().is_relative_to(self.path.resolve()):
            raise BadFile(
                f"{quote(path)} is a link to a file outside the run folder, which is not read; "
                "replace it with the file itself"
            )
        return path

    # What the run is

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        if not self.path.is_dir():
            found = "it is a file" if self.path.exists() else "there is no such folder"
            near = _suggest_run(self.path)
            raise BadFile(f"{quote(self.path)} is not a run folder: {found}{near}")
        if not (self / CONFIG).exists() and (inside := list_runs(self.path)):
            names = ", ".join(quote(run.path) for run in inside[-N_NAMED:][::-1])
            raise BadFile(f"{quote(self.path)} is a folder of runs; give one of them: {names}")
        return self._read(CONFIG)

    @property
    def environment(self) -> dict[str, Any]:
        """The content of environment.json."""
        return self._read(ENVIRONMENT)

    def read_state(self) -> dict[str, Any]:
        """The state in the newest checkpoint that can be read, unverified; empty without any."""
        for path in sorted(self.checkpoints.glob("step-*/state.json"), reverse=True):
            with suppress(BadFile, OSError):
                state = read_json(path)
                if isinstance(state, dict):
                    return state
        return {}

    @property
    def identity(self) -> str:
        """A digest of everything that a run cannot change: recipe, data and model."""
        config = self.config
        return hash_json({name: config[name] for name in config if name not in CHANGEABLE})

    def check(self) -> None:
        """Refuse a folder that is not a run folder, or whose config cannot be read."""
        _ = self.config  # reading it checks it

    def describe(self, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Write config.json and environment.json, replacing older ones."""
        self.checkpoints.mkdir(exist_ok=True)
        write_json(self / ENVIRONMENT, dict(environment), follow=False)
        write_json(self / CONFIG, dict(config), follow=False)

    @contextmanager
    def lock(self, wait: float = PATIENCE) -> Iterator[None]:
        """Within a `with` block, no other process may write here; Busy if one still does after
        `wait` seconds."""
        for name in (CONFIG, ENVIRONMENT, *GROWING, FORCED, REPORT):
            check_target(self / name, in_place=name in (*GROWING, FORCED))
        if self.checkpoints.is_symlink():
            raise BadFile(
                f"{quote(self.checkpoints)} is a symbolic link, which is not followed for "
                "writing; replace it with the folder itself"
            )
        with lock_folder(self.path, wait=wait):
            yield

    def open(self, name: str, mode: str) -> BinaryIO:
        """Open a file of the folder for binary writing."""
        return open_target(self / name, mode)

    def replace(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Write a file of the folder whole or not at all."""
        return replace_file(self / name, follow=False)

    def _read(self, name: str) -> dict[str, Any]:
        values = read_json(self / name)
        if not isinstance(values, dict):
            raise BadFile(f"{quote(self / name)} must hold values by name")
        return values

    # Files that grow

    def read_metrics(self) -> list[dict[str, Any]]:
        """The whole lines of metrics.jsonl."""
        path = self.find(METRICS)
        if not path.exists():
            return []
        lines = read_bytes(path, MAX_METRICS).split(b"\n")[:-1]  # the last may be cut
        return [values for line in lines if (values := read_metrics_line(line)) is not None]

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        self._append(METRICS, json.dumps(dict(values), allow_nan=False) + "\n")

    def add_sample(self, step: int, text: str) -> None:
        """Append what the model wrote after this step to samples.txt."""
        self._append(SAMPLES, f"--- step {step}\n{text.rstrip()}\n\n")

    def read_samples(self) -> list[tuple[str, str]]:
        """The samples in samples.txt: (heading, text), oldest first."""
        path = self.find(SAMPLES)
        if not path.exists():
            return []
        text = read_bytes(path, MAX_METRICS).decode("utf-8", "replace")
        parts = re.split(r"^--- (step \d+)$\n?", text, flags=re.MULTILINE)[1:]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [(heading, body.strip("\n")) for heading, body in pairs]

    def read_forced(self) -> list[str]:
        """The settings that --force changed."""
        path = self.find(FORCED)
        data = read_bytes(path, MAX_METRICS) if path.exists() else b""
        return data.decode(errors="replace").splitlines()

    def add_forced(self, difference: str) -> None:
        """Append a line to forced.txt, unless it is there."""
        if difference not in self.read_forced():
            self._append(FORCED, difference + "\n")

    def sync_sizes(self) -> dict[str, int]:
        """Sync the growing files to the disk; returns their sizes in bytes."""
        sizes = {}
        for name in GROWING:
            if (self / name).exists():
                with self.open(name, "r+b") as file:  # Windows syncs only what may be written
                    os.fsync(file.fileno())
                    sizes[name] = os.fstat(file.fileno()).st_size
        sync_folder(self.path)
        return sizes

    def cut_back(self, sizes: Mapping[str, int], tell: Callable[[str], None]) -> None:
        """Cut off what was written after a checkpoint that recorded these sizes."""
        for name in GROWING:
            path, known = self / name, sizes.get(name, 0)
            size = path.stat().st_size if path.exists() else 0
            if size < known:
                lost = f"{known - size} bytes since the last checkpoint"
                tell(f"{quote(path)} has lost {lost}; they cannot be restored")
                known = read_bytes(path, MAX_METRICS).rfind(b"\n") + 1 if size else 0
            if size > known:
                with self.open(name, "ab") as file:
                    file.truncate(known)
                    os.fsync(file.fileno())

    def _append(self, name: str, text: str) -> None:
        try:
            with self.open(name, "ab") as file:
                file.write(text.encode())
        except OSError as fault:
            fault.filename = fault.filename or str(self / name)
            raise


def read_metrics_line(line: bytes) -> dict[str, Any] | None:
    """The numbers of a line of metrics.jsonl, None if it is not one."""
    try:
        values = parse_json(line, METRICS)
    except BadFile:
        return None
    if not isinstance(values, dict) or type(values.get("step")) is not int or values["step"] < 0:
        return None
    # Not shapes.is_number: that file imports torch, and the command line reads metrics without it.
    are_numbers = all(type(value) in (int, float) for value in values.values())
    return values if are_numbers and max(map(abs, values.values())) < MAX_METRIC else None


def new_run(parent: Path, name: str, fill: Callable[[RunFolder], object]) -> RunFolder:
    """Create the folder parent/name-nnnn, with the number after the highest there.

    It is filled under a temporary name: a start that is killed leaves no run, and of two starts at
    once each gets a folder of its own.
    """
    check_file_name(name)
    while True:
        number = 1 + max((number for number, _ in _find_numbered(parent, name)), default=0)
        path = parent / f"{name}-{number:04d}"
        try:
            with create_folder(path) as staged:
                fill(RunFolder(staged))
            return RunFolder(path)
        except (BadFile, OSError) as fault:
            taken = not isinstance(fault, OSError) or fault.errno in (errno.ENOTEMPTY, errno.EEXIST)
            if not (taken and path.exists()):  # else another process was quicker
                raise


def find_runs(parent: Path, name: str) -> list[RunFolder]:
    """The runs of this name, in the order of their numbers; each has a config.json."""
    paths = (path for _, path in sorted(_find_numbered(parent, name)))
    return [RunFolder(path) for path in paths if (path / CONFIG).is_file()]


def list_runs(parent: Path) -> list[RunFolder]:
    """All runs directly below a folder, the newest last."""
    started = sorted(parent.glob(f"[!.]*/{CONFIG}"), key=lambda path: path.stat().st_mtime)
    return [RunFolder(path.parent) for path in started]


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether this is a run folder; a folder of weights has a config.json of another kind."""
    try:
        return {"recipe", "training"} <= RunFolder(path).config.keys()
    except (ValueError, OSError):
        return False


def _suggest_run(path: Path) -> str:
    """The end of an error message: the run with the most similar name, here or in runs/."""
    known = {run.path.name: run.path for run in (*list_runs(Path("runs")), *list_runs(path.parent))}
    near = find_nearest(path.name, known, cutoff=0.6)
    return f"; did you mean {quote(known[near])}?" if near else ""


def _find_numbered(parent: Path, name: str) -> Iterator[tuple[int, Path]]:
    pattern = re.compile(re.escape(name) + r"-(\d{4,})")
    for path in parent.iterdir() if parent.is_dir() else ():
        if match := pattern.fullmatch(path.name):
            yield int(match[1]), path


def describe_environment(threads: int, device: str) -> dict[str, Any]:
    """Everything besides the config that results may depend on."""
    import torch

    return {
        "clearhead": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": threads,
        "device": device,
        "machine": platform.machine(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
    }
