"""The parts of a compiled model, heads and hidden units, as lists of their non-zero weights.

    a head    asks → W_q, offers → W_k, says → W_v and W_O, as in models/smallest/designs.py
    a unit    relu(Σ amount · direction), added to directions: one hidden unit of a feed-forward

An entry of asks or offers is (direction, topic, amount). A topic is a column of queries and keys,
so the score is the sum over topics of asks times offers. An entry of says is (direction read,
direction written, amount).

With sharpness s, a selected key scores 2s more than an unselected one. A `copy` head gives the
start token a score halfway between, so a query attends to it where nothing is selected; its value
is 0, so the head then writes nothing. A `count` head gives the start token the score of a selected
key. With k selected keys it has one of 1 + k equal weights, so its weight is 1 / (1 + k).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from clearhead.programs.clauses import Match, factor_table
from clearhead.programs.variables import Form, Number, Variable

START, TOKEN = "start", "token"  # 1 at the start token, 1 at every other token
Entry = tuple[str, str, float]
ROUNDING = 2.0**-44  # relative to the largest term: float64 has 52 bits, and a sum rounds often
SHARPNESS = 40.0  # e^−40 is 4e−18: beside 1, float64 has no digit left for the error


@dataclass
class Head:
    """One attention head of a layer; about: the label of its selector."""

    layer: int
    about: str
    kind: str  # "copy" or "count"
    matches: tuple[Match, ...]
    asks: list[Entry]
    offers: list[Entry]
    says: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Unit:
    """One hidden unit: relu(Σ amount · direction) over reads; its output is added to writes."""

    reads: dict[str, float]
    writes: dict[str, float]

    def keep(self, directions: set[str]) -> "Unit":
        """The same unit, which writes only to these directions."""
        return Unit(self.reads, {name: x for name, x in self.writes.items() if name in directions})


# Heads


def build_head(
    layer: int, about: str, kind: str, matches: tuple[Match, ...], sharpness: float
) -> Head:
    """A head that attends to the keys which fit all matches; what it writes is added later."""
    step, asks, offers = 2 * sharpness, [], []
    for number, match in enumerate(matches):
        asking, offering = factor_table(match.table)
        for topic, row in enumerate(offering):
            name = f"{number}.{topic}"
            queries = zip(match.query.directions, asking, strict=True)
            asks += [(direction, name, step) for direction, amounts in queries if amounts[topic]]
            keys = zip(match.key.directions, row, strict=True)
            offers += [(direction, name, 1.0) for direction, amount in keys if amount]
    fallback = step * len(matches) - (sharpness if kind == "copy" else 0.0)
    asks += [(START, START, fallback), (TOKEN, START, fallback)]
    return Head(layer, about, kind, matches, asks, [*offers, (START, START, 1.0)])


def bound_leak(head: Head, max_len: int, sharpness: float) -> float:
    """A bound on the share of attention that a head gives to the wrong tokens.

    Up to max_len wrong keys have e^−gap times the weight of a right one. Errors of the one-hot
    variables change each score by at most `shift`, so right keys may also get unequal weights.
    """
    errors = [m.query.error + m.key.error + m.query.error * m.key.error for m in head.matches]
    shift = 2 * sharpness * sum(errors)
    gap = sharpness if head.kind == "copy" else 2 * sharpness
    noise = max_len * math.exp(min(2 * shift - gap, 700))
    return noise / (1 + noise) + math.expm1(min(2 * shift, 700))


# Units


def build_units(form: Form, target: Variable, common: Any, sharpness: float) -> list[Unit]:
    """The units that compute a form and store it one-hot in target.

    The embedding sets target to its most common value; the units move it to other values where
    needed: one step for each combination of values, and one for each change along the number.
    """
    units: list[Unit] = []
    worst = 4 * form.error  # the error as a share of what a step tolerates: 1/4 of the gap 1
    for row, results in form.table.items():
        gate = [v.direction(value) for v, value in zip(form.variables, row, strict=True)]
        if results[0] != common:
            units += _step_at_all(gate, _move(target, common, results[0]))
        for i in range(1, len(results)):
            if form.number is not None and results[i] != results[i - 1]:
                step = Step.of(form.number, i)
                _check_digits(form.number, step, form.label)
                writes = _move(target, results[i - 1], results[i])
                units += _step_above(form.number, step, gate, writes)
                error = form.number.error + float(step.strength) * form.error
                worst = max(worst, 2 * error / float(step.width))
    if worst >= 1:
        raise ValueError(
            f"sharpness must be greater than {sharpness:g}: {form.label!r} reads with an error "
            f"{worst:.2g} times as large as it can correct; the default is {SHARPNESS:g}"
        )
    return units


def _check_digits(number: Number, step: "Step", label: str) -> None:
    """Refuse a step narrower than the rounding error of the number."""
    if step.width < number.largest_term * Fraction(ROUNDING):
        raise ValueError(
            f"{label!r} tells apart numbers that differ by {float(2 * step.width):.2g}, too little "
            f"for floating point beside {float(number.largest_term):.2g}; group the values first"
        )


@dataclass(frozen=True)
class Step:
    """A step of a number: 0 up to `low`, 1 from `low + width` on, linear between.

    It lies in the middle half of the gap between two neighbouring values. strength: an amount that,
    subtracted from any value of the number, gives less than `low`; it switches the step off.
    """

    low: Fraction
    width: Fraction
    strength: Fraction

    @classmethod
    def of(cls, number: Number, i: int) -> "Step":
        """The step between values i − 1 and i of a number."""
        below, above = number.values[i - 1], number.values[i]
        low, width = below + (above - below) / 4, (above - below) / 2
        return cls(low, width, max(number.values[-1], Fraction(0)) - min(low, Fraction(0)) + width)


def _move(target: Variable, old: Any, new: Any) -> dict[str, float]:
    """What to write to change a one-hot variable from the old value to the new one."""
    return {target.direction(old): -1.0, target.direction(new): 1.0}


def _step_at_all(gate: list[str], writes: dict[str, float]) -> list[Unit]:
    """Write 1 where all m directions of the gate are 1, so that their sum is m; 0 elsewhere."""
    m = len(gate)
    return _step([(name, Fraction(1)) for name in gate], m - Fraction(3, 4), Fraction(1, 2), writes)


def _step_above(
    number: Number, step: Step, gate: list[str], writes: dict[str, float]
) -> list[Unit]:
    """A step of the number where all directions of the gate are 1; 0 elsewhere.

    If one direction of the gate is 0, the sum falls below the step, and both units are 0. TOKEN
    belongs to every gate, so nothing is written at the start token.
    """
    open_gate = [(name, step.strength) for name in (*gate, TOKEN)]
    low = step.low + step.strength * len(open_gate)
    return _step([*number.reads, *open_gate], low, step.width, writes)


def _step(
    reads: Iterable[tuple[str, Fraction]], low: Fraction, width: Fraction, writes: dict[str, float]
) -> list[Unit]:
    """relu(x) − relu(x − 1), x = (Σ reads − low) / width: 0 below low, 1 above low + width."""
    units = []
    for shift, sign in ((0, 1.0), (1, -1.0)):
        total: dict[str, Fraction] = {}
        constant = -low / width - shift
        # Exactly one of START and TOKEN is 1, so together they add the constant.
        constants = [(START, constant * width), (TOKEN, constant * width)]
        for name, amount in [*reads, *constants]:
            total[name] = total.get(name, Fraction(0)) + amount / width
        amounts = {name: float(amount) for name, amount in total.items() if amount}
        units.append(Unit(amounts, {name: sign * amount for name, amount in writes.items()}))
    return units
