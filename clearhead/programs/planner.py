"""From a program to layers: which head or feed-forward layer computes each sequence.

A sequence is computed in the first layer where its inputs are available; independent sequences
share a layer. In each layer attention comes before the feed-forward layer. So a head can count, by
its weight on the start token, and the feed-forward layer of the same layer can use the count.

    tokens, indices            stored by the embedding and the positions
    map of one variable        needs no layer: read from the directions of the variable
    sum, multiple of numbers   needs no layer: a linear function of the stream
    aggregate                  a head that copies
    selector_width             a head that counts
    any other map              a feed-forward layer: a step for each combination of values

A map of maps is joined into one function of stored variables as long as its table is small.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from clearhead.programs import heads
from clearhead.programs.parts import START, TOKEN, Head, Unit, bound_leak, build_units
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

MAX_JOINED = 600  # the largest table, in entries, for which maps of maps are joined


@dataclass
class Planner:
    """Reads a program, and collects the variables, heads and units that compute it.

    To *read* a sequence is to express it as a function of variables; to *store* it is to let a head
    or a feed-forward layer write it to the residual stream as a variable of its own.
    """

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
        self.forms: dict[Sequence, Form] = {}  # sequences read so far
        self.stored: dict[Sequence, Variable] = {}  # sequences stored so far
        self.joint: dict[tuple[Sequence, ...], Sequence] = {}  # several sequences → their tuple

    def add(self, variable: Variable) -> Variable:
        """Add a variable; if its label is in use, append a number to it."""
        used = {START, TOKEN, *(name for other in self.variables for name in other.directions)}
        used |= {other.label for other in self.variables}
        label, number = variable.label, 1
        while used & {variable.label, *variable.directions}:
            number += 1
            variable.label = f"{label} ({number})"
        self.variables.append(variable)
        return variable

    def bound_leak(self, head: Head) -> float:
        """A bound on the share of attention that a head gives to the wrong tokens."""
        return bound_leak(head, self.max_len, self.sharpness)

    # Reading

    def read(self, sequence: Sequence) -> Form:
        """A categorical sequence as a function of stored variables."""
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
                return Form.of(heads.store_aggregate(self, sequence))
            case SelectorWidth():
                weight = Number.of(heads.store_width(self, sequence))  # 1 / (1 + width)
                return Form((), weight, lambda x: int(1 / x) - 1, label=sequence.label)
            case Map():
                return self._join_maps(sequence)
        raise TypeError(f"{sequence!r} is not a categorical sequence")

    def _join_maps(self, sequence: Map) -> Form:
        """A map as one function of stored variables; if its table is large, store inputs first."""
        inputs = sequence.inputs
        if sum(part.is_numeric for part in inputs) > 1:
            labels = " and ".join(part.label for part in inputs if part.is_numeric)
            raise TypeError(
                f"{sequence.label!r} maps {labels}, of which only one may be numeric; use "
                f".categorical() on the others, or map their sum or difference"
            )
        parts = [self.read_any(part) for part in inputs]
        while (form := join_forms(sequence, parts)) is None or not _is_small(form):
            storable = [
                i for i, part in enumerate(parts) if not (part.is_free or inputs[i].is_numeric)
            ]
            if not storable:
                assert form is not None
                return form
            earliest = min(storable, key=lambda i: parts[i].slot)
            parts[earliest] = Form.of(self.store(inputs[earliest]))
        return form

    def read_any(self, sequence: Sequence) -> Form:
        """Like read, but also for a numeric sequence: the identity function of its number."""
        if not sequence.is_numeric:
            return self.read(sequence)
        return Form((), self.read_number(sequence), lambda number: number, label=sequence.label)

    def read_number(self, sequence: Sequence) -> Number:
        """A numeric sequence as a linear function of the stream."""
        if isinstance(sequence, Aggregate):
            return Number.of(heads.store_aggregate(self, sequence))
        assert isinstance(sequence, Linear)
        total = Number({}, sequence.constant)
        for factor, part in sequence.terms:
            number = self.read_number(part) if part.is_numeric else self._weigh(part)
            total = total.add(number, factor)
        return total

    def _weigh(self, sequence: Sequence) -> Number:
        """A categorical sequence of numbers as a number: Σ value · direction of that value."""
        form = self.read_free(sequence)
        (variable,) = form.variables
        amounts = (as_fraction(call(form.function, (v,), form.label)) for v in variable.values)
        return Number({variable: tuple(amounts)})

    def read_free(self, sequence: Sequence) -> Form:
        """A sequence as a function of one variable; stores it first if it is not one already."""
        form = self.read(sequence)
        return form if form.is_free else Form.of(self.store(sequence))

    # Storing

    def store(self, sequence: Sequence) -> Variable:
        """Let a feed-forward layer write a categorical sequence to the stream."""
        if sequence in self.stored:
            return self.stored[sequence]
        form = self.read(sequence)
        slot = form.slot + (1 if form.slot % 2 == 0 else 2)  # the next feed-forward layer
        variable = Variable(sequence, sequence.label, form.values, slot=slot)
        # The embedding holds the most common value, so that fewest units are needed to change it.
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
    """Whether a form needs no table, or only a small one."""
    return form.is_free or form.size <= MAX_JOINED


def join_forms(sequence: Map, parts: list[Form]) -> Form | None:
    """A map of several forms as one form; None if they read different numbers."""
    variables = list(dict.fromkeys(v for part in parts for v in part.variables))
    numbers = {part.number.key: part.number for part in parts if part.number is not None}
    if len(numbers) > 1:
        return None
    indices = [[variables.index(v) for v in part.variables] for part in parts]

    @cache  # a form may be an input of several others
    def function(*values: Any) -> Any:
        inputs = [
            part.function(*(values[i] for i in own), *([] if part.number is None else values[-1:]))
            for part, own in zip(parts, indices, strict=True)
        ]
        return call(sequence.function, tuple(inputs), sequence.label)

    number = next(iter(numbers.values()), None)
    return Form(tuple(variables), number, function, label=sequence.label)
