"""Which heads and positions of a site an intervention changes.

A Site (sites.py) is one named activation of a model. A Place is the part of it to change.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.attention.cache import KVCache
from clearhead.attention.masks import Mask
from clearhead.attention.multi_head import MultiHeadAttention
from clearhead.inspection.edits import change
from clearhead.inspection.sites import Selection, Site, count_heads, find_layer, find_layers
from clearhead.layers.block import Block
from clearhead.layers.stack import Stack
from clearhead.shapes import format_shape, is_whole

Heads = int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class Place:
    """Some heads and positions of a site; None means all."""

    site: Site
    heads: list[int] | None
    positions: list[int] | slice | None = None

    def merge(self, old: Tensor, new: Tensor, tracker: "PositionTracker | None" = None) -> Tensor:
        """The new values at this place, the old values elsewhere; new broadcasts to old."""
        if self.heads is None and tracker is None:
            return new.expand_as(old)
        selected = torch.ones(1, 1, dtype=torch.bool, device=old.device)  # (T, 1)
        if tracker is not None:
            selected = self._select_positions(old, tracker).to(old.device)
        if self.heads is not None:
            selected = selected & select_heads(self.heads, old)
        return torch.where(selected, new, old)

    def _select_positions(self, x: Tensor, tracker: "PositionTracker") -> Tensor:
        """True for the rows of x (B, ..., T, ·) at these positions: (T, 1)."""
        if x.ndim < 3:
            raise ValueError(
                f"positions={self.positions} was given but {self.site.name!r} has none here: its "
                f"shape is {format_shape(x)}"
            )
        is_keys = self.site.part in ("k", "v")  # keys and values include the cached tokens
        first = 0 if is_keys else tracker.count_cached(self.site.name)
        n = first + x.size(-2)
        if isinstance(self.positions, slice):
            wanted = set(range(n)[self.positions])
        else:
            numbers = self.positions or []
            if outside := [i for i in numbers if i < -n or (i >= n and not tracker.can_grow)]:
                raise IndexError(f"positions has no {outside[0]}: the sequence has {n} tokens")
            wanted = {i if i >= 0 else n + i for i in numbers}
        return torch.tensor([[first + t in wanted] for t in range(x.size(-2))])


@contextmanager
def change_at(model: nn.Module, place: Place, make: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the values x of a place by make(x), which broadcasts to x, inside a `with`."""
    tracker = None if place.positions is None else PositionTracker()
    with ExitStack() as edits:
        edits.enter_context(change(place.site, lambda x: place.merge(x, make(x), tracker)))
        if tracker is not None:
            # Its hooks are prepended, so entered last they run before those of the change.
            edits.enter_context(tracker.track(model))
        yield


class PositionTracker:
    """Finds the position of a call's first token, from the caches that the model is called with.

    past: the number of cached tokens. can_grow: whether a later call may continue the sequence; if
    so, a position after its end is not an error.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.read_outside: str | None = None  # a site read before the stack is entered
        self.leave()

    @contextmanager
    def track(self, model: nn.Module) -> Iterator[None]:
        """Read the arguments of each outermost stack, block or attention, inside a `with`."""
        kinds = (Stack, Block, MultiHeadAttention)
        found = [module for module in model.modules() if isinstance(module, kinds)]
        inner = {part for module in found for part in module.modules() if part is not module}
        with ExitStack() as hooks:
            for module in found:
                if module not in inner:
                    enter = module.register_forward_pre_hook(
                        self.enter, prepend=True, with_kwargs=True
                    )
                    hooks.enter_context(enter)
                    hooks.enter_context(module.register_forward_hook(self.leave, always_call=True))
            yield

    def enter(self, _: nn.Module, __: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        """The forward pre-hook: read the caches and the mask of a call."""
        if threading.get_ident() != self.thread:
            return
        caches: list[KVCache] = list(arguments.get("caches") or ())
        if (cache := arguments.get("cache")) is not None:
            caches = [cache]
        mask = arguments.get("mask")
        self.is_inside = True
        self.past = len(caches[0]) if caches else 0
        self.can_grow = bool(caches) or (isinstance(mask, Mask) and mask.is_causal)
        name, self.read_outside = self.read_outside, None
        if self.past and name is not None:
            raise ValueError(
                f"positions of {name!r} are not known while tokens are cached; use a name inside "
                f"the blocks, such as 'blocks.0.input', or cache=False"
            )

    def leave(self, *_: Any) -> None:
        """The forward hook: forget the call."""
        if threading.get_ident() == self.thread:
            self.is_inside, self.past, self.can_grow = False, 0, False

    def count_cached(self, name: str) -> int:
        """The number of cached tokens before the current call; name: the site that asks."""
        if not self.is_inside:
            self.read_outside = name
        return self.past


def select_heads(heads: list[int], x: Tensor) -> Tensor:
    """A boolean mask (H, 1, 1), True for these heads; x is (B, H, T, ·)."""
    selected = torch.zeros(x.size(1), 1, 1, dtype=torch.bool, device=x.device)
    selected[heads] = True
    return selected


def read_positions(positions: Selection) -> list[int] | slice | None:
    """One position or several → a list; a slice or None stays as it is."""
    if positions is None or isinstance(positions, slice):
        return positions
    return read_numbers("positions", positions)


def read_numbers(name: str, given: Any) -> list[int]:
    """One whole number or several → a list of ints."""
    numbers: Any = given.tolist() if isinstance(given, Tensor) else given
    if is_whole(numbers):
        return [int(numbers)]
    numbers = list(numbers) if isinstance(numbers, Iterable) else [numbers]
    if not all(map(is_whole, numbers)):
        raise TypeError(f"{name} must be a whole number or a list of them, got {given!r}")
    return [int(number) for number in numbers]


def find_places(
    model: nn.Module, layer: int | str, head: Heads, positions: Selection = None
) -> list[Place]:
    """The places that hold these heads of one layer, at these positions."""
    sites, where = find_layer(model, layer), read_positions(positions)
    if head is None:
        return [Place(site, None, where) for site in sites]
    heads = check_heads(model, sites, head)
    if len(sites) > 1:  # JoinedHeads: each head is a site of its own
        return [Place(sites[h], None, where) for h in heads]
    return [Place(sites[0], heads, where)]


def find_all_places(model: nn.Module, layer: int | str | None, head: Heads) -> list[Place]:
    """The places that hold these heads of one attention layer, or of all layers."""
    names = list(find_layers(model)) if layer is None else [layer]
    places = [place for name in names for place in find_places(model, name, head)]
    for place in places:
        if not place.site.is_attention:
            raise TypeError(
                f"{place.site.name!r} is a {type(place.site.module).__name__}, not an attention; "
                f"the attention layers are {list(find_layers(model))}"
            )
    return places


def check_heads(model: nn.Module, sites: Sequence[Site], head: int | Sequence[int]) -> list[int]:
    """Check that the layer has these heads; return them as a list."""
    heads = read_numbers("head", head)
    n_heads = count_heads(sites, model)
    if n_heads is None:
        raise ValueError(f"{sites[0].name!r} has no heads; leave head out")
    if wrong := [h for h in heads if not 0 <= h < n_heads]:
        raise ValueError(
            f"head must be from 0 to {n_heads - 1} in {sites[0].name!r}, got {wrong[0]}"
        )
    return heads
