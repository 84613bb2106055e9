"""Beam search: the best of many sentences, where greedy search follows one path (Graves 2012).

    score(y) = log p(y | source) / |y|^length_penalty        |y| counts the end token

At each step the n_beams likeliest continuations are kept. Those that end are results; the others
are continued. So n_beams = 1 is greedy search, and a beam as wide as there are sentences finds the
best of all. Every word lowers the probability, so dividing by the length keeps short sentences from
winning for being short (Wu et al. 2016); length_penalty = 0 does not divide.

The search for a source ends when none of its beams can win any more. Let l ≤ 0 be the log p of a
beam. Every sentence that continues it has log p ≤ l and at most n_tokens words; dividing a negative
number by more gives a larger one, so

    score ≤ l / length^length_penalty ≤ l / n_tokens^length_penalty

Once the best score found is at least that for every beam, continuing cannot change the winner.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from clearhead.attention.masks import MaskLike
from clearhead.models.checks import check_finite
from clearhead.models.forbidden import rule_out
from clearhead.models.model import evaluation_mode
from clearhead.models.seq2seq import Seq2Seq
from clearhead.runtime import widen, widest_float
from clearhead.shapes import check_number, check_positive

Watch = Callable[[Tensor, Tensor, Tensor], None]


@dataclass(frozen=True, eq=False)
class BeamResult:
    """The sentences found for each source, best first; an empty entry has the score −inf.

    The first is the winner. The others were found before it was certain, and need not be the next
    best of all.
    """

    tokens: Tensor  # (B, n_beams, T): without the start, with the end token, then pad_id
    scores: Tensor  # (B, n_beams), float64
    log_probs: Tensor  # (B, n_beams), float64
    lengths: Tensor  # (B, n_beams), the end token counted

    @property
    def best(self) -> Tensor:
        """The winners, (B, T)."""
        return self.tokens[:, 0]


def beam_search(
    model: Seq2Seq,
    source: Tensor,
    n_tokens: int,
    *,
    n_beams: int = 4,
    length_penalty: float = 1.0,
    source_mask: MaskLike = None,
    forbid: Collection[int] = (),
    watch: Watch | None = None,
) -> BeamResult:
    """The best sentences of at most n_tokens words for each source (B, S).

    A sentence that has not ended by then counts as it is. source_mask: as in model.encode. forbid:
    ids that are never written, such as <unk>; the probabilities of the others stay the model's own.
    Of equally likely words the smallest id comes first. Dropout is off, whatever mode the model is
    in.

    watch: called after each step with (words, parents, log_probs), each (B, n_beams): the last word
    of each beam that is kept, the beam of the step before that it continues, and its log p, which
    is −inf for an empty place. A beam that has ended is not continued.
    """
    _check(model, n_tokens, n_beams, length_penalty)
    forbidden = model.make_forbidden(forbid)
    with evaluation_mode(model):
        state = model.encode(source, source_mask)
        rows = torch.arange(state.batch_size, device=source.device).unsqueeze(1)  # (B, 1)
        state.reorder(rows.expand(-1, n_beams).flatten())
        last = model.start_tokens(state).unflatten(0, (state.batch_size // n_beams, n_beams))
        tokens = last.new_empty((*last.shape, 0))
        found = _make_empty(tokens)
        log_probs = found.log_probs.index_fill(1, rows.new_zeros(1), 0.0)  # one beam at first
        for length in range(1, n_tokens + 1):
            logits, state = model.decode_step(last.flatten(), state)
            parents, last, log_probs = _find_likeliest(
                check_finite(logits).unflatten(0, last.shape), log_probs, forbidden
            )
            if watch is not None:
                watch(last, parents, log_probs)
            tokens = tokens.take_along_dim(parents.unsqueeze(-1), 1)
            tokens = torch.cat((tokens, last.unsqueeze(-1)), dim=-1)  # (B, n_beams, length)
            ended = (last == model.config.end_id) | (length == n_tokens)
            ended_log_probs = log_probs.masked_fill(~ended, -torch.inf)
            scores = ended_log_probs / length ** float(length_penalty)
            found = _keep_best(found, tokens, scores, ended_log_probs, model.config.pad_id)
            log_probs = log_probs.masked_fill(ended, -torch.inf)  # no longer a beam
            best_possible = log_probs.amax(dim=1, keepdim=True) / n_tokens ** float(length_penalty)
            is_done = best_possible <= found.scores[:, :1]
            if bool(is_done.all()):
                break
            log_probs = log_probs.masked_fill(is_done, -torch.inf)
            state.reorder((rows * n_beams + parents).flatten())
    longest = int(found.lengths.max()) if found.lengths.numel() else 0
    return replace(found, tokens=found.tokens[..., :longest])


def _find_likeliest(
    logits: Tensor, log_probs: Tensor, forbidden: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """logits (B, K, V) after beams of log_probs (B, K) → the K likeliest continuations.

    Returns the beam, the word and the log_prob of each, (B, K), the likeliest first. A forbidden
    word has the log_prob −∞.
    """
    n_beams, n_words = logits.size(1), min(logits.size(1), logits.size(2))
    values, words = _find_largest(rule_out(logits, forbidden), n_words)  # (B, K, n_words)
    # log_softmax by its equation, only for these words. It never exceeds 0, even by rounding:
    # logsumexp is the largest logit plus log(1 + …).
    normalizer = widen(logits).logsumexp(dim=-1, keepdim=True)
    wide = widest_float(logits.device)
    word_log_probs = values.to(wide) - normalizer.to(wide)
    joint = (log_probs.unsqueeze(-1) + word_log_probs).flatten(1)  # (B, K · n_words)
    joint, order = (x[:, :n_beams] for x in joint.sort(dim=1, descending=True, stable=True))
    return order // n_words, words.flatten(1).gather(1, order), joint


def _find_largest(logits: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest of the last axis, largest first; of equal ones the smallest index first."""
    values, indices = logits.topk(min(n + 1, logits.size(-1)))
    if values.size(-1) > n and bool((values[..., n - 1] == values[..., n]).any()):
        # The last one kept equals one left out: topk does not say which index comes first.
        values, indices = logits.sort(dim=-1, descending=True, stable=True)
        return values[..., :n], indices[..., :n]
    indices = indices[..., :n].sort(dim=-1).values
    values, order = logits.gather(-1, indices).sort(dim=-1, descending=True, stable=True)
    return values, indices.gather(-1, order)


def _make_empty(tokens: Tensor) -> BeamResult:
    """A result of empty entries only, for tokens (B, K, 0)."""
    lengths = tokens.new_zeros(tokens.shape[:2])
    lowest = torch.full_like(lengths, -torch.inf, dtype=widest_float(lengths.device))
    return BeamResult(tokens, lowest, lowest, lengths)


def _keep_best(
    found: BeamResult, tokens: Tensor, scores: Tensor, log_probs: Tensor, pad_id: int
) -> BeamResult:
    """The best K of the sentences found before and the new ones (B, K, length).

    Of equal scores the older comes first, so that an empty entry is never replaced by another.
    """
    lengths = torch.full_like(found.lengths, tokens.size(-1))
    tokens = torch.cat((pad(found.tokens, (0, 1), value=pad_id), tokens), dim=1)
    scores, order = torch.cat((found.scores, scores), dim=1).sort(
        dim=1, descending=True, stable=True
    )
    scores, order = (x[:, : lengths.size(1)] for x in (scores, order))
    return BeamResult(
        tokens.take_along_dim(order.unsqueeze(-1), 1),
        scores,
        torch.cat((found.log_probs, log_probs), dim=1).gather(1, order),
        torch.cat((found.lengths, lengths), dim=1).gather(1, order),
    )


def _check(model: Seq2Seq, n_tokens: int, n_beams: int, length_penalty: float) -> None:
    if not isinstance(model, Seq2Seq):
        raise TypeError(
            f"model must be a Seq2Seq such as Seq2SeqTransformer, got {type(model).__name__}"
        )
    model.check_n_tokens(n_tokens)
    check_positive(n_beams=n_beams)
    check_number("length_penalty", length_penalty, low=0, high=10)
