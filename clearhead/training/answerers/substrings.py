"""haystack|needle → yes or no, by the one logit of [CLS], the first token."""

from pathlib import Path
from typing import Any, Self

import torch

from clearhead.data.tokenizers import CharTokenizer
from clearhead.models import SequenceClassifier
from clearhead.models.model import at_rest
from clearhead.training.answerers.answerer import TOKENIZER, TextAnswerer


class SubstringAnswerer(TextAnswerer):
    """Says whether the needle occurs."""

    tokenizer: CharTokenizer

    def __init__(self, tokenizer: CharTokenizer) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""
        return cls(CharTokenizer.load(folder / TOKENIZER))

    @property
    def decided(self) -> dict[str, Any]:
        return {"d_input": self.tokenizer.vocab_size, "d_output": 1}

    def predict(self, model: SequenceClassifier, text: str) -> dict[str, Any]:
        """text: haystack|needle."""
        haystack, bar, needle = text.partition("|")
        if not bar or not haystack or not needle:
            raise ValueError(f"the input must be written haystack|needle, got {text!r:.80}")
        ids = torch.tensor([self.tokenizer.encode(text)])
        with at_rest(model):
            logit = model(ids.to(model.device))[0, 0, 0]
        return {
            "input": text,
            "answer": "yes" if logit > 0 else "no",
            "probability": float(logit.abs().sigmoid()),  # of this answer
        }
