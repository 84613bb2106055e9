"""The heads of a program: which head stores what an aggregate or a selector width needs.

A head belongs to a selector. In the first layer where the selector's variables and the values are
in the stream, a head for the selector is made, or the one that is there gets more to say.
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
    order,
)

if TYPE_CHECKING:
    from clearhead.programs.planner import Planner

MAX_PAIRS = 500_000  # of a query's value and a key's value, each given to the predicate


def copy(planner: "Planner", sequence: Aggregate) -> Variable:
    """Let a head store the values of the selected keys."""
    if sequence not in planner.stored:
        store = _store_mean if sequence.is_numeric else _store_copy
        planner.stored[sequence] = store(planner, sequence)
    return planner.stored[sequence]


def _store_mean(planner: "Planner", sequence: Aggregate) -> Variable:
    number, default = planner.read_number(sequence.values), as_fraction(sequence.default)
    head = find_head(planner, sequence.selector, "copy", number.slot)
    means = list_means(number.values, planner.max_len, sequence.label)
    values = tuple(sorted({*means, default}))
    error = float(values[-1] - values[0]) * planner.leak(head) + number.error
    variable = planner.add(
        Variable(
            sequence, sequence.label, values, is_numeric=True, slot=2 * head.layer, error=error
        )
    )
    reads = number.add(Number({}, default), Fraction(-1)).reads  # the default is there already
    head.says += [(who, variable.label, float(amount)) for who, amount in reads]
    planner.defaults[variable.label] = float(default)
    return variable


def _store_copy(planner: "Planner", sequence: Aggregate) -> Variable:
    form, default = planner.read_free(sequence.values), sequence.default
    (source,) = form.variables
    head = find_head(planner, sequence.selector, "copy", form.slot)
    values, error = order([*form.values, default]), 2 * planner.leak(head) + source.error
    variable = planner.add(
        Variable(sequence, sequence.label, values, slot=2 * head.layer, error=error)
    )
    for value in source.values:
        result = call(form.function, (value,), form.label)
        if result != default:
            who = source.direction(value)
            head.says.append((who, variable.direction(result), 1.0))
            head.says.append((who, variable.direction(default), -1.0))
    planner.defaults[variable.direction(default)] = 1.0
    return variable


def count(planner: "Planner", sequence: SelectorWidth) -> Variable:
    """Let a head store the weight of the start token, 1 / (1 + the number of selected keys)."""
    head = find_head(planner, sequence.selector, "count", -1)
    for _, label, _ in head.says:  # another width of the same selector
        return next(variable for variable in planner.variables if variable.label == label)
    values = tuple(Fraction(1, 1 + k) for k in range(planner.max_len, -1, -1))
    label, error = f"1 / (1 + {sequence.label})", planner.leak(head)
    variable = planner.add(
        Variable(sequence, label, values, is_numeric=True, slot=2 * head.layer, error=error)
    )
    head.says.append((START, variable.label, 1.0))
    return variable


def find_head(planner: "Planner", selector: Selector, kind: str, slot: int) -> Head:
    """The head of a selector in the first layer after a slot that can have it."""
    matches = match(planner, selector)
    slots = [slot, *(v.slot for each in matches for v in (each.query, each.key))]
    layer = max(slots) // 2 + 1
    for head in planner.heads:
        if (head.layer, head.kind, head.matches) == (layer, kind, matches):
            return head
    head = build_head(layer, selector.label, kind, matches, planner.sharpness)
    planner.heads.append(head)
    return head


# From selectors to tables


def match(planner: "Planner", selector: Selector) -> tuple[Match, ...]:
    """The tables whose sum a head scores."""
    clauses = [_build_clause(planner, literals) for literals in list_clauses(selector)]
    return tuple(_build_match(planner, clause) for clause in merge_clauses(clauses))


def _build_clause(planner: "Planner", literals: list[Literal]) -> Clause:
    """One of the literals must hold."""
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
    """The sequence to compare by, and this one as its function: a stored one, or itself."""
    form = planner.read(sequence)
    if not form.is_free:
        return sequence, lambda value: value
    return form.variables[0].sequence, form.function


def _build_match(planner: "Planner", clause: Clause) -> Match:
    queries, keys = (sorted(s, key=lambda part: part.label) for s in (clause.queries, clause.keys))
    query, key = _store_jointly(planner, queries), _store_jointly(planner, keys)
    pair = f"{key.label} by {query.label}"
    check_size(len(query.values) * len(key.values), pair, MAX_PAIRS)

    def name(parts: list[Sequence], value: Any) -> Values:
        return dict(zip(parts, value if len(parts) > 1 else (value,), strict=True))

    table = tuple(
        tuple(clause.test(name(queries, q), name(keys, k)) for k in key.values)
        for q in query.values
    )
    return Match(query, key, table)


def _store_jointly(planner: "Planner", parts: list[Sequence]) -> Variable:
    """One variable for several sequences: their tuple."""
    if len(parts) == 1:
        return planner.read_free(parts[0]).variables[0]
    key = tuple(parts)
    if key not in planner.joint:
        label = f"({', '.join(part.label for part in parts)})"
        planner.joint[key] = Map(lambda *values: values, key, name=label)
    return planner.store(planner.joint[key])
