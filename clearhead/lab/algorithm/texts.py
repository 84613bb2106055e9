"""The texts: the longest haystacks and all needles that the model is trained on.

All texts of a batch have needles of one length, so that a token of one text can be exchanged with
the same token of another.
"""

import random

HAYSTACK, NEEDLES = 8, (1, 2, 3)  # letters
SEPARATOR = HAYSTACK + 1  # its position, after [CLS] and the haystack

Pairs = list[tuple[str, str]]


def draw_texts(draw: random.Random, length: int, n: int) -> list[str]:
    """n texts with needles of this length, answered yes and no in turn."""
    texts: list[str] = []
    while len(texts) < n:
        text = f"{_draw_letters(draw, HAYSTACK)}|{_draw_letters(draw, length)}"
        if is_found(text) == (len(texts) % 2 == 0):
            texts.append(text)
    return texts


def draw_pairs(draw: random.Random, length: int, kind: str, n: int) -> Pairs:
    """n pairs of texts with different answers, which differ in the needle or in the haystack."""
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
    """The right answer."""
    haystack, _, needle = text.partition("|")
    return needle in haystack


def _draw_letters(draw: random.Random, n: int) -> str:
    return "".join(draw.choices("abc", k=n))
