"""Examples that are tensors in memory: the shortest way to a task of your own.

    class ParityTask(TensorTask):
        config_type = GPTConfig

    ParityTask(predictor, train=Batch(inputs, targets), validation=Batch(…))

The loss is the mean cross-entropy of the model's logits; a subclass may define another.
"""

import dataclasses
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch
from clearhead.models.model import evaluation_mode
from clearhead.training.losses import mean_cross_entropy
from clearhead.training.tasks.task import Predictor, Task

EVAL_BATCH = 500  # examples


class TensorTask(Task):
    """Two batches, one to learn from and one to evaluate on; a subclass names config_type."""

    def __init__(self, predictor: Predictor, train: Batch, validation: Batch) -> None:
        """Each batch holds all examples of its part; targets are as in mean_cross_entropy."""
        self.predictor, self.train, self.validation = predictor, train, validation
        self.n_examples = len(train)
        self.max_len = train.inputs.size(1) if train.inputs.ndim == 2 else 1
        self.fingerprint = _hash_batches(train, validation)

    def overfit(self, n: int) -> Self:
        self.train = self.validation = self.train.select(range(min(n, self.n_examples)))
        self.n_examples = len(self.train)
        return self

    def batch(self, plan: Sequence[int]) -> Batch:
        return self.train.select(plan)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return mean_cross_entropy(model(batch.inputs), batch.targets)

    def evaluate(self, model: Any) -> dict[str, float]:
        """The loss, and the share of the targets that have the largest logit."""
        n_right, n = 0, 0
        with evaluation_mode(model):
            for batch in self._validation_batches():
                batch = batch.to(model.device)
                n_right += int((model(batch.inputs).argmax(-1) == batch.targets).sum())
                n += int((batch.targets != IGNORE).sum())
        loss = self.mean_loss(model, self._validation_batches())
        return {"val_loss": loss, "val_accuracy": n_right / n}

    def examples(self, n: int) -> list[tuple[str, str]]:
        """If inputs and targets are texts (N, T): texts, and the last target of each."""
        tokenizer, targets = self.predictor.tokenizer, self.validation.targets
        if tokenizer is None or targets.ndim != 2 or (targets[:, -1] == IGNORE).any():
            return []
        rows = zip(self.validation.inputs[:n], targets[:n, -1:], strict=True)
        return [(tokenizer.decode(text), tokenizer.decode(answer)) for text, answer in rows]

    def next_command(self, run: Path) -> str:
        return next(
            (shlex.join(["clearhead", "predict", str(run), text]) for text, _ in self.examples(1)),
            super().next_command(run),
        )

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        return [(text, f"the validation example {text}") for text, _ in self.examples(1)]

    def _validation_batches(self) -> Iterator[Batch]:
        return map(self.validation.select, torch.arange(len(self.validation)).split(EVAL_BATCH))


def _hash_batches(*batches: Batch) -> str:
    """The SHA-256 of all tensors, their names, types and shapes."""
    digest = hashlib.sha256()
    for batch in batches:
        for field in dataclasses.fields(batch):
            if (x := getattr(batch, field.name)) is not None:
                digest.update(f"{field.name} {x.dtype} {tuple(x.shape)}".encode())
                digest.update(x.contiguous().numpy().tobytes())
    return digest.hexdigest()
