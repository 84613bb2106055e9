"""The plan of a compiled program: what each layer computes. `clearhead program show` prints it.

    plan = make_plan(sort, "123", max_len=5)
    plan.circuit          each head and feed-forward layer: what it computes, or that it is unused
    plan.directions       the names of the directions of the residual stream
    plan.error_bound      a bound on the error of every number of the output

A plan needs no torch; weights.py turns it into a model.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from clearhead.programs.parts import SHARPNESS, START, TOKEN, Head, Unit
from clearhead.programs.planner import Planner
from clearhead.programs.sequences import Sequence, check_sequence, make_depth_error
from clearhead.programs.variables import MAX_VALUES, Variable, call


@dataclass(frozen=True)
class Part:
    """One head, or one feed-forward layer (head=None). Layers and heads are numbered from 0.

    kind: "copy", "mean", "count", "map" or "unused". about: what it selects or computes. reads,
    writes: the labels of the variables.
    """

    layer: int
    head: int | None
    kind: str
    about: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def is_used(self) -> bool:
        return self.kind != "unused"

    @property
    def module(self) -> str:
        """The name of the module in record(model)."""
        end = "feed_forward" if self.head is None else "attention"
        return f"stack.blocks.{self.layer}.{end}"

    @property
    def name(self) -> str:
        end = "feed-forward" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {end}"

    def __str__(self) -> str:
        return f"{self.name}: {self.about or self.kind}"


@dataclass(frozen=True)
class Plan:
    """A finished plan.

    defaults: direction → what every token's embedding holds there. units: layer → (variable, the
    units that compute it). values: what each output stands for; None for a numeric program.
    answers: for each output, the directions it reads and the amounts.
    """

    program: Sequence
    vocabulary: tuple[Any, ...]
    max_len: int
    sharpness: float
    variables: tuple[Variable, ...]
    defaults: dict[str, float]
    heads: tuple[Head, ...]
    units: dict[int, list[tuple[Variable, list[Unit]]]]
    values: tuple[Any, ...] | None
    answers: list[list[tuple[str, float]]]
    error_bound: float

    @property
    def directions(self) -> list[str]:
        own = [name for variable in self.variables for name in variable.directions]
        return [START, TOKEN, *own]

    @property
    def n_layers(self) -> int:
        used = [head.layer for head in self.heads] + list(self.units)
        return 1 + max(used, default=0)

    @property
    def n_heads(self) -> int:
        """The largest number that a layer needs; all layers have this many."""
        layers = [head.layer for head in self.heads]
        return max(1, *(layers.count(layer) for layer in range(self.n_layers)))

    @property
    def d_head(self) -> int:
        """The largest number of columns that a head needs, for topics or for what it writes."""
        widths = [
            len({column for _, column, _ in part}) for h in self.heads for part in (h.asks, h.says)
        ]
        return max(widths, default=1)

    @property
    def d_ff(self) -> int:
        return max(1, *(len(self.list_units(layer)) for layer in range(self.n_layers)))

    @property
    def bounds(self) -> dict[str, float]:
        """For each variable, a bound on the error of its numbers in the residual stream."""
        return {v.label: v.error if v.is_numeric else v.error / 2 for v in self.variables}

    def list_heads(self, layer: int) -> list[Head]:
        return [head for head in self.heads if head.layer == layer]

    def list_units(self, layer: int) -> list[Unit]:
        return [unit for _, units in self.units.get(layer, ()) for unit in units]

    @property
    def circuit(self) -> tuple[Part, ...]:
        """Every head and feed-forward layer of the model, in order."""
        parts: list[Part] = []
        for layer in range(self.n_layers):
            heads = self.list_heads(layer)
            parts += [self._describe_head(number, head) for number, head in enumerate(heads)]
            parts += [Part(layer, n, "unused") for n in range(len(heads), self.n_heads)]
            parts.append(self._describe_units(layer))
        return tuple(parts)

    def _describe_head(self, number: int, head: Head) -> Part:
        entries = [*head.asks, *head.offers, *head.says]
        reads = self._find_labels(name for name, _, _ in entries)
        writes = self._find_labels(name for _, name, _ in head.says)
        by_label = {variable.label: variable for variable in self.variables}
        is_mean = head.kind == "copy" and all(by_label[label].is_numeric for label in writes)
        kind = "mean" if is_mean else head.kind
        return Part(head.layer, number, kind, f"select {head.about}", reads, writes)

    def _describe_units(self, layer: int) -> Part:
        maps = self.units.get(layer, [])
        if not maps:
            return Part(layer, None, "unused")
        writes = tuple(variable.label for variable, _ in maps)
        reads = [name for unit in self.list_units(layer) for name in unit.reads]
        return Part(layer, None, "map", ", ".join(writes), self._find_labels(reads), writes)

    def _find_labels(self, directions: Iterable[str]) -> tuple[str, ...]:
        """The labels of the variables to which these directions belong."""
        used = set(directions)
        return tuple(v.label for v in self.variables if used & set(v.directions))


def make_plan(
    program: Sequence, vocabulary: Iterable[Any], max_len: int, *, sharpness: float = SHARPNESS
) -> Plan:
    """Plan the layers of a program, for inputs of up to max_len tokens of a vocabulary."""
    check_sequence("program", program)
    check_max_len(max_len)
    check_sharpness(sharpness)
    planner = Planner(check_vocabulary(vocabulary), int(max_len), sharpness)
    try:
        return _lay_out(program, planner)
    except RecursionError:
        raise make_depth_error() from None
    except OverflowError:
        raise ValueError(
            "the program has numbers that are too large for floating point; scale them down"
        ) from None


def _lay_out(program: Sequence, planner: Planner) -> Plan:
    """Let the planner read a program, and collect the result."""
    answers: list[list[tuple[str, float]]]
    if program.is_numeric:
        number, values = planner.read_number(program), None
        answers, error = [[(name, float(amount)) for name, amount in number.reads]], number.error
    else:
        form = planner.read_free(program)
        (variable,), values = form.variables, form.values
        pairs = [(v, call(form.function, (v,), form.label)) for v in variable.values]
        answers = [[(variable.direction(v), 1.0) for v, out in pairs if out == x] for x in values]
        error = variable.error / 2
        if error >= 0.5:
            raise ValueError(
                f"sharpness must be greater than {planner.sharpness:g}: the logits of the program "
                f"can be off by {error:.2g}, too much for the greatest to be the answer; the "
                f"default is {SHARPNESS:g}"
            )
    remove_unread(planner, {name for parts in answers for name, _ in parts})
    return Plan(
        program,
        planner.vocabulary,
        planner.max_len,
        planner.sharpness,
        tuple(sorted(planner.variables, key=lambda variable: variable.slot)),
        planner.defaults,
        tuple(planner.heads),
        planner.units,
        values,
        answers,
        error,
    )


def remove_unread(planner: Planner, answers: set[str]) -> None:
    """Remove directions that nothing reads, and the heads and units that write only to them.

    answers: the directions that the output reads. Repeated until nothing more can be removed,
    because a removed part may have been the only reader of another direction.
    """
    n_read = None
    while n_read != (n_read := len(read := answers | _list_reads(planner))):
        for head in planner.heads:
            head.says = [entry for entry in head.says if entry[1] in read]
        planner.heads = [head for head in planner.heads if head.says]
        for layer, maps in list(planner.units.items()):
            kept = [
                (v, [u for unit in units if (u := unit.keep(read)).writes]) for v, units in maps
            ]
            planner.units[layer] = [(variable, units) for variable, units in kept if units]
    planner.units = {layer: maps for layer, maps in planner.units.items() if maps}
    for variable in planner.variables:
        if not variable.is_numeric:
            variable.values = tuple(v for v in variable.values if variable.direction(v) in read)
    planner.variables = [v for v in planner.variables if read & set(v.directions)]
    planner.defaults = {name: amount for name, amount in planner.defaults.items() if name in read}


def _list_reads(planner: Planner) -> set[str]:
    """The directions that a head or a unit reads."""
    entries = [e for head in planner.heads for e in (*head.asks, *head.offers, *head.says)]
    units = [u for maps in planner.units.values() for _, own in maps for u in own]
    return {name for name, _, _ in entries} | {name for unit in units for name in unit.reads}


# Checks like those of shapes.py, which imports torch


def check_vocabulary(vocabulary: Iterable[Any]) -> tuple[Any, ...]:
    """Check the tokens: hashable, at least one, none twice."""
    if not isinstance(vocabulary, Iterable):
        raise TypeError(f"vocabulary must hold the tokens of the input, got {vocabulary!r}")
    tokens = tuple(vocabulary)
    for token in tokens:
        if not isinstance(token, Hashable) or token != token:
            raise TypeError(f"vocabulary must hold letters, numbers or words, got {token!r}")
    if not tokens:
        raise ValueError("vocabulary is empty; give the tokens of the input, such as 'abc'")
    repeated = [token for token in tokens if tokens.count(token) > 1]
    if repeated:
        raise ValueError(f"vocabulary has {repeated[0]!r} twice; give each token once")
    return tokens


def check_max_len(max_len: int) -> None:
    """Check that max_len is from 1 to MAX_VALUES: each index needs a direction."""
    if not hasattr(max_len, "__index__") or isinstance(max_len, bool):
        raise TypeError(f"max_len must be a whole number, got {max_len!r}")
    if max_len < 1:
        raise ValueError(f"max_len must be at least 1, got {max_len}")
    if max_len > MAX_VALUES:
        raise ValueError(f"max_len must be at most {MAX_VALUES:,}, got {max_len:,}")


def check_sharpness(sharpness: float) -> None:
    """Check that sharpness is above 0 and at most 300, so that e^(2 · sharpness) is finite."""
    if not isinstance(sharpness, int | float) or isinstance(sharpness, bool):
        raise TypeError(f"sharpness must be a number, got {sharpness!r}")
    if not 0 < sharpness <= 300:
        raise ValueError(
            f"sharpness must be above 0 and at most 300, got {sharpness}; the default is "
            f"{SHARPNESS:g}"
        )
