"""The weights of a GRU, found in a student's module.

    nn.GRU, nn.GRUCell      with or without biases, one module for all layers or one for each
    by hand                 nn.Linear or plain parameters; a matrix for each gate, or the gates
                            below each other in one; x and h apart, or as [x, h] in one matrix

The names in a cell by hand need not say which gate is r, so it is read in several ways. The answer
is right if one reading gives the student's numbers in every case: gates may have any name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.contracts.shared.gru import GRU, Cell, Form
from clearhead.exercises.readings import assign
from clearhead.exercises.weights import Role

Parameter = tuple[str, Sequence[int], str]  # name, shape, kind of module that holds it
Kind = tuple[str, bool]  # bias, or a matrix of x, h or xh; whether the matrix is turned
MAX_OTHERS = 2  # readings of the parameters outside the GRU, for each reading of the GRU
TORCH = re.compile(r"(weight|bias)_[ih]h(_l\d+)?$")  # names of the parameters of nn.GRU, nn.GRUCell
FORMS = tuple(Form(inside, new) for new, inside in product((False, True), (False, True)))
GATES = {  # how names end that belong to r, z and n
    "r": r"r|reset|reset_?gate|r_?gate",
    "z": r"z|update|update_?gate|z_?gate",
    "n": r"n|h|c|g|new|cand|candidate|tilde|tilda|h_?tilde|proposal|n_?gate|new_?gate",
}


@dataclass(frozen=True)
class Block:
    """The D rows of one gate in a matrix or bias; columns: of x or of h, in a matrix for [x, h].

    is_turned: the parameter is multiplied as x @ W, so the rows are its columns.
    """

    name: str
    rows: slice
    is_turned: bool = False
    columns: slice | None = None

    def take(self, values: Mapping[str, Tensor]) -> Tensor:
        value = values[self.name].mT if self.is_turned else values[self.name]
        return value[self.rows] if self.columns is None else value[self.rows, self.columns]

    @property
    def gate(self) -> str | None:
        """The gate that the parameter's name points to: r, z or n; None if it points to none."""
        name = re.sub(r"\.(weight|bias)$", "", self.name).lower()
        name = re.sub(r"[._]?\d+$", "", name).rpartition(".")[2]
        found = [g for g, ends in GATES.items() if re.search(rf"(^|_|[bwuxhi2])({ends})$", name)]
        return found[0] if found else None


@dataclass(frozen=True)
class Layer:
    """The blocks of one cell in the order r, z, n; a bias that does not exist is None."""

    x: tuple[Block, ...]
    h: tuple[Block, ...]
    bias_x: tuple[Block | None, ...]
    bias_h: tuple[Block | None, ...]

    def take(self, values: Mapping[str, Tensor], form: Form) -> Cell:
        weight_x = torch.cat([each.take(values) for each in self.x])
        weight_h = torch.cat([each.take(values) for each in self.h])
        none = weight_h.new_zeros(weight_h.size(1))
        bias_x, bias_h = (
            torch.cat([none if each is None else each.take(values) for each in row])
            for row in (self.bias_x, self.bias_h)
        )
        return Cell(weight_x, weight_h, bias_x, bias_h, form)

    def permute(self, order: Sequence[int]) -> "Layer":
        """The same blocks for the gates in another order."""
        rows = (self.x, self.h, self.bias_x, self.bias_h)
        return Layer(*(tuple(row[i] for i in order) for row in rows))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reading:
    """One way to read the parameters as a GRU."""

    layers: tuple[Layer, ...]
    form: Form

    def take(self, values: Mapping[str, Tensor]) -> GRU:
        """The GRU with these values of the parameters."""
        return GRU(tuple(layer.take(values, self.form) for layer in self.layers))


def assign_with_gru(
    parameters: Sequence[Parameter],
    roles: Mapping[str, Role],
    d_input: int,
    d_hidden: int,
    n_layers: int,
) -> list[Mapping[str, Any]]:
    """Every reading of the parameters as a GRU, the role `gru`, and these other roles."""
    own = [each for each in parameters if _is_torch(each)]
    own = own or [each for each in parameters if not _fits_a_role(each, roles)]
    others = assign([each for each in parameters if each not in own], roles)
    grus = list(read_gru(own, d_input, d_hidden, n_layers))
    return [{**other, "gru": gru} for gru in grus for other in others[:MAX_OTHERS]]


def describe_unreadable(parameters: Sequence[Parameter]) -> str:
    """Say why a module cannot be checked: its weights cannot be copied into the formula."""
    has = ", ".join(f"{name} {tuple(shape)}" for name, shape, _ in parameters)
    return (
        "it cannot be graded, because its parameters cannot be read as those of a GRU: use nn.GRU, "
        f"nn.GRUCell, or W_xr, W_hr, b_r and so on for the gates r, z, n; it has {has}"
    )


def _is_torch(parameter: Parameter) -> bool:
    name, _, owner = parameter
    return owner in ("GRU", "GRUCell") and bool(TORCH.search(name))


def _fits_a_role(parameter: Parameter, roles: Mapping[str, Role]) -> bool:
    """Whether it has a name and a shape of one of the roles, or is the bias of such a layer."""
    name, shape, owner = parameter
    words = set(re.split(r"[._\d]+", name.lower()))
    for role in roles.values():
        shapes = (role.shape, role.shape[::-1], role.shape[:1], role.shape[1:])
        is_known = owner == "Embedding" or bool(words & set(role.names.lower().split()))
        if is_known and tuple(shape) in shapes:
            return True
    return False


def read_gru(
    parameters: Sequence[Parameter], d_input: int, d_hidden: int, n_layers: int
) -> Iterator[Reading]:
    """Every reading of the parameters as a GRU, the likeliest first; none if they do not fit."""
    groups = _split_layers(parameters, n_layers)
    kinds = _find_kinds(groups[0], d_input, d_hidden) if groups else ()
    is_torch = all(_is_torch(each) for each in parameters)
    has_both = any(source == "xh" for source, _ in kinds)
    for is_h_first in (False, True) if has_both else (False,):
        layers = _read_layers(groups, kinds, d_input, d_hidden, is_h_first) if kinds else ()
        if not layers:
            return
        is_named = is_torch or _find_order(layers[0].x) is not None
        orders = [(0, 1, 2)] if is_named else list(permutations((0, 1, 2)))
        for order, form in product(orders, FORMS[:1] if is_torch else FORMS):
            yield Reading(tuple(layer.permute(order) for layer in layers), form)


def _split_layers(parameters: Sequence[Parameter], n_layers: int) -> list[list[Parameter]]:
    """Group the parameters by layer: by a number in the name, or by the module; empty if neither
    works. The 2 of x2h, between letters, is not the number of a layer."""
    if n_layers == 1:
        return [list(parameters)] if parameters else []
    numbers = re.compile(r"(?<![A-Za-z\d])\d+|\d+(?![A-Za-z\d])")
    keys: tuple[Callable[[str], Any], ...] = (
        lambda name: numbers.findall(name),
        lambda name: numbers.findall(name)[:1],
        lambda name: numbers.findall(name)[-1:],
        lambda name: name.rpartition(".")[0],
        lambda name: name.partition(".")[0],
    )
    for key in keys:
        groups: dict[str, list[Parameter]] = {}
        for each in parameters:
            groups.setdefault(str(key(each[0])), []).append(each)
        if len(groups) == n_layers and len({len(group) for group in groups.values()}) == 1:
            return list(groups.values())
    return []


def _find_kinds(group: Sequence[Parameter], d: int, D: int) -> tuple[Kind, ...]:
    """The kind of each parameter of the first layer; empty if one is of no kind. Plain parameters
    are all multiplied in the same way, x @ W or W @ x."""
    for is_turned in (True, False):
        kinds = [_find_kind(each, d, D, is_turned) for each in group]
        found = tuple(kind for kind in kinds if kind is not None)
        if len(found) == len(kinds):
            return found
    return ()


def _find_kind(parameter: Parameter, d: int, D: int, is_turned: bool) -> Kind | None:
    name, shape, owner = parameter
    if len(shape) == 1:
        return ("bias", False) if shape[0] % D == 0 else None
    if len(shape) != 2:
        return None
    is_turned = is_turned and not (_is_torch(parameter) or owner.endswith("Linear"))
    rows, width = (shape[1], shape[0]) if is_turned else shape
    if rows % D or width not in (d, D, d + D):
        return None
    if width == d == D:
        return ("h" if _is_of_state(name) else "x"), is_turned
    return ("x" if width == d else "h" if width == D else "xh"), is_turned


def _is_of_state(name: str) -> bool:
    """Whether a name is that of a matrix or bias of h: weight_hh, W_hz, U_z, h2h, …"""
    last = re.sub(r"\.(weight|bias)$", "", name).rpartition(".")[2].lower()
    return bool(re.search(r"hh|h2|^u|_h[rznhcg]$|^[wb]h|hidden|recurrent|state", last))


def _read_layers(
    groups: Sequence[Sequence[Parameter]],
    kinds: Sequence[Kind],
    d: int,
    D: int,
    is_h_first: bool,
) -> tuple[Layer, ...]:
    """The blocks of each layer; empty unless each has three for x and three for h."""
    layers = []
    for group in groups:
        blocks: dict[str, list[Block]] = {"x": [], "h": [], "bias": []}
        of_x, of_h = (slice(D, None), slice(D)) if is_h_first else (slice(d), slice(d, None))
        for (name, shape, _), (source, is_turned) in zip(group, kinds, strict=True):
            for start in range(0, shape[1] if is_turned else shape[0], D):
                block = Block(name, slice(start, start + D), is_turned)
                if source == "xh":
                    blocks["x"].append(replace(block, columns=of_x))
                    blocks["h"].append(replace(block, columns=of_h))
                else:
                    blocks[source].append(block)
        layers.append(_order_gates(**blocks))
        d = D  # the layers above read states
    return tuple(each for each in layers if each) if all(layers) else ()


def _order_gates(x: list[Block], h: list[Block], bias: list[Block]) -> Layer | None:
    """Put the blocks in the order r, z, n if their names say it; else keep their order."""
    if len(x) != 3 or len(h) != 3:
        return None
    order = _find_order(x) or (0, 1, 2)
    x, h = [x[i] for i in order], [h[i] for i in _find_order(h) or order]
    bias_x = [_find_bias(block, bias) for block in x]
    bias_h = [_find_bias(block, bias) for block in h]
    bias_h = [None if b in bias_x else b for b in bias_h]  # [x, h] in one layer has one bias
    plain = [b for b in bias if b not in (*bias_x, *bias_h)]
    of_h = [b for b in plain if _is_of_state(b.name)] if len(plain) == 6 else []
    of_x = [b for b in plain if b not in of_h]
    if of_x:
        bias_x = [of_x[i] for i in _find_order(of_x) or order] if len(of_x) == 3 else []
    if of_h:
        bias_h = [of_h[i] for i in _find_order(of_h) or order] if len(of_h) == 3 else []
    if not bias_x or not bias_h:
        return None
    return Layer(tuple(x), tuple(h), tuple(bias_x), tuple(bias_h))


def _find_order(blocks: Sequence[Block]) -> tuple[int, ...] | None:
    """Find the indices of r, z and n by the names; None if these do not say."""
    gates = [block.gate for block in blocks]
    return tuple(gates.index(gate) for gate in "rzn") if set(gates) == set("rzn") else None


def _find_bias(block: Block, biases: Sequence[Block]) -> Block | None:
    """The bias of the same layer, such as nn.Linear or nn.GRU, for the same gate."""
    name = block.name.replace("weight", "bias")
    return next((b for b in biases if b.name == name and b.rows == block.rows), None)
