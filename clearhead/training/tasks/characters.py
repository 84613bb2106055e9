"""The next character of a text, or the next of its byte pairs.

The first 90 % of the text are for training, the last 10 % for validation. Each epoch cuts the
training part into windows, starting at another offset, and takes every window once.

The text is in memory; token_files.py learns from one that is not.
"""

import shlex
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from clearhead.data.batch import Batch, plan_batches
from clearhead.data.fetching.catalogue import find_data
from clearhead.data.randomness import choose_below, draw_bits
from clearhead.data.token_header import is_token_file
from clearhead.data.tokenizers import BytePairTokenizer, CharTokenizer, Tokenizer, load_tokenizer
from clearhead.data.tokenizers.byte_pairs import FEWEST_TOKENS
from clearhead.files.reading import BadFile, quote
from clearhead.files.text import read_text
from clearhead.generation import generate, pack_if_it_pays
from clearhead.models import GPT, GPTConfig
from clearhead.models.model import evaluation_mode
from clearhead.models.ngrams import find_best_order
from clearhead.shapes import check_whole
from clearhead.training.losses import mean_cross_entropy
from clearhead.training.tasks.task import TOKENIZER, DataConfig, Task, TextPredictor, hash_text

EVAL_BATCH = 64  # windows
N_OPENING = 1000  # tokens of the validation part in which a prompt is looked for
PROMPT = "ROMEO:"


@dataclass(frozen=True)
class CharacterData(DataConfig):
    """A plain text file; without a path, Shakespeare's plays as `clearhead data get` brings them.

    A path that ends with .tokens is a folder that `clearhead data pack` wrote, of any size.

    context: characters in a window; validation: the share at the end that is not learned from;
    sample_length: characters that the model writes at each evaluation. byte_pairs: the size
    of a byte-pair vocabulary learned from the training part; context and sample_length then count
    its tokens.
    """

    path: str | None = None
    context: int = 64
    validation: float = 0.1
    sample_length: int = 300
    byte_pairs: int | None = None

    def check(self) -> None:
        if self.byte_pairs is not None:
            check_whole("byte_pairs", self.byte_pairs, least=FEWEST_TOKENS)
            if self.is_packed:
                raise ValueError(
                    f"byte_pairs is for a text, but {quote(self.path)} holds tokens; leave it out"
                )
        if self.context < 1 or not 0 < self.validation < 1:
            raise ValueError(
                f"context must be at least 1 and validation between 0 and 1, "
                f"got {self.context} and {self.validation}"
            )

    @property
    def is_packed(self) -> bool:
        """Whether the path is that of a token file."""
        return self.path is not None and is_token_file(self.path)

    def open(self) -> "NextTokenTask":
        if self.is_packed:
            from clearhead.training.tasks.token_files import TokenFileTask  # which imports this

            return TokenFileTask(self)
        text = read_text(self.path) if self.path else read_shakespeare()
        if not text:
            raise BadFile(f"{quote(self.path)} is empty; give a text to learn from")
        return CharacterTask(self, text)

    def load_predictor(self, folder: Path) -> "CharacterPredictor":
        if self.is_packed:
            return CharacterPredictor(load_tokenizer(folder / TOKENIZER))
        if self.byte_pairs is None:
            return CharacterPredictor.load(folder)
        return CharacterPredictor(BytePairTokenizer.load(folder / TOKENIZER))


def read_shakespeare() -> str:
    """All plays that were fetched, one after the other."""
    files = sorted(find_data("shakespeare").glob("*.txt"))
    return "\n\n".join(read_text(path) for path in files)


class CharacterPredictor(TextPredictor):
    """Says which character, or byte pair, comes next."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor of characters that `save` wrote."""
        return cls(CharTokenizer.load(folder / TOKENIZER))

    def predict(self, model: GPT, text: str) -> dict[str, Any]:
        """The most likely next character, given the last max_len characters of the text."""
        if not text:
            raise ValueError("the input is empty; give the beginning of a text")
        ids = torch.tensor([self.tokenizer.encode(text)[-model.config.max_len :]])
        with evaluation_mode(model):
            probs = model(ids.to(model.device))[0, -1].softmax(-1)
        p, best = probs.max(-1)
        return {
            "input": text,
            "answer": self.tokenizer.decode(best[None]),
            "probability": float(p),
        }


class NextTokenTask(Task):
    """Next-token prediction by a GPT, wherever the tokens are. A plan holds starts of windows."""

    predictor: CharacterPredictor
    config_type = GPTConfig
    unit = "tokens"
    has_text_samples = True
    data: CharacterData
    tokenizer: Tokenizer

    @property
    @abstractmethod
    def opening(self) -> Tensor:
        """The first N_OPENING tokens of the validation part, or all if it has fewer."""

    def loss(self, model: GPT, batch: Batch) -> Tensor:
        return mean_cross_entropy(model(batch.inputs), batch.targets)

    def sample(self, model: GPT) -> str:
        prompt = self.opening[: min(16, self.data.context)][None].to(model.device)
        n = self.data.sample_length
        with evaluation_mode(model):
            writer = pack_if_it_pays(model, n)
            ids = generate(writer, prompt, n, temperature=0.8, seed=0, roll=True)
        return self.tokenizer.decode(ids[0])

    def next_command(self, run: Path) -> str:
        command = shlex.join(["clearhead", "generate", str(run), "--prompt", self._prompt()])
        return f"{command} --tokens 300 --temperature 0.8"

    def _prompt(self) -> str:
        """ROMEO:, or the beginning of the validation part if the text lacks these letters."""
        is_alphabet = isinstance(self.tokenizer, CharTokenizer)  # others can write any text
        if not is_alphabet or set(PROMPT) <= set(self.tokenizer.tokens):
            return PROMPT
        text = self.tokenizer.decode(self.opening)
        return next(filter(str.strip, text.splitlines()), text)[:16]

    def pictures(self, sample: str | None) -> list[tuple[str, str]]:
        return [(sample, "what it wrote last")] if sample else []


class CharacterTask(NextTokenTask):
    """Next-character prediction in a text."""

    def __init__(self, data: CharacterData, text: str) -> None:
        self.data = data
        n_train = int(len(text) * (1 - data.validation))
        parts = text[:n_train], text[n_train:]
        self.tokenizer = CharTokenizer.of(text, cls=None)
        if data.byte_pairs is not None:
            self.tokenizer = BytePairTokenizer.train(parts[:1], data.byte_pairs)
        self.predictor = CharacterPredictor(self.tokenizer)
        self.train, self.validation = map(torch.tensor, self.tokenizer.encode_batch(parts))
        words = "characters" if data.byte_pairs is None else "tokens"
        if min(len(self.train), len(self.validation)) <= data.context:
            raise ValueError(
                f"the text has {len(self.train) + len(self.validation)} {words}, too few for "
                f"windows of {data.context}; take a longer text or a smaller data.context"
            )
        self.n_examples = (len(self.train) - 1) // data.context
        self.max_len = data.context
        self.fingerprint = hash_text(text)
        windows = f"{self.n_examples:,} windows of {data.context} {words}"
        self.learned_from = f"{windows}, cut at other places in every epoch"
        n = f"{len(self.validation):,}"
        self.measured_on = f"the last {n} {words} of the text, which it did not learn from"

    @property
    def opening(self) -> Tensor:
        return self.validation[:N_OPENING]

    def overfit(self, n: int) -> Self:
        self.train = self.validation = self.train[: n * self.data.context + 1]
        self.n_examples = (len(self.train) - 1) // self.data.context
        return self

    def plans(self, seed: int, epoch: int, batch_size: int) -> Sequence[Sequence[int]]:
        """Where the windows of each batch start."""
        T = self.data.context
        # Any offset at which all windows, and the target after the last, still fit.
        room = len(self.train) - self.n_examples * T  # ≥ 1
        offset = int(choose_below(min(room, T), draw_bits(seed, "windows", epoch))[0])
        batches = plan_batches(self.n_examples, batch_size, seed=seed, epoch=epoch)
        return [[offset + T * i for i in batch] for batch in batches]

    def batch(self, plan: Sequence[int]) -> Batch:
        return cut_windows(self.train, torch.tensor(plan), self.data.context)

    def evaluate(self, model: GPT) -> dict[str, float]:
        """The mean over the whole validation part, in windows one after the other."""
        T, ids = self.data.context, self.validation
        n_whole, rest = divmod(len(ids) - 1, T)
        pieces = [(starts, T) for starts in (torch.arange(n_whole) * T).split(EVAL_BATCH)]
        if rest:
            pieces.append((torch.tensor([n_whole * T]), rest))
        batches = (cut_windows(ids, starts, length) for starts, length in pieces)
        return {"val_loss": self.mean_loss(model, batches)}

    def baseline(self) -> dict[str, float]:
        order, loss = find_best_order(self.train, self.validation, self.tokenizer.vocab_size)
        return {"order": order, "val_loss": loss}


def cut_windows(ids: Tensor, starts: Tensor, length: int) -> Batch:
    """The pieces of a text that begin at these starts; targets are the characters after each."""
    positions = starts[:, None] + torch.arange(length, device=starts.device)  # (B, T)
    return Batch(ids[positions], ids[positions + 1])
