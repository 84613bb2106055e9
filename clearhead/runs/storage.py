"""A run folder that the training loop writes to, and from which a run is restored.

With training.save_in_background=true the tensors of a checkpoint are copied, and a thread writes
the copy while the training goes on. As without this setting, a checkpoint counts as saved only when
it has been read back, and old ones are removed only then. The next save first waits for the one
before; if that one failed, it raises its error.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from clearhead.config import Config
from clearhead.files.reading import prefix_errors, quote
from clearhead.models.registry import check_config
from clearhead.runs.checkpoint import Checkpoint, load_newest, remove_old, save
from clearhead.runs.folder import RunFolder
from clearhead.shapes import all_finite
from clearhead.training.gradient import HINT, NotFinite
from clearhead.training.loop import Training
from clearhead.training.state import State
from clearhead.training.storage import Snapshot


class RunDeleted(RuntimeError):
    """The folder of a run is gone while it trains."""


class DiskStorage(RunFolder):
    """The storage of a run on a disk."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: int,
        in_background: bool = False,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """keep: how many checkpoints stay beside the best; in_background: write them while the
        training goes on; tell: is called with each notice."""
        super().__init__(path)
        self.keep, self.tell = keep, tell
        self.writer = ThreadPoolExecutor(1, "save") if in_background else None
        self.pending: Future[None] | None = None  # a checkpoint that the thread writes
        self.last_step: int | None = None  # of the newest checkpoint
        self.newest: Checkpoint | None = None  # read, not yet restored

    def read(self, config: Config) -> None:
        """Read the newest good checkpoint; an error if its weights are not those of this model.

        Called before the model is built, so that a wrong config takes no memory.
        """
        self.newest = load_newest(self.checkpoints, self.identity, self.tell)
        with prefix_errors(self.path):
            check_config(config, None if self.newest is None else self.newest.model)

    def restore(self, training: Training) -> None:
        """Load the checkpoint that was read, if there is one, and cut off what was logged later."""
        found, self.newest = self.newest, None
        if found is not None:
            with prefix_errors(self.checkpoints):
                state = State.from_dict({**found.state, "step": found.step})
                training.load(Snapshot(state, found.model, found.optimizer))
            self.last_step = found.step
        self.cut_back(training.state.sizes, self.tell)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, now or in the background, then remove old ones.

        NaN and infinities are never saved.
        """
        self.finish()
        with self._explain_deletion():
            os.stat(self.checkpoints)  # otherwise `_write_checkpoint` would make the folder again
            self._check_finite(snapshot)
            state = snapshot.state
            state.sizes = self.sync_sizes()
            run = self.identity
            if self.writer is None:
                self._add_checkpoint(run, snapshot)
                return
        copy = Snapshot(replace(state), _copy(snapshot.model), _copy(snapshot.optimizer))
        self.pending = self.writer.submit(self._add_checkpoint, run, copy)

    def finish(self) -> None:
        """Wait until the last checkpoint is written, and raise the error if that failed."""
        pending, self.pending = self.pending, None
        if pending is not None:
            with self._explain_deletion():
                pending.result()

    def close(self) -> None:
        """Wait for a checkpoint that is still being written; an error is reported, not raised."""
        try:
            self.finish()
        except (OSError, RunDeleted) as fault:
            self.tell(f"the last checkpoint was not saved: {fault}")

    def _append(self, name: str, text: str) -> None:
        with self._explain_deletion():
            super()._append(name, text)

    @contextmanager
    def _explain_deletion(self) -> Iterator[None]:
        """Say that the run was deleted while it trains, where that is why a file is missing."""
        try:
            yield
        except FileNotFoundError:
            if self.checkpoints.is_dir():
                raise
            raise RunDeleted(
                f"{quote(self.path)} was deleted or moved while it trains, and is not saved any "
                "more; the same command starts a new run"
            ) from None

    def _add_checkpoint(self, run: str, snapshot: Snapshot) -> None:
        """Write a checkpoint, then remove old ones; with in_background in a thread."""
        state = snapshot.state
        self._write_checkpoint(run, snapshot)
        self.last_step = state.step
        remove_old(self.checkpoints, state.step, self.keep, state.best_step, self.tell)

    def _check_finite(self, snapshot: Snapshot) -> None:
        for name, tensor in {**snapshot.model, **snapshot.optimizer}.items():
            if not all_finite(tensor):
                where = f"at step {snapshot.state.step}; it was not saved"
                raise NotFinite(f"{name} is not finite {where}; {HINT}")

    def _write_checkpoint(self, run: str, snapshot: Snapshot) -> None:
        state, tensors = snapshot.state, (dict(snapshot.model), dict(snapshot.optimizer))
        save(self.checkpoints, Checkpoint(state.step, run, *tensors, state.to_dict()))


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU: later steps change the tensors, but not these."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
