"""The beginning of a speech → how it goes on, up to its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch

from clearhead.data.batch import pad_left
from clearhead.data.tokenizers import WordTokenizer
from clearhead.files.reading import prefix_errors
from clearhead.generation import generate
from clearhead.models import GPT
from clearhead.models.model import at_rest
from clearhead.training.answerers.answerer import TOKENIZER, TextAnswerer


class DialogueAnswerer(TextAnswerer):
    """Writes speeches of at most so many new words."""

    tokenizer: WordTokenizer

    def __init__(self, tokenizer: WordTokenizer, n_words: int) -> None:
        if tokenizer.pad_id is None or tokenizer.end_id is None:
            raise ValueError("the tokenizer must have <end>, which ends a speech")
        self.tokenizer, self.n_words = tokenizer, n_words
        self.pad_id, self.end_id = tokenizer.pad_id, tokenizer.end_id

    @classmethod
    def load(cls, folder: Path, n_words: int) -> Self:
        """What `save` wrote."""
        with prefix_errors(folder / TOKENIZER):
            return cls(WordTokenizer.load(folder / TOKENIZER), n_words)

    @property
    def decided(self) -> dict[str, Any]:
        return {"vocab_size": self.tokenizer.vocab_size}

    def predict(self, model: GPT, text: str) -> dict[str, Any]:
        """How the speech goes on, the likeliest word each time, and how sure the first one is."""
        ids = self.prompt(text)
        if len(ids) >= model.config.max_len:
            raise ValueError(
                f"the input has {len(ids)} tokens, but the model reads {model.config.max_len} and "
                f"needs room for an answer; shorten it"
            )
        with at_rest(model):
            logits = model(torch.tensor([ids], device=model.device))
        return {
            "input": text,
            "answer": self.written(model, [ids], after=len(ids))[0],
            "probability": float(logits[0, -1].softmax(-1).max()),
        }

    def prompt(self, text: str) -> list[int]:
        """<start> and the words, without <end>: the speech goes on."""
        return self.tokenizer.encode(text)[:-1]

    def written(
        self, model: GPT, prompts: Sequence[list[int]], *, after: int = 0, **choice: float
    ) -> list[str]:
        """Speeches that begin so, as people write them, from a place on."""
        tokens, token_mask = pad_left(prompts, self.pad_id)
        device = model.device
        with at_rest(model):
            ids = generate(
                model,
                tokens.to(device),
                min(self.n_words, model.config.max_len - tokens.size(1)),
                token_mask=token_mask.to(device),
                stop=[self.end_id],
                seed=0,
                **choice,  # type: ignore[arg-type]
            )
        return [self.tokenizer.detokenize(row[after:]).strip("\n") for row in ids]
