"""The next word of a speech.

A play is cut into its speeches, of which some, whole, are kept for validation. Several speeches
share a row of tokens and do not see each other, so hardly any work is done on padding; a speech
longer than a row goes on in the next. Whatever the rows, each word and the end of each speech is
predicted once, which makes the loss comparable to that of counting: `baseline`.
"""

import hashlib
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.attention import Mask
from clearhead.data.batch import IGNORE, Batch
from clearhead.data.dialogue import Dialogue, read_speeches
from clearhead.data.fetching.catalogue import find_data
from clearhead.data.packing import pack
from clearhead.data.randomness import split
from clearhead.data.tokenizers import WordTokenizer
from clearhead.files.reading import BadFile, quote
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import at_rest
from clearhead.shapes import check_positive
from clearhead.training.answerers.dialogue import DialogueAnswerer
from clearhead.training.losses_fast import vocabulary_loss
from clearhead.training.ngrams import best_order
from clearhead.training.tasks.task import DataConfig, Task

EVALUATED = 16  # rows at once
N_PROMPTS = 3


@dataclass(frozen=True)
class DialogueData(DataConfig):
    """A play as a text file, blank lines between its speeches; without a path, Shakespeare's plays.

    only_spoken: leave out what no name stands above, such as headings. context: tokens in a row;
    min_count: how often a word must occur to be learned. validation: the share of the speeches that
    is not learned from, chosen by split_seed. sample_length: the most words that the model adds to
    the beginning of a speech, in samples and in answers.
    """

    path: str | None = None
    only_spoken: bool = False
    context: int = 128
    min_count: int = 2
    validation: float = 0.1
    split_seed: int = 0
    sample_length: int = 60

    def check(self) -> None:
        check_positive(min_count=self.min_count, sample_length=self.sample_length)
        if self.context < 2 or not 0 < self.validation < 1:
            raise ValueError(
                f"context must be at least 2 and validation between 0 and 1, "
                f"got {self.context} and {self.validation}"
            )

    def open(self) -> "DialogueTask":
        if self.path is None:
            return DialogueTask(self, shakespeare())
        speeches = read_speeches(self.path, only_spoken=self.only_spoken)
        if len(set(speeches)) < 2:
            raise BadFile(
                f"{quote(self.path)} holds one speech, but two or more different ones are needed, "
                f"some to learn from and some to measure; write blank lines between them"
            )
        return DialogueTask(self, speeches)

    def answerer(self, folder: Path) -> DialogueAnswerer:
        return DialogueAnswerer.load(folder, self.sample_length)


def shakespeare() -> list[str]:
    """The speeches of all plays that were fetched."""
    try:
        files = sorted(find_data("shakespeare").glob("*.txt"))
    except BadFile as fault:
        raise BadFile(f"{fault}, or give a play of your own: data.path=play.txt") from None
    return [speech for file in files for speech in read_speeches(file, only_spoken=True)]


class DialogueTask(Task):
    """Next-word prediction by a GPT. A plan names the speeches of each row of a batch."""

    answerer: DialogueAnswerer
    config_type = GPTConfig
    unit = "tokens"
    writes = True
    compiles = False

    def __init__(self, data: DialogueData, speeches: Sequence[str]) -> None:
        self.data = data
        learned, kept = split(speeches, seed=data.split_seed, share=data.validation)
        self.tokenizer = WordTokenizer.of(
            learned, min_count=data.min_count, keep_newlines=True, end=True
        )
        self.answerer = DialogueAnswerer(self.tokenizer, data.sample_length)
        self.train, self.validation = self._data(learned), self._data(kept)
        self.whole = learned, kept
        self.n_examples = len(self.train)
        self.fingerprint = hashlib.sha256("\n\n".join(speeches).encode()).hexdigest()

    def _data(self, speeches: Sequence[str]) -> Dialogue:
        return Dialogue(speeches, self.tokenizer, max_len=self.data.context, long="split")

    @property
    def learned_from(self) -> str:
        return f"{len(self.whole[0]):,} speeches, packed into rows of {self.data.context} tokens"

    @property
    def measured_on(self) -> str:
        return f"{len(self.whole[1]):,} other speeches, which it did not learn from"

    def sizes(self, config: GPTConfig) -> dict[str, Any]:
        return {"max_len": max(config.max_len, self.data.context)}

    def overfit(self, n: int) -> Self:
        """The n longest speeches that fit a row.

        Which of n it is can only be guessed at its start, and costs log n for each speech: of ten
        speeches of 20 words nobody reaches a mean below 0.11, of 200 words 0.011.
        """
        check_positive(n=n)
        fitting = [s for s in self.whole[0] if len(self.tokenizer.encode(s)) <= self.data.context]
        speeches = sorted(fitting, key=lambda s: -len(self.tokenizer.encode(s)))[:n]
        if not speeches:
            raise ValueError(
                f"no speech is as short as data.context={self.data.context} tokens; take more"
            )
        self.whole = speeches, speeches
        self.train = self.validation = self._data(speeches)
        self.n_examples = len(self.train)
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[Any]]:
        """batch_size rows in a batch, in each of them the numbers of its speeches."""
        return self.train.packed(self.data.context, batch_size, seed=seed, epoch=epoch).plans

    def batch(self, plan: Sequence[Any]) -> Batch:
        return self.train.packed_batch(plan, self.data.context)

    def loss(self, model: GPT, batch: Batch) -> Tensor:
        assert batch.segments is not None
        alone = Mask.segments(batch.segments)
        x = model.hidden(batch.inputs, mask=alone, positions=batch.positions)
        return vocabulary_loss(x, model.head.weight, batch.targets, soft_cap=model.config.soft_cap)

    def evaluate(self, model: GPT) -> dict[str, float]:
        """The mean over all words and ends of the validation speeches."""
        rows = pack(self.validation.lengths, self.data.context)
        total, n, device = 0.0, 0, model.device
        with at_rest(model):
            for start in range(0, len(rows), EVALUATED):
                batch = self.validation.packed_batch(
                    rows[start : start + EVALUATED], self.data.context
                )
                n_targets = int((batch.targets != IGNORE).sum())
                total += float(self.loss(model, batch.to(device))) * n_targets
                n += n_targets
        return {"val_loss": total / n, "val_perplexity": math.exp(min(total / n, 700.0))}

    def baseline(self) -> dict[str, float]:
        """What counting reaches on the same speeches and words, in its best order."""
        train, validation = (self.tokenizer.encode_batch(part) for part in self.whole)
        order, loss = best_order(train, validation, self.tokenizer.vocab_size)
        return {"order": order, "val_loss": loss, "val_perplexity": math.exp(loss)}

    def sample(self, model: GPT) -> str:
        """Speeches of a few people of the validation part."""
        lines = _first_lines(self.whole[1])[:N_PROMPTS]
        prompts = [self.answerer.prompt(line) for line in lines]
        return "\n\n".join(self.answerer.written(model, prompts, temperature=0.8, top_p=0.95))

    def next_command(self, run: Path) -> str:
        who = _first_lines(self.whole[1])[0].strip()
        named = f"{shlex.quote(str(run))} --prompt {shlex.quote(who)}"
        return f"clearhead generate {named} --temperature 0.8"


def _first_lines(speeches: Sequence[str]) -> list[str]:
    """The different first lines of speeches, mostly names; of a long one the first words."""
    lines = (speech.partition("\n")[0] for speech in speeches)
    return list(dict.fromkeys(" ".join(line.split()[:5]) for line in lines))
