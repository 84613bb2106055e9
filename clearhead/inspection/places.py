"""Some heads and positions of a site: where exactly an intervention acts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.edits import Inputs
from clearhead.inspection.sites import Selection, Site, count_heads, find_layer, find_layers
from clearhead.shapes import format_shape

Heads = int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class Place:
    """Some heads and positions of a site; None means all."""

    site: Site
    heads: list[int] | None
    positions: Selection = None

    def overwrite(self, make: Callable[[Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
        """A change of a call's output: make(output) at this place, the output elsewhere."""

        def compute(inputs: Any, output: Tensor) -> Tensor:
            past = inputs.past if isinstance(inputs, Inputs) else None
            return self.merge(output, make(output), past)

        return compute

    def merge(self, old: Tensor, new: Tensor, past: int | None = None) -> Tensor:
        """new at this place, old elsewhere; past: as in _select_positions."""
        if self.heads is None and self.positions is None:
            return new.expand_as(old)
        selected = torch.ones(1, 1, dtype=torch.bool, device=old.device)  # (T, 1)
        if self.positions is not None:
            selected = _select_positions(self.positions, old.size(-2), past).to(old.device)
        if self.heads is not None:
            selected = selected & select_heads(self.heads, old)
        return torch.where(selected, new, old)


def select_heads(heads: list[int], x: Tensor) -> Tensor:
    """True for these heads: broadcasts to x (B, H, T, ·)."""
    if x.ndim != 4:
        raise ValueError(f"head={heads} was given but this value has no heads: {format_shape(x)}")
    selected = torch.zeros(x.size(1), 1, 1, dtype=torch.bool, device=x.device)
    selected[heads] = True
    return selected


def _select_positions(positions: Selection, T: int, past: int | None) -> Tensor:
    """True for these positions, (T, 1): the T rows of a call follow `past` tokens.

    past None: the call holds the whole sequence, so a position outside it is a mistake. Otherwise a
    later call may reach it.
    """
    first = past or 0
    n = first + T
    if isinstance(positions, slice):
        wanted = set(range(n)[positions])
    else:
        numbers = [positions] if isinstance(positions, int) else [int(i) for i in positions or ()]
        wanted = {i if i >= 0 else n + i for i in numbers}
        if outside := [i for i in numbers if i < -n or (past is None and i >= n)]:
            raise IndexError(f"positions has no {outside[0]}: the sequence has {n} tokens")
    return torch.tensor([[first + t in wanted] for t in range(T)])


def find_places(
    model: nn.Module, layer: int | str, head: Heads, positions: Selection = None
) -> list[Place]:
    """The places of some heads of one layer."""
    sites = find_layer(model, layer)
    if head is None:
        return [Place(site, None, positions) for site in sites]
    heads = check_heads(model, sites, head)
    if len(sites) > 1:  # JoinedHeads: each head is a site of its own
        return [Place(sites[h], None, positions) for h in heads]
    return [Place(sites[0], heads, positions)]


def find_all_places(model: nn.Module, layer: int | str | None, head: Heads) -> list[Place]:
    """The places of some heads of one layer, or of all."""
    names = list(find_layers(model)) if layer is None else [layer]
    return [place for name in names for place in find_places(model, name, head)]


def check_heads(model: nn.Module, sites: Sequence[Site], head: Heads) -> list[int]:
    """Numbers of heads that the layer has."""
    heads = [head] if isinstance(head, int) else [int(h) for h in head or ()]
    n_heads = count_heads(sites, model)
    if n_heads is None:
        raise ValueError(f"{sites[0].name!r} has no heads; leave head out")
    if wrong := [h for h in heads if not 0 <= h < n_heads]:
        raise ValueError(
            f"head must be from 0 to {n_heads - 1} in {sites[0].name!r}, got {wrong[0]}"
        )
    return heads
