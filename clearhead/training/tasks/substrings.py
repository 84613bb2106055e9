"""Does the needle occur in the haystack? Answered at [CLS], the first token, by one logit."""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.data.batch import Batch, plan_batches
from clearhead.data.substrings import Substrings
from clearhead.models import ClassifierConfig, SequenceClassifier
from clearhead.models.model import at_rest
from clearhead.shapes import check_positive
from clearhead.training.answerers.substrings import SubstringAnswerer
from clearhead.training.losses import class_token_loss
from clearhead.training.tasks.task import DataConfig, Task

EVALUATED = 1000  # texts at once


@dataclass(frozen=True)
class SubstringData(DataConfig):
    """Generated texts haystack|needle, of letters of an alphabet.

    haystack and needle: the least and the most letters of each. n_examples make an epoch, and are
    drawn anew for each; n_validation are drawn from texts that are kept for evaluation.
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

    def answerer(self, folder: Path) -> SubstringAnswerer:
        return SubstringAnswerer.load(folder)


class SubstringTask(Task):
    """Binary classification of the first token."""

    answerer: SubstringAnswerer
    config_type = ClassifierConfig
    best_by = "val_accuracy"

    def __init__(self, data: SubstringData) -> None:
        made = {
            part: Substrings(data.alphabet, data.haystack, data.needle, data.seed, part)
            for part in ("train", "validation")
        }
        self.data, self.train, self.validation = data, made["train"], made["validation"]
        self.answerer = SubstringAnswerer(self.train.tokenizer)
        self.n_examples = data.n_examples
        self.made: tuple[int, Batch] | None = None  # the examples of an epoch
        self.repeats = False
        self.n_validation = data.n_validation
        texts = "\n".join(self.train.examples(range(64))[0])  # the rest follows from the same rule
        self.fingerprint = hashlib.sha256(texts.encode()).hexdigest()

    @property
    def learned_from(self) -> str:
        return "texts drawn at random while it learned; short ones come again and again"

    @property
    def measured_on(self) -> str:
        return f"{self.n_validation:,} texts drawn from those that it never learned from"

    def sizes(self, config: ClassifierConfig) -> dict[str, Any]:
        return {"max_len": max(config.max_len, self.train.max_len)}

    def overfit(self, n: int) -> Self:
        self.n_examples = self.n_validation = n
        self.validation, self.repeats = self.train, True
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Numbers of examples; those of an epoch follow on those of the one before."""
        first = 0 if self.repeats else epoch * self.n_examples
        return [
            [first + i for i in plan]
            for plan in plan_batches(self.n_examples, batch_size, seed=seed, epoch=epoch)
        ]

    def batch(self, plan: Sequence[int]) -> Batch:
        epoch = plan[0] // self.n_examples
        if self.made is None or self.made[0] != epoch:  # all at once, 6 µs each
            first = epoch * self.n_examples
            self.made = (epoch, self.train.batch(range(first, first + self.n_examples)))
        of, rows = self.made[1], torch.tensor(plan) % self.n_examples
        assert of.token_mask is not None
        real = of.token_mask[rows]
        T = int(real.sum(1).max())
        return Batch(of.inputs[rows, :T], of.targets[rows], real[:, :T])

    def loss(self, model: SequenceClassifier, batch: Batch) -> Tensor:
        return class_token_loss(model(batch.inputs, token_mask=batch.token_mask), batch.targets)

    def evaluate(self, model: SequenceClassifier) -> dict[str, float]:
        total, right = 0.0, 0
        device = model.device
        with at_rest(model):
            for start in range(0, self.n_validation, EVALUATED):
                places = range(start, min(start + EVALUATED, self.n_validation))
                batch = self.validation.batch(places).to(device)
                logits = model(batch.inputs, token_mask=batch.token_mask)
                total += float(class_token_loss(logits, batch.targets)) * len(batch)
                right += int(((logits[:, 0, 0] > 0) == (batch.targets == 1)).sum())
        return {"val_loss": total / self.n_validation, "val_accuracy": right / self.n_validation}

    def sample(self, model: SequenceClassifier) -> str:
        texts, labels = self.validation.examples(range(min(3, self.n_validation)))
        lines = []
        for text, label in zip(texts, labels, strict=True):
            found, right = self.answerer.predict(model, text), "yes" if label else "no"
            word = "right" if found["answer"] == right else f"wrong, it is {right}"
            lines.append(f"{text:15} {found['answer']:3} ({found['probability']:.3f}), {word}")
        return "\n".join(lines)

    def next_command(self, run: Path) -> str:
        text, _ = self.validation[1]
        return f"clearhead predict {shlex.quote(str(run))} {shlex.quote(text)}"
