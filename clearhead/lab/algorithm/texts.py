"""Texts with the longest haystack and all needle lengths that the model is trained on.

All texts of a batch have needles of the same length, so that activations of one text can be patched
into another, position by position.
"""

import random

HAYSTACK, NEEDLES = 8, (1, 2, 3)  # letters
SEPARATOR = HAYSTACK + 1  # the position of |, after [CLS] and the haystack

Pairs = list[tuple[str, str]]


def draw_texts(draw: random.Random, length: int, n: int) -> list[str]:
    """n random texts with needles of this length; the answers alternate between yes and no."""
    texts: list[str] = []
    while len(texts) < n:
        text = f"{_draw_letters(draw, HAYSTACK)}|{_draw_letters(draw, length)}"
        if is_found(text) == (len(texts) % 2 == 0):
            texts.append(text)
    return texts


def draw_pairs(draw: random.Random, length: int, kind: str, n: int) -> Pairs:
    """n pairs of texts with different answers that differ only in one half.

    kind: that half, "needle" or "haystack".
    """
    pairs: Pairs = []
    while len(pairs) < n:
        haystacks = [_draw_letters(draw, HAYSTACK) for _ in range(2)]
        needles = [_draw_letters(draw, length) for _ in range(2)]
        first = f"{haystacks[0]}|{needles[0]}"
        second = f"{haystacks[kind == 'haystack']}|{needles[kind == 'needle']}"
        if is_found(first) != is_found(second):
            pairs.append((first, second))
    return pairs


def is_found(text: str) -> bool:
    """The right answer: whether the needle occurs in the haystack."""
    haystack, _, needle = text.partition("|")
    return needle in haystack


def _draw_letters(draw: random.Random, n: int) -> str:
    return "".join(draw.choices("abc", k=n))
