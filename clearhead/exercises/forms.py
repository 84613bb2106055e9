"""One case in several forms: tensors or NumPy arrays, W x or x W, one sequence or a batch of one.

A contract that leaves the form free asks for the case in each of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.exercises.exercise import Answer, Case, Exercise
from clearhead.exercises.sandbox.supervisor import StudentError

Choices = Sequence[Mapping[str, Any]]


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
    """The case with `how` applied to these inputs, or to all, as the student's code gets them."""
    given = case.inputs if case.given is None else case.given
    changed = {n: how(x) if n in names or not names else x for n, x in given.items()}
    return replace(case, given=changed)


def with_arrays(student: Any, *cases: Case) -> list[Case]:
    """Each case with tensors and with NumPy arrays, which have no gradient.

    Arrays come first for a file without torch: NumPy may take a tensor and misread its memory.
    """
    arrays = [change(case, to_array) for case in cases if not case.gradient]
    return [*cases, *arrays] if has_torch(student) else [*arrays, *cases]


def has_torch(student: Any) -> bool:
    """Whether the file imports torch under its own name."""
    try:
        student.session.request("get", name="torch")
    except StudentError:
        return False
    return True


def ask_in_forms(
    exercise: Exercise, student: Any, cases: Iterable[Case], choices: Choices | None = None
) -> Answer | None:
    """The first right answer among the forms of a case, or else the first without an error.

    Exercise.forms takes the first form that does not raise; this is for code that may accept a
    wrong form without raising, such as transposed square matrices. choices: the inputs for the
    reference, if they are not those of the case.
    """
    from clearhead.exercises.comparison import differs

    answers: list[Answer] = []
    for case in cases:
        answer: Answer | None = student.ask_form(exercise, case)
        if answer is None:
            continue
        answer.choices = answer.choices if choices is None else choices
        if any(not differs(exercise, case, answer, i) for i in range(len(answer.choices))):
            return answer
        answers.append(answer)
    return next((each for each in answers if each.error is None), answers[0] if answers else None)


LENGTHS = (64, 128)
MOST_GROWTH = 2.7  # at twice the length: the work is 2 times as much if linear, 4 if quadratic


def find_growth(
    exercise: Exercise, student: Any, build_forms: Callable[[int], Iterable[Case]]
) -> str | None:
    """Whether the work is "linear" or "quadratic" in the length. It is counted in the numbers that
    PyTorch's operations write; None if there are none, as with NumPy. build_forms: length → case in
    its forms."""
    work = [
        next(filter(None, (_count_work(exercise, student, case) for case in build_forms(n))), 0)
        for n in LENGTHS
    ]
    if min(work) <= 0:
        return None
    return "quadratic" if work[1] > MOST_GROWTH * work[0] else "linear"


def _count_work(exercise: Exercise, student: Any, case: Case) -> int:
    """The numbers that PyTorch's operations write; 0 if it raises."""
    from clearhead.exercises.student import MODULE

    answer = student.ask_form(exercise, case)  # builds the object, if it is a class
    arranged = student.arrange(exercise, case.inputs if case.given is None else case.given)
    if answer is None or answer.error is not None or arranged is None:
        return 0
    args, kwargs, _ = arranged
    target = MODULE if student.owner else student.name
    reply = student.session.request(
        "call", target=target, method=student.method, args=args, kwargs=kwargs, count=True
    )
    found = reply.get("work") if isinstance(reply, dict) else None
    return found if type(found) is int else 0


def read_parameters(student: Any) -> list[str]:
    """The names of the parameters of a function, or of a class's constructor, in small letters."""
    return [name.lower() for name, _ in student.signature(student.owner or student.name)]


def drop_axes(output: Any, n_axes: int) -> Any:
    """The output without leading axes of length 1, until it has n_axes."""
    while hasattr(output, "shape") and len(output.shape) > n_axes and output.shape[0] == 1:
        output = output[0]
    return output
