"""Attention that is causal by design, as in a GPT: no token attends to a later one.

CausalSelfAttention(config)(x) and CS336's run_multihead_self_attention take no mask: they hide
later tokens themselves. Code is read as causal if its name says so. It is also read as
causal if it has a GPT's arguments or takes no mask, and its output for a token does not depend on
later tokens.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises import constructors
from clearhead.exercises.contracts.shared.conventions import LENGTHS, MASKS
from clearhead.exercises.contracts.shared.dot_product import DotProduct
from clearhead.exercises.contracts.shared.names import LENGTH, PAST
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise, Mistake, mistake
from clearhead.exercises.student import MODULE, Student

NAMES = ("causal", "gpt", "decoder", "run_multihead_self_attention")
SIGNS = {*LENGTH.split(), *constructors.CONFIG.split(), "n_embd", "causal", "is_causal"}
NOTE = "causal: read as attention in which no token attends to a later one"


def is_called_causal(student: Student) -> bool:
    """Whether the name of the code promises causal attention."""
    return any(each in student.name.lower() for each in NAMES)


def may_be_causal(student: Student) -> bool:
    """Whether its constructor has the arguments of a GPT, such as block_size."""
    given = {name.lower() for name, _ in student.signature(student.owner or student.name)}
    return bool(given & SIGNS)


def takes_mask(student: Student) -> bool:
    """Whether the function, or the module's forward, takes a mask or lengths."""
    own = (MODULE, "forward") if student.owner else (student.name,)
    names = {name.lower() for name, _ in student.signature(*own)}
    return bool(names & {*MASKS.split(), *LENGTHS.split()})


def is_causal_by_design(exercise: Exercise, student: Student, form: Case | None) -> bool:
    """Whether the code is causal by design; form: a working call with an input x."""
    if is_called_causal(student):
        return True
    if form is None or "x" not in form.inputs:
        return False
    if "is_causal" not in student.facts:
        may_be = may_be_causal(student) or not takes_mask(student)
        student.facts["is_causal"] = may_be and _hides_tokens(exercise, student, form)
    return bool(student.facts["is_causal"])


def _hides_tokens(exercise: Exercise, student: Student, form: Case) -> bool:
    """Whether the first token does not depend on the last one, or the last not on the first."""
    B, _, d = form.inputs["x"].shape
    x = Draw(1).normal(B, 4, d)
    first, last = x.clone(), x.clone()
    first[:, 0], last[:, -1] = 3 * x[:, 1], 3 * x[:, 1]
    outputs = [_call(exercise, student, form, each) for each in (x, first, last)]
    if any(not isinstance(each, Tensor) or each.shape[:2] != (B, 4) for each in outputs):
        return False
    whole, other_first, other_last = (each.nan_to_num() for each in outputs)
    return bool(
        torch.equal(whole[:, 0], other_last[:, 0]) or torch.equal(whole[:, -1], other_first[:, -1])
    )


def _call(exercise: Exercise, student: Student, form: Case, x: Tensor) -> Any:
    given = form.inputs if form.given is None else form.given
    inputs, given = {**form.inputs, "x": x}, {**given, "x": x}
    answer = student.ask_form(exercise, replace(form, inputs=inputs, given=given, gradient=False))
    return None if answer is None or answer.results is None else answer.results["output"]


class MaybeCausal(DotProduct):
    """Attention of each token to all, or to earlier ones where the code is causal by design."""

    @cached_property
    def mistakes(self) -> Mapping[str, Mistake]:
        """Order the mistakes of causal attention first: a future leak also fits mask_ignored."""
        found = super().mistakes
        causal = {name: each for name, each in found.items() if each.term == "past"}
        return {**causal, **found}

    def ask(self, student: Student, case: Case) -> Answer | None:
        answer = student.ask(self, case)
        if answer is not None:
            is_causal = is_causal_by_design(self, student, answer.form if answer.results else None)
            answer.choices = [{**each, "is_causal": is_causal} for each in answer.choices]
        return answer

    def describe_reading(self, inputs: Mapping[str, Any]) -> Iterable[str]:
        return [NOTE] if inputs.get("is_causal") else []

    # Mistakes

    @mistake(
        "past",
        "the attention is not causal: each token attends to later ones, which it must predict",
        line=PAST,
    )
    def future_leak(self, n_queries: int, n_keys: int, is_causal: bool) -> Tensor | None:
        return None

    @mistake(
        "past",
        "each token attends to the next one: the triangle has one diagonal too many",
        line=PAST,
    )
    def sees_next_token(self, n_queries: int, n_keys: int, is_causal: bool) -> Tensor | None:
        return _shift_past(n_queries, n_keys, is_causal, 1)

    @mistake(
        "past",
        "a token does not attend to itself, so the first one attends to nothing; the diagonal "
        "must be allowed",
        line=PAST,
    )
    def hides_itself(self, n_queries: int, n_keys: int, is_causal: bool) -> Tensor | None:
        return _shift_past(n_queries, n_keys, is_causal, -1)

    @mistake(
        "past",
        "the triangle is upside down: each token attends to itself and to later ones",
        line=PAST,
    )
    def attends_to_future(self, n_queries: int, n_keys: int, is_causal: bool) -> Tensor | None:
        return torch.ones(n_queries, n_keys).triu().bool() if is_causal else None


def _shift_past(n_queries: int, n_keys: int, is_causal: bool, diagonal: int) -> Tensor | None:
    return torch.ones(n_queries, n_keys).tril(diagonal).bool() if is_causal else None
