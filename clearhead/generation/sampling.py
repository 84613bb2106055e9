"""One token from its logits: the most likely one, or one drawn from the likely ones.

    forbidden    never chosen, as if they were not in the vocabulary
    penalty      tokens that occur already become less likely          Keskar et al. 2019
    temperature  probs = softmax(logits / temperature); 0 is greedy
    top_k        only the k most likely
    min_p        only those at least min_p times as likely as the most likely
    top_p        only the most likely ones that together reach top_p   Holtzman et al. 2020

in this order. Tokens as likely as the last one kept are kept as well.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from clearhead.models.forbidden import rule_out
from clearhead.runtime import widest_float
from clearhead.shapes import check_number, check_positive


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen; the default is greedy."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=0)
        if self.top_k is not None:
            check_positive(top_k=self.top_k)
        for name in ("top_p", "min_p"):
            if (value := getattr(self, name)) is not None:
                check_number(name, value, low=0, high=1)
        check_number("repetition_penalty", self.repetition_penalty, low=0)
        if self.repetition_penalty == 0:
            raise ValueError("repetition_penalty must be more than 0, got 0; 1 changes nothing")

    @property
    def needs_logits(self) -> bool:
        """Whether the index of the largest logit is not enough to choose."""
        return self.temperature > 0 or self.repetition_penalty != 1.0


def choose(
    logits: Tensor,
    sampling: Sampling,
    draws: Tensor,
    seen: Tensor | None = None,
    *,
    forbidden: Tensor | None = None,
) -> Tensor:
    """logits (B, V) → tokens (B,); draws (B,): random numbers from 0 to 1, one per row.

    seen (B, V): True = the token occurs already, for the repetition penalty. forbidden (n,): ids
    that are not chosen.
    """
    if sampling.repetition_penalty != 1.0 and seen is not None:
        logits = _penalise(logits, seen, sampling.repetition_penalty)
    logits = rule_out(logits, forbidden)
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probs = likely(logits, sampling)
    # The first token at which the sum of probabilities passes the draw.
    sums = probs.to(widest_float(probs.device)).cumsum(-1)
    target = draws.to(sums)[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, target, right=True)[:, 0]
    # A draw of almost 1 must not pass the last token whose probability is not 0.
    last = probs.size(-1) - 1 - probs.flip(-1).ne(0).int().argmax(-1)
    return torch.minimum(found, last)


def likely(logits: Tensor, sampling: Sampling) -> Tensor:
    """logits (B, V) → probabilities (B, V) after temperature and filters; rows sum to 1."""
    if sampling.temperature == 0:
        return one_hot(logits.argmax(-1), logits.size(-1)).to(logits.dtype)
    wide = logits.to(widest_float(logits.device))  # no temperature is too small or too large
    scores = (wide - wide.amax(-1, keepdim=True)) / sampling.temperature  # ≤ 0
    if sampling.top_k is not None and sampling.top_k < scores.size(-1):
        last = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < last, -math.inf)
    if sampling.min_p is not None and sampling.min_p > 0:
        scores = scores.masked_fill(scores < math.log(sampling.min_p), -math.inf)
    probs = scores.softmax(-1)
    if sampling.top_p is not None and sampling.top_p < 1:
        ranked = probs.sort(dim=-1, descending=True).values
        before = ranked.cumsum(-1) - ranked  # the sum of all more likely ones
        count = (before < sampling.top_p).sum(-1, keepdim=True).clamp(min=1)
        probs = probs.masked_fill(probs < ranked.gather(-1, count - 1), 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs.to(logits.dtype)


def _penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Divide positive logits and multiply negative ones, so that both become smaller."""
    less = torch.where(logits > 0, logits / penalty, logits * penalty)
    most = torch.finfo(logits.dtype).max  # finite, however large the penalty
    return torch.where(seen, less.clamp(-most, most), logits)
