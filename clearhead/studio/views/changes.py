"""Changes inside a model: the page describes them, and the interventions of inspection apply them.

change = Change("silence", layer=1, head=2)
with change_model(opened, tokens, [change]):          the same as  with ablate(model, 1, 2):
    opened.model(…)

silence   the output of a head is 0, or its mean over the text                 ablate
sharpen   softmax(factor · scores)                                             sharpen
mask      cells (query, key) that are forbidden, or allowed                    edit_mask
patch     the output of a head or block is its output on another text          patch
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from clearhead.inspection import Trace, ablate, edit_mask, patch, record, sharpen
from clearhead.inspection.sites import HEAD_IN_BLOCK, find_layer
from clearhead.models.model import evaluation_mode
from clearhead.studio.sources import Opened
from clearhead.studio.views.tokens import read_tokens, write_tokens


@dataclass(frozen=True)
class Change:
    """One change. layer: its number or name; for a patch also the name of a block.

    head, position: None means all heads, all tokens. from_position: the token of the other text;
    without it, the same position. Each kind uses only some of the fields.
    """

    kind: Literal["silence", "sharpen", "mask", "patch"]
    layer: str | int
    head: int | None = None
    by: Literal["zero", "mean"] = "zero"
    factor: float = 1.0
    cells: list[tuple[int, int]] = field(default_factory=list)
    allow: bool = False
    position: int | None = None
    from_position: int | None = None
    from_text: str = ""
    from_tokens: list[int] | None = None


@contextmanager
def change_model(
    opened: Opened, tokens: list[int], changes: Sequence[Change], *, grows: bool = False
) -> Iterator[None]:
    """Apply all changes inside a `with`. tokens: the ids that the changed model will read.

    grows: the text grows, as in Generate. A patch of all positions then replaces only as many
    positions as the other text has; the tokens after them are unchanged.
    """
    # Values that changes need, such as means, are computed by the unchanged model.
    contexts = [_make_context(opened, tokens, change, grows) for change in changes]
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _make_context(
    opened: Opened, tokens: list[int], change: Change, grows: bool
) -> AbstractContextManager[None]:
    model, name = opened.model, find_name(opened, change)
    change = _clear_head(name, change)
    if change.kind == "sharpen":
        return sharpen(model, change.factor, layer=name, head=change.head)
    if change.kind == "mask":
        _check_cells(change.cells, len(tokens))
        return edit_mask(model, _MaskChange(change), layer=name, head=change.head)
    _check_position("position", change.position, len(tokens))
    if change.kind == "patch":
        value = _find_value(opened, tokens, change, name, grows)
        new = _FirstPositions(value) if grows and change.position is None else value
        return patch(model, {name: new}, head=change.head, positions=change.position)
    if change.by == "mean" and len(tokens) == 1:
        raise ValueError(
            "the text has one token, so there is no mean over its tokens; type a longer text, or "
            "replace the output of the head by zero"
        )
    # The mean comes from the plain text: in a sweep, each row of the batch is changed differently.
    reference = _record(opened, tokens) if change.by == "mean" else None
    return ablate(
        model, name, change.head, change.by, positions=change.position, reference=reference
    )


@dataclass(frozen=True)
class _MaskChange:
    """A function of a mask (B, H, T, S) that allows or forbids some cells."""

    change: Change

    def __call__(self, allowed: Tensor) -> Tensor:
        rows, columns = zip(*self.change.cells, strict=True)
        allowed[..., list(rows), list(columns)] = self.change.allow
        return allowed


@dataclass(frozen=True, eq=False)
class _FirstPositions:
    """A function of an activation (B, ..., T, ·) that replaces its first positions."""

    value: Tensor  # (1, ..., at most T, ·)

    def __call__(self, old: Tensor) -> Tensor:
        new = old.clone()
        new[..., : self.value.size(-2), :] = self.value
        return new


def find_name(opened: Opened, change: Change) -> str:
    """The full name of the layer or block that a change applies to."""
    return find_layer(opened.model, change.layer)[0].name


def _clear_head(name: str, change: Change) -> Change:
    """Set head to None if the layer is itself a single head, as in JoinedHeads."""
    return replace(change, head=None) if HEAD_IN_BLOCK.search(name) else change


def _record(opened: Opened, tokens: list[int]) -> Trace:
    with evaluation_mode(opened.model), record(opened.model) as trace:
        opened.model(torch.tensor([tokens], device=opened.model.device))
    return trace


def _find_value(
    opened: Opened, tokens: list[int], change: Change, name: str, grows: bool
) -> Tensor:
    """The activation that a patch inserts, from the other text: (1, ..., T or 1, ·)."""
    others = read_tokens(opened, change.from_text, change.from_tokens)
    trace = _record(opened, others)
    if name not in trace:
        raise ValueError(
            f"layer is {name!r}, but a patch copies the output of a head or a block, one of "
            f"{', '.join(trace)}"
        )
    value: Tensor = trace[name].output
    if change.position is None:
        if len(others) > len(tokens) or (len(others) < len(tokens) and not grows):
            raise ValueError(
                f"the other text has {len(others)} tokens and this one {len(tokens)}; all "
                f"positions can be copied only between texts of equal length, so choose one"
            )
        return value
    first = change.position if change.from_position is None else change.from_position
    _check_position("from_position", first, len(others))
    return value[..., first : first + 1, :]


def _check_position(name: str, position: int | None, n_tokens: int) -> None:
    if position is not None and not 0 <= position < n_tokens:
        raise IndexError(f"{name} must be from 0 to {n_tokens - 1}, got {position}")


def _check_cells(cells: Sequence[tuple[int, int]], n_tokens: int) -> None:
    if not cells:
        raise ValueError("cells is empty; give the cells (query, key) to forbid or to allow")
    for cell in cells:
        if not all(0 <= i < n_tokens for i in cell):
            raise IndexError(f"cells has {cell}, but rows and columns go from 0 to {n_tokens - 1}")


# The same changes in Python


def write_python(
    opened: Opened, changes: Sequence[Change], *, grows: bool = False
) -> tuple[list[str], list[str]]:
    """The same changes in Python: the lines before a `with`, and the calls that it opens with."""
    lines: list[str] = []
    if any(change.kind == "silence" and change.by == "mean" for change in changes):
        lines += ["with torch.no_grad(), record(model) as unchanged:", "    model(tokens)"]
    calls = []
    for i, change in enumerate(changes):
        prepare, call = _write_change(opened, change, i, grows)
        lines += prepare
        calls.append(call)
    return lines, calls


def _write_change(opened: Opened, change: Change, i: int, grows: bool) -> tuple[list[str], str]:
    name = find_name(opened, change)
    change = _clear_head(name, change)
    head = f", head={change.head}"
    if change.kind == "sharpen":
        return [], f"sharpen(model, {change.factor!r}, layer={name!r}{head})"
    if change.kind == "mask":
        rows, columns = (list(axis) for axis in zip(*change.cells, strict=True))
        lines = [
            f"def change_mask_{i}(allowed):  # (B, H, T, S)",
            f"    allowed[..., {rows}, {columns}] = {change.allow}",
            "    return allowed",
        ]
        return lines, f"edit_mask(model, change_mask_{i}, layer={name!r}{head})"
    where = "" if change.position is None else f", positions={change.position}"
    if change.kind == "silence":
        by = "" if change.by == "zero" else ", by='mean', reference=unchanged"
        return [], f"ablate(model, {name!r}{head}{by}{where})"
    others = read_tokens(opened, change.from_text, change.from_tokens)
    lines = [
        f"other_{i} = {write_tokens(opened, change.from_text, others)}",
        f"with torch.no_grad(), record(model) as trace_{i}:",
        f"    model(other_{i})",
    ]
    value = f"trace_{i}[{name!r}].output"
    if change.position is not None:
        first = change.position if change.from_position is None else change.from_position
        value += f"[..., {first} : {first + 1}, :]"
    elif grows:
        lines += [
            f"def patch_{i}(old):  # (B, ..., T, ·); the tokens after the other text stay",
            "    new = old.clone()",
            f"    new[..., :{len(others)}, :] = {value}",
            "    return new",
        ]
        value = f"patch_{i}"
    return lines, f"patch(model, {{{name!r}: {value}}}{head}{where})"


def write_with(calls: Sequence[str], *body: str) -> list[str]:
    """The lines of `with calls: body`."""
    inside = [f"    {line}" for line in body]
    short = f"with {', '.join(calls)}:"
    if len(short) <= 88:
        return [short, *inside]
    return ["with (", *(f"    {call}," for call in calls), "):", *inside]


def name_imports(changes: Sequence[Change], *others: str) -> str:
    """The line that imports the interventions, and other names of inspection."""
    functions = {"silence": "ablate", "sharpen": "sharpen", "mask": "edit_mask", "patch": "patch"}
    names = {functions[change.kind] for change in changes} | set(others)
    if any(change.kind == "patch" or change.by == "mean" for change in changes):
        names.add("record")
    return f"from clearhead.inspection import {', '.join(sorted(names))}"
