"""A run's state on the disk: whole, checked, or not there.

    checkpoints/step-0000400/
        model.safetensors        the weights
        optimizer.safetensors    what the optimizer remembers
        state.json               the step, the place in the data, the best so far
        manifest.json            size and SHA-256 of each file, and of itself: written last

A checkpoint is written under another name beside its place, reaches the disk, takes its name in one
step, is read back and compared, and only then called saved. So a crash at any moment leaves the
one before or the new one. When a run goes on, the newest good one is taken; a damaged one is
passed over with a sentence; and if all are damaged nothing is started anew in silence.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead import __version__
from clearhead.files.reading import BadFile, open_regular, quote, read_bytes
from clearhead.files.strict_json import hash_json, parse_json, read_json, write_json
from clearhead.files.tensors import MAX_FILE, read_tensors, write_tensors
from clearhead.files.writing import create_folder

FORMAT = 2
FORMATS = (1, 2)  # that can be read
RENAMED = {"taken": "cursor", "told": "logged"}  # fields of state.json since format 2
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
MANIFEST = "manifest.json"
PLACE = re.compile(r"step-(\d{7,})(\.[0-9a-f]{8}\.old)?")
CHUNK = 1 << 20

Tell = Callable[[str], None]


class NoGoodCheckpoint(ValueError):
    """There are checkpoints, but none can be used."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved after `step` updates."""

    step: int
    run: str  # the digest of the config of the run that it belongs to
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


# Writing


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint below `folder` and read it back; returns its place."""
    place = folder / f"step-{checkpoint.step:07d}"
    if os.path.lexists(place):
        # A damaged one, or one that was saved in the middle of its evaluation. Until the new one
        # stands there, it is found under its other name.
        os.rename(place, place.with_name(f"{place.name}.{secrets.token_hex(4)}.old"))
    with create_folder(place) as staged:
        write_tensors(staged / MODEL, checkpoint.model)
        write_tensors(staged / OPTIMIZER, checkpoint.optimizer)
        owned = {"step": checkpoint.step, "run": checkpoint.run}
        write_json(staged / STATE, {**checkpoint.state, **owned})
        write_json(staged / MANIFEST, _manifest(staged, checkpoint.step))
    try:
        check(place)
    except BadFile as fault:
        words = f"what was just written does not read back: {fault}"
        raise OSError(errno.EIO, words, str(place)) from None
    return place


def remove_old(
    folder: Path, step: int, keep: int, best: int | None, tell: Tell = lambda sentence: None
) -> None:
    """Now that `step` is saved: keep the newest `keep` up to it and the best, remove the others.

    Later ones are damaged, else the run had gone on from there; they do not count.
    """
    found = [place for place in places(folder) if step_of(place) <= step]
    last = {step_of(place): place for place in found}  # of each step
    kept = {last[number] for number in (*sorted(last)[-max(1, keep) :], best) if number in last}
    for place in found:
        if place not in kept:
            _remove(place, tell)
    for staged in _unfinished(folder):
        shutil.rmtree(staged, ignore_errors=True)


def _remove(place: Path, tell: Tell) -> None:
    """Remove what we wrote; the manifest first: from then on it is no checkpoint."""
    try:
        names = {path.name for path in place.iterdir()}
        ours = [name for name in (MANIFEST, STATE, OPTIMIZER, MODEL) if name in names]
        if names and not ours:
            return  # what somebody else put there
        for name in ours:
            (place / name).unlink()
        place.rmdir()
    except OSError as fault:
        tell(f"{quote(place)} could not be removed: {(fault.strerror or str(fault)).lower()}")


def _manifest(folder: Path, step: int) -> dict[str, Any]:
    manifest = {
        "format": FORMAT,
        "clearhead": __version__,
        "step": step,
        "files": {name: _size_and_digest(folder / name) for name in (MODEL, OPTIMIZER, STATE)},
    }
    return {**manifest, "sha256": hash_json(manifest)}


# Reading


def check(place: Path) -> dict[str, Any]:
    """The manifest of a checkpoint of which every byte is right; else BadFile says what is not."""
    name = quote(place / MANIFEST)
    data = read_bytes(place / MANIFEST, CHUNK)
    manifest = parse_json(data, name)
    if not isinstance(manifest, dict) or not data.endswith(b"}\n"):
        raise BadFile(f"{name} is no whole manifest of a checkpoint")
    if manifest.get("format") not in FORMATS:
        raise BadFile(
            f"{quote(place)} has the format {manifest.get('format')!r:.20}, written by clearhead "
            f"{manifest.get('clearhead')!r:.20}; this version reads {FORMATS}: use that version"
        )
    if manifest.pop("sha256", None) != hash_json(manifest):
        raise BadFile(f"{name} is damaged: it does not have its own SHA-256")
    files = manifest.get("files")
    if not isinstance(files, dict) or files.keys() != {MODEL, OPTIMIZER, STATE}:
        raise BadFile(f"{name} does not list the three files of a checkpoint")
    if manifest.get("step") != step_of(place):
        raise BadFile(f"{quote(place)} is by its manifest of step {manifest.get('step')!r:.20}")
    for odd in sorted({path.name for path in place.iterdir()} ^ {*files, MANIFEST}):
        word = "is missing" if odd in files else "does not belong there"
        raise BadFile(f"{quote(place / odd)} {word}")
    for file, size_and_digest in files.items():
        if _size_and_digest(place / file) != size_and_digest:
            raise BadFile(f"{quote(place / file)} is damaged: it is not what its manifest says")
    return manifest


def _state(place: Path) -> dict[str, Any]:
    """What state.json says, after every byte of the checkpoint has been checked."""
    step = check(place)["step"]
    state = read_json(place / STATE)
    if not isinstance(state, dict) or state.get("step") != step:
        raise BadFile(f"{quote(place / STATE)} is no state of step {step}")
    return {RENAMED.get(str(name), str(name)): value for name, value in state.items()}


def newest_state(folder: Path) -> dict[str, Any]:
    """What the newest good checkpoint says of its run; nothing if there is none."""
    for place in reversed(places(folder)):
        with suppress(BadFile, OSError):
            return _state(place)
    return {}


def load(place: Path, run: str) -> Checkpoint:
    """A checkpoint of this run, after every byte of it has been checked."""
    state = _state(place)
    step, owner = state.pop("step"), state.pop("run", None)
    if owner != run:
        raise BadFile(f"{quote(place)} belongs to another run: its config is not config.json's")
    model, optimizer = (read_tensors(place / name) for name in (MODEL, OPTIMIZER))
    return Checkpoint(step, run, model, optimizer, state)


def load_newest(folder: Path, run: str, tell: Tell = lambda sentence: None) -> Checkpoint | None:
    """The newest good checkpoint, by its step; None if there has never been one."""
    for staged in _unfinished(folder):
        tell(f"{quote(staged)} is a save that did not finish; it is left out")
    faults, gone = [], False
    for place in reversed(places(folder)):
        try:
            return load(place, run)
        except (BadFile, OSError) as fault:
            if not place.is_dir():  # the run that is still going on has removed it
                gone = True
                continue
            if not any(place.iterdir()):
                tell(f"{quote(place)} is an empty folder; it is left out")
                continue
            faults.append(str(fault))
            tell(f"{fault}; this checkpoint is left out")
    if gone:
        return load_newest(folder, run, tell)
    if faults:
        raise NoGoodCheckpoint(
            f"none of the {len(faults)} checkpoints in {quote(folder)} can be used, the newest "
            f"because {faults[0]}; restore one, or move the run away to start anew"
        )
    return None


def places(folder: Path) -> list[Path]:
    """The folders that are named like checkpoints, in the order of their steps."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if PLACE.fullmatch(path.name)]
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    return sorted(folders, key=lambda path: (step_of(path), path.suffix != ".old", path.name))


def step_of(place: Path) -> int:
    """The step that the name of a checkpoint says."""
    match = PLACE.fullmatch(place.name)
    return int(match[1]) if match else -1


def _unfinished(folder: Path) -> list[Path]:
    """Folders of saves that a crash ended."""
    return sorted(folder.glob(".step-*.part"))


def _size_and_digest(path: Path) -> list[Any]:
    digest, size = hashlib.sha256(), 0
    with open_regular(path, MAX_FILE) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return [size, digest.hexdigest()]
