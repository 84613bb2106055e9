"""Three tasks for the smallest transformer, solved by weights set by hand.

    identity    [A B C C] → [A B C C]           by content: each letter listens to its own kind
    first       [C A C]   → [C C C]             by position: each letter listens to place 0
    unique      [CLS A B B] → [+1 +1 −1 −1]     by both: to its own kind, but not to itself

Every number in a token has a name – the letters A, B, C, the places – and so has every number in a
query or key: a topic, which a query asks about and a key offers. A design is three lists of
sentences, (who, what, how much):

    asks      ("A", "A", 1)              an A asks for an A
    offers    ("place 0", "start", 1)    who stands at place 0 offers the start
    says      ("CLS", "answer", +1)      the CLS token says +1

The score of two tokens is sharpness · Σ_topic asks · offers. A softmax is never quite certain: with
sharpness s, a score one step behind still gets e^−s of the weight. `error_bound` says what is left
of that in the output; each bound is reached by some sequence, so none can be smaller.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from clearhead.models.smallest.numpy_form import Array, NumpyTransformer
from clearhead.shapes import check_choice, check_number, check_positive

LETTERS = ("A", "B", "C")
SHARPNESS = 40.0  # e^−40 is 4e−18: beside 1, float64 has no digit left for the error

Sentence = tuple[str, str, float]


def identity(sharpness: float = SHARPNESS) -> NumpyTransformer:
    """Each token comes out as it went in: one-hot rows A, B, C, at any length.

    With sharpness s, no number is wrong by more than (n − 1) / (e^s + n − 1) at length n.
    """
    return _design(
        inputs=LETTERS,
        topics=LETTERS,
        outputs=LETTERS,
        asks=[(letter, letter, 1) for letter in LETTERS],
        offers=[(letter, letter, 1) for letter in LETTERS],
        says=[(letter, letter, 1) for letter in LETTERS],
        sharpness=sharpness,
    )


def first(max_len: int, sharpness: float = SHARPNESS) -> NumpyTransformer:
    """Each token comes out as the first one: one-hot rows A, B, C, at most max_len of them.

    With sharpness s, no number is wrong by more than (n − 1) / (e^s + n − 1) at length n.
    """
    places = _places(max_len)
    return _design(
        inputs=LETTERS,
        places=places,
        topics=["start"],
        outputs=LETTERS,
        asks=[(letter, "start", 1) for letter in LETTERS],
        offers=[(places[0], "start", 1)],
        says=[(letter, letter, 1) for letter in LETTERS],
        sharpness=sharpness,
    )


def unique(max_len: int, sharpness: float = SHARPNESS) -> NumpyTransformer:
    """+1 for a token that occurs once, −1 for a repeated one: (n + 1, 1).

    One-hot rows A, B, C, CLS: the CLS row first, then at most max_len letters. A letter finds

        its own kind elsewhere   at score 2      and hears −1
        CLS                      at score 1      and hears +1: nobody of its kind is there
        other letters            at score 0      too far behind to be heard
        itself                   at score 2 − 2: its kind, but at its own place

    CLS occurs once, so its own row is +1 too. With sharpness s and n letters, no number is wrong by
    more than 2n / (e^s + n).
    """
    places = _places(max_len, start=1)
    return _design(
        inputs=[*LETTERS, "CLS"],
        places=["place 0", *places],
        topics=[*LETTERS, "CLS", *places],
        outputs=["answer"],
        asks=[
            *((letter, letter, 2) for letter in LETTERS),
            *((token, "CLS", 1) for token in (*LETTERS, "CLS")),
            *((place, place, -2) for place in places),
        ],
        offers=[(name, name, 1) for name in (*LETTERS, "CLS", *places)],
        says=[("CLS", "answer", +1), *((letter, "answer", -1) for letter in LETTERS)],
        sharpness=sharpness,
    )


def error_bound(name: str, sharpness: float, n: int) -> float:
    """How far any number in the output of a design can be from the ideal, for n letters.

    identity, first: at most n − 1 of n tokens are wrong, each with e^−s times the weight of the
    right one; their values differ from its value by 1. unique: beside CLS at score s stand n
    letters at score 0 with the value −1 instead of +1, a difference of 2; for a repeated letter,
    CLS has at most e^−s times the weight of its own kind, which is less.
    """
    check_choice("name", name, ("identity", "first", "unique"))
    check_sharpness(sharpness)
    check_positive(n=n)
    wrong, difference = (n, 2) if name == "unique" else (n - 1, 1)
    noise = wrong * math.exp(-sharpness)
    return difference * noise / (1 + noise)


# From sentences to matrices


def _design(
    *,
    inputs: Sequence[str],
    topics: Sequence[str],
    outputs: Sequence[str],
    asks: Iterable[Sentence],
    offers: Iterable[Sentence],
    says: Iterable[Sentence],
    sharpness: float,
    places: Sequence[str] = (),
) -> NumpyTransformer:
    """A token is one-hot over inputs, its place one-hot over places."""
    check_sharpness(sharpness)
    whole = [*inputs, *places]
    # The division by √d_qk is undone here, so that sharpness alone sets the scores.
    Qm = sharpness * math.sqrt(len(topics)) * matrix(whole, topics, asks)
    Km, Vm = matrix(whole, topics, offers), matrix(whole, outputs, says)
    return NumpyTransformer(Km, Qm, Vm, np.eye(len(places)) if places else None)


def matrix(rows: Sequence[str], columns: Sequence[str], sentences: Iterable[Sentence]) -> Array:
    """(rows, columns): how much each row's name means each column's, 0 where nothing is said."""
    table = np.zeros((len(rows), len(columns)))
    for who, what, how_much in sentences:
        table[rows.index(who), columns.index(what)] = how_much
    return table


def _places(max_len: int, start: int = 0) -> list[str]:
    check_positive(max_len=max_len)
    return [f"place {t}" for t in range(start, start + max_len)]


def check_sharpness(sharpness: float) -> None:
    """A finite number above 0."""
    way_out = f"; the default is {SHARPNESS:g}"
    check_number("sharpness", sharpness, low=0, above=True, way_out=way_out)
