"""Three ways to find a needle in a haystack, as programs of three layers.

In layer 0 of all three, every letter reads the letters next to it: after it, or before it. Then

    compared by     layer 1                                     layer 2: the answering token
    the haystack    each letter of the haystack fetches the     checks whether a letter of the
                    needle and compares                         haystack has found a match
    the needle      each letter of the needle looks for a       checks whether the needle has
                    match in the haystack                       found a match
    the answer      the answering token fetches the needle      looks for it in the haystack

The first is `clearhead program show substring`. In a program every token is an answering token; in
the trained model it is [CLS]. step: +1 if letters read the letters after them, −1 for before.
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
SIDES = {1: "after", -1: "before"}  # step → which neighbours a letter reads

separator = aggregate(where((tokens == "|").named("is |")), indices, default=-1).named("separator")
is_haystack = (indices < separator).named("is haystack")


@dataclass(frozen=True)
class Candidate:
    """A hypothesis about the trained model.

    build: step → the program. readers: for each layer, the group of tokens whose attention matters
    for the answer.
    """

    name: str
    build: Callable[[int], Sequence]
    readers: tuple[str, str, str]


def haystack_compares(step: int) -> Sequence:
    """Whether the needle occurs: each letter of the haystack compares its neighbours with it."""
    match: Selector = where(is_haystack)
    for number, letter in enumerate(read_neighbours(step)):
        is_hit = letter.map(_fits, _fetch(letter, step, number), label=f"hit {number}")
        match = match & where(is_hit)
    return (selector_width(match).named("matches") > 0).named("found")


def needle_compares(step: int) -> Sequence:
    """Whether the needle occurs: each of its letters looks for a match in the haystack."""
    like: Selector = where(is_haystack)
    for letter in read_neighbours(step):
        like = like & select(letter, letter, _fits)
    has_match = (selector_width(like).named("matches") > 0).named("has match")
    return aggregate(select(indices, _find_anchor(step), "=="), has_match).named("found")


def answer_compares(step: int) -> Sequence:
    """Whether the needle occurs: the answering token fetches it, then looks for a match."""
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
    """Each letter and its next two neighbours; None beyond the separator or the end of the text."""
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
    """Whether a letter equals the needed one; None, beyond the needle's end, matches any letter."""
    return needs is None or has == needs


def _find_anchor(step: int) -> Sequence:
    """The index of the needle's first letter, or of its last if letters read those before them."""
    if step > 0:
        return (separator + 1).named("anchor")
    return (selector_width(everything).named("length") - 1).named("anchor")


def _fetch(letter: Sequence, step: int, number: int) -> Sequence:
    """The value of this neighbour sequence at the needle's anchor, copied to every token."""
    at_anchor = select(indices, _find_anchor(step), "==")
    return aggregate(at_anchor, letter).named(f"needle {number}")
