"""Name the mistake in wrong answers: put each named mistake into the formula, and compare.

A mistake, or a pair of mistakes in different terms, is named only if the formula with it gives
every answer of the student's code, the wrong ones and the right ones.
"""

from collections.abc import Sequence
from itertools import combinations, product

from clearhead.exercises.comparison import differs
from clearhead.exercises.exercise import Asked, Exercise, Mistake

READINGS = 12  # a mistake is tried with this many readings of the weights, likeliest first
PAIR_READINGS = 8  # and a pair of mistakes with this many


def name_mistakes(
    exercise: Exercise, asked: Asked, choice: int, failed: Sequence[int]
) -> tuple[Mistake, ...]:
    """Find the mistake, or the pair of mistakes, that explains every answer; empty if none does."""
    n_choices = max(len(answer.choices) for _, answer in asked)
    choices = [choice, *(i for i in range(min(n_choices, READINGS)) if i != choice)]
    # Failing cases first, and those without a gradient: they rule out most suspects at once.
    order = sorted(range(len(asked)), key=lambda i: (i not in failed, asked[i][0].gradient))
    asked = [asked[i] for i in order]
    singles = product(exercise.dialects(), _list_singles(exercise))
    pairs = product([exercise], _list_pairs(exercise))
    for dialect, found in (*singles, *pairs):
        ways = product(*(each.methods for each in found))
        readings = choices if len(found) == 1 else choices[:PAIR_READINGS]
        for methods, reading in product(ways, readings):
            wrong = dialect.with_mistakes(*methods)
            if not any(differs(wrong, case, answer, reading) for case, answer in asked):
                return found
    return ()


def _list_singles(exercise: Exercise) -> list[tuple[Mistake, ...]]:
    return [(each,) for each in exercise.mistakes.values()]


def _list_pairs(exercise: Exercise) -> list[tuple[Mistake, ...]]:
    every = combinations(exercise.mistakes.values(), 2)
    return [(a, b) for a, b in every if a.term != b.term]
