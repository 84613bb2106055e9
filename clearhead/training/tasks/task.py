"""A task: what is predicted from what, what a wrong prediction costs, and how well it is done.

Each task is one file with three classes:

    DataConfig    which examples; the `data` of a recipe. `open` reads them and returns the Task.
    Task          examples, loss and metrics: what training and evaluation need.
    Predictor     how the trained model is used. It is saved in the run folder and needs no data.

A plan lists the examples of a batch. The training loop asks a task for all plans of an epoch, as a
function of (seed, epoch), and for each batch only when it is needed. So a run can resume anywhere.
"""

import dataclasses
import hashlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor

from clearhead.config import UNDECIDED, Config
from clearhead.data.batch import IGNORE, Batch, plan_batches
from clearhead.data.tokenizers import CharTokenizer, Tokenizer
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.files.strict_json import read_json
from clearhead.models import build_model
from clearhead.models.model import Model, evaluation_mode

TOKENIZER = "tokenizer.json"

Plan = Sequence[int]  # the numbers of the examples of a batch


class Predictor(ABC):
    """Turns an input into what a model reads, and the model's output into an answer.

    It is the part of a task that needs no examples: a tokenizer, the class names, the mean of the
    training pictures. Together with the weights it is all that is needed to use a model.
    """

    files: ClassVar[tuple[str, ...]]  # what `save` writes into a run folder
    tokenizer: Tokenizer | None = None  # of a model that reads one language
    forbid: Sequence[int] = ()  # ids that an answer never holds: <unk> where words are written

    @property
    @abstractmethod
    def model_sizes(self) -> dict[str, Any]:
        """The model sizes that follow from the predictor's files, such as vocab_size."""

    @abstractmethod
    def predict(self, model: Any, text: str) -> dict[str, Any]:
        """The answer to one input: "input", "answer", and often its "probability"."""

    def allow_unknown(self) -> Self:
        """The same predictor, but its answers may hold <unk>."""
        other = copy(self)
        other.forbid = ()
        return other

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files."""

    def check(self, config: Config, folder: Path) -> None:
        """Refuse the files of another run, whose tokens or classes mean something else."""
        for name, value in self.model_sizes.items():
            own = getattr(config, name)
            if own != value:
                raise BadFile(
                    f"{quote(folder)} mixes files of different runs: by {' and '.join(self.files)} "
                    f"{name} is {value}, but by config.json {own}; restore the files of this run"
                )


class TextPredictor(Predictor):
    """The predictor of a model that reads one language: only its tokenizer is saved."""

    files = (TOKENIZER,)
    tokenizer: Tokenizer

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"vocab_size": self.tokenizer.vocab_size}

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / TOKENIZER)


class CharPredictor(TextPredictor):
    """The predictor of a model that reads characters."""

    tokenizer: CharTokenizer

    def __init__(self, tokenizer: CharTokenizer) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        return cls(CharTokenizer.load(folder / TOKENIZER))


def hash_text(text: str) -> str:
    """The SHA-256 of a text in hexadecimal digits, for a fingerprint."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_values(path: Path, *names: str) -> dict[str, Any]:
    """The values of a JSON file that must hold these names and no others."""
    values = read_json(path)
    with prefix_errors(path):
        if not isinstance(values, dict) or values.keys() != set(names):
            raise ValueError(f"it must hold {', '.join(names)} and nothing else")
    return values


@dataclass(frozen=True)
class DataConfig(Config):
    """Which examples; a subclass opens them."""

    predictor_type: ClassVar[Any]  # a Predictor whose `load` reads what its `save` wrote

    def open(self) -> "Task":
        """Read the data."""
        raise NotImplementedError

    @property
    def known_sizes(self) -> dict[str, Any]:
        """The model sizes that follow from these settings alone, before the data are read."""
        return {}

    def load_predictor(self, folder: Path) -> Predictor:
        """The predictor that was saved in a run folder; the data are not read."""
        predictor: Predictor = self.predictor_type.load(folder)
        return predictor

    def describe_unfamiliar(self, predictor: Any, model: Any, text: str) -> str | None:
        """How an input differs from all training inputs, in one sentence; None if it does not."""
        return None


class Task(ABC):
    """Examples, loss and metrics of something to learn."""

    predictor: Predictor
    config_type: type[Config]  # of the models that can learn it
    best_by: str = "val_loss"  # the metric that chooses the best checkpoint
    unit: str = "examples"  # or "tokens": what its speed is counted in
    has_text_samples: bool = False  # its samples show progress better than numbers do
    seeds_torch: bool = False  # the weights are drawn after torch.manual_seed(training.seed)
    can_compile: bool = True  # its loss calls the model as a whole; torch.compile needs that
    fingerprint: str  # the SHA-256 of all examples in 64 hexadecimal digits
    n_examples: int  # of the training part
    max_len: int = 1  # tokens of the longest example
    trained_lengths: tuple[int, int]  # least and greatest, if there is accuracy_by_length
    class_names: Sequence[str] = ()  # of a classifier
    learned_from: str = "training examples"  # in words, for the report
    measured_on: str = "examples that it did not learn from"

    # The model

    @property
    def model_sizes(self) -> dict[str, Any]:
        """The model sizes that follow from the data: the predictor's, and maybe others."""
        return self.predictor.model_sizes

    def complete(self, config: Config) -> Any:
        """The model's config with `model_sizes` and max_len filled in.

        A given max_len stays, unless the longest example needs more.
        """
        if not isinstance(config, self.config_type):
            raise TypeError(
                f"a {type(self).__name__} is learned by the model of a "
                f"{self.config_type.__name__}, got a {type(config).__name__}"
            )
        sizes = dict(self.model_sizes)
        if hasattr(config, "max_len"):
            is_open = config.max_len is UNDECIDED
            sizes["max_len"] = self.max_len if is_open else max(config.max_len, self.max_len)
        complete = dataclasses.replace(config, **sizes)
        complete.check_complete()
        return complete

    def build(self, config: Config) -> Model:
        """A new model from a complete config."""
        return build_model(config)

    def initialise(self, model: Any) -> Any:
        """Set those weights of a new model that depend on the data; often none."""
        return model

    # Training

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Plan]:
        """The examples of each batch of an epoch: every example once, in random order."""
        return plan_batches(self.n_examples, batch_size, seed=seed, epoch=epoch)

    @abstractmethod
    def batch(self, plan: Plan) -> Batch:
        """The training examples of a plan."""

    def augment(self, batch: Batch, progress: float = 0.0) -> Batch:
        """The batch with random changes, such as shifted pictures; often none.

        progress: the share of the steps already made, for changes that depend on it. They are
        drawn from torch's default generator, which the loop seeds for each step.
        """
        return batch

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The mean loss of a batch, a scalar."""

    def count_terms(self, batch: Batch) -> int:
        """How many terms the loss of a batch is the mean of; parts of a step count accordingly."""
        if batch.targets.is_floating_point():  # probabilities of classes
            return len(batch)
        return int((batch.targets != IGNORE).sum())

    @abstractmethod
    def overfit(self, n: int) -> Self:
        """The same task with n training examples, on which the model is also evaluated."""

    # Evaluation

    @abstractmethod
    def evaluate(self, model: Any) -> dict[str, float]:
        """Metrics of the whole validation part: val_loss and others."""

    def mean_loss(self, model: Model, batches: Iterable[Batch]) -> float:
        """The mean over all targets of these batches, without dropout and gradients."""
        total, n = 0.0, 0
        with evaluation_mode(model):
            for batch in batches:
                n_targets = int((batch.targets != IGNORE).sum())
                total += float(self.loss(model, batch.to(model.device))) * n_targets
                n += n_targets
        return total / n

    def is_better(
        self, values: Mapping[str, float], best: float | None, *, best_loss: float | None = None
    ) -> bool:
        """Whether these metrics beat the best so far; NaN never does.

        Higher is better, unless `best_by` is a loss or a perplexity. Of equal values, the one with
        the lower val_loss is better; best_loss is the val_loss of the best so far.
        """
        value = values[self.best_by]
        if value == best and best_loss is not None:
            return values.get("val_loss", best_loss) < best_loss
        lower = self.best_by.endswith(("loss", "perplexity"))
        return value == value and (best is None or (value < best if lower else value > best))

    def sample(self, model: Any) -> str | None:
        """Some answers of the model, for people to read."""
        return None

    # The run folder and its report

    def save(self, folder: Path) -> None:
        """Write what is needed to use the model later, such as the tokenizer."""
        self.predictor.save(folder)

    def next_command(self, run: Path) -> str:
        """A command that tries the trained model."""
        return shlex.join(["clearhead", "eval", str(run)])

    def baseline(self) -> dict[str, float]:
        """Metrics that n-grams reach on the same examples, and their "order"."""
        return {}

    def confusion(self, model: Any) -> Tensor | None:
        """How many validation examples of each class (row) get each answer (column), (C, C)."""
        return None

    def accuracy_by_length(self, model: Any) -> dict[int, float]:
        """Accuracy on new inputs of each length, also of lengths that training did not have."""
        return {}

    def examples(self, n: int) -> list[tuple[str, str]]:
        """Up to n validation inputs, each with its right answer."""
        return []

    def hardest(self, model: Any, n: int) -> list[tuple[str, str]]:
        """Up to n validation inputs that the model answers worst, each with its right answer."""
        return self.examples(n)

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        """Inputs whose attention the report draws, each with its name for the caption.

        sample: the last text that the model wrote.
        """
        return []
