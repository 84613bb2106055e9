"""Find which parameter of a student's module plays which role, by name, shape and order.

Each role of the formula (query, key, first layer, …) must be found among the module's parameters,
whatever they are called: W_q, query, q_proj and to_q hint at a role, and since all sizes of a case
differ, most roles have a shape of their own.

If several readings are possible, all are returned, the likeliest first. The answer is right if one
of them gives the student's numbers in every case: it does not matter what a layer is called.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from clearhead.exercises.pieces import find_pieces
from clearhead.exercises.weights import Assignment, Piece, Role

MAX_READINGS = 64
MAX_FOUND = 4096
MISSING = 3  # the rank of an optional role that is not found: less likely than any name


def assign(parameters: Sequence[Any], roles: Mapping[str, Role]) -> list[Assignment]:
    """Find the readings of the parameters as roles whose names fit (nearly) best; empty if none.

    The likeliest is first: the names fit best, and the roles follow the order of the module.
    """
    pieces = find_pieces(parameters, roles)
    order = {id(piece): i for i, piece in enumerate(pieces)}
    options = [_rank_pieces(pieces, role) for role in roles.values()]
    slack = 1 if all(p.rows is None for p in pieces) else 4  # the order in a fused layer is free
    found = _combine(options, slack)
    best = min((rank for rank, _ in found), default=0)
    near = [(rank, _count_inversions(chosen, order), chosen) for rank, chosen in found
            if rank <= best + slack]  # fmt: skip
    near.sort(key=lambda each: each[:2])
    return [
        {name: p for name, p in zip(roles, chosen, strict=True) if p is not None}
        for _, _, chosen in near[:MAX_READINGS]
    ]


def keep_named(found: Sequence[Assignment], roles: Mapping[str, Role]) -> Sequence[Assignment]:
    """Keep only the readings in which every layer has the name of its role, if there are any."""
    named = [
        each
        for each in found
        if all(p.rows is None and _rank(p.name, roles[r].names) == 0 for r, p in each.items())
    ]
    return named or found


def read_fused_heads(found: Sequence[Assignment], n_heads: int) -> list[Assignment]:
    """The readings of a fused layer whose rows are query, key and value of head 0, then of head 1,
    …; each reading in `found` has them one after the other."""
    parts = ("query", "key", "value")
    fused = [each for each in found if len({each[part].weights for part in parts}) == 1]
    readings: list[Assignment] = []
    for each in fused:
        d_head = each["query"].shape[0] // n_heads
        rows = torch.arange(3 * n_heads * d_head).view(n_heads, 3, d_head).unbind(1)
        own = zip(parts, rows, strict=True)
        turned = {n: replace(each[n], rows=tuple(r.flatten().tolist())) for n, r in own}
        readings.append({**each, **turned})
    return readings


Option = tuple[int, "Piece | None"]  # how badly the name fits, and the piece


def _rank_pieces(pieces: Sequence[Piece], role: Role) -> list[Option]:
    """The pieces of the right kind and shape, those whose name fits best first."""
    fitting = [p for p in pieces if p.kind == role.kind and p.shape == role.shape]
    options: list[Option] = [(_rank(p.name, role.names), p) for p in fitting]
    options += [(MISSING, None)] if role.optional else []
    return sorted(options, key=lambda option: option[0])


def _combine(options: Sequence[Sequence[Option]], slack: int) -> list[tuple[int, list[Any]]]:
    """One piece for each role, none twice, with the sum of ranks; sums that exceed the best by more
    than slack are left out as soon as they are known."""
    limit = MISSING * len(options)
    least = [min((rank for rank, _ in each), default=0) for each in options]
    found: list[tuple[int, list[Any]]] = []

    def extend(chosen: list[Any], used: set[Any], total: int) -> None:
        nonlocal limit
        n = len(chosen)
        if total + sum(least[n:]) > limit or len(found) >= MAX_FOUND:
            return
        if n == len(options):
            found.append((total, chosen))
            limit = min(limit, total + slack)
            return
        for rank, p in options[n]:
            key = None if p is None else (p.weights, p.rows)
            if key is None or key not in used:
                extend([*chosen, p], used | {key} if key else used, total + rank)

    extend([], set(), 0)
    return found


def _count_inversions(chosen: Sequence[Piece | None], order: Mapping[int, int]) -> int:
    """Count the pairs of roles that are not in the order of the module's parameters."""
    places = [order[id(p)] for p in chosen if p is not None]
    return sum(a > b for i, a in enumerate(places) for b in places[i + 1 :])


def _rank(name: str, hints: str) -> int:
    """0 if the name has one of the hints as a word, 1 if inside a word, else 2."""
    words = set(re.split(r"[._\d]+", name.lower())) | {name.lower()}
    words |= {re.sub(r"\d+", "", part.lower()) for part in name.split(".")}
    plain = name.lower().replace("_", "").replace(".", "")
    wanted = hints.lower().split()
    if any(hint in words for hint in wanted):
        return 0
    return 1 if any(len(hint) > 1 and hint.replace("_", "") in plain for hint in wanted) else 2
