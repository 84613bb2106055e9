"""Any selector as a sum of bilinear forms.

Attention can score a pair of query and key by Σ P[query, key] with one table P of zeros and ones
for each pair of variables. So a conjunction costs nothing: it selects where the sum of its parts is
their number. Any other combination is first written as a conjunction of clauses,

    a or (b and c)   =   (a or b) and (a or c)          not (a or b)   =   not a and not b

and each clause is one table. Where a clause compares several sequences, the table needs them as one
variable: their tuple, which a feed-forward layer computes. A clause about no sequences beyond those
of another one joins its table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from clearhead.programs.selectors import Both, Complement, Either, Select, Selector
from clearhead.programs.sequences import Sequence
from clearhead.programs.variables import Variable

MAX_CLAUSES = 64
Literal = tuple[Select, bool]  # a comparison, and whether it must hold
Values = dict[Sequence, Any]


@dataclass(frozen=True)
class Clause:
    """A test of the values that some sequences have at the query, and others at the key."""

    queries: frozenset[Sequence]
    keys: frozenset[Sequence]
    test: Callable[[Values, Values], bool]

    def covers(self, other: "Clause") -> bool:
        return other.queries <= self.queries and other.keys <= self.keys

    def join(self, other: "Clause") -> "Clause":
        def test(query: Values, key: Values) -> bool:
            return self.test(query, key) and other.test(query, key)

        return Clause(self.queries, self.keys, test)


@dataclass(frozen=True)
class Match:
    """table[q][k]: whether the query's value q and the key's value k fit."""

    query: Variable
    key: Variable
    table: tuple[tuple[bool, ...], ...]


def list_clauses(selector: Selector, is_positive: bool = True) -> list[list[Literal]]:
    """The conjunctive normal form: one literal of each clause must hold."""
    match selector:
        case Select():
            return [[(selector, is_positive)]]
        case Complement():
            return list_clauses(selector.selector, not is_positive)
        case Both() | Either():
            left = list_clauses(selector.left, is_positive)
            right = list_clauses(selector.right, is_positive)
            if isinstance(selector, Both) == is_positive:
                return [*left, *right]
            if len(left) * len(right) > MAX_CLAUSES:
                raise ValueError(
                    f"{selector.label!r} has more than {MAX_CLAUSES} clauses; compute a part of it "
                    f"as a sequence and select by its value"
                )
            return [[*a, *b] for a, b in product(left, right)]
    raise TypeError(f"{selector!r} is no selector")


def merge_clauses(clauses: list[Clause]) -> list[Clause]:
    """Join each clause to the first one that covers it; the widest come first."""
    merged: list[Clause] = []
    for clause in sorted(clauses, key=lambda c: -len(c.queries) - len(c.keys)):
        for number, wider in enumerate(merged):
            if wider.covers(clause):
                merged[number] = wider.join(clause)
                break
        else:
            merged.append(clause)
    return merged


def factor_table(table: tuple[tuple[bool, ...], ...]) -> tuple[list[list[int]], list[list[int]]]:
    """asks (Q × topics) and offers (topics × K), whose product is the table, with few topics.

    Queries that fit the same keys share a topic, or keys that fit the same queries.
    """
    rows = list(dict.fromkeys(row for row in table if any(row)))
    columns = list(dict.fromkeys(c for c in zip(*table, strict=True) if any(c)))
    if len(rows) <= len(columns):
        return [[int(row == kind) for kind in rows] for row in table], [
            list(map(int, r)) for r in rows
        ]
    asks = [[int(kind[q]) for kind in columns] for q in range(len(table))]
    all_columns = list(zip(*table, strict=True))
    return asks, [[int(column == kind) for column in all_columns] for kind in columns]
