"""Where a run is kept: what the loop asks for, and the answer that needs no disk.

    training = Training(recipe, task)              in memory
    training.run()
    training.storage.metrics                       [{"step": 20, "loss": …}, …]

runs/storage.py keeps a run in a folder, so that it can be killed and resumed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from clearhead.models.model import Model
from clearhead.training.state import State


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to resume: the tensors themselves, no copies."""

    state: State
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


class Storage(Protocol):
    """Where a run is kept."""

    def restore(self, load: Callable[[Snapshot], object]) -> None:
        """Give the newest snapshot to `load`, if there is one, and forget what came after it."""

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Keep a line of metrics."""

    def add_sample(self, step: int, text: str) -> None:
        """Keep what the model wrote after this step."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""


class Memory:
    """A storage without a disk: keeps metrics and samples, and no snapshots."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.samples: list[tuple[int, str]] = []

    def restore(self, load: Callable[[Snapshot], object]) -> None:
        """There is nothing to restore."""

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Keep a line of metrics."""
        self.metrics.append(dict(metrics))

    def add_sample(self, step: int, text: str) -> None:
        """Keep what the model wrote after this step."""
        self.samples.append((step, text))

    def save(self, snapshot: Snapshot) -> None:
        """The weights are in the model; no copy is kept."""


def load_weights(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Put weights into a model; all of them must be there, of the right shapes, and no others."""
    own, tensors = model.state_dict(), model.translate_names(tensors)
    if odd := sorted(own.keys() ^ tensors.keys()):
        word = "is missing" if odd[0] in own else "is not part of the model"
        raise ValueError(f"the weights do not fit the config: {odd[0]!r} {word}")
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            raise ValueError(
                f"the weights do not fit the config: {name!r} has shape "
                f"{tuple(tensors[name].shape)}, not {tuple(tensor.shape)}"
            )
    model.load_state_dict(tensors)
