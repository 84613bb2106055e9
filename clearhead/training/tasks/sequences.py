"""Three rules for the smallest transformer to learn, which designs.py sets by hand.

    identity    ABCC → ABCC             each token as it is
    first       CAC  → CCC              each token as the first one
    unique      CLS ABB → +1 +1 −1 −1   +1 for a token that occurs once, −1 for a repeated one

A token is a one-hot row. Of all sequences of A, B and C up to a length, one in ten is kept for
validation. Training sequences are drawn so that all lengths are equally likely: the short ones
teach what a letter means, the long ones which token to attend to. The loss is the mean squared
error of all outputs.
"""

import shlex
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
from clearhead.data.randomness import choose_below, draw_bits, hash_rows, is_validation
from clearhead.models import TorchTransformerConfig
from clearhead.models.model import evaluation_mode
from clearhead.models.smallest import TorchTransformer
from clearhead.runtime import widest_float
from clearhead.shapes import check_at_most, check_choice, check_positive
from clearhead.training.tasks.task import DataConfig, Predictor, Task, hash_text

RULES = ("identity", "first", "unique")
LETTERS = "ABC"
CLS = len(LETTERS)  # the row after those of the letters
MOST_LETTERS = 9  # 29,523 sequences

Row = tuple[int, ...]  # letters by their index


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

    def load_predictor(self, folder: Path) -> "SequencePredictor":
        return SequencePredictor(self.rule, self.max_len)


class SequencePredictor(Predictor):
    """Knows the rule; sequences have up to max_len letters. Nothing is saved."""

    files = ()

    def __init__(self, rule: str, max_len: int) -> None:
        self.rule, self.max_len = rule, max_len

    @property
    def model_sizes(self) -> dict[str, Any]:
        if self.rule == "unique":
            return {"d_input": CLS + 1, "d_v": 1}
        return {"d_input": CLS, "d_v": CLS}

    def encode(self, rows: Sequence[Row]) -> Batch:
        """Sequences of letters as one-hot rows, with the right outputs."""
        if self.rule == "unique":
            rows = [(CLS, *row) for row in rows]
        codes, token_mask = pad_right(rows, 0)
        inputs = one_hot(codes, self.model_sizes["d_input"]).float()
        targets = inputs
        if self.rule == "first":
            targets = inputs[:, :1].expand_as(inputs)
        elif self.rule == "unique":
            counts = (inputs * token_mask[..., None]).sum(dim=1, keepdim=True)  # (B, 1, letters)
            is_repeated = (inputs * counts).sum(dim=-1, keepdim=True) > 1  # (B, T, 1)
            targets = torch.where(is_repeated, -1.0, 1.0)
        return Batch(inputs, targets, token_mask)

    def read(self, text: str) -> Batch:
        """A sequence written in letters, such as CAC, with its right output."""
        if not text or not set(text) <= set(LETTERS) or len(text) > self.max_len:
            raise ValueError(
                f"the input must be 1 to {self.max_len} of the letters A, B and C, got {text!r:.80}"
            )
        return self.encode([tuple(LETTERS.index(letter) for letter in text)])

    def predict(self, model: TorchTransformer, text: str) -> dict[str, Any]:
        """text: letters such as CAC. error: the largest absolute error of any output."""
        example = self.read(text).to(model.device)
        with evaluation_mode(model):
            output = model(example.inputs)[0]
        return {
            "input": text,
            "answer": self._spell(output),
            "error": float((output - example.targets[0]).abs().max()),
        }

    def is_right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Whether each number of a token is nearer to its target than to the other possible one.

        The numbers are 0 or 1, for `unique` −1 or +1: (..., T, d_v) → (..., T).
        """
        difference = 2.0 if self.rule == "unique" else 1.0
        return ((outputs - targets).abs() < difference / 2).all(dim=-1)

    def _spell(self, output: Tensor) -> str:
        """Outputs (T, d_v) as the nearest possible answer: letters, or a sign for each letter."""
        if self.rule == "unique":
            return " ".join("+1" if number > 0 else "−1" for number in output[1:, 0])
        return "".join(LETTERS[i] for i in output.argmax(dim=-1))

    def save(self, folder: Path) -> None:
        """Nothing: letters need no tokenizer."""


class SequenceTask(Task):
    """Regression of every output by a TorchTransformer."""

    predictor: SequencePredictor
    config_type = TorchTransformerConfig

    def __init__(self, data: SequenceData) -> None:
        train, validation = split_sequences(data.max_len)
        self.set_examples(data, _draw(train, data.n_examples, data.seed), validation)
        source = f"{len(train):,} sequences of up to {data.max_len} letters"
        self.learned_from = f"{self.n_examples:,} draws from {source}"
        self.measured_on = f"{len(validation)} other sequences, none of which it learned from"

    def set_examples(
        self, data: SequenceData, train: Sequence[Row], validation: Sequence[Row]
    ) -> None:
        """Set everything that follows from the sequences to learn from and to validate with."""
        self.data = data
        self.predictor = SequencePredictor(data.rule, data.max_len)
        self.train, self.validation = map(self.predictor.encode, (train, validation))
        self.n_examples = data.n_examples
        self.max_len = self.train.inputs.size(1)
        parts = (self.train, self.validation)
        content = [data.rule, *(part.inputs.argmax(dim=-1).tolist() for part in parts)]
        self.fingerprint = hash_text(str(content))

    @torch.no_grad()
    def initialise(self, model: TorchTransformer) -> TorchTransformer:
        """Start with small values; for `unique`, with position vectors as long as a letter.

        Values are learned first, because scores depend on them: small ones, here a twentieth, are
        learned faster than wrong ones are unlearned.

        As drawn, position vectors have length √d_pos, and longer vectors are learned first. So the
        model would learn the value +1 for position 1, the first letter, which is right in the
        shortest sequences. But other letters of its kind need the value −1 from it to know that
        they are repeated. This is hard to unlearn: to output +1 nevertheless, the letter would have
        to attend to CLS instead of to itself.
        """
        model.Vm.weight *= 0.05
        # The losses of the recipes were measured with Km drawn before Qm.
        drawn_first = model.Qm.weight.clone()
        model.Qm.weight.copy_(model.Km.weight)
        model.Km.weight.copy_(drawn_first)
        if self.data.rule == "unique" and model.pos is not None:
            model.pos.weight /= model.pos.weight.norm(dim=1, keepdim=True)
        return model

    def overfit(self, n: int) -> Self:
        check_positive(n=n)
        self.n_examples = min(n, self.n_examples)
        self.train = self.validation = _select(self.train, slice(n))
        self.max_len = self.train.inputs.size(1)
        return self

    def batch(self, plan: Sequence[int]) -> Batch:
        return _select(self.train, torch.tensor(plan))

    def loss(self, model: TorchTransformer, batch: Batch) -> Tensor:
        return self._errors(model, batch).square().mean()

    def count_terms(self, batch: Batch) -> int:
        assert batch.token_mask is not None
        return int(batch.token_mask.sum())

    def _errors(self, model: TorchTransformer, batch: Batch) -> Tensor:
        """Output minus target at every real token, (real tokens, d_v)."""
        return (model(batch.inputs, batch.token_mask) - batch.targets)[batch.token_mask]

    def evaluate(self, model: TorchTransformer) -> dict[str, float]:
        """The loss, and the largest absolute error of any output."""
        with evaluation_mode(model):
            errors = self._errors(model, self.validation.to(model.device))
        return {
            "val_loss": float(errors.square().mean(dtype=widest_float(errors.device))),
            "val_worst": float(errors.abs().max()),
        }

    def sample(self, model: TorchTransformer) -> str:
        found = [self.predictor.predict(model, text) for text in ("CAC", "ABC", "BBA")]
        return "\n".join(
            f"{one['input']} → {one['answer']}, "
            f"no number wrong by more than {_format_error(one['error'])}"
            for one in found
        )

    def next_command(self, run: Path) -> str:
        return shlex.join(["clearhead", "predict", str(run), "CAC"])

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        examples = self.validation
        assert examples.token_mask is not None
        last = examples.inputs[-1][examples.token_mask[-1]].argmax(dim=-1)
        text = "".join(LETTERS[i] for i in last if i != CLS)
        return [(text, f"“{text}”")]


def split_sequences(max_len: int) -> tuple[list[Row], list[Row]]:
    """All sequences, for training and for validation."""
    lengths = range(1, max_len + 1)
    rows = list(chain.from_iterable(product(range(len(LETTERS)), repeat=n) for n in lengths))
    codes, _ = pad_right(rows, -1)
    marked = list(zip(rows, is_validation(hash_rows(codes.numpy())).tolist(), strict=True))
    return [row for row, kept in marked if not kept], [row for row, kept in marked if kept]


def _draw(rows: Sequence[Row], n: int, seed: int) -> list[Row]:
    """n sequences: all lengths are equally likely, and so are all sequences of a length."""
    by_length = [list(group) for _, group in groupby(rows, key=len)]
    numbers = draw_bits(seed, "sequences", np.arange(n)[:, None], np.arange(2))
    lengths = choose_below(len(by_length), numbers[:, 0])
    indices = choose_below(np.array([len(group) for group in by_length])[lengths], numbers[:, 1])
    return [by_length[i][j] for i, j in zip(lengths.tolist(), indices.tolist(), strict=True)]


def _select(examples: Batch, rows: Tensor | slice) -> Batch:
    """These rows of all examples, cut to the longest of them."""
    assert examples.token_mask is not None
    longest = int(examples.token_mask[rows].sum(dim=1).max())
    parts = (examples.inputs, examples.targets, examples.token_mask)
    return Batch(*(part[rows][:, :longest] for part in parts))


def _format_error(error: float) -> str:
    """0.0123; of smaller errors the first digit, 7e-07."""
    return f"{error:.0e}" if 0 < error < 5e-5 else f"{error:.4f}"
