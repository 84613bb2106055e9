"""Inputs in another form: NumPy arrays for tensors, matrices for x W instead of W x.

A contract that leaves such a form free yields the case in each of them: see Exercise.forms.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.exercises.exercise import Case


def to_array(value: Any) -> Any:
    """A tensor as a NumPy array, floats in double precision; every other value as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach()
    return (value.double() if value.is_floating_point() else value).numpy()


def to_tensor(value: Any) -> Any:
    """An array as a tensor; every other value as it is."""
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def change(case: Case, how: Callable[[Any], Any], *names: str) -> Case:
    """The case as given with these inputs changed, or with all of them."""
    given = case.inputs if case.given is None else case.given
    changed = {n: how(x) if n in names or not names else x for n, x in given.items()}
    return replace(case, given=changed)


def with_arrays(*cases: Case) -> Iterator[Case]:
    """Each case with tensors, then each with NumPy arrays, which have no gradient."""
    yield from cases
    yield from (change(case, to_array) for case in cases if not case.gradient)
