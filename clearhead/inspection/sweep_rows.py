"""The batch that patch_sweep and head_importance run: each copy of the inputs has one change.

The batch holds one unchanged copy of the inputs and a copy for each change. Before the block of its
change a copy equals the unchanged one and need not be computed. So copies are added block by block,
which saves about half of the work.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.edits import change, change_call
from clearhead.inspection.residual import Arguments, as_arguments
from clearhead.inspection.sites import Site, find_sites
from clearhead.layers.stack import Stack
from clearhead.shapes import check_positive, format_shape

Metric = Callable[[Tensor], Tensor]  # logits of N rows → N numbers


def change_each(
    model: nn.Module,
    inputs: Arguments,
    metric: Metric,
    new: dict[str, Tensor],
    max_rows: int = 512,
) -> tuple[Tensor, float]:
    """The metric after each change, (L, N), and without a change.

    new: name → the values (B, N, ...) to put there, for L activations. N is the number of heads or
    positions; each change replaces one entry of this axis.
    """
    check_positive(max_rows=max_rows)
    B, N = check_sizes(new)
    cells = [(name, i) for name in new for i in range(N)]
    size = max(1, max_rows // B)
    results = []
    for start in range(0, len(cells), size):
        chunk = cells[start : start + size]
        logits = _run_changed(model, as_arguments(inputs), chunk, new)
        measured = measure(metric, logits).unflatten(0, (1 + len(chunk), B)).mean(dim=1)
        results.append(measured[1:])
    return torch.cat(results).unflatten(0, (len(new), N)), float(measured[0])


def _run_changed(
    model: nn.Module,
    arguments: tuple[Any, ...],
    cells: list[tuple[str, int]],
    new: dict[str, Tensor],
) -> Tensor:
    """Logits of the unchanged inputs, then of one changed copy for each cell (name, i)."""
    grows = _can_grow(model, arguments, new)
    names = list(dict.fromkeys(name for name, _ in cells))
    blocks = list(map(_name_block_input, names)) if grows else []
    sites = dict(zip(names + blocks, find_sites(model, names + blocks), strict=True))
    with ExitStack() as edits:
        for name in names:
            rows = [(1 + row, i) for row, (other, i) in enumerate(cells) if other == name]
            if grows:
                block = sites[_name_block_input(name)]
                edits.enter_context(_add_rows(block, len(rows), len(new[name])))
            edits.enter_context(change(sites[name], _put(new[name], rows)))
        if not grows:
            arguments = tuple(_repeat_rows(x, 1 + len(cells)) for x in arguments)
        logits: Tensor = model(*arguments)
        return logits


def _can_grow(model: nn.Module, arguments: tuple[Any, ...], names: Iterable[str]) -> bool:
    """Whether rows may be added between blocks: one input without a mask, and a single stack."""
    n_stacks = sum(isinstance(module, Stack) for module in model.modules())
    are_in_blocks = all("blocks" in name.split(".") for name in names)
    return len(arguments) == 1 and n_stacks == 1 and are_in_blocks


def _name_block_input(name: str) -> str:
    """The input of the block that holds this part."""
    parts = name.split(".")
    return ".".join([*parts[: parts.index("blocks") + 2], "input"])


def _add_rows(block: Site, n: int, B: int) -> AbstractContextManager[None]:
    """Add n copies of the first B rows, the unchanged ones, to the input of a block."""

    def add(x: Tensor) -> Tensor:
        return torch.cat((x, _repeat_rows(x[:B], n)))

    return change_call(block, inputs=add)


def _put(new: Tensor, rows: list[tuple[int, int]]) -> Callable[[Tensor], Tensor]:
    """Make a function that replaces entry i of axis 1 in copy c of the batch; rows: (c, i), …"""
    copies, entries = (list(column) for column in zip(*rows, strict=True))

    def put(value: Tensor) -> Tensor:
        changed = value.unflatten(0, (-1, len(new))).clone()  # (copies, B, N, ...)
        changed[copies, :, entries] = new[:, entries].transpose(0, 1)
        return changed.flatten(0, 1)

    return put


def _repeat_rows(x: Any, n: int) -> Any:
    """n copies of a batch, one after the other."""
    return x.repeat(n, *(1 for _ in x.shape[1:])) if isinstance(x, Tensor) else x


def check_sizes(values: dict[str, Tensor]) -> tuple[int, int]:
    """Check that all values (B, N, ...) have the same B and N; return them."""
    sizes = {name: tuple(value.shape[:2]) for name, value in values.items()}
    B, N = next(iter(sizes.values()))
    if not B:
        raise ValueError("the inputs have no row; give at least one")
    for name, size in sizes.items():
        if size != (B, N):
            raise ValueError(
                f"{name!r} has {size[1]} heads or positions but {next(iter(sizes))!r} has {N}, so "
                f"they do not fit into one table; patch them by name"
            )
    return B, N


def measure(metric: Metric, logits: Tensor) -> Tensor:
    """Apply a metric: one number for each row of logits."""
    if not callable(metric):
        raise TypeError(f"metric must be a function of logits, got {metric!r}")
    values = metric(logits)
    if not isinstance(values, Tensor) or values.shape != logits.shape[:1]:
        given = format_shape(values) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"metric must give one number for each of the {len(logits)} rows of logits, "
            f"got {given}; use for instance lambda logits: logits[:, -1, token]"
        )
    return values if values.is_floating_point() else values.double()  # such as answer == target
