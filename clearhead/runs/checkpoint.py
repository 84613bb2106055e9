"""Everything a run needs to resume, written whole and checked when read.

    checkpoints/step-0000400/
        model.safetensors        the weights
        optimizer.safetensors    the tensors of the optimizer
        state.json               step, cursor, best metrics so far: training/state.py
        manifest.json            size and SHA-256 of each file, and its own: written last

Several processes that share one model (training.parallel=fsdp) write a file each in place of
model.safetensors, and of optimizer.safetensors: model-shard-00001-of-00002.safetensors and so on.

A checkpoint is written under a temporary name, synced to the disk, renamed in one step, and read
back; only then it counts as saved. So a crash at any moment leaves either the checkpoint before or
the new one. A run resumes from the newest good checkpoint; damaged ones are skipped with a
notice. If all are damaged, that is an error: the run does not silently start again.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead import __version__
from clearhead.files.reading import BadFile, open_regular, quote, read_bytes
from clearhead.files.strict_json import hash_json, parse_json, read_json, write_json
from clearhead.files.tensors import MAX_FILE, read_tensors, write_tensors
from clearhead.files.writing import create_folder

FORMAT, SHARDED = 2, 3  # SHARDED: the tensors are divided among several files
READABLE = (1, 2, 3)
RENAMED = {"taken": "cursor", "told": "logged"}  # fields of state.json, from format 1 to 2
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
MANIFEST = "manifest.json"
WHOLE = {MODEL, OPTIMIZER, STATE}
SHARD = re.compile(r"(model|optimizer)-shard-\d{5}-of-\d{5}\.safetensors")
NAME = re.compile(r"step-(\d{7,})(\.[0-9a-f]{8}\.old)?")
CHUNK = 1 << 20

Tell = Callable[[str], None]
Digest = list[Any]  # the size and the SHA-256 of a file
Write = Callable[[Path], dict[str, Digest]]
Read = Callable[[list[Path]], dict[str, Tensor]]


class NoGoodCheckpoint(ValueError):
    """There are checkpoints, but none can be used."""


@dataclass(frozen=True)
class Checkpoint:
    """A run after `step` updates."""

    step: int
    run: str  # the identity of the run it belongs to: RunFolder.identity
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    path: Path | None = None  # where it was read


# Writing


def save(folder: Path, checkpoint: Checkpoint, write: Write | None = None) -> Path:
    """Write a checkpoint below `folder` and read it back; returns its path.

    write: writes the tensors into a folder, where several processes do that together, and returns
    the digest of each file; the process that wrote a file has read it back.
    """
    path = folder / name_step(checkpoint.step)
    if os.path.lexists(path):
        # A damaged checkpoint, or one saved before its evaluation was done. Until the new one is
        # written, it is found under this other name.
        os.rename(path, path.with_name(f"{path.name}.{secrets.token_hex(4)}.old"))
    known: dict[str, Digest] = {}
    with create_folder(path) as staged:
        if write is None:
            write_tensors(staged / MODEL, checkpoint.model)
            write_tensors(staged / OPTIMIZER, checkpoint.optimizer)
        else:
            known = write(staged)
        owned = {"step": checkpoint.step, "run": checkpoint.run}
        write_json(staged / STATE, {**checkpoint.state, **owned})
        write_json(staged / MANIFEST, _make_manifest(staged, checkpoint.step, known))
    try:
        check(path, known)
    except BadFile as fault:
        words = f"what was just written does not read back: {fault}"
        raise OSError(errno.EIO, words, str(path)) from None
    return path


def remove_old(
    folder: Path, step: int, keep: int, best: int | None, tell: Tell = lambda sentence: None
) -> None:
    """After saving `step`: keep the newest `keep` checkpoints and the best, remove the others.

    Checkpoints of later steps do not count and stay: the run skipped them as damaged.
    """
    found = [path for path in find_checkpoints(folder) if parse_step(path) <= step]
    last = {parse_step(path): path for path in found}  # a .old one only if its step has no other
    kept = {last[number] for number in (*sorted(last)[-max(1, keep) :], best) if number in last}
    for path in found:
        if path not in kept:
            _remove(path, tell)
    for staged in _find_unfinished(folder):
        shutil.rmtree(staged, ignore_errors=True)


def _remove(path: Path, tell: Tell) -> None:
    """Remove the files that we wrote, in any order: without one of them there is no checkpoint."""
    try:
        names = {file.name for file in path.iterdir()}
        ours = names & {MANIFEST, STATE, OPTIMIZER, MODEL} | set(filter(SHARD.fullmatch, names))
        if names and not ours:
            return  # not our files
        for name in ours:
            (path / name).unlink()
        path.rmdir()
    except OSError as fault:
        tell(f"{quote(path)} could not be removed: {(fault.strerror or str(fault)).lower()}")


def _make_manifest(folder: Path, step: int, known: Mapping[str, Digest]) -> dict[str, Any]:
    """Every file of the folder with its digest. known: digests that were computed before."""
    names = sorted({file.name for file in folder.iterdir()} - {MANIFEST})
    manifest = {
        "format": FORMAT if MODEL in names else SHARDED,
        "clearhead": __version__,
        "step": step,
        "files": {name: known.get(name) or hash_file(folder / name) for name in names},
    }
    return {**manifest, "sha256": hash_json(manifest)}


# Reading: `check` and `load` hash every file once


def check(path: Path, known: Collection[str] = ()) -> None:
    """Refuse a checkpoint with any wrong byte; BadFile names the file.

    known: files that were read a moment ago, and are not read again.
    """
    files = read_manifest(path)["files"]
    for name in files:
        if name not in known:
            _check_file(path, name, files)


def load(
    path: Path, run: str, *, with_optimizer: bool = True, read: Read | None = None
) -> Checkpoint:
    """A checkpoint of this run, every byte of it checked; its optimizer only if wanted.

    read: reads the tensors of a list of files; None reads them whole.
    """
    check(path)
    state = _read_state(path)
    step, owner = state.pop("step"), state.pop("run", None)
    if owner != run:
        raise BadFile(f"{quote(path)} belongs to another run: it has another config")
    read = read or _read_whole
    model = read(list_files(path, "model"))
    optimizer = read(list_files(path, "optimizer")) if with_optimizer else {}
    return Checkpoint(step, run, model, optimizer, state, path)


def list_files(path: Path, kind: str) -> list[Path]:
    """The files of a checkpoint that hold the tensors of the "model" or of the "optimizer"."""
    names = read_manifest(path)["files"]
    return [path / name for name in sorted(names) if name.startswith(kind)]


def _read_whole(files: list[Path]) -> dict[str, Tensor]:
    if files[0].name in (MODEL, OPTIMIZER):
        return read_tensors(files[0])
    from clearhead.parallel.shards import read_whole  # few runs need it, and it takes a while

    return read_whole(files)


def load_newest(
    folder: Path,
    run: str,
    tell: Tell = lambda sentence: None,
    *,
    with_optimizer: bool = True,
    read: Read | None = None,
) -> Checkpoint | None:
    """The good checkpoint of the highest step; None if there has never been one."""
    for staged in _find_unfinished(folder):
        tell(f"{quote(staged)} is a save that did not finish; it is skipped")
    faults, gone = [], False
    for path in reversed(find_checkpoints(folder)):
        try:
            return load(path, run, with_optimizer=with_optimizer, read=read)
        except (BadFile, OSError) as fault:
            if not path.is_dir():  # removed by the process that trains this run
                gone = True
                continue
            if not any(path.iterdir()):
                tell(f"{quote(path)} is an empty folder; it is skipped")
                continue
            faults.append(str(fault))
            tell(f"{fault}; this checkpoint is skipped")
    if gone:
        return load_newest(folder, run, tell, with_optimizer=with_optimizer, read=read)
    if faults:
        raise NoGoodCheckpoint(
            f"none of the {len(faults)} checkpoints in {quote(folder)} can be used, the newest "
            f"because {faults[0]}; restore one, or move the run away to start again"
        )
    return None


def load_best(folder: Path, run: str, step: int, tell: Tell) -> Checkpoint | None:
    """The weights of the best step, without the optimizer; None if they cannot be used."""
    for path in reversed(
        find_checkpoints(folder)
    ):  # a .old one only after the one that replaced it
        if parse_step(path) == step:
            try:
                return load(path, run, with_optimizer=False)
            except (BadFile, OSError) as fault:
                tell(f"{fault}; the newest checkpoint is used instead of the best")
    return None


def is_finished(folder: Path) -> bool:
    """Whether the newest good checkpoint is that of a finished run.

    If it is unfinished, only its state is checked: the run will be resumed, and `load` checks all.
    """
    for path in reversed(find_checkpoints(folder)):
        try:
            _check_file(path, STATE, read_manifest(path)["files"])
            if not _read_state(path).get("finished"):
                return False
            check(path)
            return True
        except (BadFile, OSError):
            continue
    return False


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, if it is whole and lists the files that are there."""
    name = quote(path / MANIFEST)
    data = read_bytes(path / MANIFEST, CHUNK)
    manifest = parse_json(data, name)
    if not isinstance(manifest, dict) or not data.endswith(b"}\n"):
        raise BadFile(f"{name} is no whole manifest of a checkpoint")
    if manifest.get("format") not in READABLE:
        raise BadFile(
            f"{quote(path)} has the format {manifest.get('format')!r:.20}, written by clearhead "
            f"{manifest.get('clearhead')!r:.20}; this version reads {READABLE}: use "
            f"the version that wrote it"
        )
    if manifest.pop("sha256", None) != hash_json(manifest):
        raise BadFile(f"{name} is damaged: it does not have its own SHA-256")
    files, is_sharded = manifest.get("files"), manifest["format"] == SHARDED
    known = isinstance(files, dict) and (_name_shards(len(files) // 2) if is_sharded else WHOLE)
    if not isinstance(files, dict) or files.keys() != known:
        words = "shards and the state" if is_sharded else "three files"
        raise BadFile(f"{name} does not list the {words} of a checkpoint")
    if manifest.get("step") != parse_step(path):
        raise BadFile(f"{quote(path)} has a manifest of step {manifest.get('step')!r:.20}")
    for odd in sorted({file.name for file in path.iterdir()} ^ {*files, MANIFEST}):
        word = "is missing" if odd in files else "does not belong there"
        raise BadFile(f"{quote(path / odd)} {word}")
    return manifest


def _check_file(path: Path, name: str, files: dict[str, Any]) -> None:
    if hash_file(path / name) != files[name]:
        raise BadFile(f"{quote(path / name)} is damaged: {MANIFEST} has another size or SHA-256")


def hash_file(path: Path) -> Digest:
    """The size and the SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with open_regular(path, MAX_FILE) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return [size, digest.hexdigest()]


def _read_state(path: Path) -> dict[str, Any]:
    """The content of state.json, by the names of the newest format."""
    state = read_json(path / STATE)
    if not isinstance(state, dict) or state.get("step") != parse_step(path):
        raise BadFile(f"{quote(path / STATE)} is no state of step {parse_step(path)}")
    return {RENAMED.get(str(name), str(name)): value for name, value in state.items()}


# Names


def name_step(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:07d}"


def name_shard(kind: str, rank: int, size: int) -> str:
    """The file of one of several processes; kind: "model" or "optimizer"."""
    return f"{kind}-shard-{rank + 1:05d}-of-{size:05d}.safetensors"


def _name_shards(size: int) -> set[str]:
    kinds = ("model", "optimizer")
    return {STATE, *(name_shard(kind, rank, size) for kind in kinds for rank in range(size))}


def find_checkpoints(folder: Path) -> list[Path]:
    """The folders that are named like checkpoints, in the order of their steps."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    return sorted(folders, key=lambda path: (parse_step(path), path.suffix != ".old", path.name))


def parse_step(path: Path) -> int:
    """The step in the name of a checkpoint."""
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _find_unfinished(folder: Path) -> list[Path]:
    """The temporary folders of saves that did not finish."""
    return sorted(folder.glob(".step-*.part"))
