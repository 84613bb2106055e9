"""Translate a sentence, after training: TranslationPredictor is kept in the run folder."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch

from clearhead.data.tokenizers import Tokenizer, WordTokenizer, load_tokenizer
from clearhead.files.reading import prefix_errors
from clearhead.files.strict_json import write_json
from clearhead.generation import beam_search
from clearhead.models import Seq2Seq
from clearhead.shapes import check_at_most, check_positive
from clearhead.training.tasks.task import Predictor, read_values

SOURCE, TARGET, LENGTH = "source_tokenizer.json", "target_tokenizer.json", "translation.json"
MOST_TOKENS = 100_000  # that translation.json may allow a translation


class TranslationPredictor(Predictor):
    """Translates sentences into sentences of at most n_tokens."""

    files = (SOURCE, TARGET, LENGTH)

    def __init__(self, source: Tokenizer, target: Tokenizer, n_tokens: int) -> None:
        check_positive(n_tokens=n_tokens)
        check_at_most(MOST_TOKENS, n_tokens=n_tokens)
        self.source, self.target, self.n_tokens = source, target, n_tokens
        self.forbid = [] if target.unk_id is None else [target.unk_id]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        source, target = (load_tokenizer(folder / name) for name in (SOURCE, TARGET))
        values = read_values(folder / LENGTH, "n_tokens")
        with prefix_errors(folder / LENGTH):
            return cls(source, target, **values)

    def save(self, folder: Path) -> None:
        self.source.save(folder / SOURCE)
        self.target.save(folder / TARGET)
        write_json(folder / LENGTH, {"n_tokens": self.n_tokens})

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {
            "source_vocab_size": self.source.vocab_size,
            "target_vocab_size": self.target.vocab_size,
            **{name: getattr(self.target, name) for name in ("start_id", "end_id", "pad_id")},
        }

    def predict(self, model: Seq2Seq, text: str) -> dict[str, Any]:
        """The best translation that beam search finds, and its probability."""
        ids = self.source.encode(text)
        if model.max_len is not None and len(ids) > model.max_len:
            raise ValueError(
                f"the input has {len(ids)} tokens, but the model reads at most {model.max_len}; "
                f"shorten it"
            )
        source = torch.tensor([ids], device=model.device)
        found = beam_search(model, source, self.most_tokens(model), forbid=self.forbid)
        return {
            "input": text,
            "answer": self.decode(found.best[0].tolist()),
            "probability": math.exp(float(found.log_probs[0, 0])),
        }

    def most_tokens(self, model: Seq2Seq) -> int:
        """The length of the longest translation that this model may write."""
        return self.n_tokens if model.max_len is None else min(self.n_tokens, model.max_len)

    def decode(self, row: Sequence[int]) -> str:
        """Target tokens as people write them."""
        if isinstance(self.target, WordTokenizer):
            return self.target.detokenize(row)
        return self.target.decode(row)
