"""n-grams: how well counting predicts the next token. The baseline of every language model.

    P(w | h) = (c(hw) − d(c(hw))) / c(h)  +  Σ_v d(c(hv)) / c(h) · P(w | h without its first token)

Interpolated Kneser–Ney smoothing with three discounts (Chen & Goodman 1999). At the highest order
c counts occurrences. Below it, a sequence counts once for each different token seen before it, so
"Francisco" is likely after "San" and unlikely elsewhere. The discounts d(1), d(2) and d(3) of
sequences seen once, twice and more often follow from how many there are of each. What they take
away goes to the lower order; below one token is the uniform distribution.

A text is one document or several. The first token of a document is given, never predicted, and is
repeated before it, so every prediction has a full history and none reaches into another document:

    <start> A B  |  <start> C       trigrams: <start> <start> A,  <start> A B,  <start> <start> C

A sequence of k tokens is represented by its index among all different ones, so every step is a
sort or a look-up over the whole text at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.shapes import check_positive

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


class NGrams:
    """Probabilities of the next token by counting sequences of up to `order` tokens.

    text: the ids of one document, or a list of documents.
    """

    def __init__(self, text: Any, vocab_size: int, order: int) -> None:
        check_positive(vocab_size=vocab_size, order=order)
        self.vocab_size = vocab_size
        self.orders = _discount(_count(text, vocab_size, order), vocab_size)

    def probs(self, text: Any) -> Floats:
        """The probability of each token but the first of a document, given those before it."""
        return _predict(self.orders, self.vocab_size, text)

    def loss(self, text: Any) -> float:
        """The mean −log P of all tokens but the first of each document."""
        return float(-np.log(self.probs(text)).mean())


def find_best_order(
    train: Any, validation: Any, vocab_size: int, most: int = 8
) -> tuple[int, float]:
    """The order up to `most` with the least loss on the validation part, and that loss."""
    check_positive(vocab_size=vocab_size, most=most)
    counts = _count(train, vocab_size, most)  # once for all orders
    losses = {}
    for order in range(1, most + 1):
        probs = _predict(_discount(counts[:order], vocab_size), vocab_size, validation)
        losses[order] = float(-np.log(probs).mean())
    best = min(losses, key=lambda order: losses[order])
    return best, losses[best]


# Counting


@dataclass(frozen=True)
class _Counts:
    """All different sequences of k tokens."""

    keys: Ids  # index of the first k − 1 tokens · V + last token; sorted
    seen: Ids  # how often it was seen; 0 if its last token was given, not predicted
    before: Ids  # how many different tokens were seen before it


def _count(text: Any, vocab_size: int, order: int) -> list[_Counts]:
    """Count the sequences of 1, 2 … order tokens."""
    ids, predicted = _join(text, vocab_size, order)
    found: list[_Counts] = []
    shorter = np.zeros(len(ids), dtype=np.int64)  # the sequence of k − 1 tokens that ends here
    for _ in range(order):
        prefix = np.concatenate([[0], shorter[:-1]])
        keys, index = np.unique(prefix * vocab_size + ids, return_inverse=True)
        seen = np.bincount(index, weights=predicted).astype(np.int64)
        if found:  # each different sequence counts once for the one without its first token
            ends = np.zeros(len(keys), dtype=np.int64)  # where it was predicted
            ends[index[predicted]] = np.flatnonzero(predicted)
            before = np.bincount(shorter[ends[seen > 0]], minlength=len(found[-1].keys))
            found[-1] = replace(found[-1], before=before)
        found.append(_Counts(keys, seen, before=seen))
        shorter = index
    return found


def _join(text: Any, vocab_size: int, order: int) -> tuple[Ids, Flags]:
    """All documents as one row, the first token of each repeated; which tokens are predicted."""
    nested = len(text) > 0 and np.ndim(text[0]) > 0
    documents = [np.asarray(each, dtype=np.int64) for each in (text if nested else [text])]
    if not any(len(document) > 1 for document in documents):
        raise ValueError("text must hold at least two tokens, one to be given and one to predict")
    n_given = max(1, order - 1)
    parts = [np.concatenate([d[:1].repeat(n_given), d[1:]]) for d in documents if len(d)]
    ids = np.concatenate(parts)
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError(
            f"text must hold ids from 0 to {vocab_size - 1}, got {ids.min()} to {ids.max()}"
        )
    return ids, np.concatenate([np.arange(len(part)) >= n_given for part in parts])


# Probabilities


@dataclass(frozen=True)
class _Order:
    """The terms of the equation for sequences of k tokens."""

    keys: Ids
    counts: Floats  # c(hw) − d(c(hw)), by sequence
    totals: Floats  # c(h), by the index of the prefix h
    discounts: Floats  # Σ_v d(c(hv)), by the index of the prefix h


def _discount(counted: Sequence[_Counts], vocab_size: int) -> list[_Order]:
    """The highest order counts how often a sequence was seen, the others the tokens before it."""
    orders = []
    for k, each in enumerate(counted, 1):
        counts = each.seen if k == len(counted) else each.before
        discounts: Floats = _estimate_discounts(counts)[np.minimum(counts, 3)]
        prefix = each.keys // vocab_size
        totals: Floats = np.bincount(prefix, weights=counts).astype(float)
        sums: Floats = np.bincount(prefix, weights=discounts).astype(float)
        orders.append(_Order(each.keys, counts - discounts, totals, sums))
    return orders


def _predict(orders: Sequence[_Order], vocab_size: int, text: Any) -> Floats:
    """The probability of each predicted token, from the lowest order to the highest."""
    ids, predicted = _join(text, vocab_size, len(orders))
    probs = np.full(len(ids), 1.0 / vocab_size)
    shorter = np.zeros(len(ids), dtype=np.int64)  # as in _count; −1 if it was never seen
    for order in orders:
        prefix = np.concatenate([shorter[:1], shorter[:-1]])
        known = np.flatnonzero((prefix >= 0) & (prefix < len(order.totals)))
        known = known[order.totals[prefix[known]] > 0]  # something was predicted after it
        total, discount = order.totals[prefix[known]], order.discounts[prefix[known]]
        index, is_there = _look_up(order.keys, prefix[known] * vocab_size + ids[known])
        count = np.where(is_there, order.counts[index], 0.0)
        probs[known] = (count + discount * probs[known]) / total
        index, is_there = _look_up(order.keys, prefix * vocab_size + ids)
        shorter = np.where(is_there & (prefix >= 0), index, -1)
    return probs[predicted]


def _estimate_discounts(counts: Ids) -> Floats:
    """The discounts of a count of 0, 1, 2, and 3 or more."""
    n = np.bincount(counts, minlength=5)[:5].astype(float)  # how many were seen 0 … 4 times
    if not n[1:].all():  # a tiny text
        return np.array([0.0, 0.5, 0.5, 0.5])
    y = n[1] / (n[1] + 2 * n[2])
    found = [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
    return np.array([0.0, *np.clip(found, 0.05, [1.0, 2.0, 3.0])])


def _look_up(keys: Ids, wanted: Ids) -> tuple[Ids, Flags]:
    """The index of each wanted key, and whether it is there."""
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return index, keys[index] == wanted
