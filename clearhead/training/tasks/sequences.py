"""Three rules for the smallest transformer to learn, which designs.py sets by hand.

identity, first and unique are told in answerers/sequences.py. Of all sequences of A, B and C up to
a length, one in ten is kept for validation. The others are drawn so that each length is as likely:
the short ones show what a letter means, the long ones whom to listen to. The loss is the mean
squared difference of all numbers.
"""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, product
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from clearhead.data.batch import Batch, pad_right
from clearhead.data.randomness import choose_below, draw_bits, hash_rows, is_validation
from clearhead.models import TorchTransformerConfig
from clearhead.models.model import at_rest
from clearhead.models.smallest import TorchTransformer
from clearhead.runtime import widest_float
from clearhead.shapes import check_at_most, check_choice, check_positive
from clearhead.training.answerers.sequences import LETTERS, RULES, Row, SequenceAnswerer
from clearhead.training.tasks.task import DataConfig, Task

MOST_LETTERS = 9  # 29,523 sequences


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

    def answerer(self, folder: Path) -> SequenceAnswerer:
        return SequenceAnswerer(self.rule, self.max_len)


class SequenceTask(Task):
    """Each number of the answer, learned by a TorchTransformer."""

    answerer: SequenceAnswerer
    config_type = TorchTransformerConfig

    def __init__(self, data: SequenceData) -> None:
        self.data = data
        learned, kept = _all_sequences(data.max_len)
        self.answerer = SequenceAnswerer(data.rule, data.max_len)
        self.train = self.answerer.examples(_drawn(learned, data.n_examples, data.seed))
        self.n_different = len(learned)
        self.validation = self.answerer.examples(kept)
        self.n_examples = data.n_examples
        parts = (self.train, self.validation)
        about = [data.rule, *(part.inputs.argmax(dim=-1).tolist() for part in parts)]
        self.fingerprint = hashlib.sha256(str(about).encode()).hexdigest()

    @property
    def learned_from(self) -> str:
        of = f"{self.n_different:,} sequences of up to {self.data.max_len} letters"
        return f"{self.n_examples:,} draws from {of}"

    @property
    def measured_on(self) -> str:
        return f"{len(self.validation)} other sequences, none of which it learned from"

    def sizes(self, config: TorchTransformerConfig) -> dict[str, Any]:
        return {"max_len": max(config.max_len, self.train.inputs.size(1))}

    def prepared(self, model: TorchTransformer) -> TorchTransformer:
        """For `unique`, a place begins as long as a letter, whose one-hot row has length 1.

        As they are drawn, places are √d_pos long, and what is longer is learned first. Place 1 is
        taken in every sequence, as place 0 is by CLS, and in the shortest ones +1 is right there.
        But a letter that says +1 for its place cannot tell others that they are repeated, and it
        is hard to unlearn: to say −1 instead, it would have to hear CLS instead of itself.
        """
        if self.data.rule == "unique" and model.pos is not None:
            with torch.no_grad():
                model.pos.weight /= model.pos.weight.norm(dim=1, keepdim=True)
        return model

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
            errors = self._errors(model, self.validation.to(model.device))
        return {
            "val_loss": float(errors.square().mean(dtype=widest_float(errors.device))),
            "val_worst": float(errors.abs().max()),
        }

    def sample(self, model: TorchTransformer) -> str:
        return "\n".join(
            "{input} → {answer}, no number wrong by more than {error:.4f}".format(
                **self.answerer.predict(model, text)
            )
            for text in ("CAC", "ABC", "BBA")
        )

    def next_command(self, run: Path) -> str:
        return f"clearhead predict {shlex.quote(str(run))} CAC"


def _all_sequences(max_len: int) -> tuple[list[Row], list[Row]]:
    """Those to learn from, and those that are kept for validation."""
    lengths = range(1, max_len + 1)
    rows = list(chain.from_iterable(product(range(len(LETTERS)), repeat=n) for n in lengths))
    codes, _ = pad_right(rows, -1)
    marked = list(zip(rows, is_validation(hash_rows(codes.numpy())).tolist(), strict=True))
    return [row for row, kept in marked if not kept], [row for row, kept in marked if kept]


def _drawn(rows: Sequence[Row], n: int, seed: int) -> list[Row]:
    """n sequences; each length is as likely, and so is each sequence of a length."""
    by_length = [list(group) for _, group in groupby(rows, key=len)]
    numbers = draw_bits(seed, "sequences", np.arange(n)[:, None], np.arange(2))
    lengths = choose_below(len(by_length), numbers[:, 0])
    places = choose_below(np.array([len(group) for group in by_length])[lengths], numbers[:, 1])
    return [by_length[i][j] for i, j in zip(lengths.tolist(), places.tolist(), strict=True)]


def _chosen(examples: Batch, places: Tensor | slice) -> Batch:
    """Some of all examples, no longer than the longest of them."""
    assert examples.token_mask is not None
    longest = int(examples.token_mask[places].sum(dim=1).max())
    parts = (examples.inputs, examples.targets, examples.token_mask)
    return Batch(*(part[places][:, :longest] for part in parts))
