"""The language by its interpreter: what each part means, how it is labelled, what is refused."""

from fractions import Fraction
from functools import reduce
from operator import add

import pytest

from clearhead.programs import (
    aggregate,
    everything,
    indices,
    interpret,
    select,
    selector_width,
    tokens,
    where,
)

same = select(tokens, tokens, "==")
before = select(indices, indices, "<")
CODE = tokens.map("abc".index, label="code")


@pytest.mark.parametrize(
    ("program", "values"),
    [
        (tokens, ["a", "b", "b", "c"]),
        (indices, [0, 1, 2, 3]),
        (tokens == "b", [False, True, True, False]),
        (~(tokens == "b"), [True, False, False, True]),
        ((tokens == "b") & (indices > 1), [False, False, True, False]),
        ((tokens == "a") | (indices > 2), [True, False, False, True]),
        (10 - indices * 2, [10, 8, 6, 4]),
        (-indices, [0, -1, -2, -3]),
        ((indices + CODE) % 3, [0, 2, 0, 2]),
        (indices // 2, [0, 0, 1, 1]),
        (tokens.map(lambda a, i: a * i, indices), ["", "b", "bb", "ccc"]),
        (selector_width(everything), [4, 4, 4, 4]),
        (selector_width(same), [1, 2, 2, 1]),
        (selector_width(same & before), [0, 0, 1, 0]),
        (selector_width(same | before), [1, 3, 3, 4]),
        (selector_width(~same), [3, 2, 2, 3]),
        (selector_width(where(tokens == "b")), [2, 2, 2, 2]),
        (selector_width(select(indices, indices, lambda key, query: key > query)), [3, 2, 1, 0]),
        (aggregate(same, tokens), ["a", "b", "b", "c"]),
        (aggregate(same & before, tokens), [None, None, "b", None]),
        (aggregate(same & before, tokens, default="x"), ["x", "x", "b", "x"]),
        (aggregate(same, indices.numeric()), [0, Fraction(3, 2), Fraction(3, 2), 3]),
        (aggregate(before, indices.numeric(), default=-1), [-1, 0, Fraction(1, 2), 1]),
        (aggregate(before, indices.numeric()), [0, 0, Fraction(1, 2), 1]),
        (indices.numeric() / 2 + 1 - 2 * CODE.numeric(), [1, Fraction(-1, 2), 0, Fraction(-3, 2)]),
        (indices / 2 > CODE.numeric(), [False, False, False, False]),
        ((indices / 2).categorical(), [0, Fraction(1, 2), 1, Fraction(3, 2)]),
    ],
    ids=repr,
)
def test_a_program_means_what_its_definition_says(program, values):
    assert interpret(program, "abbc") == values


def test_labels_say_what_a_part_computes():
    assert selector_width(same).label == "number of tokens == tokens"
    assert aggregate(same & ~before, indices).label == (
        "indices where tokens == tokens and not (indices < indices)"
    )
    assert (2 * indices.numeric() - CODE.numeric() + 1).label == "2·indices - code + 1"
    assert (indices - 1).named("left").label == "left"
    assert repr(tokens.map(len)) == "len(tokens)"


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: select(tokens, "a", "=="), TypeError, "queries of select must be a sequence"),
        (lambda: select(tokens, tokens, "="), ValueError, "one of ==, !=, <, <=, >, >=, got '='"),
        (lambda: select(tokens, tokens, 3), TypeError, "must be a function or a comparison, got 3"),
        (
            lambda: select(indices.numeric(), indices, "=="),
            TypeError,
            r"keys of select must be categorical, but indices is numeric; use \.categorical\(\)",
        ),
        (lambda: aggregate(tokens, tokens), TypeError, r"made by select\(…\), got tokens"),
        (lambda: aggregate(same, same), TypeError, "values of aggregate must be a sequence"),
        (lambda: aggregate(same, indices.numeric(), "x"), TypeError, "needs numbers, got 'x'"),
        (lambda: selector_width(tokens), TypeError, "selector_width needs a selector"),
        (lambda: same & tokens, TypeError, "& needs a selector"),
        (lambda: tokens.map(3), TypeError, "map needs a function of the values, got 3"),
        (lambda: tokens.named(3), TypeError, "name must be a string, got 3"),
        (lambda: indices / 0, ValueError, "indices cannot be divided by 0; give another number"),
        (lambda: interpret(tokens.numeric(), ["1/0"]), TypeError, "needs numbers, got '1/0'"),
        (lambda: aggregate(same, tokens, []), TypeError, r"default must be a value .* got \[\]"),
        (
            lambda: interpret(reduce(add, [1] * 2000, indices), "ab"),
            ValueError,
            "the program is nested too deeply",
        ),
        (lambda: tokens.map(len, "a"), TypeError, "map must be a sequence"),
        (lambda: indices.numeric() * indices.numeric(), TypeError, r"no '\*'.* \.categorical\(\)"),
        (lambda: bool(tokens == "a"), TypeError, "has no truth value .* use &, | and ~"),
        (lambda: interpret("abc", tokens), TypeError, "program must be a sequence"),
        (lambda: interpret(tokens, ""), ValueError, "the sequence is empty"),
        (lambda: interpret(tokens.numeric(), "ab"), TypeError, "needs numbers, got 'a'"),
        (
            lambda: interpret(aggregate(everything, tokens), "ab"),
            ValueError,
            "at position 0 'everything' selects 'a' and 'b' of 'tokens'",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(build, error, words):
    with pytest.raises(error, match=words):
        build()
