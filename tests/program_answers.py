"""What the programs of the library compute, written as plain Python, and all inputs to try."""

from itertools import product

from clearhead.programs import interpret


def reverse(x):
    return x[::-1]


def histogram(x):
    return [x.count(token) for token in x]


def double_histogram(x):
    return [len({other for other in x if x.count(other) == x.count(token)}) for token in x]


def most_frequent(x):
    best = max(x.count(token) for token in x)
    return [min(token for token in x if x.count(token) == best)] * len(x)


def shift(x):
    return ["-", *x[:-1]]


def balanced(x):
    text = "".join(x)
    while "()" in text:
        text = text.replace("()", "")
    return [text == ""] * len(x)


def substring(x, max_needle=3):
    haystack, needle = "".join(x).split("|")
    return [needle[:max_needle] in haystack] * len(x)


def induction(x):
    def follow(place):
        earlier = [j for j in range(place) if x[j] == x[place]]
        return x[earlier[-1] + 1] if earlier else "-"

    return [follow(place) for place in range(len(x))]


def first(x):
    return [x[0]] * len(x)


def unique(x):
    return [1 if x.count(token) == 1 else -1 for token in x]


ANSWERS = {
    "identity": list,
    "first": first,
    "unique": unique,
    "shift": shift,
    "reverse": reverse,
    "histogram": histogram,
    "double-histogram": double_histogram,
    "sort": sorted,
    "most-frequent": most_frequent,
    "balanced": balanced,
    "substring": substring,
    "induction": induction,
}


def list_inputs(vocabulary, max_len):
    """Every sequence of 1 to max_len tokens; with a | in the vocabulary, those with one of them."""
    inputs = [list(x) for n in range(1, max_len + 1) for x in product(vocabulary, repeat=n)]
    return [x for x in inputs if "|" not in vocabulary or x.count("|") == 1]


def find_values(variable, x):
    """The exact values of a variable: a width is stored as 1 / (1 + width)."""
    exact = interpret(variable.sequence, x)
    if variable.label.startswith("1 / (1 + "):
        return [1 / (1 + width) for width in exact]
    return exact
