"""Change one thing inside a model and see what it causes.

    with ablate(model, layer=3, head=2):                       silence a head
        model(tokens)
    with patch(model, {"blocks.1.attention": other}):          activations of another sentence
        model(tokens)
    with sharpen(model, 4, layer=0):                           softmax(4 · scores)
        model(tokens)
    with edit_mask(model, allowed, layer=0, head=1):           who may attend to whom
        model(tokens)

They nest, and work together with `record`, `generate`, caches, batches and gradients. The weights
are never touched: hooks change values that pass through, and are gone when the `with` ends. The
output projection is linear, so what a head adds to the residual stream is exactly its own columns
times its mixture: a head whose mixture is 0 adds nothing. Names: see sites.py.
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
    """Remove what heads, or another part of a model, contribute.

    layer: the number of an attention, or a name, also of another part such as
    "blocks.1.feed_forward". head: None means all. by: "zero"; "mean", the mean over the batch and
    all positions; "resample", the value in another row of the batch. reference: a trace of other
    inputs, which then gives the mean or the rows. positions: which tokens, counted from the start
    of the sequence, cached ones and padding included, or if negative from the end of each call;
    None means all.
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
    """Replace values inside a model: name → a tensor, or a function of the old value.

    A tensor has the shape of the value or broadcasts to it. Of an attention it is the mixture of
    every head, (B, H, T, Dv), as `record` shows it, or the output after proj_out, (B, T, D). head
    and positions: replace only these; positions as in ablate.
    """
    if not isinstance(values, Mapping):
        raise TypeError(
            f"values must map names to new values, as {{'blocks.0': tensor}}, "
            f"got {type(values).__name__}"
        )
    with ExitStack() as edits:
        for name, value in values.items():
            site = _find_patched(model, name, value)
            heads = None if head is None else check_heads(model, [site], head)
            place = Place(site, heads, read_positions(positions))
            edits.enter_context(change_at(model, place, _compute(site.name, value)))
        yield


@contextmanager
def sharpen(
    model: nn.Module, factor: float, *, layer: int | str | None = None, head: Heads = None
) -> Iterator[None]:
    """Multiply the scores by a factor before the softmax: above 1 sharper, below 1 flatter.

    layer: a number or a name, None means all; head: None means all.
    """
    check_number("factor", factor, low=0, high=1e6)  # far more would overflow to infinite scores

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
    """Change who may attend to whom, True = may attend.

    A mask or a tensor that broadcasts to (B, H, T, S) is joined to the model's own by &. A function
    gets the model's own mask, (B, H, T, S), and returns the one to use, so it can also allow more.
    layer: a number or a name, None means all; head: None means all.
    """
    make = mask if callable(mask) else Mask.of(mask)

    def change_mask(heads: list[int] | None) -> Callable[[Inputs], Inputs]:
        def compute(inputs: Inputs) -> Inputs:
            own, shape = inputs.mask, inputs.scores_shape
            if heads is None and isinstance(make, Mask):
                return replace(inputs, mask=make & own)
            dense = dense_mask(own, shape, inputs.q.device)
            old = (
                torch.ones(shape, dtype=torch.bool, device=inputs.q.device)
                if dense is None
                else dense.expand(shape)
            )
            new = _compute_mask(make, old)
            if heads is not None:
                selected = select_heads(heads, old)
                new = torch.where(selected, new, old)
            return replace(inputs, mask=new)

        return compute

    with ExitStack() as edits:
        for place in find_all_places(model, layer, head):
            edits.enter_context(change_call(place.site, inputs=change_mask(place.heads)))
        yield


# What replaces them


@dataclass(frozen=True, eq=False)
class _Replacement:
    """What stands in place of an ablated value: zeros, a mean, or another row of a batch."""

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
        return self._mean(source) if self.by == "mean" else self._other_rows(source, x)

    def _mean(self, source: Tensor) -> Tensor:
        """Over the batch and all positions, for each head."""
        axes = (0, -2) if source.ndim > 2 else (0,)
        if all(source.size(axis) == 1 for axis in axes):
            raise ValueError(
                "by='mean' needs more than one token to average, but this call has one; "
                "give reference=, a trace recorded on other inputs"
            )
        return source.mean(dim=axes, keepdim=True)

    def _other_rows(self, source: Tensor, x: Tensor) -> Tensor:
        """A row of the source for each row of x: never the same row of the same batch."""
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


def _find_patched(model: nn.Module, name: str, value: NewValue) -> Site:
    """The place that a new value is for."""
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


def _compute(name: str, value: NewValue) -> Callable[[Tensor], Tensor]:
    """A function of the old value: the new one, checked."""

    def give(old: Tensor) -> Tensor:
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

    def call(old: Tensor) -> Tensor:
        assert not isinstance(value, Tensor)
        return check_value(name, old, value(old.clone()))  # the function may write into its own

    return give if isinstance(value, Tensor) else call


def _compute_mask(make: Mask | Callable[[Tensor], Tensor], old: Tensor) -> Tensor:
    """The new mask in place of the old (B, H, T, S): joined to it, or what the function returns."""
    if isinstance(make, Mask):
        return (make & old).dense(*old.shape[-2:], device=old.device).expand(old.shape)
    new = make(old.clone())  # the function may write into it
    if not isinstance(new, Tensor) or new.dtype != torch.bool or new.shape != old.shape:
        given = format_shape(new) if isinstance(new, Tensor) else type(new).__name__
        raise ValueError(
            f"mask must return a boolean tensor of shape {format_shape(old)}, got {given}"
        )
    return new
