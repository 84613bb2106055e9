"""Byte-pair merging (Sennrich et al. 2016): join neighbours, the best pair first.

    l o w e r     merges: 1. e r   2. l o   3. lo w          →   low er

`merge_pairs` takes n log n steps, so a long text without spaces stays quick.
"""

import heapq
from collections.abc import Callable, Collection, Sequence


def merge_pairs(parts: Sequence[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Join neighbours, the pair of lowest rank first, until no pair has a rank.

    rank(left, right) is None for a pair that is never joined. Of equal ranks the leftmost is first.
    """
    text: list[str] = list(parts)
    n = len(text)
    after, before = list(range(1, n + 1)), list(range(-1, n - 1))
    waiting: list[tuple[float, int, str, str]] = []

    def consider(i: int) -> None:
        if i >= 0 and after[i] < n:
            left, right = text[i], text[after[i]]
            if (value := rank(left, right)) is not None:
                heapq.heappush(waiting, (value, i, left, right))

    for i in range(n - 1):
        consider(i)
    while waiting:
        _, i, left, right = heapq.heappop(waiting)
        j = after[i]
        if text[i] != left or j >= n or text[j] != right:
            continue  # one of the two was joined to another part meanwhile
        text[i], text[j] = left + right, ""
        after[i] = after[j]
        if after[j] < n:
            before[after[j]] = i
        consider(before[i])
        consider(i)
    return [part for part in text if part]


def read_merges(merges: Sequence[str], known: Collection[str]) -> dict[tuple[str, str], int]:
    """Parse lines "left right": pair → rank. Both parts and their union must be known tokens."""
    ranks: dict[tuple[str, str], int] = {}
    for rank, line in enumerate(merges):
        left, space, right = line.partition(" ") if isinstance(line, str) else ("", "", "")
        if not space or not all(part in known for part in (left, right, left + right)):
            raise ValueError(f"merge {line!a:.60} joins or makes an unknown token")
        if ranks.setdefault((left, right), rank) != rank:
            raise ValueError(f"merge {line!a:.60} occurs twice")
    return ranks
