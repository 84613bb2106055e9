"""Which parameter of a student's module is the query matrix? Found by name, shape and order.

A module is compared with the reference under the same weights, so each role of the formula (query,
key, feed-forward in, …) must be found among the module's parameters, whatever they are called:

    names     W_q, query, q_proj, to_q, … hint at the role
    shapes    all sizes of a case differ, so most roles have a shape of their own
    fused     one layer with three times the rows is split into query, key, value
    lists     H layers of d_head rows each are joined into one

Where names leave several readings, all are returned, the likeliest first. The answer is right if
one of them gives the student's numbers in every case: which of equal roles is the query is free.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.draw import Draw

MAX_READINGS = 64
MAX_FOUND = 4096
MISSING = 3  # the rank of an optional role that is not found: less likely than any name


@dataclass(frozen=True)
class Role:
    """A part with weights. kind: linear (out, in), table (n, d), norm (d,) or vector (any shape);
    flat conv: a convolution whose weights are read as (out, in · height · width).

    names: pieces of names that hint at it, the surest first.
    """

    kind: str
    shape: tuple[int, ...]
    names: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Linear:
    """x ↦ x Wᵀ + b, with weight (out, in) and a bias (out,) or none."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = x @ self.weight.mT.to(x.dtype)
        return y if self.bias is None else y + self.bias.to(x.dtype)


@dataclass(frozen=True)
class Norm:
    """Layer norm: to mean 0 and variance 1 along the last axis, times gain, plus shift."""

    gain: Tensor
    shift: Tensor | None = None
    eps: float = 1e-5

    def __call__(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.gain
        return y if self.shift is None else y + self.shift


@dataclass(frozen=True)
class Piece:
    """Rows of one parameter (and of its bias) that serve a role; whole: all rows."""

    name: str
    kind: str
    shape: tuple[int, ...]
    weights: tuple[str, ...]  # names of parameters, joined along the rows
    biases: tuple[str, ...] = ()
    rows: tuple[int, ...] | None = None  # which ones; None: all
    is_transposed: bool = False
    axes: tuple[int, ...] = ()  # of a parameter (H, d, d_head): in this order they are (out, in)

    def take(self, values: Mapping[str, Tensor]) -> Any:
        """The part with these values of the parameters."""
        rows = list(self.rows) if self.rows else slice(None)
        weight = torch.cat([self._turn(values[name]) for name in self.weights])[rows]
        bias = torch.cat([values[name] for name in self.biases])[rows] if self.biases else None
        if self.kind in ("linear", "flat conv"):
            return Linear(weight.reshape(self.shape), bias)
        return Norm(weight, bias) if self.kind == "norm" else weight.reshape(self.shape)

    def _turn(self, x: Tensor) -> Tensor:
        """A parameter with its rows first, as a linear layer has them."""
        if self.axes:
            return x.permute(self.axes).reshape(-1, self.shape[1])
        return x.mT if self.is_transposed else x


Assignment = Mapping[str, Piece]


def draw_weights(parameters: Sequence[Any], draw: Draw) -> dict[str, Tensor]:
    """New values for each parameter: none is 0 or 1, so nothing hides behind a start value."""
    return {name: _draw(name, shape, owner, draw) for name, shape, owner in parameters}


def _draw(name: str, shape: Sequence[int], owner: str, draw: Draw) -> Tensor:
    x = draw.normal(*shape)
    if "Norm" in owner:
        return 0.3 * x if _is_shift(name) else 1 + 0.3 * x
    if owner.endswith("Linear") or owner.startswith("Conv"):
        return x / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.5 * x
    return x / math.sqrt(shape[0]) if len(shape) == 2 and owner != "Embedding" else x


def assign(parameters: Sequence[Any], roles: Mapping[str, Role]) -> list[Assignment]:
    """Every reading of the parameters as roles whose names fit (nearly) best; empty if none fits.

    The likeliest is first: the names fit best, and the roles follow the order of the module.
    """
    pieces = _find_pieces(parameters, roles)
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
    """Only the readings in which every layer has the name of its role, if there is such a one."""
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
    """How far the roles are from the order of the module's parameters."""
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


def _find_pieces(parameters: Sequence[Any], roles: Mapping[str, Role]) -> list[Piece]:
    shapes = {name: tuple(shape) for name, shape, _ in parameters}
    pieces: list[Piece] = []
    for name, shape, owner in parameters:
        module = name.rpartition(".")[0] or name
        bias = (f"{module}.bias",) if f"{module}.bias" in shapes and "." in name else ()
        is_linear = owner.endswith("Linear")
        if name.endswith("bias") and (is_linear or "Norm" in owner or owner.startswith("Conv")):
            continue
        if is_linear:
            pieces.append(Piece(module, "linear", tuple(shape), (name,), bias))
        elif owner == "MultiheadAttention" and name.endswith("in_proj_weight"):
            bias = (name.replace("weight", "bias"),)
            bias = bias if bias[0] in shapes else ()
            pieces.append(Piece(name, "linear", tuple(shape), (name,), bias))
        elif "Norm" in owner:
            shift = tuple(n for n in shapes if n.rpartition(".")[0] == module and _is_shift(n))
            pieces += (
                [] if _is_shift(name) else [Piece(module, "norm", tuple(shape), (name,), shift)]
            )
        elif owner == "Embedding":
            pieces.append(Piece(module, "table", tuple(shape), (name,)))
        elif owner.startswith("Conv"):
            flat = (shape[0], math.prod(shape[1:]))
            pieces.append(Piece(module, "conv", tuple(shape), (name,), bias))
            pieces.append(Piece(module, "flat conv", flat, (name,), bias))
        else:
            pieces += _read_plain_parameter(name, tuple(shape))
    return pieces + _join_lists(pieces) + _split_fused(pieces + _join_lists(pieces), roles)


def _is_shift(name: str) -> bool:
    """Whether this parameter of a norm is added, as students' own norms call it."""
    return name.rpartition(".")[2] in ("bias", "beta", "shift", "b", "b_2", "offset")


def _read_plain_parameter(name: str, shape: tuple[int, ...]) -> list[Piece]:
    """A parameter outside any layer: x @ W, or W as a layer has it, or a table, or a vector."""
    pieces = [Piece(name, "vector", shape, (name,)), Piece(name, "table", shape, (name,))]
    if len(shape) > 2:  # learned positions and class tokens often have a leading axis of 1
        kept = tuple(n for n in shape if n != 1)
        pieces += [Piece(name, "table", kept, (name,)), Piece(name, "vector", kept, (name,))]
    if len(shape) == 2:
        turned = (shape[1], shape[0])
        pieces.append(Piece(name, "linear", turned, (name,), is_transposed=True))
        pieces.append(Piece(name, "linear", shape, (name,)))
    if len(shape) == 3:  # a matrix for each head: (H, in, out), (in, H, out), (H, out, in)
        a, b, c = shape
        pieces.append(Piece(name, "linear", (a * c, b), (name,), axes=(0, 2, 1)))
    if len(shape) == 3 and a > 1:
        pieces.append(Piece(name, "linear", (b * c, a), (name,), axes=(1, 2, 0)))
        pieces.append(Piece(name, "linear", (a * b, c), (name,), axes=(0, 1, 2)))
        pieces.append(Piece(name, "linear", (c, a * b), (name,), axes=(2, 0, 1)))
    return pieces


def _join_lists(pieces: Sequence[Piece]) -> list[Piece]:
    """heads.0.query, heads.1.query, … as one layer."""
    groups: dict[tuple[str, bool], list[Piece]] = {}
    for p in pieces:
        if p.kind == "linear" and not p.axes and re.search(r"\d", p.name):
            groups.setdefault((re.sub(r"\d+", "#", p.name), p.is_transposed), []).append(p)
    joined = []
    for (name, is_transposed), group in groups.items():
        if len(group) > 1 and len({p.shape for p in group}) == 1:
            shape = (sum(p.shape[0] for p in group), *group[0].shape[1:])
            weights = tuple(name for p in group for name in p.weights)
            biases = tuple(name for p in group for name in p.biases)
            joined.append(Piece(name, "linear", shape, weights, biases, None, is_transposed))
    return joined


def _split_fused(pieces: Sequence[Piece], roles: Mapping[str, Role]) -> list[Piece]:
    """One layer that computes query, key and value at once, as two or three."""
    linear = {name: role.shape for name, role in roles.items() if role.kind == "linear"}
    equal = [
        (letters, (shape,) * len(letters))
        for shape in set(linear.values())
        for letters in ("kv", "qkv")
    ]
    unequal = [
        (names, tuple(linear[name] for name in names))
        for n in (2, 3)
        for names in combinations(linear, n)
        if len({linear[name] for name in names}) > 1 and len({linear[n][1] for n in names}) == 1
    ]
    split = []
    for p, (names, shapes) in product(pieces, [*equal, *unequal]):
        if p.kind == "linear" and p.shape == (sum(rows for rows, _ in shapes), shapes[0][1]):
            start = 0
            for name, shape in zip(names, shapes, strict=True):
                rows = tuple(range(start, start + shape[0]))
                split.append(replace(p, name=f"{p.name}.{name}", shape=shape, rows=rows))
                start += shape[0]
    return split
