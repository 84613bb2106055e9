"""Example programs, each in a few lines; `clearhead program show NAME` prints the layers of one.

A program gives a value at every position. If the answer is about the whole input, such as whether
all brackets match, it is the same at every position.
"""

from clearhead.programs.language import (
    aggregate,
    everything,
    indices,
    select,
    selector_width,
    tokens,
    where,
)
from clearhead.programs.sequences import Sequence


def reverse() -> Sequence:
    """The tokens from last to first."""
    length = selector_width(everything).named("length")
    opposite = (length - indices - 1).named("opposite")
    return aggregate(select(indices, opposite, "=="), tokens).named("reversed")


def histogram() -> Sequence:
    """How often each token occurs."""
    return selector_width(select(tokens, tokens, "==")).named("count")


def sort() -> Sequence:
    """The tokens in ascending order; equal tokens keep their order."""
    smaller = select(tokens, tokens, "<")
    equal_before = select(tokens, tokens, "==") & select(indices, indices, "<")
    rank = selector_width(smaller | equal_before).named("rank")
    return aggregate(select(rank, indices, "=="), tokens).named("sorted")


def most_frequent() -> Sequence:
    """The token that occurs most often; in a tie, the smallest."""
    count = histogram()
    more_often = select(count, count, ">")
    as_often = select(count, count, "==") & select(tokens, tokens, "<")
    n_better = selector_width(more_often | as_often).named("better ones")
    is_best = (n_better == 0).named("is best")
    return aggregate(where(is_best), tokens).named("most frequent")


def double_histogram() -> Sequence:
    """How many different tokens occur as often as this one."""
    count = histogram()
    n_earlier = selector_width(select(tokens, tokens, "==") & select(indices, indices, "<"))
    is_first = (n_earlier.named("earlier ones") == 0).named("is first")
    return selector_width(select(count, count, "==") & where(is_first)).named("double count")


def shift(steps: int = 1, default: str = "-") -> Sequence:
    """Each token moved some positions to the right."""
    source = indices - steps
    return aggregate(select(indices, source, "=="), tokens, default).named("shifted")


def balanced() -> Sequence:
    """Whether all brackets ( and ) match.

    They match if no prefix has more ")" than "(", and the whole input has as many of each.
    """
    change = tokens.map({"(": 1, ")": -1}.__getitem__, label="change").numeric()
    height = aggregate(select(indices, indices, "<="), change).named("height")
    total = aggregate(everything, change).named("total")
    is_wrong = (height < 0).named("closes too many")
    n_wrong = selector_width(where(is_wrong)).named("wrong prefixes")
    is_even = (total == 0).named("opens as many")
    return ((n_wrong == 0) & is_even).named("balanced")


def substring(max_needle: int = 3) -> Sequence:
    """Whether the needle occurs in the haystack: haystack|needle, with one separator.

    Only the first max_needle tokens of the needle count. The empty needle occurs everywhere.
    """
    is_separator = (tokens == "|").named("is |")
    separator = aggregate(where(is_separator), indices, default=-1).named("separator")
    is_haystack = (indices <= separator).named("is haystack")
    fits = where(is_haystack)
    for j in range(max_needle):
        here = aggregate(select(indices, indices + j, "=="), tokens) if j else tokens
        here = here.named(f"token +{j}")
        wanted = aggregate(select(indices, separator + (1 + j), "=="), tokens)
        wanted = wanted.named(f"needle {j}")
        is_hit = wanted.map(lambda a, b: a in (None, b), here, label=f"hit {j}")
        fits = fits & where(is_hit)
    return (selector_width(fits).named("matches") > 0).named("found")


def induction(default: str = "-") -> Sequence:
    """The token after the last earlier occurrence of this one."""
    so_far = select(tokens, tokens, "==") & select(indices, indices, "<=")
    count = selector_width(so_far).named("count so far")
    before = select(indices, indices - 1, "==")
    previous = aggregate(before, tokens).named("previous token")
    previous_count = aggregate(before, count, default=0).named("count of previous")
    # Select keys whose previous token is the last earlier occurrence of the query's token: an equal
    # token with a count that is one less.
    follows = select(previous, tokens, "==") & select(previous_count + 1, count, "==")
    return aggregate(follows, tokens, default).named("what followed")


# The designs of models/smallest/designs.py


def identity() -> Sequence:
    """Each token itself: it attends to all equal tokens and copies their value."""
    return aggregate(select(tokens, tokens, "=="), tokens).named("same")


def first() -> Sequence:
    """The first token."""
    return aggregate(where((indices == 0).named("is first")), tokens).named("first token")


def unique() -> Sequence:
    """+1 for a token that occurs once, −1 for a repeated one."""
    twin = select(tokens, tokens, "==") & select(indices, indices, "!=")
    return aggregate(twin, tokens.map(lambda _: -1, label="-1").numeric(), default=1).named(
        "unique"
    )
