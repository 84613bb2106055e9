"""Letters → what the smallest transformer makes of them, and how far it is from the rule.

    identity    ABCC → ABCC             each token as it is
    first       CAC  → CCC              each token as the first one
    unique      CLS ABB → +1 +1 −1 −1   +1 for a token that occurs once, −1 for a repeated one

A token is a one-hot row.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from clearhead.data.batch import Batch, pad_right
from clearhead.models.model import at_rest
from clearhead.models.smallest import TorchTransformer
from clearhead.training.answerers.answerer import Answerer

RULES = ("identity", "first", "unique")
LETTERS = "ABC"
CLS = len(LETTERS)  # the row after those of the letters

Row = tuple[int, ...]


class SequenceAnswerer(Answerer):
    """Knows the rule; sequences have up to max_len letters."""

    files = ()

    def __init__(self, rule: str, max_len: int) -> None:
        self.rule, self.max_len = rule, max_len

    @property
    def decided(self) -> dict[str, Any]:
        if self.rule == "unique":
            return {"d_input": CLS + 1, "d_v": 1}
        return {"d_input": CLS, "d_v": CLS}

    def examples(self, rows: Sequence[Row]) -> Batch:
        """Sequences of letters as one-hot rows, with the right answers."""
        if self.rule == "unique":
            rows = [(CLS, *row) for row in rows]
        codes, real = pad_right(rows, 0)
        inputs = one_hot(codes, self.decided["d_input"]).float()
        if self.rule == "first":
            return Batch(inputs, inputs[:, :1].expand_as(inputs), real)
        if self.rule == "unique":
            counts = (inputs * real[..., None]).sum(dim=1, keepdim=True)  # (B, 1, letters)
            repeated = (inputs * counts).sum(dim=-1, keepdim=True) > 1  # (B, T, 1)
            return Batch(inputs, torch.where(repeated, -1.0, 1.0), real)
        return Batch(inputs, inputs, real)

    def read(self, text: str) -> Batch:
        """A sequence that is written in letters, such as CAC, with its right answer."""
        if not text or not set(text) <= set(LETTERS) or len(text) > self.max_len:
            raise ValueError(
                f"the input must be 1 to {self.max_len} of the letters A, B and C, got {text!r:.80}"
            )
        return self.examples([tuple(LETTERS.index(letter) for letter in text)])

    def predict(self, model: TorchTransformer, text: str) -> dict[str, Any]:
        """text: letters such as CAC. error: how far the worst number is from the right one."""
        example = self.read(text).to(model.device)
        with at_rest(model):
            answer = model(example.inputs)[0]
        return {
            "input": text,
            "answer": self._spelled(answer),
            "error": float((answer - example.targets[0]).abs().max()),
        }

    def _spelled(self, answer: Tensor) -> str:
        """Numbers (T, d_v) as the nearest right answer: letters, or a sign for each letter."""
        if self.rule == "unique":
            return " ".join("+1" if number > 0 else "−1" for number in answer[1:, 0])
        return "".join(LETTERS[i] for i in answer.argmax(dim=-1))

    def save(self, folder: Path) -> None:
        """Nothing: letters need no tokenizer."""
