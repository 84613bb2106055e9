"""Change an activation of a model inside a `with`: the hooks behind every intervention.

    with change(find_site(model, "blocks.1.feed_forward"), lambda x: 0 * x):
        model(tokens)

Several changes of one activation are applied in the order of their `with` statements. `record`
shows the changed values, whichever of the two was entered first. A change affects only calls made
by the thread that entered it. When the `with` ends, even by an exception, its hooks are removed.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.utils.hooks import RemovableHandle

from clearhead.attention.inputs import dense_mask
from clearhead.attention.masks import MaskLike
from clearhead.attention.mechanisms import Mechanism
from clearhead.attention.softmax import mix
from clearhead.inspection.sites import Site, find_sites
from clearhead.shapes import format_shape


@dataclass(frozen=True, eq=False)
class Inputs:
    """The arguments of one call of a mechanism: shapes as in attention/mechanisms.py."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: MaskLike = None
    bias: Tensor | None = None

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """(B, H, T, S), or (B, T, S) without heads."""
        return (*self.q.shape[:-1], self.k.size(-2))


@contextmanager
def change(site: Site, new_value: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the activation at a site by new_value(activation), of the same shape."""

    def compute(value: Tensor) -> Tensor:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{site.name!r} is not a tensor here but a {type(value).__name__}; "
                f"change a part of it by its own name"
            )
        return check_value(site.name, value, new_value(value))

    def change_argument(inputs: Inputs) -> Inputs:
        return replace(inputs, **{site.part: compute(getattr(inputs, site.part))})

    def change_weights(inputs: Inputs, _: Tensor) -> Tensor:
        return _attend_with(site, inputs, compute)

    if site.part == "output":
        edit = _edit(site, after=lambda _, output: compute(output))
    elif site.part == "input":
        edit = _edit(site, before=compute)
    elif site.part == "weights":
        edit = _edit(site, after=change_weights)
    else:
        edit = _edit(site, before=change_argument)
    with edit:
        yield


@contextmanager
def capture(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collect the activations of these names during one forward pass: name → tensor.

    The tensors are part of the autograd graph, so a gradient with respect to them can be computed,
    even if no parameter requires one.
    """
    values: dict[str, Tensor] = {}

    def make_store(name: str) -> Callable[[Tensor], Tensor]:
        def store(value: Tensor) -> Tensor:
            if name in values:
                raise ValueError(
                    f"{name!r} is called more than once in a pass, so its value is ambiguous; "
                    f"`record` keeps every call"
                )
            if torch.is_grad_enabled() and not value.requires_grad:
                value = value.detach().requires_grad_()
            values[name] = value
            return value

        return store

    names = list(names)
    with ExitStack() as edits:
        for name, site in zip(names, find_sites(model, names), strict=True):
            edits.enter_context(change(site, make_store(name)))
        yield values


@contextmanager
def change_call(
    site: Site,
    *,
    inputs: Callable[[Any], Any] | None = None,
    output: Callable[[Any, Tensor], Tensor] | None = None,
) -> Iterator[None]:
    """Replace the arguments of every call of a site's module, or its output, inside a `with`.

    inputs: old arguments → new ones. output: (arguments, old output) → new output. The arguments
    are an Inputs for a mechanism, and the first argument for any other module.
    """
    with _edit(site, before=inputs, after=output):
        yield


def _attend_with(site: Site, inputs: Inputs, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """The output of a mechanism with changed weights: dropout(compute(weights)) v."""
    mechanism = site.module
    assert isinstance(mechanism, Mechanism)
    weights = mechanism.weights(inputs.q, inputs.k, mask=inputs.mask, bias=inputs.bias)
    allowed = dense_mask(inputs.mask, inputs.scores_shape, inputs.q.device)
    new = dropout(compute(weights), mechanism.dropout, mechanism.training)
    return mix(new, inputs.v, allowed)


def check_value(name: str, value: Tensor, new: Any) -> Tensor:
    """Check that new is a tensor of the old shape; return it in the old dtype, on its device."""
    if not isinstance(new, Tensor):
        raise TypeError(f"the new value of {name!r} must be a tensor, got {type(new).__name__}")
    if new.shape != value.shape:
        raise ValueError(
            f"the new value of {name!r} must have its shape {format_shape(value)}, "
            f"got {format_shape(new)}"
        )
    return new.to(value)


# Hooks

_LOCK = threading.Lock()  # two threads may edit the same module at the same time


@dataclass(eq=False)
class _Edit:
    """One change of one module's calls; it applies only to calls of the thread that made it.

    before: arguments → new arguments. after: (arguments, output) → new output. is_open: False while
    a module shared by several attentions is called by another attention than the one to change.
    """

    before: Callable[[Any], Any] | None
    after: Callable[[Any, Tensor], Tensor] | None
    is_open: bool

    def __post_init__(self) -> None:
        self.thread = threading.get_ident()

    @property
    def is_active(self) -> bool:
        return self.is_open and self.thread == threading.get_ident()


class _Editor:
    """All changes of one module: one pair of hooks, which runs before those of `record`."""

    def __init__(self) -> None:
        # Replaced, never modified, because another thread may be iterating over it.
        self.edits: tuple[_Edit, ...] = ()
        self.hooks: list[RemovableHandle] = []

    def attach(self, module: nn.Module) -> None:
        """Register the hooks."""
        self.hooks = [
            module.register_forward_pre_hook(self.before, prepend=True, with_kwargs=True),
            module.register_forward_hook(self.after, prepend=True, with_kwargs=True),
        ]

    @property
    def changes_values(self) -> bool:
        """Whether a change is active; generation/fast asks, and then refuses to pack the model."""
        return bool(self.edits)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Editor":
        """An editor without edits: the changes apply to the original module, not to a copy."""
        return _Editor()

    def before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The forward pre-hook: return the changed arguments."""
        for edit in self.edits:
            if edit.before is not None and edit.is_active:
                args, kwargs = _write_arguments(
                    edit.before(_read_arguments(module, args, kwargs)), args, kwargs
                )
        return args, kwargs

    def after(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        """The forward hook: return the changed output."""
        for edit in self.edits:
            if edit.after is not None and edit.is_active:
                output = edit.after(_read_arguments(module, args, kwargs), output)
        return output


@contextmanager
def _edit(
    site: Site,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any, Tensor], Tensor] | None = None,
) -> Iterator[None]:
    """Apply a change to every call of a site's module; remove it and unused hooks at the end."""
    edit = _Edit(before, after, is_open=site.holder is None)
    with _LOCK:
        editor = _find_editor(site.module)
        editor.edits = (*editor.edits, edit)
    with ExitStack() as hooks:
        if site.holder is not None:
            hooks.enter_context(_open_inside(site.holder, edit))
        try:
            yield
        finally:
            with _LOCK:
                editor.edits = tuple(other for other in editor.edits if other is not edit)
                if not editor.edits:
                    for hook in editor.hooks:
                        hook.remove()


@contextmanager
def _open_inside(holder: nn.Module, edit: _Edit) -> Iterator[None]:
    """Open an edit only while the attention that holds a shared mechanism runs."""

    def set_open(is_open: bool) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if threading.get_ident() == edit.thread:
                edit.is_open = is_open

        return hook

    with (
        holder.register_forward_pre_hook(set_open(True)),
        holder.register_forward_hook(set_open(False), always_call=True),
    ):
        yield


def _find_editor(module: nn.Module) -> _Editor:
    """The editor attached to a module; attach a new one if there is none."""
    owners = [getattr(hook, "__self__", None) for hook in module._forward_hooks.values()]
    for owner in owners:
        if isinstance(owner, _Editor):
            return owner
    editor = _Editor()
    editor.attach(module)
    return editor


def _read_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The Inputs of a mechanism; the first argument of any other module."""
    if isinstance(module, Mechanism):
        return Inputs(*args, **kwargs)
    return args[0] if args else next(iter(kwargs.values()))


def _write_arguments(
    new: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """args and kwargs with the new arguments, in the form of _read_arguments."""
    if isinstance(new, Inputs):
        return (new.q, new.k, new.v), {"mask": new.mask, "bias": new.bias}
    if args:
        return (new, *args[1:]), kwargs
    return args, {**kwargs, next(iter(kwargs)): new}
