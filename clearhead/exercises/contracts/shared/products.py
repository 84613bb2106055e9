"""Feature maps are judged by the products φ(q)·φ(k), so the order of the features is free."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.exercise import Answer, Case, Exercise
from clearhead.exercises.forms import to_array, to_tensor
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import Student

Map = Callable[[Tensor], Tensor]


def take_products(phi: Map, q: Tensor, k: Tensor, part: str = "all") -> Tensor:
    """φ(q)·φ(k) (T, S), or its part that is odd or even in q: this separates odd terms."""
    keys = phi(k).mT
    both = phi(q) @ keys
    if part == "all":
        return both
    mirrored = phi(-q) @ keys
    return (both - mirrored) / 2 if part == "odd" else (both + mirrored) / 2


def ask_products(
    exercise: Exercise, student: Student, case: Case, choices: Sequence[Mapping[str, Any]]
) -> Answer | None:
    """The products of the student's features, asked with tensors and arrays, with all rows at once
    and row by row: the first right ones, or else the first that did not raise."""
    from clearhead.exercises.comparison import differs

    answers = []
    for arrays, by_row in product((False, True), (False, True)):
        asked = _Asked(exercise, student, case, arrays, by_row)
        try:
            inputs = case.inputs
            output = take_products(asked, inputs["q"], inputs["k"], inputs.get("part", "all"))
            answer = Answer(choices, {"output": output}, is_changed=asked.is_changed)
        except StudentError as error:
            answer = Answer(choices, error=error)
        if any(not differs(exercise, case, answer, i) for i in range(len(choices))):
            return answer
        answers.append(answer)
    return next((each for each in answers if each.error is None), answers[0])


class _Asked:
    """The student's φ as a function of a tensor (N, D) → (N, C)."""

    def __init__(
        self, exercise: Exercise, student: Student, case: Case, arrays: bool, by_row: bool
    ) -> None:
        self.exercise, self.student, self.case = exercise, student, case
        self.arrays, self.by_row, self.is_changed = arrays, by_row, False

    def __call__(self, x: Tensor) -> Tensor:
        rows = [self._ask(row) for row in x] if self.by_row else [self._ask(x)]
        features = torch.stack(rows) if self.by_row else rows[0]
        if features.dim() != 2 or len(features) != len(x):
            message = f"φ(x) has the shape {tuple(features.shape)} for x of {tuple(x.shape)}"
            raise StudentError("ShapeError", message, None)
        return features.float()

    def _ask(self, x: Tensor) -> Tensor:
        others = {n: v for n, v in self.case.inputs.items() if n in self.exercise.parameters}
        inputs = {"x": x, **others}
        if self.arrays:
            inputs = {name: to_array(value) for name, value in inputs.items()}
        answer = self.student.ask(
            self.exercise, Case(self.case.says, self.case.term, inputs, self.case.sizes)
        )
        if answer is None or answer.error is not None or answer.results is None:
            found = answer.error if answer is not None else None
            raise found or StudentError("TypeError", "it takes other arguments", None)
        self.is_changed |= answer.is_changed
        return _read_features(answer.results["output"])


def _read_features(value: Any) -> Tensor:
    try:
        found = to_tensor(value)
        return found if isinstance(found, Tensor) else torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        message = f"φ(x) must be numbers, got {type(value).__name__}"
        raise StudentError("TypeError", message, None) from None
