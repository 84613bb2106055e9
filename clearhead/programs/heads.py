"""The heads of a program: one for each aggregate or selector width, shared where possible.

A head attends to the keys of one selector. It is placed in the first layer where the variables of
the selector and the values to copy are available. If that layer already has a head of the same kind
for the same selector, this head copies the new values too.
"""

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from clearhead.programs.clauses import Clause, Literal, Match, Values, list_clauses, merge_clauses
from clearhead.programs.parts import START, Head, build_head
from clearhead.programs.selectors import Selector
from clearhead.programs.sequences import Aggregate, Map, SelectorWidth, Sequence, as_fraction
from clearhead.programs.variables import (
    Number,
    Variable,
    call,
    check_size,
    list_means,
    sort_values,
)

if TYPE_CHECKING:
    from clearhead.programs.planner import Planner

MAX_PAIRS = 500_000  # entries of a table; the predicate is called for each


def store_aggregate(planner: "Planner", sequence: Aggregate) -> Variable:
    """Let a head store an aggregate: the mean or the common value of the selected keys."""
    if sequence not in planner.stored:
        store = _store_mean if sequence.is_numeric else _store_value
        planner.stored[sequence] = store(planner, sequence)
    return planner.stored[sequence]


def _store_mean(planner: "Planner", sequence: Aggregate) -> Variable:
    """Store the mean of numbers: the head adds mean − default to the default in the embedding."""
    number, default = planner.read_number(sequence.values), as_fraction(sequence.default)
    head = find_head(planner, sequence.selector, "copy", number.slot)
    means = list_means(number.values, planner.max_len, sequence.label)
    values = tuple(sorted({*means, default}))
    error = float(values[-1] - values[0]) * planner.bound_leak(head) + number.error
    variable = planner.add(
        Variable(
            sequence, sequence.label, values, is_numeric=True, slot=2 * head.layer, error=error
        )
    )
    reads = number.add(Number({}, default), Fraction(-1)).reads
    head.says += [(direction, variable.label, float(amount)) for direction, amount in reads]
    planner.defaults[variable.label] = float(default)
    return variable


def _store_value(planner: "Planner", sequence: Aggregate) -> Variable:
    """Copy a one-hot value: the head adds value − default to the default in the embedding."""
    form, default = planner.read_free(sequence.values), sequence.default
    (source,) = form.variables
    head = find_head(planner, sequence.selector, "copy", form.slot)
    values = sort_values([*form.values, default])
    error = 2 * planner.bound_leak(head) + source.error
    variable = planner.add(
        Variable(sequence, sequence.label, values, slot=2 * head.layer, error=error)
    )
    for value in source.values:
        result = call(form.function, (value,), form.label)
        if result != default:
            direction = source.direction(value)
            head.says.append((direction, variable.direction(result), 1.0))
            head.says.append((direction, variable.direction(default), -1.0))
    planner.defaults[variable.direction(default)] = 1.0
    return variable


def store_width(planner: "Planner", sequence: SelectorWidth) -> Variable:
    """Let a head store the weight of the start token, 1 / (1 + the number of selected keys)."""
    head = find_head(planner, sequence.selector, "count", -1)
    for _, label, _ in head.says:  # the width of an equal selector is stored already
        return next(variable for variable in planner.variables if variable.label == label)
    values = tuple(Fraction(1, 1 + k) for k in range(planner.max_len, -1, -1))
    label, error = f"1 / (1 + {sequence.label})", planner.bound_leak(head)
    variable = planner.add(
        Variable(sequence, label, values, is_numeric=True, slot=2 * head.layer, error=error)
    )
    head.says.append((START, variable.label, 1.0))
    return variable


def find_head(planner: "Planner", selector: Selector, kind: str, slot: int) -> Head:
    """The head of this kind for a selector, in the first layer after all its inputs.

    slot: when the values to copy are available (see Variable). Builds the head if there is none.
    """
    matches = build_matches(planner, selector)
    slots = [slot, *(v.slot for each in matches for v in (each.query, each.key))]
    layer = max(slots) // 2 + 1
    for head in planner.heads:
        if (head.layer, head.kind, head.matches) == (layer, kind, matches):
            return head
    head = build_head(layer, selector.label, kind, matches, planner.sharpness)
    planner.heads.append(head)
    return head


# From selectors to tables


def build_matches(planner: "Planner", selector: Selector) -> tuple[Match, ...]:
    """The tables of a selector; the score of a head is their sum."""
    clauses = [_build_clause(planner, literals) for literals in list_clauses(selector)]
    return tuple(_build_match(planner, clause) for clause in merge_clauses(clauses))


def _build_clause(planner: "Planner", literals: list[Literal]) -> Clause:
    """A clause that holds if at least one of the literals does."""
    sides = [
        (_find_base(planner, select.queries), _find_base(planner, select.keys))
        for select, _ in literals
    ]

    def test(at_query: Values, at_key: Values) -> bool:
        for ((query, read_query), (key, read_key)), literal in zip(sides, literals, strict=True):
            select, must_hold = literal
            values = read_key(at_key[key]), read_query(at_query[query])
            if bool(call(select.predicate, values, select.label)) == must_hold:
                return True
        return False

    queries, keys = (frozenset(side[part][0] for side in sides) for part in (0, 1))
    return Clause(queries, keys, test)


def _find_base(planner: "Planner", sequence: Sequence) -> tuple[Sequence, Any]:
    """A base sequence and a function f such that this sequence is f(base).

    The base is the stored sequence if this one is a function of a single variable, else itself.
    """
    form = planner.read(sequence)
    if not form.is_free:
        return sequence, lambda value: value
    return form.variables[0].sequence, form.function


def _build_match(planner: "Planner", clause: Clause) -> Match:
    """The table of a clause, for all values of its query variable and its key variable."""
    queries, keys = (sorted(s, key=lambda part: part.label) for s in (clause.queries, clause.keys))
    query, key = _store_jointly(planner, queries), _store_jointly(planner, keys)
    pair = f"{key.label} by {query.label}"
    check_size(len(query.values) * len(key.values), pair, MAX_PAIRS)

    def split(parts: list[Sequence], value: Any) -> Values:
        return dict(zip(parts, value if len(parts) > 1 else (value,), strict=True))

    table = tuple(
        tuple(clause.test(split(queries, q), split(keys, k)) for k in key.values)
        for q in query.values
    )
    return Match(query, key, table)


def _store_jointly(planner: "Planner", parts: list[Sequence]) -> Variable:
    """The variable of one sequence, or of the tuple of several sequences."""
    if len(parts) == 1:
        return planner.read_free(parts[0]).variables[0]
    key = tuple(parts)
    if key not in planner.joint:
        label = f"({', '.join(part.label for part in parts)})"
        planner.joint[key] = Map(lambda *values: values, key, name=label)
    return planner.store(planner.joint[key])
