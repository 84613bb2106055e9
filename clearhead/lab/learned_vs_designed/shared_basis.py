"""Write two smallest transformers in the same basis, so that they can be compared.

    score(x, y) = x Qm Kmᵀ yᵀ / √d_qk           x, y: a letter at a position, [seq, pos]

Many matrices give the same scores: for every invertible A, (Qm A)(Km A⁻ᵀ)ᵀ = Qm Kmᵀ, and a position
may be any vector. So the basis is changed until the key of a token is the sum of its two names: an
A at position 3 is "A" + "3". Then Km is the identity, positions are one-hot, and Qm / √d_qk is the
table of scores between names.

Other changes, too, leave the attention weights as they are: the softmax ignores a number that is
added to all scores of one query, and since each token is one letter at one position, a number can
be added to all letters and subtracted from all positions. Of all tables with the same weights, the
one nearest to a given table is used.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.models.smallest import NumpyTransformer

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Names:
    """The letters and positions of a rule; tokens (tokens, names): 1 for each name of a token."""

    letters: list[str]
    positions: list[str]
    tokens: Array

    @property
    def all(self) -> list[str]:
        return [*self.letters, *self.positions]


def list_names(rule: str, max_len: int) -> Names:
    """Every letter at every position it can have in sequences of max_len letters."""
    letters = list("ABC")
    if rule == "identity":
        return Names(letters, [], np.eye(3))
    positions = range(1, max_len + 1) if rule == "unique" else range(max_len)
    pairs = [(letter, position) for letter in range(3) for position in positions]
    if rule == "unique":
        letters, pairs = [*letters, "CLS"], [(3, 0), *pairs]
    n_positions = 1 + max(position for _, position in pairs)
    letter, position = np.array(pairs).T
    tokens = np.concatenate([np.eye(len(letters))[letter], np.eye(n_positions)[position]], axis=1)
    return Names(letters, [str(p) for p in range(n_positions)], tokens)


def input_rows(model: NumpyTransformer, names: Names) -> Array:
    """The input of the model for each name alone: (names, d_input + d_pos)."""
    n = len(names.letters)
    rows = np.zeros((len(names.all), len(model.Km)))
    rows[:n, :n] = np.eye(n)
    if model.pos is not None:
        rows[n:, n:] = model.pos[: len(names.positions)]
    return rows


def score_table(model: NumpyTransformer, names: Names) -> Array:
    """The score between every two names, (names, names); scores of tokens are sums of these."""
    rows = input_rows(model, names)
    return rows @ model.Qm @ model.Km.T @ rows.T / math.sqrt(model.Qm.shape[1])


def token_scores(table: Array, names: Names) -> Array:
    """Scores between all tokens, (tokens, tokens); rows have mean 0, which the softmax ignores."""
    return names.tokens @ table @ _centred_keys(names)


def _centred_keys(names: Names) -> Array:
    """From the columns of a table to keys, minus the mean key: (names, tokens)."""
    return (names.tokens - names.tokens.mean(axis=0)).T


def rewrite(model: NumpyTransformer, like: NumpyTransformer, names: Names) -> NumpyTransformer:
    """The same transformer in the basis of names; where its attention is the same, like another."""
    table, wanted = score_table(model, names), score_table(like, names)
    scores, wanted_scores = token_scores(table, names), token_scores(wanted, names)
    wanted = scale_between(scores, wanted_scores) * wanted
    # The scores determine one part of the table; the rest is free and is taken from the other.
    left, right = np.linalg.pinv(names.tokens), np.linalg.pinv(_centred_keys(names))
    table = wanted + left @ (scores - token_scores(wanted, names)) @ right
    values, wanted_values = (input_rows(one, names) @ one.Vm for one in (model, like))
    values = wanted_values + left @ names.tokens @ (values - wanted_values)
    n, positions = len(names.letters), np.eye(len(names.positions))
    Qm = table * math.sqrt(len(table))
    return NumpyTransformer(np.eye(len(table)), Qm, values, positions if n < len(table) else None)


# How different they are


def scale_between(one: Array, other: Array) -> float:
    """The factor by which the other comes nearest to the one."""
    return float((one * other).sum() / (other * other).sum())


def dissimilarity(one: Array, other: Array) -> float:
    """0 if one is a multiple of the other, 1 if they have nothing in common: √(1 − cos²).

    The narrower table is filled up with columns of zeros.
    """
    width = max(one.shape[1], other.shape[1])
    one, other = (np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (one, other))
    return float(np.linalg.norm(one - scale_between(one, other) * other) / np.linalg.norm(one))


def compare(one: NumpyTransformer, other: NumpyTransformer, names: Names) -> dict[str, float]:
    """The dissimilarity of keys and queries, each in its own basis, and of the scores.

    sharper: the factor from the other scores to these.
    """
    rows = [input_rows(model, names) for model in (one, other)]
    scores = [token_scores(score_table(model, names), names) for model in (one, other)]
    return {
        "keys": dissimilarity(rows[0] @ one.Km, rows[1] @ other.Km),
        "queries": dissimilarity(rows[0] @ one.Qm, rows[1] @ other.Qm),
        "scores": dissimilarity(*scores),
        "sharper": scale_between(*scores),
    }
