"""The pieces among a module's parameters that can serve a role, by kind and shape.

layers    nn.Linear, nn.Embedding, norms, convolutions, and parameters that stand alone
lists     H layers of d_head rows each are joined into one
fused     one layer with three times the rows is split into query, key and value
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from clearhead.exercises.weights import Piece, Role, is_shift


def find_pieces(parameters: Sequence[Any], roles: Mapping[str, Role]) -> list[Piece]:
    """Every layer, table, norm and vector among the parameters, whole, joined or split."""
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
            shift = tuple(n for n in shapes if n.rpartition(".")[0] == module and is_shift(n))
            pieces += (
                [] if is_shift(name) else [Piece(module, "norm", tuple(shape), (name,), shift)]
            )
        elif owner == "Embedding":
            pieces.append(Piece(module, "table", tuple(shape), (name,)))
        elif owner.startswith("Conv"):
            flat = (shape[0], math.prod(shape[1:]))
            pieces.append(Piece(module, "conv", tuple(shape), (name,), bias))
            pieces.append(Piece(module, "flat conv", flat, (name,), bias))
            if len(shape) > 2 and flat[1] == shape[1]:  # a kernel of size 1 is a linear layer
                pieces.append(Piece(module, "linear", flat, (name,), bias))
        else:
            pieces += _read_plain_parameter(name, tuple(shape), shapes)
    return pieces + _join_lists(pieces) + _split_fused(pieces + _join_lists(pieces), roles)


def _read_plain_parameter(
    name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]
) -> list[Piece]:
    """A parameter outside any layer: x @ W, or W as a layer has it, or a table, or a vector."""
    pieces = [Piece(name, "vector", shape, (name,)), Piece(name, "table", shape, (name,))]
    if len(shape) > 2:  # learned positions and class tokens often have a leading axis of 1
        kept = tuple(n for n in shape if n != 1)
        pieces += [Piece(name, "table", kept, (name,)), Piece(name, "vector", kept, (name,))]
    if len(shape) == 2:
        turned = (shape[1], shape[0])
        for form, is_transposed in ((turned, True), (shape, False)):
            bias = _find_plain_bias(name, form[0], shapes)
            pieces.append(Piece(name, "linear", form, (name,), bias, is_transposed=is_transposed))
    if len(shape) == 3:  # a matrix for each head: (H, in, out), (in, H, out), (H, out, in)
        a, b, c = shape
        pieces.append(Piece(name, "linear", (a * c, b), (name,), axes=(0, 2, 1)))
    if len(shape) == 3 and a > 1:
        pieces.append(Piece(name, "linear", (b * c, a), (name,), axes=(1, 2, 0)))
        pieces.append(Piece(name, "linear", (a * b, c), (name,), axes=(0, 1, 2)))
        pieces.append(Piece(name, "linear", (c, a * b), (name,), axes=(2, 0, 1)))
    return pieces


def _find_plain_bias(
    name: str, n_rows: int, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """The bias b1 of a matrix w1: of the same name, with b for w or bias for weight."""
    module, dot, own = name.rpartition(".")
    words = (("weight", "bias"), ("w", "b"), ("W", "b"), ("W", "B"))
    wanted = [module + dot + own.replace(old, new, 1) for old, new in words if old in own]
    return tuple(each for each in wanted if shapes.get(each) == (n_rows,))[:1]


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
