"""Compare two results, and an answer with the result of a formula."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.exercises.exercise import Answer, Case, Exercise


def describe_difference(got: Any, expected: Any, tolerance: float = 1e-4) -> str | None:
    """Say how two values differ: type, shape, not finite, or values; None if they are equal."""
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
    """Compare each result that the student's code returned; describe the first difference."""
    shared = [name for name in expected if name in got]
    if not shared:
        return "type"
    return _first(describe_difference(got[name], expected[name], tolerance) for name in shared)


# An answer and the formula


def differs(exercise: Exercise, case: Case, answer: Answer, choice: int = 0) -> str | None:
    """Say how an answer differs from the formula; None if it does not."""
    case = answer.form or case
    if not answer.choices:
        return "error"
    inputs = answer.choices[min(choice, len(answer.choices) - 1)]
    expected, gradients = evaluate(exercise, case, inputs)
    if isinstance(expected, Exception):
        return None if answer.error is not None else "error"
    if answer.error is not None or answer.results is None:
        return None if _divides_by_zero(answer, expected) else "error"
    difference = compare_results(answer.results, expected, exercise.tolerance)
    if difference or not case.gradient or gradients is None:
        return difference
    if answer.gradients is None or set(answer.gradients) != set(gradients):
        return "gradient"
    for name, expected_gradient in gradients.items():
        got = answer.gradients[name]
        got = torch.zeros_like(expected_gradient) if got is None else got
        if describe_difference(got, expected_gradient, 10 * exercise.tolerance):
            return "gradient"
    return None


def _divides_by_zero(answer: Answer, expected: Mapping[str, Any]) -> bool:
    """Whether the code raised ZeroDivisionError where the formula is 0 / 0, NaN in PyTorch."""
    values = [each for each in expected.values() if isinstance(each, Tensor)]
    raised = getattr(answer.error, "type", None) == "ZeroDivisionError"
    return raised and bool(values) and all(bool(each.isnan().all()) for each in values)


def evaluate(
    exercise: Exercise, case: Case, inputs: Mapping[str, Any]
) -> tuple[Any, dict[str, Tensor] | None]:
    """Compute the formula and the gradients of the inputs; an exception is returned, not raised."""
    values = dict(inputs)
    leaves: dict[str, Tensor] = {}
    if case.gradient:
        leaves = {
            name: value.clone().requires_grad_()
            for name, value in inputs.items()
            if name in case.inputs and isinstance(value, Tensor) and value.is_floating_point()
        }
    try:
        results = exercise.results({**values, **leaves})
    except Exception as fault:  # a mistake may make the formula impossible for this case
        return fault, None
    if not leaves:
        return results, None
    first = next(iter(results.values()))
    if not first.requires_grad:
        return results, {name: torch.zeros_like(x) for name, x in leaves.items()}
    n = torch.arange(first.numel(), dtype=first.dtype)
    total = (first.reshape(-1) * torch.cos(n)).sum()
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return results, {n: torch.zeros_like(x) if g is None else g for (n, x), g in pairs}


def measure_distance(got: Mapping[str, Any], expected: Mapping[str, Any]) -> float | None:
    """The root mean square difference of the results that both have, relative to the size of `got`.

    For integers, the share that differ. None if the shapes or the finite entries do not match.
    """
    found = [_measure(got[name], expected[name]) for name in expected if name in got]
    known = [each for each in found if each is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def _measure(got: Any, expected: Any) -> float | None:
    try:
        a, b = (torch.as_tensor(x).detach().double() for x in (got, expected))
    except (TypeError, ValueError, RuntimeError):
        return None if got != expected else 0.0
    if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
        return None
    if a.numel() == 0:
        return 0.0
    if not torch.as_tensor(expected).is_floating_point():
        return float((a != b).double().mean())
    finite = a.isfinite()
    size = max(1e-6, float(a[finite].square().mean().sqrt())) if finite.any() else 1.0
    return float((a - b)[finite].square().mean().sqrt()) / size if finite.any() else 0.0
