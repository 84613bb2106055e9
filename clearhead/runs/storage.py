"""A run kept in its folder: what training/loop.py asks of a storage, on a disk.

metrics.jsonl and samples.txt only grow. Each checkpoint records how long they were, and a run that
resumes from it cuts off what was written later, so that no step appears twice.
"""

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.files.reading import prefix_errors
from clearhead.runs.checkpoint import Checkpoint, load_newest, remove_old, save
from clearhead.runs.folder import RunFolder
from clearhead.shapes import all_finite
from clearhead.training.gradient import HINT, NotFinite
from clearhead.training.state import State
from clearhead.training.storage import Snapshot


class DiskStorage:
    """Keeps a run in a run folder."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        keep: int,
        tell: Callable[[str], None] = lambda sentence: None,
        on_restored: Callable[[], object] = lambda: None,
    ) -> None:
        """keep: checkpoints that stay beside the best; on_restored: called before the first step.

        Nothing in the folder has changed if a checkpoint does not fit the model.
        """
        self.folder, self.keep, self.tell, self.on_restored = folder, keep, tell, on_restored
        self.last_step: int | None = None  # of the newest checkpoint

    def restore(self, load: Callable[[Snapshot], object]) -> None:
        """Load the newest good checkpoint, if there is one, and cut off what came after it."""
        found = load_newest(self.folder.checkpoints, self.folder.identity, self.tell)
        state = State()
        if found is not None:
            with prefix_errors(self.folder.checkpoints):
                state = State.from_dict({**found.state, "step": found.step})
                load(Snapshot(state, found.model, found.optimizer))
            self.last_step = found.step
        self.folder.cut_back(state.sizes, self.tell)
        self.on_restored()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        self.folder.add_metrics(metrics)

    def add_sample(self, step: int, text: str) -> None:
        """Append what the model wrote after this step to samples.txt."""
        self.folder.add_sample(step, text)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, then remove old ones; NaN and infinities are never saved."""
        state, folder = snapshot.state, self.folder
        for name, tensor in {**snapshot.model, **snapshot.optimizer}.items():
            if not all_finite(tensor):
                where = f"at step {state.step}; it was not saved"
                raise NotFinite(f"{name} is not finite {where}; {HINT}")
        state.sizes = folder.sync_sizes()
        tensors = dict(snapshot.model), dict(snapshot.optimizer)
        save(folder.checkpoints, Checkpoint(state.step, folder.identity, *tensors, state.to_dict()))
        self.last_step = state.step
        remove_old(folder.checkpoints, state.step, self.keep, state.best_step, self.tell)
