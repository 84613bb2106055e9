"""Sentences in another language, by either translator: recurrent or a transformer.

While it learns, the model is given all words of the right answer before the one it predicts
(teacher forcing). How well it translates is another question, asked by letting it write on its own,
the likeliest word each time: val_exact is the share of sentences without any mistake, and for real
languages, where an answer can be good and differ, val_bleu compares groups of up to four words
(Papineni et al. 2002; computed by sacrebleu, on its scale of 0 to 100).
"""

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.data.batch import IGNORE, Batch
from clearhead.data.pairs import GeneratedPairs, Pairs, pair_tokenizers, read_pairs
from clearhead.data.randomness import split
from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile, quote
from clearhead.models import Seq2Seq
from clearhead.models.model import at_rest
from clearhead.models.seq2seq import Seq2SeqConfig
from clearhead.shapes import check_choice, check_positive
from clearhead.training.answerers.translation import TranslationAnswerer
from clearhead.training.losses import mean_cross_entropy
from clearhead.training.tasks.task import DataConfig, Task

EVALUATED = 250  # sentences at once
N_SHOWN = 4
SPARE = 10  # tokens that a translation may be longer than the longest that was learned
LEVELS = ("words", "characters")

Pair = tuple[str, str]


@dataclass(frozen=True)
class TranslationData(DataConfig):
    """Generated dates or numbers in words and in digits, or a tab-separated file of sentences.

    language: "dates" or "numbers"; reverse: digits into words. level: tokens are "words" or
    "characters"; unless given, characters for generated pairs and words for a file. n_examples and
    n_validation are of generated pairs; of a file, `validation` is the share that is not learned
    from, and pairs with a side of more than `longest` tokens are left out. n_decoded: validation
    sentences that are translated at each evaluation.
    """

    path: str | None = None
    language: str = "dates"
    reverse: bool = False
    level: str | None = None
    n_examples: int = 40_000
    n_validation: int = 2_000
    validation: float = 0.1
    longest: int = 60
    n_decoded: int = 500
    seed: int = 0

    def check(self) -> None:
        check_choice("language", self.language, ("dates", "numbers"))
        if self.level is not None:
            check_choice("level", self.level, LEVELS)
        check_positive(n_examples=self.n_examples, n_validation=self.n_validation)
        check_positive(n_decoded=self.n_decoded, longest=self.longest)
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be between 0 and 1, got {self.validation}")

    def open(self) -> "TranslationTask":
        if self.path is None:
            return TranslationTask(self, *self._generated())
        pairs = read_pairs(self.path)
        if self.reverse:
            pairs = [(target, source) for source, target in pairs]
        if len({source for source, _ in pairs}) < 2:
            raise BadFile(
                f"{quote(self.path)} has one sentence to translate, but two or more different ones "
                f"are needed, some to learn from and some to measure; add pairs"
            )
        kept = split(pairs, seed=self.seed, share=self.validation, key=lambda pair: pair[0])
        return TranslationTask(self, *kept)

    def answerer(self, folder: Path) -> TranslationAnswerer:
        return TranslationAnswerer.load(folder)

    def _generated(self) -> tuple[list[Pair], list[Pair]]:
        learned, kept = (
            GeneratedPairs(self.language, self.seed, part, self.reverse).examples(range(n))
            for part, n in (("train", self.n_examples), ("validation", self.n_validation))
        )
        return learned, kept


class TranslationTask(Task):
    """Teacher forcing for a Seq2Seq."""

    answerer: TranslationAnswerer
    config_type = Seq2SeqConfig
    unit = "tokens"

    def __init__(self, data: TranslationData, learned: list[Pair], kept: list[Pair]) -> None:
        self.data, self.is_real = data, data.path is not None
        self.source, self.target = _tokenizers(data, learned, kept)
        self.train_pairs, self.train = self._fitting(learned, "training")
        self.validation_pairs, self.validation = self._fitting(kept, "validation")
        longest = max(map(len, self.train.target_rows))
        self.answerer = TranslationAnswerer(self.source, self.target, longest + SPARE)
        self.n_examples = len(self.train)
        if self.is_real:
            self.best_by = "val_bleu"
        lines = ("\t".join(pair) for pair in (*learned, *kept))
        self.fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _fitting(self, pairs: list[Pair], part: str) -> tuple[list[Pair], Pairs]:
        """The pairs that are not too long, and their ids."""
        rows = Pairs(pairs, self.source, self.target)
        both = zip(rows.source_rows, rows.target_rows, strict=True)
        lengths, most = [max(len(a), len(b)) for a, b in both], self.data.longest
        fitting = [pair for pair, n in zip(pairs, lengths, strict=True) if n <= most]
        if not fitting:
            raise ValueError(
                f"every pair of the {part} part has a side of more than data.longest={most} "
                f"tokens; data.longest={min(lengths)} would keep the shortest, "
                f"data.longest={max(lengths)} all"
            )
        same = len(fitting) == len(pairs)
        return fitting, rows if same else Pairs(fitting, self.source, self.target)

    @property
    def learned_from(self) -> str:
        return f"{self.n_examples:,} sentences with their translations"

    @property
    def measured_on(self) -> str:
        n, few = len(self.validation), min(len(self.validation), self.data.n_decoded)
        return f"{n:,} other sentences, the first {few:,} of which it translated on its own"

    def sizes(self, config: Seq2SeqConfig) -> dict[str, Any]:
        if not hasattr(config, "max_len"):
            return {}
        return {"max_len": max(config.max_len, self.train.max_len, self.validation.max_len)}

    def overfit(self, n: int) -> Self:
        check_positive(n=n)
        self.train_pairs = self.validation_pairs = self.train_pairs[:n]
        self.train = self.validation = Pairs(self.train_pairs, self.source, self.target)
        self.n_examples = len(self.train)
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Every pair once, those of like length in one batch."""
        return self.train.bucketed(batch_size, seed=seed, epoch=epoch).plans

    def batch(self, plan: Sequence[int]) -> Batch:
        return self.train.batch(plan)

    def loss(self, model: Seq2Seq, batch: Batch) -> Tensor:
        assert batch.source is not None
        return mean_cross_entropy(
            model(batch.source, batch.inputs, batch.source_mask), batch.targets
        )

    # How well it goes

    def evaluate(self, model: Seq2Seq) -> dict[str, float]:
        """The loss of all validation pairs, and what the first n_decoded are translated to."""
        answers = self._written(model)
        right = [row[1:] for row in self.validation.target_rows[: len(answers)]]
        pairs = zip(answers, right, strict=True)
        n_exact = sum(a == b and self.target.unk_id not in b for a, b in pairs)
        measures = {"val_loss": self._loss(model), "val_exact": n_exact / len(answers)}
        if self.is_real:
            said = [self.answerer.text_of(row) for row in answers]
            measures["val_bleu"] = bleu(said, [p[1] for p in self.validation_pairs[: len(said)]])
        return measures

    def _loss(self, model: Seq2Seq) -> float:
        total, n = 0.0, 0
        for places in _in_order(self.validation.lengths):
            batch = self.validation.batch(places)
            n_targets = int((batch.targets != IGNORE).sum())
            with at_rest(model):
                mean = self.loss(model, batch.to(model.device))
            total, n = total + float(mean) * n_targets, n + n_targets
        return total / n

    def _written(self, model: Seq2Seq) -> list[list[int]]:
        """The greedy translation of the first validation sentences, each up to its end."""
        device = model.device
        lengths = self.validation.lengths[: self.data.n_decoded]
        written: dict[int, list[int]] = {}
        for places in _in_order(lengths):
            batch = self.validation.batch(places).to(device)
            assert batch.source is not None
            most = self.answerer.most_tokens(model)
            rows = model.generate(batch.source, most, source_mask=batch.source_mask)
            written |= zip(places, map(self._up_to_end, rows.tolist()), strict=True)
        return [written[place] for place in range(len(lengths))]

    def _up_to_end(self, row: list[int]) -> list[int]:
        end = self.target.end_id
        return row[: row.index(end) + 1] if end in row else row

    def sample(self, model: Seq2Seq) -> str:
        """The first validation sentences, what they become, and what they should."""
        lines = []
        for source, right in self.validation_pairs[:N_SHOWN]:
            answer = self.answerer.predict(model, source)["answer"]
            lines.append(f"{source} → {answer} ({'right' if answer == right else right})")
        return "\n".join(lines)

    def next_command(self, run: Path) -> str:
        sentence = self.validation_pairs[0][0]
        return f"clearhead predict {shlex.quote(str(run))} {shlex.quote(sentence)}"


def bleu(answers: Sequence[str], right: Sequence[str]) -> float:
    """BLEU of these translations, from 0 to 100."""
    try:
        from sacrebleu import corpus_bleu
    except ImportError:
        raise ImportError(
            "val_bleu needs sacrebleu, which is not installed; run pip install sacrebleu"
        ) from None
    return float(corpus_bleu(list(answers), [list(right)]).score)


def _tokenizers(
    data: TranslationData, learned: list[Pair], kept: list[Pair]
) -> tuple[Tokenizer, Tokenizer]:
    """Words are those of the training part; an alphabet is known as a whole."""
    level = data.level or ("characters" if data.path is None else "words")
    known = learned if level == "words" else [*learned, *kept]
    return pair_tokenizers(known, source=level, target=level)


def _in_order(lengths: Sequence[int]) -> Iterator[list[int]]:
    """All places, those of like length together."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for start in range(0, len(order), EVALUATED):
        yield order[start : start + EVALUATED]
