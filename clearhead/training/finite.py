"""NaN and infinities stop a run and never reach a checkpoint.

A step looks at two numbers, its loss and the length of its gradient, which is finite only if every
part of it is. A weight or what the optimizer keeps can go wrong without showing in either, so all
of it is looked at before it is saved.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

SHOWN = 8  # examples of a batch


class NotFinite(ArithmeticError):
    """A loss, a gradient, a weight or what the optimizer keeps is NaN or infinite."""


def check_step(
    losses: Sequence[Tensor],
    length: Tensor,
    plans: Sequence[Sequence[int]],
    parameters: Iterable[tuple[str, nn.Parameter]],
    where: str,
) -> None:
    """The losses of a step's batches and the length of its gradient are finite."""
    if bool(torch.stack([*losses, length]).isfinite().all()):
        return
    for loss, plan in zip(losses, plans, strict=True):
        if not bool(loss.isfinite()):
            raise NotFinite(f"the loss is {float(loss)} {where}, for {_examples(plan)}; {HINT}")
    bad = (name for name, p in parameters if p.grad is not None and not _all_finite(p.grad))
    which = f"gradient of {name}" if (name := next(bad, "")) else "length of the gradient"
    batches = "; ".join(_examples(plan) for plan in plans)
    raise NotFinite(f"the {which} is not finite {where}, for {batches}; {HINT}")


def check_tensors(tensors: Mapping[str, Tensor], where: str) -> None:
    """Nothing that is to be saved is NaN or infinite."""
    for name, tensor in tensors.items():
        if not _all_finite(tensor):
            raise NotFinite(f"{name} is not finite {where}; it was not saved; {HINT}")


def finite_only(measures: Mapping[str, float]) -> dict[str, float]:
    """The measures that are numbers: of the others nothing can be written, and none is the best."""
    return {name: float(value) for name, value in measures.items() if math.isfinite(value)}


HINT = "a smaller training.lr may help"


def _all_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())


def _examples(plan: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in list(plan)[:SHOWN])
    return f"the batch of the examples {shown}" + (f", … ({len(plan)})" * (len(plan) > SHOWN))
