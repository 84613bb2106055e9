"""Properties of a right answer that need no reference: they narrow down a mistake without a name.

Each probe asks the student's code again and compares its answers with each other.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.comparison import compare_results, describe_difference
from clearhead.exercises.exercise import Answer, Case, Exercise
from clearhead.exercises.student import Student


def probe(exercise: Exercise, student: Student, case: Case, answer: Answer) -> Iterator[str]:
    """Find properties that are violated besides the values; yield a sentence for each."""
    if answer.results is None:
        return
    if answer.is_changed:
        yield "it modifies its input tensors"
    if not _is_finite(answer.results):
        yield "the output is not finite"
    weights = answer.results.get("weights")
    if isinstance(weights, Tensor) and describe_difference(weights.sum(-1), _ones(weights)):
        yield "the rows of the weights do not sum to 1"
    if _depends_on_batch(exercise, student, case, answer):
        yield "the answer for one row of the batch depends on the other rows"
    if _depends_on_order(exercise, student, case, answer):
        yield "the answer depends on the order of the keys, although each comes with its value"


def _is_finite(results: Mapping[str, Any]) -> bool:
    tensors = [x for x in results.values() if isinstance(x, Tensor) and x.is_floating_point()]
    return all(bool(x.isfinite().all()) for x in tensors)


def _ones(weights: Tensor) -> Tensor:
    return torch.ones(weights.shape[:-1])


def _depends_on_batch(exercise: Exercise, student: Student, case: Case, answer: Answer) -> bool:
    """Ask for the first row alone, and compare with the first row of the whole answer."""
    inputs, results = case.inputs, answer.results or {}
    tensors = [*inputs.values(), *results.values()]
    sizes = {x.shape[0] if isinstance(x, Tensor) and x.dim() > 1 else 0 for x in tensors}
    if len(sizes) != 1 or sizes == {0} or sizes == {1}:
        return False  # there is no common batch axis
    alone = dataclasses.replace(case, inputs={name: x[:1] for name, x in inputs.items()})
    return _differs(exercise, student, alone, {name: x[:1] for name, x in results.items()})


def _depends_on_order(exercise: Exercise, student: Student, case: Case, answer: Answer) -> bool:
    """Ask with keys and values in reverse order; only for attention without a mask."""
    if set(case.inputs) != {"q", "k", "v"} or answer.results is None:
        return False
    turned = {name: case.inputs[name].flip(-2) for name in ("k", "v")}
    output = {name: x for name, x in answer.results.items() if name == "output"}
    return _differs(
        exercise, student, dataclasses.replace(case, inputs={**case.inputs, **turned}), output
    )


def _differs(exercise: Exercise, student: Student, case: Case, expected: Mapping[str, Any]) -> bool:
    again = exercise.ask(student, case)
    if again is None or again.results is None:
        return False
    return compare_results(again.results, expected, exercise.tolerance) is not None
