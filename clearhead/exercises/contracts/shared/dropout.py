"""Dropout: a layer that a class builds must act in training.

A class may take the argument and build no dropout layer; the report then has a note.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearhead.exercises import constructors
from clearhead.exercises.exercise import Answer, Case, Exercise, mistake
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import MODULE, Student

TERM = {"drop": "dropout: in training some entries become 0"}
SAYS = "in training two calls differ, since dropout is random"
NOTE = "dropout is an argument, but there is no such layer"
N_CALLS = 4

HELPERS = """
def _has_dropout(module):
    return any(type(part).__name__.endswith("Dropout") and part.p > 0 for part in module.modules())
"""


class WithDropout(Exercise):
    """An exercise whose class may take dropout; its case with the term "drop" looks at training."""

    helpers = constructors.HELPERS + HELPERS

    def drop(self) -> bool:
        """Whether calls in training differ."""
        return True

    def results(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().results(inputs), "dropout": self.drop()}

    def ask(self, student: Student, case: Case) -> Answer | None:
        answer = super().ask(student, case)
        words = set(self.constructor["dropout"].split())
        if case.term != "drop" or answer is None or answer.results is None or not student.is_class:
            return answer
        if words & {name.lower() for name, _ in student.signature(student.name)}:
            drops = self._differ_in_training(student, answer.form or case)
            if drops or self._has_layer(student):
                answer.results = {**answer.results, "dropout": drops}
            elif NOTE not in student.notes:
                student.notes.append(NOTE)
        return answer

    def _has_layer(self, student: Student) -> bool:
        module = {"make": MODULE}
        try:
            reply = student.session.request("call", target="_has_dropout", args=[module], kwargs={})
        except StudentError:
            return False
        return bool(isinstance(reply, dict) and reply.get("output"))

    def _differ_in_training(self, student: Student, form: Case) -> bool:
        """Call the module that was built for this form again, in training, with several seeds."""
        arranged = student.arrange(self, form.inputs if form.given is None else form.given)
        if arranged is None:
            return True
        args, kwargs, _ = arranged
        try:
            replies = [
                student.session.request(
                    "call", target=MODULE, args=args, kwargs=kwargs, train=True, seed=seed
                )
                for seed in range(N_CALLS)
            ]
        except StudentError:
            return False
        found = [self.read(reply.get("output"), form.inputs)["output"] for reply in replies]
        first, *others = (each.tolist() if isinstance(each, Tensor) else each for each in found)
        return any(each != first for each in others)

    @mistake(
        "drop",
        "the dropout layer is built but not used: training and evaluation give the same output",
        line=("dropout",),
    )
    def dropout_missing(self) -> bool:
        return False
