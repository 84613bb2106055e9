"""Three ways to find a needle in a haystack, as programs of three layers.

    layer 0    every letter reads the letters next to it: after it, or before it
    layer 1    the haystack compares:  each of its letters fetches the needle, and compares
               the needle compares:    each of its letters looks for its like in the haystack
               the answer compares:    the token that answers fetches the needle,
    layer 2                            and looks for it in the haystack
               otherwise it asks the haystack whether it found the needle, or the needle whether it
               was found

The first is `clearhead program show substring`. A program has no [CLS]: every token answers. The
step is +1 for programs that read the letters after a letter, −1 for the letters before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clearhead.programs import (
    Selector,
    Sequence,
    aggregate,
    everything,
    indices,
    select,
    selector_width,
    tokens,
    where,
)

LONGEST_NEEDLE = 3
SIDES = {1: "after", -1: "before"}  # the neighbours that a letter reads, by step

separator = aggregate(where((tokens == "|").named("is |")), indices, default=-1).named("separator")
is_haystack = (indices < separator).named("is haystack")


@dataclass(frozen=True)
class Candidate:
    """A program that may be what the model does.

    readers: in each layer, the group of tokens whose attention matters for the answer.
    """

    name: str
    build: Callable[[int], Sequence]
    readers: tuple[str, str, str]


def haystack_compares(step: int) -> Sequence:
    """Whether the needle occurs: every letter of the haystack compares what follows it."""
    match: Selector = where(is_haystack)
    for number, letter in enumerate(read_neighbours(step)):
        is_hit = letter.map(_fits, _fetch(letter, step, number), label=f"hit {number}")
        match = match & where(is_hit)
    return (selector_width(match).named("matches") > 0).named("found")


def needle_compares(step: int) -> Sequence:
    """Whether the needle occurs: its letters look for their like in the haystack."""
    like: Selector = where(is_haystack)
    for letter in read_neighbours(step):
        like = like & select(letter, letter, _fits)
    has_like = (selector_width(like).named("its like") > 0).named("has its like")
    return aggregate(select(indices, _find_anchor(step), "=="), has_like).named("found")


def answer_compares(step: int) -> Sequence:
    """Whether the needle occurs: the token that answers fetches it, and looks for it."""
    match: Selector = where(is_haystack)
    for number, letter in enumerate(read_neighbours(step)):
        match = match & select(letter, _fetch(letter, step, number), _fits)
    return (selector_width(match).named("matches") > 0).named("found")


CANDIDATES = (
    Candidate("haystack", haystack_compares, ("letters", "haystack", "answer")),
    Candidate("needle", needle_compares, ("letters", "needle", "answer")),
    Candidate("answer", answer_compares, ("letters", "answer", "answer")),
)


# What the three share


def read_neighbours(step: int) -> list[Sequence]:
    """A letter, its neighbour, and the neighbour of that; None from the separator or the end on."""
    near = [
        aggregate(select(indices, indices + step * far, "=="), tokens).named(
            f"token {step * far:+d}"
        )
        for far in range(1, LONGEST_NEEDLE)
    ]
    letters = [
        near[far].map(
            lambda last, *nearer: None if "|" in (last, *nearer) else last,
            *near[:far],
            label=f"letter {step * (far + 1):+d}",
        )
        for far in range(LONGEST_NEEDLE - 1)
    ]
    return [tokens, *letters]


def _fits(has: Any, needs: Any) -> bool:
    """Whether a letter is the one that is needed; past the needle's end any is."""
    return needs is None or has == needs


def _find_anchor(step: int) -> Sequence:
    """The index of the needle's first letter, or of its last if letters read backwards."""
    if step > 0:
        return (separator + 1).named("anchor")
    return (selector_width(everything).named("length") - 1).named("anchor")


def _fetch(letter: Sequence, step: int, number: int) -> Sequence:
    """What the needle has for this letter."""
    at_anchor = select(indices, _find_anchor(step), "==")
    return aggregate(at_anchor, letter).named(f"needle {number}")
