"""What the studio can open: runs, weights of other projects, and the built-in models.

    sources = Sources(["runs/substring-0001", "stories15m"])
    sources.open("substring-0001").model

A model is loaded when it is first used. A run that has saved a newer checkpoint since then is
loaded again, so a run in training is shown as it is now. Only listed models can be opened
(listing.py). Of the runs that are found in the folder of runs, the last 16 used stay loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile, quote
from clearhead.interop import load
from clearhead.models import (
    GPT,
    Seq2Seq,
    SequenceClassifier,
    TextEncoder,
    VisionTransformer,
)
from clearhead.models.smallest import TorchTransformer
from clearhead.runs import Run, RunFolder, load_run
from clearhead.studio.listing import Listing, Source

MAX_FOUND = 16  # loaded runs of the folder of runs, beside the models given by path
KINDS = (GPT, SequenceClassifier, TextEncoder, VisionTransformer, Seq2Seq, TorchTransformer)


@dataclass(frozen=True, eq=False)
class Opened:
    """A loaded model. lines: the Python lines that load it, as `model` and `tokenizer`."""

    source: Source
    model: Any
    tokenizer: Tokenizer | None
    run: Run | None
    lines: list[str]

    @property
    def kind(self) -> str:
        """The name of its class; GRU and transformer translators are both Seq2Seq."""
        return next((k.__name__ for k in KINDS if isinstance(self.model, k)), "unknown")

    @property
    def predictor(self) -> Any:
        """The predictor of the run, which encodes inputs; None for weights of other projects."""
        return None if self.run is None else self.run.predictor


class Sources(Listing):
    """The models of one studio, by id."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        lecture: bool = False,
        runs: str | None = None,
        trust: bool = False,
    ) -> None:
        super().__init__(paths, lecture=lecture, runs=runs)
        self.trust = trust
        self._opened: dict[str, tuple[Any, Opened]] = {}

    def add_loaded(self, opened: Opened) -> Source:
        """List a model that is already loaded."""
        self.listed[opened.source.id] = self._given[opened.source.id] = opened.source
        self._opened[opened.source.id] = _find_version(opened.source), opened
        return opened.source

    def open(self, id: str) -> Opened:
        """The model with this id. It is loaded at first, and again when its run has saved since."""
        source = self.find(id)
        version = _find_version(source)
        known = self._opened.pop(id, None)
        if known is None or known[0] != version:
            try:
                known = version, self._load(source)
            except ValueError as fault:  # the files are wrong, not the question
                raise BadFile(str(fault)) from fault
        self._opened[id] = known  # put last: _forget removes from the front
        self._forget()
        return known[1]

    def _forget(self) -> None:
        """Forget the found runs that have not been used for longest; they can be found again."""
        found = [id for id in self._opened if id not in self._given]
        for id in found[:-MAX_FOUND]:
            del self._opened[id], self.listed[id]

    def _load(self, source: Source) -> Opened:
        if source.is_run:
            run = load_run(source.path, device="cpu", trust=self.trust)
            return Opened(source, run.model, run.tokenizer, run, write_run_lines(source.path))
        loaded = load(source.path)
        lines = [
            "import torch",
            "from clearhead.interop import load",
            f"loaded = load({source.path!r})",
            "model, tokenizer = loaded.model, loaded.tokenizer",
        ]
        return Opened(source, loaded.model.eval(), loaded.tokenizer, None, lines)


def write_run_lines(path: str) -> list[str]:
    """The Python lines that load the model of a run."""
    return [
        "import torch",
        "from clearhead.runs import load_run",
        f"run = load_run({path!r})",
        "model, tokenizer = run.model, run.tokenizer",
    ]


def _find_version(source: Source) -> Any:
    """The names of a run's checkpoints, which change when it saves; None for other weights."""
    if not source.is_run:
        return None
    folder = RunFolder(source.path)
    if not folder.path.is_dir():
        raise BadFile(f"{quote(folder.path)} is gone; close this model or restore the folder")
    return sorted(path.parent.name for path in folder.checkpoints.glob("step-*/manifest.json"))
