"""The next word of a speech.

A play is split into its speeches; some whole speeches are kept for validation. Several speeches
share a row of tokens and do not attend to each other, so little work is done on padding; a speech
longer than a row continues in the next. In any packing, each word and the end of each speech is
predicted exactly once, so the loss can be compared with that of n-grams: `baseline`.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.attention import Mask
from clearhead.data.batch import Batch, pad_left
from clearhead.data.dialogue import Dialogue, read_speeches
from clearhead.data.fetching.catalogue import find_data
from clearhead.data.packing import pack
from clearhead.data.randomness import split
from clearhead.data.tokenizers import WordTokenizer
from clearhead.data.tokenizers.word_rules import VERSION, check_version
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.generation import generate, pack_if_it_pays
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import evaluation_mode
from clearhead.models.ngrams import find_best_order
from clearhead.shapes import check_positive
from clearhead.training.losses_fast import vocabulary_loss
from clearhead.training.tasks.task import TOKENIZER, DataConfig, Task, TextPredictor, hash_text

EVAL_BATCH = 16  # rows
N_PROMPTS = 3


@dataclass(frozen=True)
class DialogueData(DataConfig):
    """A play as a text file, blank lines between its speeches; without a path, Shakespeare's plays.

    only_spoken: leave out blocks without a speaker's name, such as headings. context: tokens in a
    row; min_count: how often a word must occur to be in the vocabulary. validation: the share of
    the speeches that is not learned from, chosen by split_seed. sample_length: the most words that
    the model adds to the beginning of a speech, in samples and in answers. word_rules: the version
    of the rules that split words.
    """

    path: str | None = None
    only_spoken: bool = False
    context: int = 128
    min_count: int = 2
    validation: float = 0.1
    split_seed: int = 0
    sample_length: int = 60
    word_rules: int = VERSION

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Runs of earlier releases name no word_rules: they have the first."""
        if isinstance(values, Mapping):
            values = {"word_rules": 1, **values}
        return super().from_dict(values)

    def check(self) -> None:
        check_positive(min_count=self.min_count, sample_length=self.sample_length)
        check_version("word_rules", self.word_rules)
        if self.context < 2 or not 0 < self.validation < 1:
            raise ValueError(
                f"context must be at least 2 and validation between 0 and 1, "
                f"got {self.context} and {self.validation}"
            )

    def open(self) -> "DialogueTask":
        if self.path is None:
            return DialogueTask(self, read_shakespeare())
        speeches = read_speeches(self.path, only_spoken=self.only_spoken)
        if len(set(speeches)) < 2:
            raise BadFile(
                f"{quote(self.path)} holds one speech, but two or more different ones are needed, "
                f"some to learn from and some to measure; write blank lines between them"
            )
        return DialogueTask(self, speeches)

    def load_predictor(self, folder: Path) -> "DialoguePredictor":
        return DialoguePredictor.load(folder, self.sample_length)

    def describe_unfamiliar(
        self, predictor: "DialoguePredictor", model: Any, text: str
    ) -> str | None:
        ids = predictor.encode_prompt(text)[1:]  # without <start>
        unknown = sum(token == predictor.tokenizer.unk_id for token in ids)
        if not unknown:
            return None
        return f"{unknown} of the {len(ids)} words of the input did not occur in training"


def read_shakespeare() -> list[str]:
    """The speeches of all plays that were fetched."""
    try:
        files = sorted(find_data("shakespeare").glob("*.txt"))
    except BadFile as fault:
        raise BadFile(f"{fault}, or give a play of your own: data.path=play.txt") from None
    return [speech for file in files for speech in read_speeches(file, only_spoken=True)]


class DialoguePredictor(TextPredictor):
    """Continues a speech by at most n_words words."""

    tokenizer: WordTokenizer

    def __init__(self, tokenizer: WordTokenizer, n_words: int) -> None:
        if tokenizer.pad_id is None or tokenizer.end_id is None or tokenizer.unk_id is None:
            raise ValueError("the tokenizer must have <end>, which ends a speech")
        self.tokenizer, self.n_words = tokenizer, n_words
        self.pad_id, self.end_id = tokenizer.pad_id, tokenizer.end_id
        self.forbid = [tokenizer.unk_id]

    @classmethod
    def load(cls, folder: Path, n_words: int) -> Self:
        """The predictor that `save` wrote."""
        with prefix_errors(folder / TOKENIZER):
            return cls(WordTokenizer.load(folder / TOKENIZER), n_words)

    def predict(self, model: GPT, text: str) -> dict[str, Any]:
        """The greedy continuation of a speech, and the probability of its first word."""
        ids = self.encode_prompt(text)
        if len(ids) >= model.config.max_len:
            raise ValueError(
                f"the input has {len(ids)} tokens, but the model reads {model.config.max_len} and "
                f"needs room for an answer; shorten it"
            )
        with evaluation_mode(model):
            probs = model(torch.tensor([ids], device=model.device))[0, -1].softmax(-1)
        probs[list(self.forbid)] = 0.0  # never written
        return {
            "input": text,
            "answer": self.write(model, [ids], after=len(ids))[0],
            "probability": float(probs.max()),
        }

    def encode_prompt(self, text: str) -> list[int]:
        """<start> and the words, without <end>, so that the speech can continue."""
        return self.tokenizer.encode(text)[:-1]

    def write(
        self, model: GPT, prompts: Sequence[list[int]], *, after: int = 0, **sampling: float
    ) -> list[str]:
        """The speeches that begin with these prompts, as text, from the token `after` on."""
        tokens, token_mask = pad_left(prompts, self.pad_id)
        n_tokens = min(self.n_words, model.config.max_len - tokens.size(1))
        with evaluation_mode(model):
            ids = generate(
                pack_if_it_pays(model, n_tokens, len(prompts)),
                tokens.to(model.device),
                n_tokens,
                token_mask=token_mask.to(model.device),
                stop=[self.end_id],
                forbid=self.forbid,
                seed=0,
                **sampling,  # type: ignore[arg-type]
            )
        return [self.tokenizer.detokenize(row[after:]).strip("\n") for row in ids]


class DialogueTask(Task):
    """Next-word prediction by a GPT. A plan holds the numbers of the speeches of each row."""

    predictor: DialoguePredictor
    config_type = GPTConfig
    unit = "tokens"
    has_text_samples = True
    can_compile = False

    def __init__(self, data: DialogueData, speeches: Sequence[str]) -> None:
        self.data = data
        train, validation = split(speeches, seed=data.split_seed, share=data.validation)
        self.tokenizer = WordTokenizer.of(
            train, min_count=data.min_count, keep_newlines=True, end=True, rules=data.word_rules
        )
        self.predictor = DialoguePredictor(self.tokenizer, data.sample_length)
        self.train_speeches, self.train = train, self._encode(train)
        self.validation_speeches, self.validation = validation, self._encode(validation)
        self.n_examples = len(self.train)
        self.max_len = data.context
        self.fingerprint = hash_text("\n\n".join(speeches))
        packed = f"packed into rows of {data.context} tokens"
        self.learned_from = f"{len(train):,} speeches, {packed}"
        self.measured_on = f"{len(validation):,} other speeches, which it did not learn from"

    def _encode(self, speeches: Sequence[str]) -> Dialogue:
        return Dialogue(speeches, self.tokenizer, max_len=self.data.context, long="split")

    def overfit(self, n: int) -> Self:
        """The n longest speeches that fit a row.

        Which of the n speeches begins can only be guessed, which costs log n for each speech: for
        ten speeches of 20 words the mean loss stays above 0.11, of 200 words above 0.011.
        """
        check_positive(n=n)
        lengths = {s: len(self.tokenizer.encode(s)) for s in self.train_speeches}
        fitting = [s for s in self.train_speeches if lengths[s] <= self.data.context]
        speeches = sorted(fitting, key=lambda s: -lengths[s])[:n]
        if not speeches:
            raise ValueError(
                f"no speech is as short as data.context={self.data.context} tokens; take more"
            )
        self.train_speeches = self.validation_speeches = speeches
        self.train = self.validation = self._encode(speeches)
        self.n_examples = len(self.train)
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[Any]]:
        """batch_size rows in a batch, in each of them the numbers of its speeches."""
        row_length = self.data.context
        return self.train.packed_batches(row_length, batch_size, seed=seed, epoch=epoch).plans

    def batch(self, plan: Sequence[Any]) -> Batch:
        return self.train.packed_batch(plan, self.data.context)

    def loss(self, model: GPT, batch: Batch) -> Tensor:
        assert batch.segments is not None
        mask = Mask.segments(batch.segments)
        x = model.hidden(batch.inputs, mask=mask, positions=batch.positions)
        head, cap = model.head, model.config.soft_cap
        return vocabulary_loss(x, head.weight, batch.targets, bias=head.bias, soft_cap=cap)

    def evaluate(self, model: GPT) -> dict[str, float]:
        """The mean over all words and ends of the validation speeches."""
        rows = pack(self.validation.lengths, self.data.context)
        parts = (rows[i : i + EVAL_BATCH] for i in range(0, len(rows), EVAL_BATCH))
        batches = (self.validation.packed_batch(part, self.data.context) for part in parts)
        loss = self.mean_loss(model, batches)
        return {"val_loss": loss, "val_perplexity": math.exp(min(loss, 700.0))}

    def sample(self, model: GPT) -> str:
        """Speeches of a few people of the validation part."""
        lines = _first_lines(self.validation_speeches)[:N_PROMPTS]
        prompts = [self.predictor.encode_prompt(line) for line in lines]
        return "\n\n".join(self.predictor.write(model, prompts, temperature=0.8, top_p=0.95))

    def next_command(self, run: Path) -> str:
        speaker = _first_lines(self.validation_speeches)[0].strip()
        command = shlex.join(["clearhead", "generate", str(run), "--prompt", speaker])
        return f"{command} --temperature 0.8"

    def baseline(self) -> dict[str, float]:
        parts = (self.train_speeches, self.validation_speeches)
        train, validation = map(self.tokenizer.encode_batch, parts)
        order, loss = find_best_order(train, validation, self.tokenizer.vocab_size)
        return {"order": order, "val_loss": loss, "val_perplexity": math.exp(loss)}

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        return [(sample, "what it wrote last")] if sample else []


def _first_lines(speeches: Sequence[str]) -> list[str]:
    """The different first lines of speeches, mostly names; of a long line the first words."""
    lines = (speech.partition("\n")[0] for speech in speeches)
    return list(dict.fromkeys(" ".join(line.split()[:5]) for line in lines))
