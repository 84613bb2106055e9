"""Any selector as a conjunction of clauses, each a table of zeros and ones.

One head can score a query and a key by the sum Σ table[query's value][key's value] of several
tables, each about one variable of the query and one of the key. So a conjunction of k tables needs
no extra layer: a key is selected where the sum is k. Any other combination of selectors is first
rewritten in conjunctive normal form,

    a or (b and c)   =   (a or b) and (a or c)          not (a or b)   =   not a and not b

and each clause becomes one table. A clause about several sequences needs them as one variable,
their tuple, which a feed-forward layer computes first. If all sequences of a clause occur in
another clause too, the two share one table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from clearhead.programs.selectors import Both, Complement, Either, Select, Selector
from clearhead.programs.sequences import Sequence
from clearhead.programs.variables import Variable

MAX_CLAUSES = 64
Literal = tuple[Select, bool]  # a comparison, and whether it must be true or false
Values = dict[Sequence, Any]


@dataclass(frozen=True)
class Clause:
    """A condition on a query and a key.

    test(values of the sequences `queries` at the query, values of `keys` at the key) → whether it
    holds.
    """

    queries: frozenset[Sequence]
    keys: frozenset[Sequence]
    test: Callable[[Values, Values], bool]

    def covers(self, other: "Clause") -> bool:
        """Whether this clause is about all sequences of the other."""
        return other.queries <= self.queries and other.keys <= self.keys

    def join(self, other: "Clause") -> "Clause":
        """Both conditions as one clause; this one covers the other."""

        def test(query: Values, key: Values) -> bool:
            return self.test(query, key) and other.test(query, key)

        return Clause(self.queries, self.keys, test)


@dataclass(frozen=True)
class Match:
    """A clause as a table: table[q][k] is True if the query's value q and the key's value k fit."""

    query: Variable
    key: Variable
    table: tuple[tuple[bool, ...], ...]


def list_clauses(selector: Selector, is_positive: bool = True) -> list[list[Literal]]:
    """The conjunctive normal form of a selector, or of its complement if not is_positive.

    All clauses must hold; a clause holds if at least one of its literals does.
    """
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
    raise TypeError(f"{selector!r} is not a selector")


def merge_clauses(clauses: list[Clause]) -> list[Clause]:
    """Join each clause to the first one that covers it, beginning with the most sequences."""
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
    """Write a table (Q × K) as a product asks (Q × n) · offers (n × K), with a small n.

    Each of the n inner columns is a topic: one column of W_q and W_k. There is a topic for each
    distinct row of the table, or for each distinct column if there are fewer of them.
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
