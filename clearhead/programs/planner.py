"""From a program to layers: what is stored in the stream, by which head or feed-forward layer.

Everything is computed in the first layer in which its inputs are there; what is independent shares
a layer, side by side. Inside a layer attention comes first, so a selector width, the weight on the
start token, can be turned into a number by the feed-forward layer of the same layer.

    tokens, indices            stored by the embedding and the positions
    map of one variable        free: read from the variable's directions
    sum, multiple of numbers   free: a linear function of the stream
    aggregate                  a head that copies
    selector_width             a head that counts, read by the feed-forward layer
    any other map              a feed-forward layer: a step for each combination of values

Maps of maps are joined into one function of stored variables while its table is small.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from clearhead.programs import heads
from clearhead.programs.parts import START, TOKEN, Head, Unit, build_units, leak
from clearhead.programs.sequences import (
    Aggregate,
    Indices,
    Linear,
    Map,
    SelectorWidth,
    Sequence,
    Tokens,
    as_fraction,
)
from clearhead.programs.variables import Form, Number, Variable, call

MAX_JOINED = 600  # entries of a table for which maps of maps are joined


@dataclass
class Planner:
    """Collects variables, heads and units while a program is read."""

    vocabulary: tuple[Any, ...]
    max_len: int
    sharpness: float
    variables: list[Variable] = field(default_factory=list)
    defaults: dict[str, float] = field(default_factory=dict)  # what each token's embedding holds
    heads: list[Head] = field(default_factory=list)
    units: dict[int, list[tuple[Variable, list[Unit]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = self.add(Variable(Tokens(), "tokens", self.vocabulary))
        self.indices = self.add(Variable(Indices(), "indices", tuple(range(self.max_len))))
        self.forms: dict[Sequence, Form] = {}
        self.stored: dict[Sequence, Variable] = {}
        self.joint: dict[tuple[Sequence, ...], Sequence] = {}

    def add(self, variable: Variable) -> Variable:
        """Store a variable under a label of its own."""
        taken = {START, TOKEN, *(name for other in self.variables for name in other.directions)}
        taken |= {other.label for other in self.variables}
        label, number = variable.label, 1
        while taken & {variable.label, *variable.directions}:
            number += 1
            variable.label = f"{label} ({number})"
        self.variables.append(variable)
        return variable

    def leak(self, head: Head) -> float:
        """How much of a head's attention is elsewhere than it should be, at most."""
        return leak(head, self.max_len, self.sharpness)

    # Reading

    def read(self, sequence: Sequence) -> Form:
        """A categorical sequence as a function of variables."""
        if sequence not in self.forms:
            self.forms[sequence] = self._read(sequence)
        return self.forms[sequence]

    def _read(self, sequence: Sequence) -> Form:
        match sequence:
            case Tokens():
                return Form.of(self.tokens)
            case Indices():
                return Form.of(self.indices)
            case Aggregate():
                return Form.of(heads.copy(self, sequence))
            case SelectorWidth():
                share = Number.of(heads.count(self, sequence))
                return Form((), share, lambda weight: int(1 / weight) - 1, label=sequence.label)
            case Map():
                return self._join_maps(sequence)
        raise TypeError(f"{sequence!r} is no categorical sequence")

    def _join_maps(self, sequence: Map) -> Form:
        inputs = sequence.inputs
        if sum(part.is_numeric for part in inputs) > 1:
            labels = " and ".join(part.label for part in inputs if part.is_numeric)
            raise TypeError(
                f"{sequence.label!r} maps {labels}, of which only one may be numeric; use "
                f".categorical() on the others, or map their sum or difference"
            )
        parts = [self.read_any(part) for part in inputs]
        while (form := join_forms(sequence, parts)) is None or not _is_small(form):
            others = [
                n for n, part in enumerate(parts) if not (part.is_free or inputs[n].is_numeric)
            ]
            if not others:
                assert form is not None
                return form
            earliest = min(others, key=lambda n: parts[n].slot)
            parts[earliest] = Form.of(self.store(inputs[earliest]))
        return form

    def read_any(self, sequence: Sequence) -> Form:
        """As read; a numeric sequence becomes a function of itself."""
        if not sequence.is_numeric:
            return self.read(sequence)
        return Form((), self.read_number(sequence), lambda number: number, label=sequence.label)

    def read_number(self, sequence: Sequence) -> Number:
        """A numeric sequence as a linear function of the stream."""
        if isinstance(sequence, Aggregate):
            return Number.of(heads.copy(self, sequence))
        assert isinstance(sequence, Linear)
        total = Number({}, sequence.constant)
        for factor, part in sequence.terms:
            number = self.read_number(part) if part.is_numeric else self._weigh(part)
            total = total.add(number, factor)
        return total

    def _weigh(self, sequence: Sequence) -> Number:
        """A categorical sequence of numbers: each direction counts with its value."""
        form = self.read_free(sequence)
        (variable,) = form.variables
        amounts = (as_fraction(call(form.function, (v,), form.label)) for v in variable.values)
        return Number({variable: tuple(amounts)})

    def read_free(self, sequence: Sequence) -> Form:
        """As a function of one variable; if it is not, it is stored as one."""
        form = self.read(sequence)
        return form if form.is_free else Form.of(self.store(sequence))

    # Storing

    def store(self, sequence: Sequence) -> Variable:
        """Let a feed-forward layer store a categorical sequence."""
        if sequence in self.stored:
            return self.stored[sequence]
        form = self.read(sequence)
        slot = form.slot + (1 if form.slot % 2 == 0 else 2)
        variable = Variable(sequence, sequence.label, form.values, slot=slot)
        results = [value for row in form.table.values() for value in row]
        common = Counter(results).most_common(1)[0][0] if form.variables else results[0]
        self.add(variable)
        units = build_units(form, variable, common, self.sharpness)
        self.units.setdefault(slot // 2, []).append((variable, units))
        self.defaults[variable.direction(common)] = 1.0
        self.stored[sequence] = variable
        self.forms[sequence] = Form.of(variable)
        return variable


def _is_small(form: Form) -> bool:
    return form.is_free or form.size <= MAX_JOINED


def join_forms(sequence: Map, parts: list[Form]) -> Form | None:
    """The map of forms as one form; None if it would need several numbers."""
    variables = list(dict.fromkeys(v for part in parts for v in part.variables))
    numbers = {part.number.key: part.number for part in parts if part.number is not None}
    if len(numbers) > 1:
        return None
    picks = [[variables.index(v) for v in part.variables] for part in parts]

    @cache  # a part may be used several times
    def function(*values: Any) -> Any:
        inputs = [
            part.function(*(values[i] for i in pick), *([] if part.number is None else values[-1:]))
            for part, pick in zip(parts, picks, strict=True)
        ]
        return call(sequence.function, tuple(inputs), sequence.label)

    number = next(iter(numbers.values()), None)
    return Form(tuple(variables), number, function, label=sequence.label)
