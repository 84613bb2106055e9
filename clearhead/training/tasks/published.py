"""The rules of the smallest transformer, with the sequences in the order of the published exercise.

Berkeley's CS 182 seeds Python's `random`, NumPy and PyTorch with one number, builds the model, and
then draws one sequence for each step:

    n = numpy.random.randint(1, max_len + 1)
    letters = random.choices(["A", "B", "C"], k=n)

Here all sequences are drawn when the data are opened, from two generators of their own: so sequence
i depends on (seed, i) alone, a run can resume at any step, and the global generators of Python and
NumPy do not change. PyTorch's generator, seeded with training.seed, draws only the weights.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.models.smallest import TorchTransformer
from clearhead.shapes import check_count, check_whole
from clearhead.training.tasks.sequences import (
    LETTERS,
    Row,
    SequenceData,
    SequenceTask,
    split_sequences,
)
from clearhead.training.tasks.task import Plan


@dataclass(frozen=True)
class PublishedSequenceData(SequenceData):
    """As SequenceData; skipped: sequences that the exercise draws before it builds the model."""

    skipped: int = 0

    def check(self) -> None:
        super().check()
        check_whole("seed", self.seed, least=0, most=2**32 - 1)  # NumPy's limit
        check_count(skipped=self.skipped)

    def open(self) -> "PublishedSequenceTask":
        return PublishedSequenceTask(self)


class PublishedSequenceTask(SequenceTask):
    """The sequences in their order, and the weights as they are drawn.

    It is evaluated on all sequences, because those to learn from are drawn from all.
    """

    seeds_torch = True

    def __init__(self, data: PublishedSequenceData) -> None:
        n = data.skipped + data.n_examples
        rows = draw_published(n, data.max_len, data.seed)[data.skipped :]
        train, validation = split_sequences(data.max_len)
        everything = sorted([*train, *validation], key=len)
        self.set_examples(data, rows, everything)
        self.learned_from = f"{len(rows):,} sequences of up to {data.max_len} letters"
        self.measured_on = f"all {len(everything):,} sequences of that length"

    def initialise(self, model: TorchTransformer) -> TorchTransformer:
        """The weights stay as they were drawn."""
        return model

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Plan]:
        """The examples in their order, in every epoch."""
        starts = range(0, self.n_examples, batch_size)
        return [range(i, min(i + batch_size, self.n_examples)) for i in starts]


def draw_published(n: int, max_len: int, seed: int) -> list[Row]:
    """The first n sequences of the exercise after this seed; global generators stay as they are."""
    letters, lengths = random.Random(seed), np.random.RandomState(seed)
    choices = range(len(LETTERS))
    return [tuple(letters.choices(choices, k=lengths.randint(1, max_len + 1))) for _ in range(n)]
