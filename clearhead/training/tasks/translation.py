"""Sentences in another language, by either translator: recurrent or a transformer.

In training the model is given all words of the right answer before the one it predicts (teacher
forcing). How well it translates is measured by letting it write on its own, by greedy decoding:
val_exact is the share of sentences without any mistake. In real languages a good translation may
differ from the given one; there val_bleu compares groups of up to four words (Papineni et al. 2002;
computed by sacrebleu, on its scale of 0 to 100).
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.data.pairs import GeneratedPairs, Pair, Pairs, pair_tokenizers, read_pairs
from clearhead.data.randomness import split
from clearhead.data.tokenizers.word_rules import VERSION, check_version
from clearhead.files.reading import BadFile, quote
from clearhead.models import Seq2Seq
from clearhead.models.seq2seq import Seq2SeqConfig
from clearhead.shapes import check_choice, check_positive
from clearhead.training.losses import mean_cross_entropy
from clearhead.training.tasks.task import DataConfig, Task, hash_text
from clearhead.training.tasks.translation_predictor import TranslationPredictor

EVAL_BATCH = 250  # sentences
N_SHOWN = 4
SPARE = 10  # tokens by which a translation may exceed the longest training target
LEVELS = ("words", "characters")


@dataclass(frozen=True)
class TranslationData(DataConfig):
    """Generated dates or numbers in words and in digits, or a tab-separated file of sentences.

    language: "dates" or "numbers"; reverse: digits into words. level: tokens are "words" or
    "characters"; unless given, characters for generated pairs and words for a file. n_examples and
    n_validation count generated pairs; of a file, `validation` is the share that is not learned
    from, and pairs with a side of more than `longest` tokens are left out. n_decoded: validation
    sentences that are translated at each evaluation. word_rules: the version of the rules that
    split words.
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
    word_rules: int = VERSION

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Runs of earlier releases name no word_rules: if they have words, by the first."""
        if isinstance(values, Mapping):
            level = values.get("level") or ("characters" if values.get("path") is None else "words")
            values = {"word_rules": 1 if level == "words" else VERSION, **values}
        return super().from_dict(values)

    def check(self) -> None:
        check_choice("language", self.language, ("dates", "numbers"))
        if self.level is not None:
            check_choice("level", self.level, LEVELS)
        check_positive(n_examples=self.n_examples, n_validation=self.n_validation)
        check_positive(n_decoded=self.n_decoded, longest=self.longest)
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be between 0 and 1, got {self.validation}")
        check_version("word_rules", self.word_rules)

    def open(self) -> "TranslationTask":
        return TranslationTask(self, *(self._generate() if self.path is None else self._read()))

    def _generate(self) -> list[list[Pair]]:
        """Training and validation pairs."""
        return [
            GeneratedPairs(self.language, self.seed, part, self.reverse).examples(range(n))
            for part, n in (("train", self.n_examples), ("validation", self.n_validation))
        ]

    def _read(self) -> tuple[list[Pair], list[Pair]]:
        """Training and validation pairs of the file; no source sentence is in both."""
        pairs = read_pairs(str(self.path))
        if self.reverse:
            pairs = [(target, source) for source, target in pairs]
        if len({source for source, _ in pairs}) < 2:
            raise BadFile(
                f"{quote(self.path)} has one sentence to translate, but two or more different ones "
                f"are needed, some to learn from and some to measure; add pairs"
            )
        return split(pairs, seed=self.seed, share=self.validation, key=lambda pair: pair[0])

    def load_predictor(self, folder: Path) -> "TranslationPredictor":
        return TranslationPredictor.load(folder)

    def describe_unfamiliar(
        self, predictor: "TranslationPredictor", model: Any, text: str
    ) -> str | None:
        if self.path is None:
            pairs = GeneratedPairs(self.language, self.seed, reverse=self.reverse)
            if pairs.has_form_of(text):
                return None
            return (
                f"the input is written like none of the {self.language} of training, such as "
                f"{pairs[0][0]!r}"
            )
        ids = predictor.source.encode(text)
        if unknown := sum(token == predictor.source.unk_id for token in ids):
            return f"{unknown} of {len(ids)} tokens of the input did not occur in training"
        if len(ids) > self.longest:
            return f"the input has {len(ids)} tokens, but those of training had {self.longest}"
        return None


class TranslationTask(Task):
    """Teacher forcing for a Seq2Seq."""

    predictor: TranslationPredictor
    config_type = Seq2SeqConfig
    unit = "tokens"

    def __init__(self, data: TranslationData, train: list[Pair], validation: list[Pair]) -> None:
        self.data, self.is_real = data, data.path is not None
        level = data.level or ("words" if self.is_real else "characters")
        # Words are those of the training part; an alphabet is known as a whole.
        known = train if level == "words" else [*train, *validation]
        self.source, self.target = pair_tokenizers(
            known, source=level, target=level, word_rules=data.word_rules
        )
        self.train_pairs, self.train = self._encode(train, "training")
        self.validation_pairs, self.validation = self._encode(validation, "validation")
        longest = max(map(len, self.train.target_rows))
        self.predictor = TranslationPredictor(self.source, self.target, longest + SPARE)
        self.n_examples = len(self.train)
        self.max_len = max(self.train.max_len, self.validation.max_len)
        if self.is_real:
            self.best_by = "val_bleu"
        self.fingerprint = hash_text("\n".join(map("\t".join, (*train, *validation))))
        self.learned_from = f"{self.n_examples:,} sentences with their translations"
        n, few = len(self.validation), min(len(self.validation), data.n_decoded)
        translated = f"the first {few:,} of which it translated on its own"
        self.measured_on = f"{n:,} other sentences, {translated}"

    def _encode(self, pairs: list[Pair], part: str) -> tuple[list[Pair], Pairs]:
        """The pairs that are not too long, as text and as ids."""
        rows, most = Pairs(pairs, self.source, self.target), self.data.longest
        both = zip(rows.source_rows, rows.target_rows, strict=True)
        lengths = [max(len(a), len(b)) for a, b in both]
        fitting = [pair for pair, n in zip(pairs, lengths, strict=True) if n <= most]
        if not fitting:
            raise ValueError(
                f"every pair of the {part} part has a side of more than data.longest={most} "
                f"tokens; data.longest={min(lengths)} would keep the shortest, "
                f"data.longest={max(lengths)} all"
            )
        is_whole = len(fitting) == len(pairs)
        return fitting, rows if is_whole else Pairs(fitting, self.source, self.target)

    def overfit(self, n: int) -> Self:
        check_positive(n=n)
        self.train_pairs = self.validation_pairs = self.train_pairs[:n]
        self.train = self.validation = Pairs(self.train_pairs, self.source, self.target)
        self.n_examples, self.max_len = len(self.train), self.train.max_len
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Every pair once, those of like length in one batch."""
        return self.train.bucketed_batches(batch_size, seed=seed, epoch=epoch).plans

    def batch(self, plan: Sequence[int]) -> Batch:
        return self.train.batch(plan)

    def loss(self, model: Seq2Seq, batch: Batch) -> Tensor:
        assert batch.source is not None
        logits = model(batch.source, batch.inputs, batch.source_mask)
        return mean_cross_entropy(logits, batch.targets)

    def evaluate(self, model: Seq2Seq) -> dict[str, float]:
        """The loss of all validation pairs, and how well the first n_decoded are translated."""
        answers = self._translate(model)
        right = [row[1:] for row in self.validation.target_rows[: len(answers)]]
        pairs = zip(answers, right, strict=True)
        n_exact = sum(a == b and self.target.unk_id not in b for a, b in pairs)
        batches = map(self.validation.batch, _sort_by_length(self.validation.lengths))
        loss = self.mean_loss(model, batches)
        metrics = {"val_loss": loss, "val_exact": n_exact / len(answers)}
        if self.is_real:
            texts = [self.predictor.decode(row) for row in answers]
            references = [target for _, target in self.validation_pairs[: len(texts)]]
            metrics["val_bleu"] = bleu(texts, references)
        return metrics

    def _translate(self, model: Seq2Seq) -> list[list[int]]:
        """The greedy translation of the first validation sentences, each up to its <end>.

        <unk> is not forbidden here: the metrics measure what the model itself takes for likeliest.
        """
        lengths, end = self.validation.lengths[: self.data.n_decoded], self.target.end_id
        found: dict[int, list[int]] = {}
        for rows in _sort_by_length(lengths):
            batch = self.validation.batch(rows).to(model.device)
            assert batch.source is not None
            most = self.predictor.most_tokens(model)
            written = model.generate(batch.source, most, source_mask=batch.source_mask).tolist()
            whole = (ids[: ids.index(end) + 1] if end in ids else ids for ids in written)
            found |= zip(rows, whole, strict=True)
        return [found[row] for row in range(len(lengths))]

    def sample(self, model: Seq2Seq) -> str:
        """The first validation sentences, their translations, and the right ones."""
        lines = []
        for source, right in self.examples(N_SHOWN):
            answer = self.predictor.predict(model, source)["answer"]
            lines.append(f"{source} → {answer} ({'right' if answer == right else right})")
        return "\n".join(lines)

    def next_command(self, run: Path) -> str:
        return shlex.join(["clearhead", "predict", str(run), self.validation_pairs[0][0]])

    def examples(self, n: int) -> list[Pair]:
        return self.validation_pairs[:n]

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        return [(source, f"“{source}”") for source, _ in self.examples(2)]


def bleu(answers: Sequence[str], right: Sequence[str]) -> float:
    """BLEU of these translations, from 0 to 100."""
    try:
        from sacrebleu import corpus_bleu
    except ImportError:
        raise ImportError(
            "val_bleu needs sacrebleu, which is not installed; run pip install sacrebleu"
        ) from None
    return float(corpus_bleu(list(answers), [list(right)]).score)


def _sort_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """All rows, in batches of like length."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for start in range(0, len(order), EVAL_BATCH):
        yield order[start : start + EVAL_BATCH]
