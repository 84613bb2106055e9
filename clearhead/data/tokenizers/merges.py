"""Byte-pair merging (Sennrich et al. 2016): join neighbours, the best pair first.

    l o w e r     merges: 1. e r   2. l o   3. lo w          →   low er

`merge_pairs` takes n log n steps, so a long text without spaces stays quick. `learn_merges` learns
the merges from words and their counts: it joins the most frequent pair, counts again, and repeats.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

Pair = tuple[int, int]


def merge_pairs(parts: Sequence[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Join neighbours, the pair of lowest rank first, until no pair has a rank.

    rank(left, right) is None for a pair that is never joined. Of equal ranks the leftmost is first.
    """
    text: list[str] = list(parts)
    n = len(text)
    after, before = list(range(1, n + 1)), list(range(-1, n - 1))
    waiting: list[tuple[float, int, str, str]] = []

    def push_pair(i: int) -> None:
        if i >= 0 and after[i] < n:
            left, right = text[i], text[after[i]]
            if (value := rank(left, right)) is not None:
                heapq.heappush(waiting, (value, i, left, right))

    for i in range(n - 1):
        push_pair(i)
    while waiting:
        _, i, left, right = heapq.heappop(waiting)
        j = after[i]
        if text[i] != left or j >= n or text[j] != right:
            continue  # one of the two was joined to another part meanwhile
        text[i], text[j] = left + right, ""
        after[i] = after[j]
        if after[j] < n:
            before[after[j]] = i
        push_pair(before[i])
        push_pair(i)
    return [part for part in text if part]


def read_merges(merges: Sequence[str], known: Collection[str]) -> dict[tuple[str, str], int]:
    """Parse lines "left right": pair → rank. Both parts and their union must be known tokens."""
    ranks: dict[tuple[str, str], int] = {}
    for rank, line in enumerate(merges):
        left, space, right = line.partition(" ") if isinstance(line, str) else ("", "", "")
        if not space or not all(part in known for part in (left, right, left + right)):
            raise ValueError(f"merge {line!r:.60} joins or makes an unknown token")
        if ranks.setdefault((left, right), rank) != rank:
            raise ValueError(f"merge {line!r:.60} occurs twice")
    return ranks


def learn_merges(
    words: Mapping[tuple[int, ...], int], n_tokens: int, n_merges: int, min_count: int
) -> list[Pair]:
    """Find the pairs to join, the first joined first; merge i makes the token n_tokens + i.

    words: the ids of each word, below n_tokens, and how often it occurs. Of pairs that occur
    equally often, the one with the lower ids is joined. There are fewer than n_merges where no pair
    is left that occurs min_count times.
    """
    texts, counts = [list(word) for word in words], list(words.values())
    pairs: Counter[Pair] = Counter()  # how often each pair occurs
    where: defaultdict[Pair, set[int]] = defaultdict(set)  # the words with this pair, now or before

    def count(i: int, sign: int) -> Iterable[Pair]:
        found = list(pairwise(texts[i]))
        for pair in found:
            pairs[pair] += sign * counts[i]
            where[pair].add(i)
        return found

    for i in range(len(texts)):
        count(i, +1)
    queue = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(queue)
    merges: list[Pair] = []
    while queue and len(merges) < n_merges:
        n, best = heapq.heappop(queue)
        if pairs[best] != -n:
            continue  # its count has changed: the new one is in the queue too
        if -n < min_count:
            break
        changed: set[Pair] = set()
        for i in where.pop(best):
            changed.update(count(i, -1))
            texts[i] = _join(texts[i], best, n_tokens + len(merges))
            changed.update(count(i, +1))
        merges.append(best)
        for pair in changed - {best}:
            heapq.heappush(queue, (-pairs[pair], pair))
    return merges


def _join(ids: Sequence[int], pair: Pair, joined: int) -> list[int]:
    """Replace each occurrence of a pair, from the left."""
    result: list[int] = []
    i = 0
    while i < len(ids):
        found = tuple(ids[i : i + 2]) == pair
        result.append(joined if found else ids[i])
        i += 2 if found else 1
    return result
