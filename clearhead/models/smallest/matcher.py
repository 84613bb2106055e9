"""A substring matcher set by hand: `haystack|needle` in, whether it occurs out; no training.

Three ordinary blocks – attention, feed-forward, residual sums – of a SequenceClassifier with no
norm and no bias. Every number in the residual stream has a name, and each block adds some:

    block 1   head j looks j places ahead: "+1 is a" says that an a stands at the next place
    block 2   everyone looks at the separator, whose "+1 is a" says how the needle begins:
              "needle 0 is a". The feed-forward layer compares it with what stands here and ahead,
              and counts the "misses"
    block 3   everyone looks for the token with the fewest misses
    decoder   1 − 2 · fewest misses, at [CLS]: +1 if the needle occurs, −1 if not

A miss is a needle letter that is not there: relu(needle j is a − +j is a). If the haystack ends too
early, there is a miss as well, because the separator is no letter. The needle itself must not count
as a match, so every token after the separator adds relu(own place − separator's place) to its
misses. For the needle's first letter, which has no other miss, this is 1: the fewest misses, if the
needle does not occur. The empty needle misses nowhere: it occurs in every haystack, as in Python.

As in designs.py, the weights are lists of sentences (who, what, how much), and all but about
e^−sharpness of a head's attention is where it should be. A head that looks for a place that does
not exist attends to [CLS], whose values are 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.models.classifier import ClassifierConfig, SequenceClassifier
from clearhead.models.smallest.designs import SHARPNESS, Sentence, check_sharpness, matrix
from clearhead.shapes import check_positive

LETTERS = ("a", "b", "c")
TOKENS = ("[CLS]", *LETTERS, "|")  # the ids of CharTokenizer(), in their order
Weights = dict[str, Tensor]


def substring_matcher(
    max_haystack: int = 6, max_needle: int = 3, *, sharpness: float = SHARPNESS
) -> SequenceClassifier:
    """A model of `haystack|needle` as CharTokenizer() gives it: ids (B, T), or one-hot (B, T, 5).

    Its logit [:, 0, 0] is +1 where the needle occurs and −1 where it does not; by default what the
    heads leak, some e^−40, is less than a digit of float32. Both strings may be shorter than their
    limits, or empty; of a longer needle only the first max_needle letters count. Texts of unequal
    length in a batch need a token_mask.
    """
    check_positive(max_haystack=max_haystack, max_needle=max_needle)
    check_sharpness(sharpness)
    max_len = 1 + max_haystack + 1 + max_needle
    stream = directions(max_len, max_needle)
    d_head = max(max_len, math.ceil(len(stream) / max_needle))
    root = math.sqrt(d_head)  # undoes the division by √Dh, so that sharpness alone sets the scores
    config = ClassifierConfig(
        d_input=len(TOKENS),
        d_output=1,
        d_model=d_head * max_needle,
        n_layers=3,
        n_heads=max_needle,
        d_ff=len(LETTERS) * max_needle + 1,
        max_len=max_len,
        norm="none",
        bias=False,
    )
    model = SequenceClassifier(config)
    weights = {name: torch.zeros_like(weight) for name, weight in model.state_dict().items()}
    _set_ends(weights, stream)
    for j in range(max_needle):
        _set_head(weights, 0, j * d_head, look_ahead(j + 1, max_len), stream, sharpness * root)
        _set_head(weights, 1, j * d_head, hear_needle(j, max_len), stream, sharpness * root)
    _set_misses(weights, stream, max_len, max_needle)
    _set_head(weights, 2, 0, find_fewest_misses(), stream, sharpness * root)
    model.load_state_dict(weights)
    return model.eval()


def directions(max_len: int, max_needle: int) -> list[str]:
    """The names of the numbers in the residual stream, in their order."""
    places = [f"place {p}" for p in range(max_len)]
    ahead = [f"+{j + 1} is {letter}" for j in range(max_needle) for letter in LETTERS]
    needle = [f"needle {j} is {letter}" for j in range(max_needle) for letter in LETTERS]
    return [*TOKENS, *places, *ahead, *needle, "separator's place", "misses", "fewest misses"]


# What each head asks, offers and says


@dataclass(frozen=True)
class Head:
    """asks, offers: from the stream to topics; says: from the stream there to the stream here."""

    asks: Sequence[Sentence]
    offers: Sequence[Sentence]
    says: Sequence[Sentence]


def look_ahead(j: int, max_len: int) -> Head:
    """Which letter stands j places on? None, if there is no such place: then [CLS] answers."""
    targets = range(j, max_len)
    return Head(
        asks=[
            *((f"place {p - j}", f"place {p}", 2) for p in targets),
            *((token, "[CLS]", 1) for token in TOKENS),
        ],
        offers=[*((f"place {p}", f"place {p}", 1) for p in targets), ("[CLS]", "[CLS]", 1)],
        says=[(letter, f"+{j} is {letter}", 1) for letter in LETTERS],
    )


def hear_needle(j: int, max_len: int) -> Head:
    """The needle's letter j stands j + 1 places after the separator, which knows what is ahead."""
    letters = [(f"+{j + 1} is {letter}", f"needle {j} is {letter}", 1) for letter in LETTERS]
    places = [(f"place {p}", "separator's place", p) for p in range(max_len)]
    return Head(
        asks=[(token, "|", 1) for token in TOKENS],
        offers=[("|", "|", 1)],
        says=[*letters, *places] if j == 0 else letters,
    )


def find_fewest_misses() -> Head:
    """The fewer misses, the louder the answer."""
    return Head(
        asks=[(token, "misses", -1) for token in TOKENS],
        offers=[("misses", "misses", 1)],
        says=[("misses", "fewest misses", 1)],
    )


# From sentences to weights


def _set_ends(weights: Weights, stream: Sequence[str]) -> None:
    """A token and its place come in as themselves; the answer goes out."""
    for token, name in enumerate(TOKENS):
        weights["embedding.weight"][stream.index(name), token] = 1
    for place, row in enumerate(weights["positions.weight"]):
        row[stream.index(f"place {place}")] = 1
    weights["head.weight"][0, stream.index("[CLS]")] = 1
    weights["head.weight"][0, stream.index("fewest misses")] = -2


def _set_head(
    weights: Weights, block: int, start: int, head: Head, stream: Sequence[str], scale: float
) -> None:
    """The head whose columns begin at `start`."""
    topics = list(dict.fromkeys(what for _, what, _ in head.asks))
    heard = list(dict.fromkeys(what for _, what, _ in head.says))
    for name, columns, sentences, factor in (
        ("proj_q", topics, head.asks, scale),
        ("proj_k", topics, head.offers, 1.0),
        ("proj_v", heard, head.says, 1.0),
    ):
        weight = weights[f"stack.blocks.{block}.attention.{name}.weight"]
        table = torch.tensor(factor * matrix(stream, columns, sentences).T)
        weight[start : start + len(columns), : len(stream)] = table
    out = weights[f"stack.blocks.{block}.attention.proj_out.weight"]
    for column, name in enumerate(heard, start):
        out[stream.index(name), column] = 1


def _set_misses(weights: Weights, stream: Sequence[str], max_len: int, max_needle: int) -> None:
    """misses = Σ relu(needle j is a − +j is a) + relu(own place − separator's place)."""
    units: list[list[tuple[str, float]]] = [
        [(f"needle {j} is {letter}", 1), (f"+{j} is {letter}" if j else letter, -1)]
        for j in range(max_needle)
        for letter in LETTERS
    ]
    units.append([*((f"place {p}", p) for p in range(max_len)), ("separator's place", -1)])
    for unit, parts in enumerate(units):
        for name, how_much in parts:
            proj_in = weights["stack.blocks.1.feed_forward.proj_in.weight"]
            proj_in[unit, stream.index(name)] = how_much
        weights["stack.blocks.1.feed_forward.proj_out.weight"][stream.index("misses"), unit] = 1
