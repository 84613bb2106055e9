"""Which heads, layers and positions matter: one measurement for every place, in few passes.

    sweep = patch_sweep(model, clean, corrupted, metric)          (L, H): a head at a time
    sweep.recovered                                               0 as corrupted … 1 as clean

Activation patching (Vig et al. 2020; Meng et al. 2022): the model reads the corrupted input, with
one value replaced by that of the clean input. If the answer comes back, the value carried it. All
places are rows of one batch: row r has its own place r replaced. A row joins the batch in front of
the block where it is changed, so L · H patches cost about half a pass over L · H rows.

Attribution patching (Nanda 2023) estimates all of them by one gradient:

    effect ≈ (clean value − corrupted value) · ∂ metric / ∂ value
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.inspection.edits import capture, change, change_call
from clearhead.inspection.residual import Arguments, as_arguments
from clearhead.inspection.sites import count_heads, find_layers, find_site
from clearhead.layers.block import Block
from clearhead.layers.stack import Stack
from clearhead.models.model import evaluation_mode
from clearhead.shapes import check_choice, check_positive, format_shape

Metric = Callable[[Tensor], Tensor]  # logits of N rows → N numbers

PARTS = ("block", "attention", "feed_forward")


@dataclass(frozen=True, eq=False)
class Sweep:
    """One number for each place: the mean of the metric over the batch after a change there.

    values (L, H) or (L, T), a row for each of the layers. unchanged: the metric without a change;
    goal: that of the clean input, None if there is no such input.
    """

    values: Tensor
    unchanged: float
    goal: float | None
    layers: list[str]
    over: str

    @property
    def effect(self) -> Tensor:
        """How much each change moves the metric."""
        return self.values - self.unchanged

    @property
    def recovered(self) -> Tensor:
        """The share of the way from the corrupted input's metric to the clean input's."""
        if self.goal is None or math.isclose(self.goal, self.unchanged, rel_tol=1e-6):
            raise ValueError(
                f"nothing can be recovered: without a change the metric is {self.unchanged:.4g}, "
                f"and the goal is {self.goal}; use patch_sweep on inputs with different answers"
            )
        return self.effect / (self.goal - self.unchanged)

    def correlation(self, other: "Sweep") -> float:
        """Pearson's correlation with another sweep of the same places, such as an estimate."""
        if self.values.shape != other.values.shape:
            raise ValueError(
                f"the sweeps have different places: {format_shape(self.values)} and "
                f"{format_shape(other.values)}"
            )
        both = torch.stack((self.values.flatten(), other.values.flatten())).double()
        return float(torch.corrcoef(both)[0, 1])


def patch_sweep(
    model: nn.Module,
    clean: Arguments,
    corrupted: Arguments,
    metric: Metric,
    *,
    over: str = "head",
    part: str = "block",
    max_rows: int = 512,
) -> Sweep:
    """Replace one value of the corrupted run by that of the clean run, at every place in turn.

    clean, corrupted: inputs of the same shape. metric: logits of N rows → N numbers. over: "head",
    each head of each attention, (L, H); or "position", (L, T), the output of a part of each layer
    at one token, with part "block" (the residual stream), "attention" or "feed_forward". max_rows:
    the largest batch, for less memory.
    """
    names = _find_names(model, over, part)
    _check_pair(clean, corrupted)
    with evaluation_mode(model):
        with capture(model, names) as values:
            goal = _measure(metric, model(*as_arguments(clean))).mean()
        results, unchanged = _change_each(model, corrupted, metric, values, max_rows)
    return Sweep(results, unchanged, float(goal), names, over)


def estimate_sweep(
    model: nn.Module,
    clean: Arguments,
    corrupted: Arguments,
    metric: Metric,
    *,
    over: str = "head",
    part: str = "block",
) -> Sweep:
    """patch_sweep estimated by one gradient; exact where the metric is linear in the value."""
    names = _find_names(model, over, part)
    _check_pair(clean, corrupted)
    with evaluation_mode(model), capture(model, names) as values:
        goal = _measure(metric, model(*as_arguments(clean))).mean()
    results, unchanged = _estimate_each(model, corrupted, metric, values)
    return Sweep(results, unchanged, float(goal), names, over)


def head_importance(
    model: nn.Module, inputs: Arguments, metric: Metric, *, by: str = "ablation"
) -> Sweep:
    """The metric without each head, (L, H): the lower the effect, the more the head matters.

    by: "ablation" silences one head in each row of a batch; "gradient" estimates the same by one
    gradient (Michel et al. 2019).
    """
    check_choice("by", by, ("ablation", "gradient"))
    names = _find_names(model, "head", "block")
    with evaluation_mode(model), capture(model, names) as values:
        model(*as_arguments(inputs))
    zeros = {name: torch.zeros_like(value) for name, value in values.items()}
    with evaluation_mode(model):
        change_all = _estimate_each if by == "gradient" else _change_each
        results, unchanged = change_all(model, inputs, metric, zeros)
    return Sweep(results, unchanged, None, names, "head")


def logit_difference(target: int, against: int, position: int = -1) -> Metric:
    """A metric: how far the logit of one token is above that of another, at one position."""

    def measure(logits: Tensor) -> Tensor:
        row = logits[:, position] if logits.ndim == 3 else logits
        return row[:, target] - row[:, against]

    return measure


# One change in each row of a batch


def _change_each(
    model: nn.Module,
    inputs: Arguments,
    metric: Metric,
    new: dict[str, Tensor],
    max_rows: int = 512,
) -> tuple[Tensor, float]:
    """The metric after each change, (L, N), and without a change.

    new: values (B, N, ...) for each of L places. N is the number of heads or positions, axis 1 of
    every value. The batch holds one unchanged copy of the inputs and a copy for each change.
    """
    check_positive(max_rows=max_rows)
    B, N = next(iter(new.values())).shape[:2]
    cells = [(name, i) for name in new for i in range(N)]
    size = max(1, max_rows // B)
    results = []
    for start in range(0, len(cells), size):
        chunk = cells[start : start + size]
        logits = _run_changed(model, as_arguments(inputs), chunk, new)
        measured = _measure(metric, logits).unflatten(0, (1 + len(chunk), B)).mean(dim=1)
        results.append(measured[1:])
    return torch.cat(results).unflatten(0, (len(new), N)), float(measured[0])


def _run_changed(
    model: nn.Module,
    arguments: tuple[Any, ...],
    cells: list[tuple[str, int]],
    new: dict[str, Tensor],
) -> Tensor:
    """Logits of the unchanged inputs, then of a copy for each cell, changed there: (name, i)."""
    grows = _can_grow(model, arguments)
    with ExitStack() as edits:
        for name in dict.fromkeys(name for name, _ in cells):
            rows = [(1 + row, i) for row, (other, i) in enumerate(cells) if other == name]
            if grows:
                edits.enter_context(_add_rows(model, name, len(rows), len(new[name])))
            edits.enter_context(change(find_site(model, name), _put(new[name], rows)))
        if not grows:
            arguments = tuple(_repeat_rows(x, 1 + len(cells)) for x in arguments)
        logits: Tensor = model(*arguments)
        return logits


def _can_grow(model: nn.Module, arguments: tuple[Any, ...]) -> bool:
    """Whether rows may be added between blocks: no mask belongs to a row, and all share a stack.

    Before its block a changed row is the unchanged one, so it need not be computed: of L layers
    with N changes each, about half of the work.
    """
    n_stacks = sum(isinstance(module, Stack) for module in model.modules())
    return len(arguments) == 1 and n_stacks == 1


def _add_rows(model: nn.Module, name: str, n: int, B: int) -> AbstractContextManager[None]:
    """Add n copies of the first B rows, the unchanged ones, in front of the block of a place."""
    parts = name.split(".")
    block = ".".join(parts[: parts.index("blocks") + 2])

    def add(x: Tensor) -> Tensor:
        return torch.cat((x, _repeat_rows(x[:B], n)))

    return change_call(find_site(model, f"{block}.input"), inputs=add)


def _put(new: Tensor, rows: list[tuple[int, int]]) -> Callable[[Tensor], Tensor]:
    """Replace entry i of axis 1 by the new value, in each of these (copy of the batch, i)."""
    copies, entries = (list(column) for column in zip(*rows, strict=True))

    def put(value: Tensor) -> Tensor:
        changed = value.unflatten(0, (-1, len(new))).clone()  # (copies, B, N, ...)
        changed[copies, :, entries] = new[:, entries].transpose(0, 1)
        return changed.flatten(0, 1)

    return put


def _repeat_rows(x: Any, n: int) -> Any:
    """n copies of a batch, one after the other."""
    return x.repeat(n, *(1 for _ in x.shape[1:])) if isinstance(x, Tensor) else x


def _estimate_each(
    model: nn.Module, inputs: Arguments, metric: Metric, new: dict[str, Tensor]
) -> tuple[Tensor, float]:
    """The metric after each change, to first order, (L, N), and without a change."""
    with evaluation_mode(model), torch.enable_grad(), capture(model, new) as values:
        unchanged = _measure(metric, model(*as_arguments(inputs))).mean()
        gradients = torch.autograd.grad(unchanged, [values[name] for name in new])
    effects = [
        ((value - values[name].detach()) * gradient).transpose(0, 1).flatten(1).sum(dim=1)
        for (name, value), gradient in zip(new.items(), gradients, strict=True)
    ]
    start = float(unchanged.detach())
    return torch.stack(effects) + start, start


# Checks


def _find_names(model: nn.Module, over: str, part: str) -> list[str]:
    """The name of the value that is changed in each layer."""
    check_choice("over", over, ("head", "position"))
    check_choice("part", part, PARTS)
    if over == "head":
        sites = [site for sites in find_layers(model).values() for site in sites]
        if not sites or any(count_heads([site], model) is None for site in sites):
            raise ValueError(
                f"{type(model).__name__} has an attention without heads; use over='position', or "
                f"patch and ablate by name"
            )
        return [site.name for site in sites]
    blocks = [name for name, module in model.named_modules() if isinstance(module, Block)]
    ending = {"block": "", "attention": ".attention.proj_out", "feed_forward": ".feed_forward"}
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no blocks; patch it by name")
    return [name + ending[part] for name in blocks]


def _check_pair(clean: Arguments, corrupted: Arguments) -> None:
    """Two inputs of the same shapes."""
    shapes = [
        [tuple(x.shape) for x in as_arguments(inputs) if isinstance(x, Tensor)]
        for inputs in (clean, corrupted)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"clean and corrupted must have the same shape, so that values can be exchanged; "
            f"got {shapes[0]} and {shapes[1]}"
        )


def _measure(metric: Metric, logits: Tensor) -> Tensor:
    """One number for each row of logits."""
    values = metric(logits)
    if not isinstance(values, Tensor) or values.shape != logits.shape[:1]:
        given = format_shape(values) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"metric must give one number for each of the {len(logits)} rows of logits, "
            f"got {given}; use for instance lambda logits: logits[:, -1, token]"
        )
    return values
