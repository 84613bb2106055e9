"""An exercise: a formula split into terms, the mistakes people make in each, and test cases.

An exercise is a class. Its methods are the terms of the formula, and `answer` puts them together:
that is the reference. A named mistake is a method, too: one of the terms, written wrongly.

    class Attention(Exercise):
        def scale(self, scores, q, v):
            return scores / math.sqrt(q.size(-1))

        @mistake("scale", "the scores are not divided by √d_k", line=("@", "matmul"))
        def no_scaling(self, scores, q, v):
            return scores

`with_mistakes("no_scaling")` is the formula with this mistake in it. So a student's answer can be
compared with what each mistake, and each pair of mistakes in different terms, would give.

The first cases need few terms of the formula, later ones more. So the first case in which an answer
is wrong tells where to look, even if no named mistake fits.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MethodType
from typing import Any, Self

from clearhead.exercises.draw import Draw
from clearhead.exercises.weights import Assignment, Role


@dataclass(frozen=True)
class Mistake:
    """A named mistake in one term.

    line: pieces of source text by which its line is found, the surest first. variants: methods
    with other forms of the same mistake, such as a mask of −1e9 instead of −∞.
    """

    id: str
    term: str
    sentence: str
    line: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that stand for its term, the usual one first."""
        return (self.id, *self.variants)


def mistake(
    term: str,
    sentence: str,
    *,
    line: Sequence[str] = (),
    variants: Sequence[str] = (),
) -> Callable[[Any], Any]:
    """Mark a method as a wrong form of a term; the name of the method is the mistake's id."""

    def mark(function: Any) -> Any:
        function.mistake = Mistake(function.__name__, term, sentence, tuple(line), tuple(variants))
        return function

    return mark


@dataclass(frozen=True)
class Case:
    """The inputs of one call, under the exercise's own argument names.

    says: what the case tries, printed as "this case fails: …". term: where to look if this
    is the first case that fails. sizes: constructor arguments, for a class. gradient: also
    compare the gradients of the inputs. worth: the weight of the case in partial credit. given: the
    inputs in another form, if the student's code needs one: a 0/1 mask, or arrays.
    """

    says: str
    term: str
    inputs: Mapping[str, Any]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    gradient: bool = False
    worth: float = 1.0
    given: Mapping[str, Any] | None = None


@dataclass
class Answer:
    """The result of the student's code for a case.

    choices: the inputs for the reference, one for each reading of the student's weights; just one
    for a function, none if the object could not be built. results: by name, such as output and
    weights. error: what was raised. is_changed: whether the code changed its inputs. form: the
    case as it was actually passed, if in another form.
    """

    choices: Sequence[Mapping[str, Any]]
    results: Mapping[str, Any] | None = None
    gradients: Mapping[str, Any] | None = None
    error: Any = None
    is_changed: bool = False
    form: Case | None = None


Asked = Sequence[tuple[Case, Answer]]  # every case that was tried, with its answer


class Exercise:
    """The base of all exercises; see the top of this file.

    name: as on the command line. names: what students call it, the usual name first; a dotted
    name is a method, and definitions.find_definition reads `phi(x)`, `Km + pos` and `*.generate`.
    formula: one line. terms: each term of the formula in words. parameters: the arguments of a call
    and what students call them; those in `optional` need not exist. constructor: the same for the
    arguments of a class. forbidden: functions of PyTorch that may not be used. impossible: mistakes
    of a base class that cannot be made here. unnamed: other wrong forms, each with its term; they
    identify the term only.
    """

    name: str
    title: str
    formula: str
    page: str
    signature: str
    names: tuple[str, ...]
    terms: Mapping[str, str]
    parameters: Mapping[str, str]
    points: float = 10
    optional: tuple[str, ...] = ()
    constructor: Mapping[str, str] = {}
    forbidden: tuple[str, ...] = ()
    impossible: tuple[str, ...] = ()
    unnamed: Mapping[str, str] = {}
    helpers: str = ""  # source of objects that a call needs, run after the student's file
    tolerance: float = 1e-4

    # Defined by each exercise

    answer: Callable[..., Any]  # the reference: one value, or several by name

    def cases(self, draw: Draw) -> Iterable[Case]:
        """The cases to try, those that need the fewest terms first."""
        raise NotImplementedError

    def small_cases(self, draw: Draw) -> Iterable[Case]:
        """Tiny cases with small whole numbers, the smallest first, for a counter-example."""
        raise NotImplementedError

    def roles(self, *_: Any, **sizes: Any) -> Mapping[str, Role]:
        """The weights of a class by role; none for a function."""
        return {}

    def forms(self, case: Case) -> Iterable[Case]:
        """The case in every convention that is accepted, the usual one first.

        The first form that the student's code accepts without raising counts.
        """
        yield case

    def convert(self, name: str, parameter: str, value: Any) -> Any:
        """The input in the form that a parameter of this name expects."""
        return value

    def read(self, output: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The results by name. By default the output alone: the first of several values."""
        if isinstance(output, tuple | list) and output and hasattr(output[0], "shape"):
            return {"output": output[0]}
        return {"output": output}

    def describe_reading(self, inputs: Mapping[str, Any]) -> Iterable[str]:
        """The notes that are printed on how the code was read, such as "causal"."""
        return ()

    # Derived from these

    @cached_property
    def mistakes(self) -> Mapping[str, Mistake]:
        """The named mistakes by id, in the order of the file, those of a base class first."""
        methods = (m for base in reversed(type(self).__mro__) for m in vars(base).values())
        found = (method.mistake for method in methods if hasattr(method, "mistake"))
        return {each.id: each for each in found if each.id not in self.impossible}

    def with_mistakes(self, *methods: str) -> Self:
        """The same formula with these mistakes, or variants of mistakes, in it."""
        wrong = copy.copy(self)
        terms = {name: each.term for each in self.mistakes.values() for name in each.methods}
        terms |= self.unnamed
        for name in methods:
            setattr(wrong, terms[name], MethodType(getattr(type(self), name), wrong))
        return wrong

    def dialects(self) -> "Iterable[Self]":
        """Equal formulas that differ once they have a mistake, such as one in the loss alone."""
        yield self

    def results(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The results of the formula by name."""
        found = self.answer(**inputs)
        return found if isinstance(found, dict) else {"output": found}

    def ask(self, student: Any, case: Case) -> Answer | None:
        """Call the student's code for a case; None if it does not take such a case."""
        return student.ask(self, case)

    def assign(self, parameters: Sequence[Any], sizes: Mapping[str, Any]) -> Sequence[Assignment]:
        """Every way to read the parameters of the student's module as the roles."""
        from clearhead.exercises.readings import assign

        return assign(parameters, self.roles(**sizes))
