"""Change one thing inside a model and see what it causes.

    with ablate(model, layer=3, head=2):                       set a head's output to 0
        model(tokens)
    with patch(model, {"blocks.1.attention": other}):          use activations of another input
        model(tokens)
    with sharpen(model, 4, layer=0):                           softmax(4 · scores)
        model(tokens)
    with edit_mask(model, allowed, layer=0, head=1):           who may attend to whom
        model(tokens)

Interventions can be nested, and work with `record`, `generate`, caches, batches and gradients. No
parameter is modified: forward hooks change activations, and are removed when the `with` ends.

The output of a head is its mixture of values, (B, H, T, Dv). The output projection is linear, so a
head adds exactly its mixture times its own columns of that projection to the residual stream. A
head whose mixture is 0 adds nothing. sites.py explains the names of activations.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead.attention.inputs import dense_mask
from clearhead.attention.masks import Mask
from clearhead.attention.mechanisms import DotProductAttention
from clearhead.inspection.edits import Inputs, change_call, check_value
from clearhead.inspection.places import (
    Heads,
    Place,
    change_at,
    check_heads,
    find_all_places,
    find_places,
    read_positions,
    select_heads,
)
from clearhead.inspection.record import Trace
from clearhead.inspection.sites import Selection, Site, find_site
from clearhead.shapes import broadcasts_to, check_choice, check_number, check_whole, format_shape

NewValue = Tensor | Callable[[Tensor], Tensor]


@contextmanager
def ablate(
    model: nn.Module,
    layer: int | str,
    head: Heads = None,
    by: str = "zero",
    *,
    positions: Selection = None,
    reference: Trace | None = None,
    seed: int = 0,
) -> Iterator[None]:
    """Replace the output of heads, or of another part of a model, inside a `with`.

    layer: the number of an attention layer, from 0, or the name of any part, such as
        "blocks.1.feed_forward".
    head: one head or several; None means all.
    by: "zero"; "mean", the mean over the batch and all positions; "resample", the value of another
        row of the batch.
    positions: the tokens to change; None means all. They count from the start of the sequence,
        cached tokens and padding included; negative ones count from the last token of each call.
    reference: a trace of other inputs, from which to take the mean or the rows.
    seed: of the random choice of rows for "resample".
    """
    check_choice("by", by, ("zero", "mean", "resample"))
    check_whole("seed", seed)
    if not isinstance(reference, Trace | None):
        raise TypeError(f"reference must be a trace of `record`, got {type(reference).__name__}")
    generator = torch.Generator().manual_seed(seed)
    with ExitStack() as edits:
        for place in find_places(model, layer, head, positions):
            stored = None if reference is None else reference[place.site.name].output
            make = _Replacement(by, stored, generator)
            edits.enter_context(change_at(model, place, make))
        yield


@contextmanager
def patch(
    model: nn.Module,
    values: Mapping[str, NewValue],
    *,
    head: Heads = None,
    positions: Selection = None,
) -> Iterator[None]:
    """Replace activations inside a `with`: name → a tensor, or a function of the old value.

    A tensor has the shape of the activation or broadcasts to it. For an attention this is the
    output of every head, (B, H, T, Dv), as in `record`; a tensor (B, T, D) replaces the output of
    proj_out instead. head, positions: change only these; positions as in ablate.
    """
    if not isinstance(values, Mapping):
        raise TypeError(
            f"values must map names to new values, as {{'blocks.0': tensor}}, "
            f"got {type(values).__name__}"
        )
    with ExitStack() as edits:
        for name, value in values.items():
            site = _find_target(model, name, value)
            heads = None if head is None else check_heads(model, [site], head)
            place = Place(site, heads, read_positions(positions))
            edits.enter_context(change_at(model, place, _make_function(site.name, value)))
        yield


@contextmanager
def sharpen(
    model: nn.Module, factor: float, *, layer: int | str | None = None, head: Heads = None
) -> Iterator[None]:
    """Multiply the scores by a factor before the softmax, inside a `with`.

    factor: above 1 sharpens the attention, below 1 flattens it. layer: a number or a name, None
    means all; head: None means all.
    """
    check_number("factor", factor, low=0, high=1e6)  # larger ones may overflow to infinite scores

    def scale(heads: list[int] | None) -> Callable[[Inputs], Inputs]:
        def multiply(inputs: Inputs) -> Inputs:
            factors = torch.ones(1 if heads is None else inputs.q.size(-3), 1, 1).to(inputs.q)
            factors[0 if heads is None else heads] = factor
            bias = None if inputs.bias is None else inputs.bias * factors
            return replace(inputs, q=inputs.q * factors, bias=bias)

        return multiply

    with ExitStack() as edits:
        for place in find_all_places(model, layer, head):
            if not isinstance(place.site.module, DotProductAttention):
                raise TypeError(
                    f"{place.site.name!r} is a {type(place.site.module).__name__}, whose scores "
                    f"cannot be sharpened; DotProductAttention can"
                )
            edits.enter_context(change_call(place.site, inputs=scale(place.heads)))
        yield


@contextmanager
def edit_mask(
    model: nn.Module,
    mask: Mask | Tensor | Callable[[Tensor], Tensor],
    *,
    layer: int | str | None = None,
    head: Heads = None,
) -> Iterator[None]:
    """Change the attention mask inside a `with`; True = may attend.

    mask: a mask, or a tensor that broadcasts to (B, H, T, S), is combined with the model's own mask
    by &, so it can only forbid more. A function gets the model's own mask, (B, H, T, S), and
    returns the one to use, so it can also allow more. layer: a number or a name, None means all;
    head: None means all.
    """
    new_mask = mask if callable(mask) else Mask.of(mask)

    def change_mask(heads: list[int] | None) -> Callable[[Inputs], Inputs]:
        def compute(inputs: Inputs) -> Inputs:
            own, shape = inputs.mask, inputs.scores_shape
            if heads is None and isinstance(new_mask, Mask):
                return replace(inputs, mask=new_mask & own)
            dense = dense_mask(own, shape, inputs.q.device)
            old = (
                torch.ones(shape, dtype=torch.bool, device=inputs.q.device)
                if dense is None
                else dense.expand(shape)
            )
            new = _compute_mask(new_mask, old)
            if heads is not None:
                selected = select_heads(heads, old)
                new = torch.where(selected, new, old)
            return replace(inputs, mask=new)

        return compute

    with ExitStack() as edits:
        for place in find_all_places(model, layer, head):
            edits.enter_context(change_call(place.site, inputs=change_mask(place.heads)))
        yield


# New values


@dataclass(frozen=True, eq=False)
class _Replacement:
    """A function from an ablated activation to its replacement: 0, a mean, or another row.

    by: as in ablate. stored: the same activation on other inputs; None means take it from x.
    """

    by: str
    stored: Tensor | None
    generator: torch.Generator

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, H, T, Dv) or (B, T, D) → a tensor that broadcasts to it."""
        if self.by == "zero":
            return torch.zeros((), dtype=x.dtype, device=x.device)
        source = x if self.stored is None else self.stored.to(x)
        if (source.shape[1:-2], source.size(-1)) != (x.shape[1:-2], x.size(-1)):
            raise ValueError(
                f"reference must have heads and widths like this call's, {format_shape(x)}, "
                f"got {format_shape(source)}"
            )
        return self._average(source) if self.by == "mean" else self._draw_rows(source, x)

    def _average(self, source: Tensor) -> Tensor:
        """The mean over the batch and all positions, for each head: (1, H, 1, Dv) or (1, 1, D)."""
        axes = (0, -2) if source.ndim > 2 else (0,)
        if all(source.size(axis) == 1 for axis in axes):
            raise ValueError(
                "by='mean' needs more than one token to average, but this call has one; "
                "give reference=, a trace recorded on other inputs"
            )
        return source.mean(dim=axes, keepdim=True)

    def _draw_rows(self, source: Tensor, x: Tensor) -> Tensor:
        """A random row of the source for each row of x; if the source is x, never the same row."""
        B, is_own = len(x), self.stored is None
        if is_own and B == 1:
            raise ValueError(
                "by='resample' takes another row of the batch, but the batch has one row; "
                "give reference=, a trace recorded on other inputs"
            )
        if source.shape[1:] != x.shape[1:]:
            raise ValueError(
                f"reference must have rows like this call's, {format_shape(x[0])}, "
                f"got {format_shape(source[0])}"
            )
        shift = torch.randint(int(is_own), len(source), (B,), generator=self.generator)
        return source[((torch.arange(B) + shift) % len(source)).to(source.device)]


def _find_target(model: nn.Module, name: str, value: NewValue) -> Site:
    """The site a new value replaces: for an attention and a tensor (B, T, D), its proj_out."""
    if not isinstance(value, Tensor) and not callable(value):
        raise TypeError(
            f"the new value of {name!r} must be a tensor or a function, got {type(value).__name__}"
        )
    site = find_site(model, name)
    projection = f"{site.name}.proj_out"
    is_projected = site.is_attention and isinstance(value, Tensor) and value.ndim == 3
    if is_projected and projection in dict(model.named_modules()):
        return find_site(model, projection)
    return site


def _make_function(name: str, value: NewValue) -> Callable[[Tensor], Tensor]:
    """A function from the old value to the new one, which it checks."""

    def return_tensor(old: Tensor) -> Tensor:
        assert isinstance(value, Tensor)
        if value.ndim != old.ndim or not broadcasts_to(value, tuple(old.shape)):
            batch = ""
            if value.shape[1:] == old.shape[1:]:
                batch = f"; its batch is {len(value)}, that of the call {len(old)}"
            raise ValueError(
                f"the new value of {name!r} must have its shape {format_shape(old)}, "
                f"got {format_shape(value)}{batch}"
            )
        return value.to(old)

    def call_function(old: Tensor) -> Tensor:
        assert not isinstance(value, Tensor)
        return check_value(name, old, value(old.clone()))  # a copy, which it may modify in place

    return return_tensor if isinstance(value, Tensor) else call_function


def _compute_mask(mask: Mask | Callable[[Tensor], Tensor], old: Tensor) -> Tensor:
    """The old mask (B, H, T, S) combined with a mask by &, or the result of a function of it."""
    if isinstance(mask, Mask):
        return (mask & old).dense(*old.shape[-2:], device=old.device).expand(old.shape)
    new = mask(old.clone())  # a copy, which it may modify in place
    if not isinstance(new, Tensor) or new.dtype != torch.bool or new.shape != old.shape:
        given = format_shape(new) if isinstance(new, Tensor) else type(new).__name__
        raise ValueError(
            f"mask must return a boolean tensor of shape {format_shape(old)}, got {given}"
        )
    return new
