"""The next token of a token file, which may be larger than the memory.

    clearhead data pack books.txt
    clearhead train shakespeare-char data.path=books.tokens

As for a text in memory, the first 90 % are for training, the last 10 % for validation, and each
epoch cuts the training part into windows, starting at another offset, and takes every window once.
Their random order is computed when it is needed (data/shuffling.py), and a batch reads its own
windows alone. Validation reads windows from the whole validation part, but not all of them.
"""

from typing import Self

import torch
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.data.randomness import choose_below, draw_bits
from clearhead.data.shuffling import EvenPlans, shuffle_indices
from clearhead.data.token_file import TokenFile
from clearhead.files.reading import quote
from clearhead.models import GPT
from clearhead.training.tasks.characters import (
    EVAL_BATCH,
    N_OPENING,
    CharacterData,
    CharacterPredictor,
    NextTokenTask,
)
from clearhead.training.tasks.task import Plan

EVAL_TOKENS = 1 << 17  # at most, of the validation part


class TokenFileTask(NextTokenTask):
    """Next-token prediction in a token file."""

    def __init__(self, data: CharacterData) -> None:
        self.data, self.tokens = data, TokenFile(str(data.path))
        self.tokenizer = self.tokens.load_tokenizer()
        self.predictor = CharacterPredictor(self.tokenizer)
        n_train = int(len(self.tokens) * (1 - data.validation))
        self.train, self.validation = range(n_train), range(n_train, len(self.tokens))  # places
        T = self.max_len = data.context
        if min(len(self.train), len(self.validation)) <= T:
            raise ValueError(
                f"{quote(self.tokens.path)} has {len(self.tokens):,} tokens, too few for windows "
                f"of {T}; pack a longer text or take a smaller data.context"
            )
        self.n_examples = _count_windows(self.train, T)
        self.fingerprint = self.tokens.fingerprint
        windows = f"{self.n_examples:,} windows of {T} tokens"
        self.learned_from = f"{windows}, cut at other places in every epoch"
        n, last = f"{len(self.eval_starts):,}", f"{len(self.validation):,}"
        self.measured_on = f"{n} windows of the last {last} tokens, which it did not learn from"

    @property
    def opening(self) -> Tensor:
        n = min(N_OPENING, len(self.validation))
        return torch.from_numpy(self.tokens.read(self.validation.start, n))

    @property
    def eval_starts(self) -> list[int]:
        """The starts of the windows to evaluate, evenly spread over the validation part."""
        T, n = self.data.context, _count_windows(self.validation, self.data.context)
        n_chosen = min(n, max(1, EVAL_TOKENS // T))
        return [self.validation.start + T * (i * n // n_chosen) for i in range(n_chosen)]

    def overfit(self, n: int) -> Self:
        self.train = self.validation = self.train[: n * self.data.context + 1]
        self.n_examples = _count_windows(self.train, self.data.context)
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> EvenPlans:
        """Where the windows of each batch start; only those that are asked for are computed."""
        T, n = self.data.context, self.n_examples
        room = len(self.train) - n * T  # ≥ 1: the offsets at which all windows fit
        offset = int(choose_below(min(room, T), draw_bits(seed, "windows", epoch))[0])

        def take(places: range) -> list[int]:
            starts = offset + T * shuffle_indices(places, n, seed=seed, epoch=epoch)
            return [int(start) for start in starts]

        return EvenPlans(n, batch_size, take)

    def batch(self, plan: Plan) -> Batch:
        ids = torch.from_numpy(self.tokens.read_windows(plan, self.data.context + 1))
        return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())

    def evaluate(self, model: GPT) -> dict[str, float]:
        """The mean over the windows of `eval_starts`."""
        starts = self.eval_starts
        parts = (starts[i : i + EVAL_BATCH] for i in range(0, len(starts), EVAL_BATCH))
        return {"val_loss": self.mean_loss(model, map(self.batch, parts))}


def _count_windows(places: range, length: int) -> int:
    """The windows of a part, each with a token after its last."""
    return (len(places) - 1) // length
