"""A program laid out in layers, before any weight exists: `clearhead program show` prints it.

plan = make_plan(sort, "123", max_len=5)
plan.circuit          each head and feed-forward layer: what it computes, or that it is not used
plan.directions       the names of the numbers in the residual stream
plan.error_bound      how far any number of the output can be from its exact value
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from clearhead.programs.parts import SHARPNESS, START, TOKEN, Head, Unit
from clearhead.programs.planner import Planner
from clearhead.programs.sequences import Sequence, check_sequence, too_deep
from clearhead.programs.variables import MAX_VALUES, Variable, call


@dataclass(frozen=True)
class Part:
    """A head, or with head=None the feed-forward layer, of a layer; both are counted from 0.

    kind: "copy", "mean", "count", "map", or "unused"; about: what it selects or computes; reads and
    writes: the labels of variables.
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
        """The name that record(model) has for it."""
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
    """What `Planner` collected, with sizes and names; values is None for a numeric program."""

    program: Sequence
    vocabulary: tuple[Any, ...]
    max_len: int
    sharpness: float
    variables: tuple[Variable, ...]
    defaults: dict[str, float]
    heads: tuple[Head, ...]
    units: dict[int, list[tuple[Variable, list[Unit]]]]
    values: tuple[Any, ...] | None
    answers: list[list[tuple[str, float]]]  # for each output, (direction, amount)
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
        """In the layer that needs most; all have as many."""
        layers = [head.layer for head in self.heads]
        return max(1, *(layers.count(layer) for layer in range(self.n_layers)))

    @property
    def d_head(self) -> int:
        widths = [
            len({what for _, what, _ in part}) for h in self.heads for part in (h.asks, h.says)
        ]
        return max(widths, default=1)

    @property
    def d_ff(self) -> int:
        return max(1, *(len(self.list_units(layer)) for layer in range(self.n_layers)))

    @property
    def bounds(self) -> dict[str, float]:
        """For each variable, how far any of its numbers in the stream can be from the exact one."""
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
        whos = [who for part in (head.asks, head.offers, head.says) for who, _, _ in part]
        writes = self._name(what for _, what, _ in head.says)
        by_label = {variable.label: variable for variable in self.variables}
        is_mean = head.kind == "copy" and all(by_label[label].is_numeric for label in writes)
        kind = "mean" if is_mean else head.kind
        return Part(head.layer, number, kind, f"select {head.about}", self._name(whos), writes)

    def _describe_units(self, layer: int) -> Part:
        maps = self.units.get(layer, [])
        if not maps:
            return Part(layer, None, "unused")
        writes = tuple(variable.label for variable, _ in maps)
        reads = [who for unit in self.list_units(layer) for who in unit.reads]
        return Part(layer, None, "map", ", ".join(writes), self._name(reads), writes)

    def _name(self, directions: Iterable[str]) -> tuple[str, ...]:
        """The labels of the variables that these directions belong to."""
        used = set(directions)
        return tuple(v.label for v in self.variables if used & set(v.directions))


def make_plan(
    program: Sequence, vocabulary: Iterable[Any], max_len: int, *, sharpness: float = SHARPNESS
) -> Plan:
    """Lay a program out for inputs of up to max_len tokens of a vocabulary."""
    check_sequence("program", program)
    check_max_len(max_len)
    check_sharpness(sharpness)
    planner = Planner(check_vocabulary(vocabulary), int(max_len), sharpness)
    try:
        return _lay_out(program, planner)
    except RecursionError:
        raise too_deep() from None
    except OverflowError:
        raise ValueError(
            "the program has numbers that are too large for floating point; scale them down"
        ) from None


def _lay_out(program: Sequence, planner: Planner) -> Plan:
    answers: list[list[tuple[str, float]]]
    if program.is_numeric:
        number, values = planner.read_number(program), None
        answers, error = [[(who, float(amount)) for who, amount in number.reads]], number.error
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
    remove_unread(planner, {who for parts in answers for who, _ in parts})
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
    """Remove directions that nothing reads, and the units and values that write only to them."""
    size = None
    while size != (size := len(read := answers | _list_reads(planner))):
        for head in planner.heads:
            head.says = [sentence for sentence in head.says if sentence[1] in read]
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
    sentences = [s for head in planner.heads for s in (*head.asks, *head.offers, *head.says)]
    units = [u for maps in planner.units.values() for _, own in maps for u in own]
    return {who for who, _, _ in sentences} | {who for unit in units for who in unit.reads}


# Checks, as in shapes.py, which imports torch


def check_vocabulary(vocabulary: Iterable[Any]) -> tuple[Any, ...]:
    """The tokens, each once."""
    if not isinstance(vocabulary, Iterable):
        raise TypeError(f"vocabulary must hold the tokens of the input, got {vocabulary!r}")
    own = tuple(vocabulary)
    for token in own:
        if not isinstance(token, Hashable) or token != token:
            raise TypeError(f"vocabulary must hold letters, numbers or words, got {token!r}")
    if not own:
        raise ValueError("vocabulary is empty; give the tokens of the input, such as 'abc'")
    twice = [token for token in own if own.count(token) > 1]
    if twice:
        raise ValueError(f"vocabulary has {twice[0]!r} twice; give each token once")
    return own


def check_max_len(max_len: int) -> None:
    """A whole number from 1 to MAX_VALUES, for each of which an index has a direction."""
    if not hasattr(max_len, "__index__") or isinstance(max_len, bool):
        raise TypeError(f"max_len must be a whole number, got {max_len!r}")
    if max_len < 1:
        raise ValueError(f"max_len must be at least 1, got {max_len}")
    if max_len > MAX_VALUES:
        raise ValueError(f"max_len must be at most {MAX_VALUES:,}, got {max_len:,}")


def check_sharpness(sharpness: float) -> None:
    """Above 0 and at most 300, so that e^(2 · sharpness) is finite."""
    if not isinstance(sharpness, int | float) or isinstance(sharpness, bool):
        raise TypeError(f"sharpness must be a number, got {sharpness!r}")
    if not 0 < sharpness <= 300:
        raise ValueError(
            f"sharpness must be above 0 and at most 300, got {sharpness}; the default is "
            f"{SHARPNESS:g}"
        )
