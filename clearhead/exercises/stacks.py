"""The layers of a whole model: n equal groups of parameters, found by the numbers in their names.

    blocks.0.attn.query.weight      →  layer 0: attn.query.weight
    blocks.1.attn.query.weight      →  layer 1: attn.query.weight

Each layer is then read as the roles of one layer, and all in the same way.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.exercises.readings import assign
from clearhead.exercises.weights import Assignment, Role

MAX_LAYER_READINGS = 8
LAYERS = "layers"  # the role of all layers together

Parameters = Sequence[Any]  # (name, shape, owner) of each


@dataclass(frozen=True)
class Stack:
    """The parts of each layer, read in the same way."""

    layers: tuple[Assignment, ...]

    def take(self, values: Mapping[str, Tensor]) -> list[dict[str, Any]]:
        """The parts of each layer with these values of the parameters."""
        return [{role: p.take(values) for role, p in each.items()} for each in self.layers]


def assign_model(
    parameters: Parameters,
    n_layers: int,
    layer_roles: Mapping[str, Role],
    outer_roles: Sequence[Mapping[str, Role]],
) -> list[Any]:
    """Every reading of a model as layers and other roles; those of the first fitting set count."""
    groups = find_layers(parameters, n_layers)
    if not groups:
        return []
    inner = {name for group in groups for name, _, _ in group}
    outer = [each for each in parameters if each[0] not in inner]
    others: list[Assignment] = next((a for r in outer_roles if (a := assign(outer, r))), [])
    readings = zip(*(assign(group, layer_roles) for group in groups), strict=True)
    stacks = [Stack(layers) for layers in list(readings)[:MAX_LAYER_READINGS]]
    return [{**other, LAYERS: stack} for stack in stacks for other in others]


def find_layers(parameters: Parameters, n_layers: int) -> list[Parameters]:
    """The parameters of each layer: the largest n equal groups that differ by a number only."""
    groups: dict[str, dict[int, dict[str, Any]]] = {}
    for each in parameters:
        for number in re.finditer(r"\d+", each[0]):
            prefix, suffix = each[0][: number.start()], each[0][number.end() :]
            groups.setdefault(prefix, {}).setdefault(int(number[0]), {})[suffix] = each
    found: list[list[Parameters]] = [
        [list(layers[i].values()) for i in sorted(layers)]
        for layers in groups.values()
        if len(layers) == n_layers and len({_describe(each) for each in layers.values()}) == 1
    ]
    return max(found, key=lambda layers: len(layers[0]), default=[])


def _describe(layer: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((suffix, tuple(shape)) for suffix, (_, shape, _) in layer.items())
