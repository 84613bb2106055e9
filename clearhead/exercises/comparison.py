"""Whether two results are the same, with a tolerance that follows the dtype."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def describe_difference(got: Any, expected: Any, tolerance: float = 1e-4) -> str | None:
    """None if equal, else how they differ: type, shape, not finite, or values."""
    if isinstance(expected, np.ndarray):
        expected = torch.from_numpy(expected)
    if isinstance(expected, Tensor):
        return _compare_tensors(got, expected, tolerance)
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return "type"
        return _first(describe_difference(got[k], v, tolerance) for k, v in expected.items())
    if isinstance(expected, list | tuple):
        if isinstance(got, Tensor | np.ndarray):
            got = got.tolist()
        if not isinstance(got, list | tuple):
            return "type"
        if len(got) != len(expected):
            return "shape"
        return _first(
            describe_difference(g, e, tolerance) for g, e in zip(got, expected, strict=True)
        )
    if isinstance(expected, bool | str) or expected is None:
        return None if got == expected and type(got) is type(expected) else "values"
    if isinstance(got, Tensor | np.ndarray):
        got = got.item() if math.prod(got.shape) == 1 else None
    if not isinstance(got, int | float):
        return "type"
    if got != got:
        return "not finite"
    near = abs(got - expected) <= tolerance * max(1.0, abs(expected))
    return None if near else "values"


def _compare_tensors(got: Any, expected: Tensor, tolerance: float) -> str | None:
    if isinstance(got, np.ndarray):
        got = torch.from_numpy(got)
    if isinstance(got, int | float) and expected.dim() == 0:
        got = torch.tensor(got)
    if isinstance(got, list) and expected.numel():
        try:
            got = torch.tensor(got)
        except (ValueError, TypeError, RuntimeError):
            return "type"
    if not isinstance(got, Tensor):
        return "type"
    if got.shape != expected.shape:
        return "shape"
    got, expected = got.double(), expected.detach().double()
    if not torch.equal(got.isfinite(), expected.isfinite()):
        return "not finite"
    finite = expected.isfinite()
    if not torch.equal(_signs(got, finite), _signs(expected, finite)):
        return "not finite"
    got, expected = got[finite], expected[finite]
    if not expected.numel():
        return None
    scale = max(1.0, float(expected.abs().max()))
    return None if float((got - expected).abs().max()) <= tolerance * scale else "values"


def _signs(x: Tensor, finite: Tensor) -> Tensor:
    return x[~finite].nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0)


def _first(differences: Any) -> str | None:
    return next((each for each in differences if each is not None), None)


def compare_results(
    got: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float
) -> str | None:
    """Compare result by result those that the student's code returned."""
    shared = [name for name in expected if name in got]
    if not shared:
        return "type"
    return _first(describe_difference(got[name], expected[name], tolerance) for name in shared)
