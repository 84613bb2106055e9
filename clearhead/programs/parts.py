"""The parts of a compiled model as lists of sentences (who, what, how much), as in a design.

    a head    asks: what a query looks for; offers: what a key has; says: what a selected key writes
    a unit    relu(Σ reads), written to directions: one number inside a feed-forward layer

With sharpness s, a selected key scores 2s more than any other. `copy` puts the start token between
the two, so it is attended to where nothing is selected, and says nothing. `count` gives it the same
score as a selected key: of 1 + k equal weights it has one, so its weight is 1 / (1 + k).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from clearhead.programs.clauses import Match, factor_table
from clearhead.programs.variables import Form, Number, Variable

START, TOKEN = "start", "token"  # 1 at the start token, 1 at every other token
Sentence = tuple[str, str, float]
ROUNDING = 2.0**-44  # of the largest term: float64 has 52 bits, and a sum rounds many times
SHARPNESS = 40.0  # e^−40 is 4e−18: beside 1, float64 has no digit left for the error


@dataclass
class Head:
    """One attention head of a layer."""

    layer: int
    about: str
    kind: str  # "copy" or "count"
    matches: tuple[Match, ...]
    asks: list[Sentence]
    offers: list[Sentence]
    says: list[Sentence] = field(default_factory=list)


@dataclass(frozen=True)
class Unit:
    """relu(Σ amount · direction), written to directions."""

    reads: dict[str, float]
    writes: dict[str, float]

    def keep(self, directions: set[str]) -> "Unit":
        """The same unit, writing only to these."""
        return Unit(self.reads, {what: x for what, x in self.writes.items() if what in directions})


# Heads


def build_head(
    layer: int, about: str, kind: str, matches: tuple[Match, ...], sharpness: float
) -> Head:
    """A head that attends to the keys that fit by all matches; it says nothing yet."""
    step, asks, offers = 2 * sharpness, [], []
    for number, match in enumerate(matches):
        asking, offering = factor_table(match.table)
        for topic, row in enumerate(offering):
            name = f"{number}.{topic}"
            queries = zip(match.query.directions, asking, strict=True)
            asks += [(who, name, step) for who, amounts in queries if amounts[topic]]
            keys = zip(match.key.directions, row, strict=True)
            offers += [(who, name, 1.0) for who, amount in keys if amount]
    fallback = step * len(matches) - (sharpness if kind == "copy" else 0.0)
    asks += [(START, START, fallback), (TOKEN, START, fallback)]
    return Head(layer, about, kind, matches, asks, [*offers, (START, START, 1.0)])


def leak(head: Head, max_len: int, sharpness: float) -> float:
    """How much of a head's attention is elsewhere than it should be, at most.

    Up to max_len keys have e^−gap times the weight of the right ones. Errors of the one-hot
    variables move scores by `shift` at most, which also makes equal weights unequal.
    """
    errors = [m.query.error + m.key.error + m.query.error * m.key.error for m in head.matches]
    shift = 2 * sharpness * sum(errors)
    gap = sharpness if head.kind == "copy" else 2 * sharpness
    noise = max_len * math.exp(min(2 * shift - gap, 700))
    return noise / (1 + noise) + math.expm1(min(2 * shift, 700))


# Units


def build_units(form: Form, target: Variable, common: Any, sharpness: float) -> list[Unit]:
    """The units that move a one-hot variable from its common value to that of the form."""
    units: list[Unit] = []
    worst = 4 * form.error  # of the gap 1 between "all of them" and "all but one"
    for row, results in form.table.items():
        gate = [v.direction(value) for v, value in zip(form.variables, row, strict=True)]
        if results[0] != common:
            units += _step_at_all(gate, _move(target, common, results[0]))
        for place in range(1, len(results)):
            if form.number is not None and results[place] != results[place - 1]:
                step = Step.of(form.number, place)
                _check_digits(form.number, step, form.label)
                writes = _move(target, results[place - 1], results[place])
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
    """Refuse a step that floating point cannot tell from 0 beside the terms of the number."""
    if step.width < number.largest_term * Fraction(ROUNDING):
        raise ValueError(
            f"{label!r} tells apart numbers that differ by {float(2 * step.width):.2g}, too little "
            f"for floating point beside {float(number.largest_term):.2g}; group the values first"
        )


@dataclass(frozen=True)
class Step:
    """From 0 at `low` to 1 at `low + width`: the middle half of the gap between two values.

    strength: how much a closed gate subtracts, enough for any value.
    """

    low: Fraction
    width: Fraction
    strength: Fraction

    @classmethod
    def of(cls, number: Number, place: int) -> "Step":
        below, above = number.values[place - 1], number.values[place]
        low, width = below + (above - below) / 4, (above - below) / 2
        return cls(low, width, max(number.values[-1], Fraction(0)) - min(low, Fraction(0)) + width)


def _move(target: Variable, old: Any, new: Any) -> dict[str, float]:
    return {target.direction(old): -1.0, target.direction(new): 1.0}


def _step_at_all(gate: list[str], writes: dict[str, float]) -> list[Unit]:
    """A step from 0 to 1 where all directions of the gate are 1: their sum is above m − 1/2."""
    m = len(gate)
    return _step([(name, Fraction(1)) for name in gate], m - Fraction(3, 4), Fraction(1, 2), writes)


def _step_above(
    number: Number, step: Step, gate: list[str], writes: dict[str, float]
) -> list[Unit]:
    """A step of the number, where all directions of the gate are 1.

    Each direction of the gate that is 0 lowers the sum so far that both units are 0. Being a token
    is one of them: at the start token nothing is written.
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
        ends = [(START, constant * width), (TOKEN, constant * width)]
        for name, amount in [*reads, *ends]:
            total[name] = total.get(name, Fraction(0)) + amount / width
        amounts = {name: float(amount) for name, amount in total.items() if amount}
        units.append(Unit(amounts, {name: sign * amount for name, amount in writes.items()}))
    return units
