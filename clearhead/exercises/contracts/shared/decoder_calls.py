"""Calling a student's decoder: built, given weights, started from an encoded source, called."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from clearhead.exercises.contracts.shared.gru import assign_with_gru, gru_shapes
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise
from clearhead.exercises.sandbox.supervisor import StudentError
from clearhead.exercises.student import MODULE, CannotCall, Student, read_parameters, take_parts
from clearhead.exercises.weights import draw_weights

# init_state and forward in one call, so that the state may be any object.
DECODE = """
def _decode(model, X, outputs, hidden, lens):
    if hasattr(model, "init_state"):
        state = model.init_state((outputs, hidden), lens)
    else:
        state = (outputs, hidden, lens)
    output = model(X, state)
    logits, state = output[0], output[1] if len(output) > 1 else None
    kept = state[1] if isinstance(state, (tuple, list)) and len(state) > 1 else None
    return logits, kept
"""


def ask_decoder(exercise: Exercise, student: Student, case: Case) -> Answer:
    """The encoder's outputs with the batch first, or with time first; the form that is right."""
    from clearhead.exercises.comparison import differs

    answers: list[Answer] = []
    for outputs in (case.inputs["outputs"], case.inputs["outputs"].transpose(0, 1)):
        answer = _ask_form(exercise, student, case, outputs.contiguous())
        if any(not differs(exercise, case, answer, i) for i in range(len(answer.choices))):
            return answer
        answers.append(answer)
    return next((each for each in answers if each.error is None), answers[0])


def _ask_form(exercise: Exercise, student: Student, case: Case, outputs: Tensor) -> Answer:
    given = case.inputs
    args = [{"make": MODULE}, given["X"], outputs, given["hidden"], given["lens"]]
    choices: list[dict[str, Any]] = []
    try:
        choices = _prepare(exercise, student, case, args)
        reply = student.session.request(
            "call", target="_decode", args=args, kwargs={}, seed=student.seed + student.shift
        )
    except StudentError as error:
        return Answer(choices, error=error)
    output = reply.get("output") if isinstance(reply, dict) else None
    return Answer(choices, dict(exercise.read(output, case.inputs)))


def _prepare(
    exercise: Exercise, student: Student, case: Case, args: list[Any]
) -> list[dict[str, Any]]:
    """Build the decoder with new weights; the inputs for the reference, one for each reading of
    the weights and for each order of context and embedding."""
    parameters = _build(exercise, student, case, args)
    values = draw_weights(parameters, Draw(student.seed))
    student.session.request("set", label=MODULE, weights=values)
    D = case.sizes["d_hidden"]
    is_additive = any(tuple(shape) in ((1, D), (D,), (D, 1)) for _, shape, _ in parameters)
    roles = exercise.roles(**case.sizes, is_additive=is_additive)
    shapes = gru_shapes(D + case.sizes["d_embedding"], D, case.sizes["n_layers"])
    readings = assign_with_gru(parameters, roles, shapes)[:2]
    if not readings:
        raise CannotCall(
            _describe_misfit({**{n: r.shape for n, r in roles.items()}, **shapes}, parameters)
        )
    parts = [{**case.inputs, **take_parts(each, values)} for each in readings]
    return [{**each, "is_context_first": first} for each in parts for first in (True, False)]


def _build(exercise: Exercise, student: Student, case: Case, args: list[Any]) -> Sequence[Any]:
    """Build the decoder; lazy layers learn their sizes in a first call."""
    found = student.build(exercise, case)
    if any(shape is None for _, shape, _ in found):
        student.session.request("call", target="_decode", args=args, kwargs={})
        found = read_parameters(student.session.request("parameters", label=MODULE))
    return found


def _describe_misfit(wanted: Mapping[str, Any], parameters: Sequence[Any]) -> str:
    expected = ", ".join(f"{name} {shape}" for name, shape in wanted.items())
    has = ", ".join(f"{name} {tuple(shape)}" for name, shape, _ in parameters)
    return f"its parameters do not fit: expected {expected}; it has {has}"
