"""The run folder is the interface: training writes it, every later command reads it.

    runs/substring-0001/
        config.json          all that is needed to build the run again
        environment.json     versions, threads, machine
        metrics.jsonl        a line for each step that was measured, in order, each step once
        samples.txt          what the model wrote or answered on its way
        forced.txt           what was changed by --force on the way, if anything was
        checkpoints/         checkpoint.py
        tokenizer.json …     what the predictor of tasks/ saved
        report.html          the run told and drawn

The folder takes its name when all that says what the run is stands in it. One process writes at a
time: it holds a lock that the system takes back when the process ends, in whichever way.
metrics.jsonl and samples.txt only grow; each checkpoint knows how long they were, and a run that
goes on from it cuts off what came after.
"""

import errno
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead import __version__
from clearhead.files.names import check_file_name
from clearhead.files.reading import BadFile, quote, read_bytes
from clearhead.files.strict_json import hash_json, parse_json, read_json, write_json
from clearhead.files.writing import create_folder, sync_folder

CONFIG, ENVIRONMENT, LOCK = "config.json", "environment.json", ".lock"
METRICS, SAMPLES, FORCED = "metrics.jsonl", "samples.txt", "forced.txt"
GROWING = (METRICS, SAMPLES)
CHANGEABLE = ("training", "asked")  # parts of config.json that a run can be forced to change
MAX_METRICS = 256 << 20


class Busy(RuntimeError):
    """Another process works in this run folder."""


class RunFolder:
    """Where a run is kept."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def config(self) -> dict[str, Any]:
        """What config.json says."""
        if not self.path.is_dir():
            raise BadFile(f"{quote(self.path)} is no run folder: there is no such folder")
        return self._values(CONFIG)

    def check(self) -> None:
        """Refuse what is no run folder, or one whose config cannot be read."""
        self.config  # noqa: B018

    @property
    def environment(self) -> dict[str, Any]:
        """What environment.json says."""
        return self._values(ENVIRONMENT)

    def _values(self, name: str) -> dict[str, Any]:
        values = read_json(self / name)
        if not isinstance(values, dict):
            raise BadFile(f"{quote(self / name)} must hold values by name")
        return values

    def write(self, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Write down what the run is."""
        self.checkpoints.mkdir()
        self.describe(config, environment)

    def describe(self, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Write down its settings, and where it runs; over what stood there, if anything did."""
        write_json(self / ENVIRONMENT, dict(environment))
        write_json(self / CONFIG, dict(config))

    @property
    def identity(self) -> str:
        """Stands for all that a run cannot change: recipe, data and model."""
        config = self.config
        return hash_json({name: config[name] for name in config if name not in CHANGEABLE})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes here for the length of a `with`."""
        import fcntl

        with open(self / LOCK, "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read(40).strip() or "another process"
                raise Busy(f"{quote(self.path)} is in use by {holder}; wait or stop it") from None
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
            yield

    # What grows: metrics and samples

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that are whole."""
        if not (self / METRICS).exists():
            return []
        lines = read_bytes(self / METRICS, MAX_METRICS).split(b"\n")[:-1]  # the last may be cut
        return [values for line in lines if (values := _values_of(line)) is not None]

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Append a line."""
        self._append(METRICS, json.dumps(dict(values), allow_nan=False) + "\n")

    def add_sample(self, step: int, text: str) -> None:
        """Append what the model said after this step."""
        self._append(SAMPLES, f"--- step {step}\n{text.rstrip()}\n\n")

    def forced(self) -> list[str]:
        """What was changed on the way, of config.json and environment.json."""
        path = self / FORCED
        said = read_bytes(path, MAX_METRICS) if path.exists() else b""
        return said.decode(errors="replace").splitlines()

    def add_forced(self, difference: str) -> None:
        """Append a line, once."""
        if difference not in self.forced():
            self._append(FORCED, difference + "\n")

    def sync_sizes(self) -> dict[str, int]:
        """How many bytes each file that grows has, once all of them have reached the disk."""
        sizes = {}
        for name in GROWING:
            if (self / name).exists():
                with open(self / name, "rb") as file:
                    os.fsync(file.fileno())
                    sizes[name] = os.fstat(file.fileno()).st_size
        sync_folder(self.path)
        return sizes

    def cut_back(self, sizes: Mapping[str, int], tell: Callable[[str], None]) -> None:
        """Cut off what was written after a checkpoint that knows these sizes."""
        for name in GROWING:
            path, known = self / name, sizes.get(name, 0)
            size = path.stat().st_size if path.exists() else 0
            if size < known:
                tell(f"{quote(path)} has lost {known - size} bytes; they stay lost")
                known = read_bytes(path, MAX_METRICS).rfind(b"\n") + 1 if size else 0
            if size > known:
                with open(path, "ab") as file:
                    file.truncate(known)
                    os.fsync(file.fileno())

    def _append(self, name: str, text: str) -> None:
        try:
            with open(self / name, "ab") as file:
                file.write(text.encode())
        except OSError as fault:
            fault.filename = fault.filename or str(self / name)
            raise


def _values_of(line: bytes) -> dict[str, Any] | None:
    """What a line of metrics.jsonl says, None if it is none."""
    try:
        values = parse_json(line, METRICS)
    except BadFile:
        return None
    return values if isinstance(values, dict) and type(values.get("step")) is int else None


def new_run(parent: Path, name: str, fill: Callable[[RunFolder], object]) -> RunFolder:
    """A new folder parent/name-nnnn, with the number after the highest there.

    It is filled under another name beside its place: a start that is killed leaves no run, and of
    two at once each has a folder of its own.
    """
    check_file_name(name)
    while True:
        number = 1 + max((number for number, _ in _numbered(parent, name)), default=0)
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
    """The runs of this name, in the order of their numbers; a folder without a config is none."""
    paths = (path for _, path in sorted(_numbered(parent, name)))
    return [RunFolder(path) for path in paths if (path / CONFIG).is_file()]


def _numbered(parent: Path, name: str) -> Iterator[tuple[int, Path]]:
    pattern = re.compile(re.escape(name) + r"-(\d{4,})")
    for path in parent.iterdir() if parent.is_dir() else ():
        if match := pattern.fullmatch(path.name):
            yield int(match[1]), path


def describe_environment(threads: int, device: str) -> dict[str, Any]:
    """What results may depend on beside the config."""
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
