"""A run folder to which several processes write together: each saves the shards that it holds.

The first process does what DiskStorage does alone: it logs, makes the temporary folder, and when
all have written their shards there, it adds state.json and the manifest, and renames the folder. If
one process cannot write, all end with an error, and the last checkpoint stays. Processes on
several machines need a folder that all of them see.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.config import Config
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.files.writing import name_target
from clearhead.models.model import Model
from clearhead.models.registry import check_config
from clearhead.parallel.sharded import Sharded, find_rows
from clearhead.parallel.shards import read_like, read_shapes, write_shard
from clearhead.runs.checkpoint import (
    Checkpoint,
    Digest,
    hash_file,
    list_files,
    load_newest,
    name_shard,
    name_step,
    save,
)
from clearhead.runs.storage import DiskStorage
from clearhead.shapes import all_finite
from clearhead.training.gradient import HINT, NotFinite
from clearhead.training.loop import Training
from clearhead.training.state import State
from clearhead.training.storage import Snapshot


class ShardedStorage(DiskStorage):
    """The storage of a run whose model is divided among processes; each process has one."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: Sharded,
        *,
        keep: int,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        super().__init__(path, keep=keep, tell=tell)
        self.group, self.is_first = group, group.rank == 0
        group.try_together(self._check_shared)

    def _check_shared(self) -> None:
        """Refuse a folder that this process does not see."""
        if not self.checkpoints.is_dir():
            raise BadFile(
                f"{quote(self.path)} is not seen by rank {self.group.rank}; with parallel=fsdp "
                f"every process writes there: give an --out that all machines share"
            )

    def read(self, config: Config) -> None:
        """Find the newest good checkpoint; `restore` reads its tensors, into the sharded model."""

        def find() -> dict[str, Any] | None:
            newest = load_newest(self.checkpoints, self.identity, self.tell, read=read_shapes)
            with prefix_errors(self.path):
                check_config(config, None if newest is None else newest.model)
            if newest is None or newest.path is None:
                return None
            return {"path": str(newest.path), "state": {**newest.state, "step": newest.step}}

        self.found = self.group.ask_first(find)

    def restore(self, training: Training) -> None:
        """Load the shards of this process from the checkpoint that was found."""
        if self.found is not None:
            self.group.try_together(lambda: self._load(training))
        if self.is_first:
            self.cut_back(training.state.sizes, self.tell)

    def _load(self, training: Training) -> None:
        path = Path(self.found["path"])
        with prefix_errors(self.checkpoints):
            state = State.from_dict(self.found["state"])
            parts = {
                "model": training.model.state_dict(),
                "optimizer": training.optimizer.tensors(),
            }
            model, optimizer = (
                _read(list_files(path, kind), training.model, like) for kind, like in parts.items()
            )
            training.load(Snapshot(state, model, optimizer))
        self.last_step = state.step

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint together; NaN and infinities are never saved."""
        if self.is_first:
            super().save(snapshot)
        else:
            self._check_finite(snapshot)
            self._write(snapshot, None)
            self.last_step = snapshot.state.step

    def _check_finite(self, snapshot: Snapshot) -> None:
        tensors = {**snapshot.model, **snapshot.optimizer}
        bad = (name for name, tensor in tensors.items() if not all_finite(find_rows(tensor)))
        if fault := self.group.find_fault(next(bad, "")):
            where = f"at step {snapshot.state.step}; it was not saved"
            raise NotFinite(f"{fault[1]} is not finite {where}; {HINT}")

    def _write_checkpoint(self, run: str, snapshot: Snapshot) -> None:
        state = snapshot.state
        checkpoint = Checkpoint(state.step, run, {}, {}, state.to_dict())
        save(self.checkpoints, checkpoint, lambda staged: self._write(snapshot, staged))

    def _write(self, snapshot: Snapshot, staged: Path | None) -> dict[str, Digest]:
        """Write the shards of this process into the folder that the first process has made.

        staged: this folder, None in all other processes. Returns the digests of all shards: each
        process has read its own back, since one process would need too long for all.
        """
        # Only the name is sent: the path of the run may differ from machine to machine.
        temporary = self.group.ask_first(lambda: staged and staged.name)
        folder = Path(os.path.realpath(self.checkpoints)) / temporary
        target = self.checkpoints / name_step(snapshot.state.step)
        parts = {"model": snapshot.model, "optimizer": snapshot.optimizer}

        digests: dict[str, Digest] = {}

        def write() -> None:
            try:
                for kind, tensors in parts.items():
                    file = folder / name_shard(kind, self.group.rank, self.group.size)
                    write_shard(file, tensors, is_first=self.is_first)
                    digests[file.name] = hash_file(file)
            except OSError as fault:
                name_target(fault, target, folder)  # the user knows no temporary folder
                raise

        self.group.try_together(write)
        return {name: each for found in self.group.gather(digests) for name, each in found.items()}

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Only the first process logs."""
        if self.is_first:
            super().add_metrics(values)

    def add_sample(self, step: int, text: str) -> None:
        """Only the first process logs."""
        if self.is_first:
            super().add_sample(step, text)


def _read(files: list[Path], model: Model, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of these files, sharded as in `like`.

    An earlier release may have written the files. The result keeps their names, and `like` has
    those of this release.
    """
    names: Any = {name: name for name in read_shapes(files)}
    old_names = model.translate_names(names)  # new name → name in the files
    pairs = {str(old): like[new] for new, old in old_names.items() if new in like}
    return read_like(files, pairs)
