"""Two smallest transformers, written with the same names so that they can be compared.

    score(x, y) = x Qm Kmᵀ yᵀ / √d_qk           x, y: a letter at a place, [seq, pos]

Many matrices give the same scores. For every invertible A, (Qm A)(Km A⁻ᵀ)ᵀ = Qm Kmᵀ, and a place
may be any vector. So the basis is changed until every key offers nothing but its names, an A at
place 3 "A" and "3". Then Km is the identity, places are one-hot, and Qm · 1/√d_qk is the table of
scores itself: how much each name asks for each other.

The weights stay the same under even more. The softmax ignores what is added to all scores of one
query, and since each token is one letter at one place, numbers can move between the rows of letters
and those of places. Of all tables with the same weights, the one nearest to a given table is taken.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.models.smallest import NumpyTransformer

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Names:
    """letters, places: all that there are; tokens (tokens, names): which of them each token has."""

    letters: list[str]
    places: list[str]
    tokens: Array

    @property
    def all(self) -> list[str]:
        return [*self.letters, *self.places]


def names_of(rule: str, max_len: int) -> Names:
    """Every letter at every place that it can have in sequences of max_len letters."""
    letters = list("ABC")
    if rule == "identity":
        return Names(letters, [], np.eye(3))
    places = range(1, max_len + 1) if rule == "unique" else range(max_len)
    pairs = [(letter, place) for letter in range(3) for place in places]
    if rule == "unique":
        letters, pairs = [*letters, "CLS"], [(3, 0), *pairs]
    n_places = 1 + max(place for _, place in pairs)
    letter, place = np.array(pairs).T
    tokens = np.concatenate([np.eye(len(letters))[letter], np.eye(n_places)[place]], axis=1)
    return Names(letters, [str(p) for p in range(n_places)], tokens)


def rows_of(model: NumpyTransformer, names: Names) -> Array:
    """What the model takes in for each name alone: (names, d_input + d_pos)."""
    n = len(names.letters)
    rows = np.zeros((len(names.all), len(model.Km)))
    rows[:n, :n] = np.eye(n)
    if model.pos is not None:
        rows[n:, n:] = model.pos[: len(names.places)]
    return rows


def table_of(model: NumpyTransformer, names: Names) -> Array:
    """How much each name asks for each other, (names, names): the score of two tokens is a sum."""
    rows = rows_of(model, names)
    return rows @ model.Qm @ model.Km.T @ rows.T / math.sqrt(model.Qm.shape[1])


def scores_of(table: Array, names: Names) -> Array:
    """Scores of all tokens, (tokens, tokens), less what the softmax ignores: rows have mean 0."""
    return names.tokens @ table @ _centred(names)


def _centred(names: Names) -> Array:
    """From a table's columns to keys, less the mean key: (names, tokens)."""
    return (names.tokens - names.tokens.mean(axis=0)).T


def renamed(model: NumpyTransformer, like: NumpyTransformer, names: Names) -> NumpyTransformer:
    """The same transformer with a topic for each name, as near to another as the weights allow."""
    table, wanted = table_of(model, names), table_of(like, names)
    scores, wanted_scores = scores_of(table, names), scores_of(wanted, names)
    wanted = alike(scores, wanted_scores) * wanted
    # What the scores settle is the model's own; the rest may be anything, and is the other's.
    left, right = np.linalg.pinv(names.tokens), np.linalg.pinv(_centred(names))
    table = wanted + left @ (scores - scores_of(wanted, names)) @ right
    said, wanted_said = (rows_of(one, names) @ one.Vm for one in (model, like))
    said = wanted_said + left @ names.tokens @ (said - wanted_said)
    n, places = len(names.letters), np.eye(len(names.places))
    Qm = table * math.sqrt(len(table))
    return NumpyTransformer(np.eye(len(table)), Qm, said, places if n < len(table) else None)


# How far apart


def alike(one: Array, other: Array) -> float:
    """The factor that brings the other nearest to the one."""
    return float((one * other).sum() / (other * other).sum())


def unlike(one: Array, other: Array) -> float:
    """0 if one is a multiple of the other, 1 if they have nothing in common: √(1 − cos²).

    Of two tables with unequally many columns, the narrow one has zeros in the others.
    """
    width = max(one.shape[1], other.shape[1])
    one, other = (np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (one, other))
    return float(np.linalg.norm(one - alike(one, other) * other) / np.linalg.norm(one))


def difference(one: NumpyTransformer, other: NumpyTransformer, names: Names) -> dict[str, float]:
    """How unlike their keys and queries are as they stand, and their scores; and how much sharper.

    sharper: the factor between the scores.
    """
    rows = [rows_of(model, names) for model in (one, other)]
    scores = [scores_of(table_of(model, names), names) for model in (one, other)]
    return {
        "keys": unlike(rows[0] @ one.Km, rows[1] @ other.Km),
        "queries": unlike(rows[0] @ one.Qm, rows[1] @ other.Qm),
        "scores": unlike(*scores),
        "sharper": alike(*scores),
    }
