"""Does the needle occur in the haystack? Answered at [CLS], the first token, by one logit.

abccab|cca → yes
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.data.batch import Batch, plan_batches
from clearhead.data.substrings import Substrings
from clearhead.models import ClassifierConfig, SequenceClassifier
from clearhead.models.model import evaluation_mode
from clearhead.shapes import check_positive
from clearhead.training.losses import class_token_loss
from clearhead.training.metrics import is_right
from clearhead.training.tasks.task import CharPredictor, DataConfig, Task, hash_text

EVAL_BATCH = 1000  # texts
N_PER_LENGTH = 500  # texts
N_SEARCHED = 200  # validation texts among which an example is chosen


@dataclass(frozen=True)
class SubstringData(DataConfig):
    """Generated texts haystack|needle over an alphabet.

    haystack and needle: the least and the most letters of each. An epoch has n_examples, drawn anew
    each time; n_validation are drawn from texts that are kept for validation.
    """

    alphabet: str = "abc"
    haystack: tuple[int, int] = (4, 10)
    needle: tuple[int, int] = (1, 3)
    n_examples: int = 32_000
    n_validation: int = 4_000
    seed: int = 0

    def check(self) -> None:
        check_positive(n_examples=self.n_examples, n_validation=self.n_validation)

    def open(self) -> "SubstringTask":
        return SubstringTask(self)

    def load_predictor(self, folder: Path) -> "SubstringPredictor":
        return SubstringPredictor.load(folder)

    def describe_unfamiliar(self, predictor: Any, model: Any, text: str) -> str | None:
        haystack, _, needle = text.partition("|")
        given = {"haystack": len(haystack), "needle": len(needle)}
        for name, n in given.items():
            least, most = getattr(self, name)
            if not least <= n <= most:
                letters = "letter" if n == 1 else "letters"
                return f"the {name} has {n} {letters}, but those of training had {least} to {most}"
        return None


class SubstringPredictor(CharPredictor):
    """Says whether the needle occurs."""

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"d_input": self.tokenizer.vocab_size, "d_output": 1}

    def predict(self, model: SequenceClassifier, text: str) -> dict[str, Any]:
        """text: haystack|needle."""
        haystack, bar, needle = text.partition("|")
        if not bar or not haystack or not needle:
            raise ValueError(f"the input must be written haystack|needle, got {text!r:.80}")
        ids = torch.tensor([self.tokenizer.encode(text)])
        with evaluation_mode(model):
            logit = model(ids.to(model.device))[0, 0, 0]
        return {
            "input": text,
            "answer": "yes" if logit > 0 else "no",
            "probability": float(logit.abs().sigmoid()),  # of this answer
        }


class SubstringTask(Task):
    """Binary classification of the first token."""

    predictor: SubstringPredictor
    config_type = ClassifierConfig
    best_by = "val_accuracy"
    learned_from = "texts drawn at random while it learned; short ones come again and again"

    def __init__(self, data: SubstringData) -> None:
        self.data, self.trained_lengths = data, data.haystack
        self.train, self.validation = (
            Substrings(data.alphabet, data.haystack, data.needle, data.seed, part)
            for part in ("train", "validation")
        )
        self.predictor = SubstringPredictor(self.train.tokenizer)
        self.n_examples, self.n_validation = data.n_examples, data.n_validation
        self.max_len = self.train.max_len
        self.is_overfit = False  # then every epoch has the same examples
        self._epoch: tuple[int, Batch] | None = None  # its number and all its examples
        texts, _ = self.train.examples(range(64))  # all others are drawn by the same rule
        self.fingerprint = hash_text("\n".join(texts))
        n = f"{self.n_validation:,}"
        self.measured_on = f"{n} texts that it was not trained on"

    def overfit(self, n: int) -> Self:
        self.n_examples = self.n_validation = n
        self.validation, self.is_overfit = self.train, True
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Numbers of examples; each epoch continues where the one before it ended."""
        first = 0 if self.is_overfit else epoch * self.n_examples
        batches = plan_batches(self.n_examples, batch_size, seed=seed, epoch=epoch)
        return [[first + i for i in batch] for batch in batches]

    def batch(self, plan: Sequence[int]) -> Batch:
        epoch = plan[0] // self.n_examples
        if self._epoch is None or self._epoch[0] != epoch:  # at once: 6 µs for each example
            first = epoch * self.n_examples
            self._epoch = epoch, self.train.batch(range(first, first + self.n_examples))
        examples, rows = self._epoch[1], torch.tensor(plan) % self.n_examples
        assert examples.token_mask is not None
        token_mask = examples.token_mask[rows]
        T = int(token_mask.sum(1).max())
        return Batch(examples.inputs[rows, :T], examples.targets[rows], token_mask[:, :T])

    def loss(self, model: SequenceClassifier, batch: Batch) -> Tensor:
        return class_token_loss(model(batch.inputs, token_mask=batch.token_mask), batch.targets)

    def evaluate(self, model: SequenceClassifier) -> dict[str, float]:
        total, n_right, n = 0.0, 0, self.n_validation
        with evaluation_mode(model):
            for start in range(0, n, EVAL_BATCH):
                indices = range(start, min(start + EVAL_BATCH, n))
                batch = self.validation.batch(indices).to(model.device)
                logits = model(batch.inputs, token_mask=batch.token_mask)
                total += float(class_token_loss(logits, batch.targets)) * len(batch)
                n_right += int(is_right(logits, batch.targets).sum())
        return {"val_loss": total / n, "val_accuracy": n_right / n}

    def accuracy_by_length(self, model: SequenceClassifier) -> dict[int, float]:
        """Haystacks of each length up to twice that of training, or to what the model can read."""
        least, most = self.data.haystack
        needle = self.data.needle
        longest = 2 * most
        if model.config.scheme.has_limit:
            longest = min(longest, model.config.max_len - needle[1] - 2)  # [CLS] and the separator
        found = {}
        for n in range(least, longest + 1):
            lengths = (n, n), (needle[0], min(needle[1], n))
            try:
                texts = Substrings(self.data.alphabet, *lengths, self.data.seed, "validation")
            except ValueError:  # too few texts of this length for both labels
                continue
            batch = texts.batch(range(N_PER_LENGTH)).to(model.device)
            with evaluation_mode(model):
                logits = model(batch.inputs, token_mask=batch.token_mask)
            found[n] = float(is_right(logits, batch.targets).float().mean())
        return found

    def sample(self, model: SequenceClassifier) -> str:
        lines = []
        for text, right in self.examples(3):
            found = self.predictor.predict(model, text)
            verdict = "right" if found["answer"] == right else f"wrong, it is {right}"
            lines.append(f"{text:15} {found['answer']:3} ({found['probability']:.3f}), {verdict}")
        return "\n".join(lines)

    def next_command(self, run: Path) -> str:
        return shlex.join(["clearhead", "predict", str(run), self._choose_example()])

    def _choose_example(self) -> str:
        """A validation text whose needle has several letters and occurs late in a long haystack."""
        texts = [text for text, right in self.examples(N_SEARCHED) if right == "yes"]
        return max(texts or [self.validation[0][0]], key=_measure_search)

    def examples(self, n: int) -> list[tuple[str, str]]:
        texts, labels = self.validation.examples(range(min(n, self.n_validation)))
        return [(text, "yes" if label else "no") for text, label in zip(texts, labels, strict=True)]

    def hardest(self, model: SequenceClassifier, n: int) -> list[tuple[str, str]]:
        examples = self.examples(self.n_validation)
        margins = torch.cat(list(self._margins(model)))  # the log-odds of the right answer
        return [examples[i] for i in margins.argsort(stable=True)[:n].tolist()]

    def _margins(self, model: SequenceClassifier) -> Iterator[Tensor]:
        for start in range(0, self.n_validation, EVAL_BATCH):
            indices = range(start, min(start + EVAL_BATCH, self.n_validation))
            batch = self.validation.batch(indices).to(model.device)
            with evaluation_mode(model):
                logits = model(batch.inputs, token_mask=batch.token_mask)[:, 0, 0]
            yield torch.where(batch.targets.flatten() > 0, logits, -logits).cpu()

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        text = self._choose_example()
        return [(text, f"the validation example {text}")]


def _measure_search(text: str) -> tuple[int, int]:
    """The key to choose an example: the length of the needle, then its position."""
    haystack, _, needle = text.partition("|")
    return len(needle), haystack.find(needle)
