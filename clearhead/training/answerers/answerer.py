"""An answerer: how a trained model is asked, and what its numbers mean.

It is the part of a task that needs no examples: a tokenizer, the names of the classes, the mean of
the pictures. Training keeps it in the run folder beside the weights, and the two together are all
that is needed to use a model, wherever its data are by then.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from clearhead.config import Config
from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.files.strict_json import read_json

TOKENIZER = "tokenizer.json"


class Answerer(ABC):
    """Stands between people and a model."""

    files: ClassVar[tuple[str, ...]]  # what `save` writes into a run folder
    tokenizer: Tokenizer | None = None  # of a model that reads one language

    @property
    @abstractmethod
    def decided(self) -> dict[str, Any]:
        """What of the model's config follows from this, such as the size of the vocabulary."""

    @abstractmethod
    def predict(self, model: Any, text: str) -> dict[str, Any]:
        """The model's answer to one input: "input", "answer", and what else can be told of it."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files."""

    def check(self, config: Config, folder: Path) -> None:
        """Refuse files of another run, with which the model would answer nonsense."""
        for name, value in self.decided.items():
            own = getattr(config, name)
            if own != value:
                raise BadFile(
                    f"{quote(folder)} does not hold together: by {' and '.join(self.files)} "
                    f"{name} is {value}, but by config.json {own}; bring back the files of this run"
                )


class TextAnswerer(Answerer):
    """For a model that reads one language: its tokenizer is all that is kept."""

    files = (TOKENIZER,)
    tokenizer: Tokenizer

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / TOKENIZER)


def read_values(path: Path, *names: str) -> dict[str, Any]:
    """The values of a JSON file that must hold these names and no others."""
    values = read_json(path)
    with prefix_errors(path):
        if not isinstance(values, dict) or values.keys() != set(names):
            raise ValueError(f"it must hold {', '.join(names)} and nothing else")
    return values
