"""Where the training loop stores metrics, samples and snapshots; here, in memory.

    training = Training(recipe, task)
    training.run()
    training.storage.metrics                       [{"step": 20, "loss": …}, …]

runs/storage.py keeps the same in a folder, so that a run can be stopped and resumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from clearhead.training.state import State


@dataclass(frozen=True)
class Snapshot:
    """Everything a run needs to resume: the tensors themselves, no copies."""

    state: State
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


class Storage(Protocol):
    """What the loop writes to."""

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """Keep the metrics of a step; values["step"] is its number."""

    def add_sample(self, step: int, text: str) -> None:
        """Keep what the model wrote after this step."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, now or while the training goes on."""

    def finish(self) -> None:
        """Wait until the last snapshot is kept."""


class Memory:
    """A storage without a disk: keeps metrics and samples, and no snapshots."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.samples: list[tuple[int, str]] = []

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        self.metrics.append(dict(values))

    def add_sample(self, step: int, text: str) -> None:
        self.samples.append((step, text))

    def save(self, snapshot: Snapshot) -> None:
        """The weights are in the model; no copy is kept."""

    def finish(self) -> None:
        """Nothing is pending."""
