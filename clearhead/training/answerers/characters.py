"""The beginning of a text → its next character."""

from pathlib import Path
from typing import Any, Self

import torch

from clearhead.data.tokenizers import CharTokenizer
from clearhead.models import GPT
from clearhead.models.model import at_rest
from clearhead.training.answerers.answerer import TOKENIZER, TextAnswerer


class CharacterAnswerer(TextAnswerer):
    """Says which character comes next."""

    tokenizer: CharTokenizer

    def __init__(self, tokenizer: CharTokenizer) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""
        return cls(CharTokenizer.load(folder / TOKENIZER))

    @property
    def decided(self) -> dict[str, Any]:
        return {"vocab_size": self.tokenizer.vocab_size}

    def predict(self, model: GPT, text: str) -> dict[str, Any]:
        """The most likely next character; of a long text the end is read."""
        if not text:
            raise ValueError("the input is empty; give the beginning of a text")
        ids = torch.tensor([self.tokenizer.encode(text)[-model.config.max_len :]])
        with at_rest(model):
            probs = model(ids.to(model.device))[0, -1].softmax(-1)
        p, best = probs.max(-1)
        return {
            "input": text,
            "answer": self.tokenizer.decode(best[None]),
            "probability": float(p),
        }
