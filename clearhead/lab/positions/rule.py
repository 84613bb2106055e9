"""A rule that needs the order of tokens, and small models that learn it on short sequences.

    · 3 · · 7 · · · 2 ·        most tokens are blank, some are one of eight digits
      3 3 3 7 7 7 7 2 2        the answer at every position is the latest digit

Attention finds the digits by content; to know which of them is the latest it needs positions. The
models differ only in their positions: the same batches, one block, the same settings. They are then
tested on longer sequences. Only the last answers count, as many as a training sequence has, so that
on longer sequences every counted answer lies beyond the trained length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.models.gpt import GPT, GPTConfig
from clearhead.training import Optimizer, WarmupLinear, mean_cross_entropy

KINDS = ("none", "sinusoidal", "learned", "rotary", "toeplitz", "alibi")
LIMITED = ("learned", "toeplitz")  # store a number for each position or distance
TRAINED = 32  # tokens in a training sequence
LONGEST = 8 * TRAINED
DIGITS = 8  # 1 … 8, and 0 is blank
DENSITY = 0.2  # the share of digits
BATCH, LEARNING_RATE = 16, 0.02


@dataclass(frozen=True)
class Score:
    """How well a model answers at one length."""

    loss: float
    right: float


def latest_digits(n: int, T: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sequences (n, T) that begin with a digit, and their answers (n, T)."""
    digits = torch.randint(1, DIGITS + 1, (n, T), generator=generator)
    present = torch.rand(n, T, generator=generator) < DENSITY
    present[:, 0] = True
    latest = torch.where(present, torch.arange(T), 0).cummax(dim=1).values
    return digits * present, digits.gather(1, latest)


def learn(kind: str, seed: int, steps: int, device: torch.device | str = "cpu") -> GPT:
    """Train a model with this position scheme; its sequences have TRAINED tokens."""
    config = GPTConfig(
        vocab_size=DIGITS + 1,
        max_len=TRAINED if kind in LIMITED else LONGEST,
        d_model=32,
        n_layers=1,
        n_heads=4,
        positions=kind,
        tied=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(config).to(device)
    optimizer, schedule = Optimizer(model, lr=LEARNING_RATE), WarmupLinear(steps // 10, steps)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        tokens, answers = (x.to(device) for x in latest_digits(BATCH, TRAINED, generator))
        mean_cross_entropy(model(tokens), answers).backward()
        optimizer.step(schedule(step + 0.5))
    return model.eval()


def score(model: GPT, lengths: Sequence[int], seed: int, n: int = 128) -> list[Score]:
    """Score the last TRAINED answers of n new sequences of each length."""
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for T in lengths:
        tokens, answers = latest_digits(n, T, generator)
        with torch.no_grad():
            logits = model(tokens.to(model.head.weight.device))[:, -TRAINED:].cpu()
        last = answers[:, -TRAINED:]
        right = (logits.argmax(dim=-1) == last).double().mean().item()
        scores.append(Score(mean_cross_entropy(logits, last).item(), right))
    return scores
