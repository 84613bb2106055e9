"""Calling a student's decoder: build it, give it weights and an encoded source, ask for logits."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.exercises.contracts.shared.gru_weights import describe_unreadable
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import MODULE, CannotCall, Student, read_parameters, take_parts
from clearhead.exercises.weights import draw_weights

# All words in one call, so that the state may be any object. A decoder is called as model(X, state)
# for all of them, or as model(word, hidden, outputs), perhaps with lengths or a mask, for each.
DECODE = """
import inspect as _inspect
import torch as _torch

def _decode(model, X, outputs, hidden, lens, is_time_first):
    names = list(_inspect.signature(model.forward).parameters)
    if not hasattr(model, "init_state") and len(names) > 2:
        return _decode_by_word(model, X, outputs, hidden, lens, is_time_first)
    if hasattr(model, "init_state"):
        state = model.init_state((outputs, hidden), lens)
    else:
        state = (outputs, hidden, lens)
    output = model(X, state)
    logits, state = output[0], output[1] if len(output) > 1 else None
    kept = state[1] if isinstance(state, (tuple, list)) and len(state) > 1 else None
    return logits, kept

def _decode_by_word(model, X, outputs, hidden, lens, is_time_first):
    S = outputs.shape[0 if is_time_first else 1]
    limits = _torch.full((len(X),), S) if lens is None else lens
    mask = _torch.arange(S) < limits[:, None]
    found = []
    for t in range(X.shape[1]):
        try:
            logits, hidden = _step(model, X[:, t : t + 1], outputs, hidden, limits, mask)
        except Exception:
            logits, hidden = _step(model, X[:, t], outputs, hidden, limits, mask)
        found.append(logits.reshape(len(X), -1))
    return _torch.stack(found, 1), hidden

def _step(model, word, outputs, hidden, lens, mask):
    given = {"mask": mask, "len": lens, "enc": outputs, "outputs": outputs, "keys": outputs,
             "memory": outputs, "hid": hidden, "state": hidden}
    args = []
    for name in _inspect.signature(model.forward).parameters:
        args.append(next((given[part] for part in given if part in name.lower()), word))
    return model(*args)[:2]
"""


def ask_decoder(exercise: Exercise, student: Student, case: Case) -> Answer:
    """Call with the encoder's outputs batch first, then time first; return the right answer, or
    else the first that did not raise."""
    from clearhead.exercises.comparison import differs

    exercise, case = fit_sizes(exercise, student, case)
    answers: list[Answer] = []
    for is_time_first in (False, True):
        answer = _ask_form(exercise, student, case, is_time_first)
        if any(not differs(exercise, case, answer, i) for i in range(len(answer.choices))):
            return answer
        answers.append(answer)
    return next((each for each in answers if each.error is None), answers[0])


def fit_sizes(exercise: Exercise, student: Student, case: Case) -> tuple[Exercise, Case]:
    """Adapt exercise and case to a class that does not take every size: without a number of layers
    it has one layer; without a width of the embedding, the width is d_hidden."""
    names = student.signature(student.name)
    known = {name: set(words.split()) for name, words in exercise.constructor.items()}
    words = set().union(*known.values())
    n_unknown = sum(not has_default and name.lower() not in words for name, has_default in names)
    given = {name.lower() for name, _ in names}
    missing = [name for name in ("n_layers", "d_embedding") if not known[name] & given]
    if len(missing) <= n_unknown:  # they have other names and are found by their order
        return exercise, case
    own = {"n_layers": 1, "d_embedding": case.sizes["d_hidden"]}
    exercise = copy.copy(exercise)
    exercise.optional = (*exercise.optional, *missing)
    return exercise, replace(case, sizes={**case.sizes, **{name: own[name] for name in missing}})


def _ask_form(exercise: Exercise, student: Student, case: Case, is_time_first: bool) -> Answer:
    given = case.inputs
    outputs = given["outputs"].transpose(0, 1) if is_time_first else given["outputs"]
    args = [{"make": MODULE}, given["X"], outputs.contiguous(), given["hidden"], given["lens"]]
    choices: list[dict[str, Any]] = []
    try:
        choices = _prepare(exercise, student, case, [*args, is_time_first])
        reply = student.session.request(
            "call",
            target="_decode",
            args=[*args, is_time_first],
            kwargs={},
            seed=student.seed + student.shift,
        )
    except StudentError as error:
        return Answer(choices, error=error)
    output = reply.get("output") if isinstance(reply, dict) else None
    return Answer(choices, dict(exercise.read(output, case.inputs)))


def _prepare(
    exercise: Exercise, student: Student, case: Case, args: list[Any]
) -> list[dict[str, Any]]:
    """Build the decoder and give it new weights. Returns inputs for the reference: one for each
    reading of the weights, with the context before the embedding and after it."""
    parameters = _build(exercise, student, case, args)
    values = draw_weights(parameters, Draw(student.seed))
    student.session.request("set", label=MODULE, weights=values)
    readings = exercise.assign(parameters, case.sizes)
    if not readings:
        raise CannotCall(describe_unreadable(parameters))
    parts = [{**case.inputs, **take_parts(each, values)} for each in readings]
    return [{**each, "is_context_first": first} for each in parts for first in (True, False)]


def _build(exercise: Exercise, student: Student, case: Case, args: list[Any]) -> Sequence[Any]:
    """Build the decoder; lazy layers learn their sizes in a first call."""
    found = student.build(exercise, case)
    if any(shape is None for _, shape, _ in found):
        student.session.request("call", target="_decode", args=args, kwargs={})
        found = read_parameters(student.session.request("parameters", label=MODULE))
    return found
