"""Three rules for the smallest transformer to learn, which designs.py sets by hand.

    identity    ABCC → ABCC             each token as it is
    first       CAC  → CCC              each token as the first one
    unique      CLS ABB → +1 +1 −1 −1   +1 for a token that occurs once, −1 for a repeated one

Of all sequences of A, B and C up to a length, one in ten is kept for validation. The others are
drawn so that each length is as likely: the short ones show what a letter means, the long ones whom
to listen to. A token is a one-hot row, and the loss is the mean squared difference of all numbers.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, product
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from clearhead.data.batch import Batch, pad_right
from clearhead.data.draws import below, draws, is_validation, row_keys
from clearhead.models.model import Config, at_rest
from clearhead.models.smallest.torch_form import TorchTransformer, TorchTransformerConfig
from clearhead.shapes import check_at_most, check_choice, check_positive
from clearhead.training.tasks.task import DataConfig, Task

__all__ = ["SequenceData", "SequenceTask"]

RULES = ("identity", "first", "unique")
LETTERS = "ABC"
CLS = len(LETTERS)  # the row after those of the letters
MOST_LETTERS = 9  # 29,523 sequences

Row = tuple[int, ...]


@dataclass(frozen=True)
class SequenceData(DataConfig):
    """rule: "identity", "first" or "unique"; max_len: the most letters of a sequence.

    n_examples sequences are drawn for training, by `seed`.
    """

    rule: str
    max_len: int = 6
    n_examples: int = 8192
    seed: int = 0

    def check(self) -> None:
        check_choice("rule", self.rule, RULES)
        check_positive(n_examples=self.n_examples)
        check_at_most(MOST_LETTERS, max_len=self.max_len)
        if self.max_len < 3:
            raise ValueError(f"max_len must be at least 3 to have examples, got {self.max_len}")

    def open(self) -> "SequenceTask":
        return SequenceTask(self)


class SequenceTask(Task):
    """Each number of the answer, learned by a TorchTransformer."""

    model_type = TorchTransformer

    def __init__(self, data: SequenceData) -> None:
        self.data = data
        learned, kept = _all_sequences(data.max_len)
        self.train = self._examples(_drawn(learned, data.n_examples, data.seed))
        self.validation = self._examples(kept)
        self.n_examples = data.n_examples
        parts = (self.train, self.validation)
        about = [data.rule, *(part.inputs.argmax(dim=-1).tolist() for part in parts)]
        self.fingerprint = hashlib.sha256(str(about).encode()).hexdigest()

    def _examples(self, rows: Sequence[Row]) -> Batch:
        """Sequences of letters as one-hot rows, with the right answers."""
        if self.data.rule == "unique":
            rows = [(CLS, *row) for row in rows]
        codes, real = pad_right(rows, 0)
        inputs = one_hot(codes, CLS + 1 if self.data.rule == "unique" else CLS).float()
        if self.data.rule == "first":
            return Batch(inputs, inputs[:, :1].expand_as(inputs), real)
        if self.data.rule == "unique":
            counts = (inputs * real[..., None]).sum(dim=1, keepdim=True)  # (B, 1, letters)
            repeated = (inputs * counts).sum(dim=-1, keepdim=True) > 1  # (B, T, 1)
            return Batch(inputs, torch.where(repeated, -1.0, 1.0), real)
        return Batch(inputs, inputs, real)

    def complete(self, config: Config) -> TorchTransformerConfig:
        assert isinstance(config, TorchTransformerConfig)
        return dataclasses.replace(
            config,
            d_input=self.train.inputs.size(-1),
            d_v=self.train.targets.size(-1),
            max_len=max(config.max_len, self.train.inputs.size(1)),
        )

    def overfit(self, n: int) -> Self:
        check_positive(n=n)
        self.n_examples = min(n, self.n_examples)
        self.train = self.validation = _chosen(self.train, slice(n))
        return self

    def batch(self, plan: Sequence[int]) -> Batch:
        return _chosen(self.train, torch.tensor(plan))

    def loss(self, model: TorchTransformer, batch: Batch) -> Tensor:
        return self._errors(model, batch).square().mean()

    def _errors(self, model: TorchTransformer, batch: Batch) -> Tensor:
        """The differences to the right answers, (real tokens, d_v)."""
        return (model(batch.inputs, batch.token_mask) - batch.targets)[batch.token_mask]

    def evaluate(self, model: TorchTransformer) -> dict[str, float]:
        """The loss, and the largest error in any number of any answer."""
        with at_rest(model):
            errors = self._errors(model, self.validation.to(next(model.parameters()).device))
        return {
            "val_loss": float(errors.square().mean(dtype=torch.float64)),
            "val_worst": float(errors.abs().max()),
        }

    def sample(self, model: TorchTransformer) -> str:
        return "\n".join(
            "{input} → {answer}, no number wrong by more than {error:.4f}".format(
                **self.predict(model, text)
            )
            for text in ("CAC", "ABC", "BBA")
        )

    def predict(self, model: TorchTransformer, text: str) -> dict[str, Any]:
        """text: letters such as CAC."""
        if not text or not set(text) <= set(LETTERS) or len(text) > self.data.max_len:
            raise ValueError(
                f"the input must be 1 to {self.data.max_len} of the letters A, B and C, "
                f"got {text!r:.80}"
            )
        example = self._examples([tuple(LETTERS.index(letter) for letter in text)])
        example = example.to(next(model.parameters()).device)
        with at_rest(model):
            answer = model(example.inputs)[0]
        return {
            "input": text,
            "answer": self._spelled(answer),
            "error": float((answer - example.targets[0]).abs().max()),
        }

    def _spelled(self, answer: Tensor) -> str:
        """Numbers (T, d_v) as the nearest right answer: letters, or a sign for each letter."""
        if self.data.rule == "unique":
            return " ".join("+1" if number > 0 else "−1" for number in answer[1:, 0])
        return "".join(LETTERS[i] for i in answer.argmax(dim=-1))

    def next_command(self, run: Path) -> str:
        return f"clearhead predict {run} CAC"

    def save(self, folder: Path) -> None:
        """Nothing: letters need no tokenizer."""


def _all_sequences(max_len: int) -> tuple[list[Row], list[Row]]:
    """Those to learn from, and those that are kept for validation."""
    lengths = range(1, max_len + 1)
    rows = list(chain.from_iterable(product(range(len(LETTERS)), repeat=n) for n in lengths))
    codes, _ = pad_right(rows, -1)
    marked = list(zip(rows, is_validation(row_keys(codes.numpy())).tolist(), strict=True))
    return [row for row, kept in marked if not kept], [row for row, kept in marked if kept]


def _drawn(rows: Sequence[Row], n: int, seed: int) -> list[Row]:
    """n sequences; each length is as likely, and so is each sequence of a length."""
    by_length = [list(group) for _, group in groupby(rows, key=len)]
    numbers = draws(seed, "sequences", np.arange(n)[:, None], np.arange(2))
    lengths = below(len(by_length), numbers[:, 0])
    places = below(np.array([len(group) for group in by_length])[lengths], numbers[:, 1])
    return [by_length[i][j] for i, j in zip(lengths.tolist(), places.tolist(), strict=True)]


def _chosen(examples: Batch, places: Tensor | slice) -> Batch:
    """Some of all examples, no longer than the longest of them."""
    assert examples.token_mask is not None
    longest = int(examples.token_mask[places].sum(dim=1).max())
    parts = (examples.inputs, examples.targets, examples.token_mask)
    return Batch(*(part[places][:, :longest] for part in parts))
