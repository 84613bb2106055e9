"""A student's function or class, called through the sandbox with the arguments it expects.

Arguments are matched by name first (`queries` is q), then by position. Every adaptation
is kept in `notes` and printed, so that no convention comes as a surprise.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clearhead.exercises import constructors
from clearhead.exercises.draw import Draw
from clearhead.exercises.exercise import Answer, Case, Exercise
from clearhead.exercises.sandbox.direct import DirectSession
from clearhead.exercises.sandbox.supervisor import Session, Stopped, StudentError
from clearhead.exercises.weights import Assignment, draw_weights

MODULE = "module"  # the label of the object built from a class
MAX_NUMBERS = 1 << 23  # in all parameters of a module


Arranged = tuple[list[Any], dict[str, Any], list[str]]  # positional, by keyword, inputs in order


class CannotCall(Exception):
    """The student's code cannot be called for an exercise; the message says why."""


@dataclass
class Student:
    """One object of a student's file.

    name: the function or class, dotted for a method. is_class: it must be built first.
    """

    session: Session | DirectSession
    name: str
    is_class: bool = False
    seed: int = 0
    shift: int = 0  # added to the seed of a call, which must not change the answer
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # computed once, such as is_causal
    _signatures: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    _keyword_only: set[str] = field(default_factory=set)  # parameters after a *
    _variadic: set[str] = field(default_factory=set)  # signatures that begin with *args

    def ask(self, exercise: Exercise, case: Case) -> Answer | None:
        """Call the code with a case; try the accepted forms in order until one does not raise.

        If all raise, return the first error. Return None if the case needs an optional argument
        that the student's code does not have.
        """
        raised, fault = None, None
        for form in exercise.forms(case):
            try:
                answer = self.ask_form(exercise, form)
            except CannotCall as misfit:  # in this form
                fault = fault or misfit
                continue
            if answer is not None:
                answer.form = form
            if answer is not None and answer.error is None:
                return answer
            raised = raised or answer
        if raised is None and not set(case.inputs) & set(exercise.optional):
            raise fault or CannotCall(f"{self.name} cannot be called as {exercise.signature}")
        return raised

    def ask_form(self, exercise: Exercise, case: Case) -> Answer | None:
        """Build the object if it is a class, give it weights, call it, and read the answer."""
        choices: list[dict[str, Any]] = []
        try:
            choices = self._prepare(exercise, case)
            given = case.inputs if case.given is None else case.given
            arranged = self.arrange(exercise, given)
            if arranged is None:
                return None
            args, kwargs, order = arranged
            reply = self.session.request(
                "call", target=MODULE if self.owner else self.name, method=self.method, args=args,
                kwargs=kwargs, gradient=case.gradient, seed=self.seed + self.shift,
            )  # fmt: skip
        except StudentError as error:
            return Answer(choices, error=error)
        return self.read(exercise, case, choices, reply, order)

    @property
    def owner(self) -> str | None:
        """The class that must be built first; None for a function."""
        return self.name if self.is_class else self.name.rpartition(".")[0] or None

    @property
    def method(self) -> str | None:
        """The method to call, if it is not forward."""
        return None if self.is_class else self.name.rpartition(".")[2] if self.owner else None

    def _prepare(self, exercise: Exercise, case: Case) -> list[dict[str, Any]]:
        """Build the module of a class with new weights; return the inputs for the reference."""
        if not self.owner:
            return [dict(case.inputs)]
        parameters = self.build(exercise, case)
        if self.method:
            self.session.request("set", label=MODULE, weights={})
            return [dict(case.inputs)]
        if any(shape is None for _, shape, _ in parameters):
            if self.arrange(exercise, case.inputs if case.given is None else case.given) is None:
                return []
            parameters = [each for each in parameters if each[1] is not None]  # others are not used
        values = draw_weights(parameters, Draw(self.seed))
        self.session.request("set", label=MODULE, weights=values)
        if not (parameters or exercise.roles(**case.sizes)):
            return [dict(case.inputs)]
        assignments = exercise.assign(parameters, case.sizes)
        if not assignments:
            raise CannotCall(_describe_misfit(exercise, case, parameters))
        return [{**case.inputs, **take_parts(each, values)} for each in assignments]

    def build(self, exercise: Exercise, case: Case) -> Sequence[Any]:
        """Build an object of the class; return (name, shape, owner) of each parameter."""
        assert self.owner is not None
        arranged = self._arrange_sizes(exercise, case)
        if arranged is None:
            raise CannotCall(
                f"the constructor of {self.name} does not take the sizes of the exercise"
            )
        args, kwargs, _ = arranged
        reply = self.session.request(
            "build", name=self.owner, args=args, kwargs=kwargs, label=MODULE, seed=self.seed
        )
        found = read_parameters(reply)
        is_lazy = any(shape is None for _, shape, _ in found)
        if is_lazy and not self.method:  # lazy layers learn their sizes when called
            called = self.arrange(exercise, case.inputs if case.given is None else case.given)
            if called is not None:
                args, kwargs, _ = called
                with suppress(StudentError):  # the layers before the error have their sizes
                    self.session.request("call", target=MODULE, args=args, kwargs=kwargs)
            found = read_parameters(self.session.request("parameters", label=MODULE))
        return found

    def _arrange_sizes(self, exercise: Exercise, case: Case) -> Arranged | None:
        """Arrange the arguments of the constructor; see constructors.py."""
        names, words = self.signature(self.owner or ""), exercise.constructor
        given = {p.lower() for p, _ in names}
        taken = {name for name in case.sizes if given & set(words[name].lower().split())}
        needed = {name for name in case.sizes if name in taken or name not in exercise.optional}
        sizes = {name: value for name, value in case.sizes.items() if name in needed}
        if constructors.HELPERS in exercise.helpers:
            config = constructors.find_config(dict(names))
            if config is not None and not taken:
                made = constructors.make_config(words, case.sizes)
                return arrange(names, {"config": config}, {"config": made}, ())
            fixed = constructors.set_constants(self.session, words, sizes, taken)
            self._note_constants(fixed)
            known = {name for name in sizes if set(fixed) & set(words[name].split())}
            sizes = {n: value for n, value in sizes.items() if n in taken or n not in known}
        return arrange(names, words, sizes, ())

    def _note_constants(self, names: Sequence[str]) -> None:
        note = f"{', '.join(names)}: constants of the file, set to the sizes of each case"
        if names and note not in self.notes:
            self.notes.append(note)

    def signature(self, name: str, method: str | None = None) -> list[tuple[str, bool]]:
        """(name, has a default) of each parameter that can be given by position or name."""
        key = f"{name}.{method}"
        if key not in self._signatures:
            found = read_rows(self.session.request("describe", name=name, method=method))
            self._keyword_only |= {row[0] for row in found if row[1] == "KEYWORD_ONLY"}
            self._signatures[key] = [
                (parameter, has_default)
                for parameter, kind, has_default in found
                if kind in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
            ]
            if [row[1] for row in found][:1] == ["VAR_POSITIONAL"]:
                self._variadic.add(key)
        return self._signatures[key]

    def arrange(self, exercise: Exercise, inputs: Mapping[str, Any]) -> Arranged | None:
        """Arrange the inputs in the student's order; None if there are too many or too few."""
        target = (MODULE, self.method or "forward") if self.owner else (self.name, None)
        names = self.signature(*target)
        if not names and ".".join(map(str, target)) in self._variadic:  # forward(*args)
            names = [(name, False) for name in inputs if name not in exercise.optional]
        return arrange(
            names, exercise.parameters, inputs, exercise.optional, exercise.convert,
            self._keyword_only,
        )  # fmt: skip

    def read(
        self,
        exercise: Exercise,
        case: Case,
        choices: list[dict[str, Any]],
        reply: Any,
        order: list[str],
    ) -> Answer:
        """Read an answer from the worker's reply, which is not trusted."""
        if not isinstance(reply, dict) or "output" not in reply:
            error = StudentError("ProtocolError", "the answer has no output", None)
            return Answer(choices, error=error)
        results = exercise.read(reply["output"], case.inputs)
        gradients = None
        if case.gradient:
            found = reply.get("gradients")
            floats = [n for n in order if getattr(case.inputs.get(n), "is_floating_point", bool)()]
            known = found if isinstance(found, list) else [None] * len(floats)
            gradients = dict(zip(floats, known, strict=False))
        return Answer(
            choices, results=results, gradients=gradients, is_changed=bool(reply.get("is_changed"))
        )


def read_rows(reply: Any) -> list[Any]:
    """Read the rows of three entries, a name first, of a reply, which is not trusted."""
    rows = reply.get("parameters", []) if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        raise Stopped("its answer could not be read")
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str):
            raise Stopped("its answer could not be read")
    return rows


def read_parameters(reply: Any) -> list[Any]:
    """Read (name, shape or None, owner) of each parameter; refuse very large modules."""
    rows = read_rows(reply)
    for _, shape, owner in rows:
        sizes = [] if shape is None else shape
        is_shape = isinstance(sizes, list) and all(type(n) is int and n >= 0 for n in sizes)
        if not is_shape or not isinstance(owner, str):
            raise Stopped("its answer could not be read")
    if sum(math.prod(shape or [0]) for _, shape, _ in rows) > MAX_NUMBERS:
        raise Stopped(f"its module has more than {MAX_NUMBERS:,} parameters")
    return rows


def arrange(
    names: Sequence[tuple[str, bool]],
    parameters: Mapping[str, str],
    inputs: Mapping[str, Any],
    optional: Iterable[str],
    convert: Any = lambda name, parameter, value: value,
    keyword_only: Iterable[str] = (),
) -> Arranged | None:
    """Match inputs to parameters: by name, then the rest by position. None if they do not fit:
    an input is not taken, or a parameter without a default stays empty.

    Returns positional arguments, keyword arguments, and the inputs' names in this order.
    """
    known = {word.lower(): name for name, words in parameters.items() for word in words.split()}
    matched = {p: known[p.lower()] for p, _ in names if known.get(p.lower()) in inputs}
    if len(set(matched.values())) < len(matched):  # two parameters with one meaning
        matched = {}
    left = [name for name in inputs if name not in matched.values()]
    for parameter, has_default in names:
        if parameter in matched or not left:
            continue
        if has_default and (left[0] in optional or known.get(parameter.lower())):
            continue
        if known.get(parameter.lower()) in (None, left[0]):
            matched[parameter] = left.pop(0)
    if left or any(p not in matched and not has_default for p, has_default in names):
        return None
    kwargs = {p: convert(name, p, inputs[name]) for p, name in matched.items()}
    args: list[Any] = []
    for parameter, _ in names:  # leading ones by position: forward(x, *rest) may rename them
        if parameter not in kwargs or parameter in keyword_only:
            break
        args.append(kwargs.pop(parameter))
    return args, kwargs, [matched[p] for p, _ in names if p in matched]


def take_parts(assignment: Assignment, values: Mapping[str, Any]) -> dict[str, Any]:
    """Build the parts of the formula, such as Linear, from the student's parameter values."""
    return {role: piece.take(values) for role, piece in assignment.items()}


def _describe_misfit(exercise: Exercise, case: Case, parameters: Sequence[Any]) -> str:
    wanted = ", ".join(f"{n} {r.shape}" for n, r in exercise.roles(**case.sizes).items())
    given = ", ".join(f"{name} {tuple(shape)}" for name, shape, _ in parameters) or "none"
    return f"its parameters do not fit: expected {wanted}; it has {given}"
