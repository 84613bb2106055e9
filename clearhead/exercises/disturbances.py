"""Wrong forms of each term of a formula, made without knowing what it computes.

A term is a method, so its result or one of its arguments can be changed when it is called: doubled,
negated, cut off at 0, reversed, … A mistake without a name often has the same effect as one of
these changes, or a similar one.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from clearhead.exercises.exercise import Exercise

Change = Callable[[Any], Any]
FACTORS: dict[str, Change] = {
    "doubled": lambda x: 2 * x,
    "halved": lambda x: x / 2,
    "negated": lambda x: -x,
}
CURVES: dict[str, Change] = {
    "zero": torch.zeros_like,
    "raised by 1": lambda x: x + 1,
    "lowered by 1": lambda x: x - 1,
    "cut off at 0": torch.relu,
    "squashed": torch.tanh,
    "squared": torch.square,
    "absolute": torch.abs,
}
MOVES: dict[str, Change] = {
    "last axis reversed": lambda x: x.flip(-1),
    "axis before it reversed": lambda x: x.flip(-2),
    "last axis rolled": lambda x: x.roll(1, -1),
    "axis before it rolled": lambda x: x.roll(1, -2),
}
COUNTS: dict[str, Change] = {
    "one more": lambda x: x + 1,
    "one less": lambda x: x - 1,
    "two more": lambda x: x + 2,
    "twice": lambda x: 2 * x,
}
LENGTHS: dict[str, Change] = {
    "last entry twice": lambda x: torch.cat([x, x[..., -1:]], -1),
    "without the first entry": lambda x: x[..., 1:],
    "without the last entry": lambda x: x[..., :-1],
}


@dataclass(frozen=True)
class Suspect:
    """A wrong form of one term. rank: if several explain every answer, the lowest is chosen.
    is_result: the term's result is changed, not an argument, which an earlier term computed."""

    term: str
    formula: Exercise
    rank: int = 0
    is_result: bool = True


@dataclass
class Trace:
    """How a term was called while the formula was computed."""

    number: int  # in the order of the first results
    arguments: tuple[Any, ...]
    result: Any
    is_composite: bool  # it calls other terms

    @cached_property
    def is_routing(self) -> bool:
        """Whether the term only moves or selects numbers, as a mask does."""
        given = [x.detach() for x in _leaves(self.arguments) if x.is_floating_point()]
        results = [x.detach() for x in _leaves(self.result) if x.is_floating_point()]
        is_unchanged = len(self.arguments) == len(given) == len(results) == 1
        if not (given and results) or (is_unchanged and torch.equal(given[0], results[0])):
            return False
        known = torch.cat([x.reshape(-1) for x in given])
        return all(bool(torch.isin(x[x.isfinite()], known).all()) for x in results)


def trace_terms(exercise: Exercise, inputs: Mapping[str, Any]) -> dict[str, Trace]:
    """The terms that are methods, as the formula calls them for these inputs."""
    recorder = copy.copy(exercise)
    found: dict[str, Trace] = {}
    n_results = 0

    def record(term: str) -> Callable[..., Any]:
        method = getattr(exercise.__class__, term).__get__(recorder)

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal n_results
            before = n_results
            result = method(*args, **kwargs)
            is_composite = n_results > before
            n_results += 1
            found.setdefault(
                term, Trace(len(found), (*args, *kwargs.values()), result, is_composite)
            )
            return result

        return call

    for term in exercise.terms:
        if callable(getattr(exercise, term, None)):
            setattr(recorder, term, record(term))
    try:
        recorder.results(inputs)
    except Exception:  # of a formula that cannot be computed for this case
        return {}
    return found


def disturb_terms(exercise: Exercise, traces: Mapping[str, Trace]) -> Iterator[Suspect]:
    """Every term that calls no other one, with its result or an argument changed."""
    for term, trace in traces.items():
        if trace.is_composite:
            continue
        for change, is_factor in _choose_changes(trace):
            formula = change_result(exercise, term, change)
            yield Suspect(term, formula, rank(trace, len(traces), is_factor))
        if trace.is_routing:
            continue
        for number, value in enumerate(trace.arguments):
            yield from _disturb_argument(exercise, term, trace, len(traces), number, value)


def _disturb_argument(
    exercise: Exercise, term: str, trace: Trace, n: int, number: int, value: Any
) -> Iterator[Suspect]:
    if not isinstance(value, Tensor) or value.dtype == torch.bool:
        return
    if not value.is_floating_point():
        for change in COUNTS.values():
            formula = _change_argument(exercise, term, number, change)
            yield Suspect(term, formula, rank(trace, n, is_factor=True), is_result=False)
        return
    for change in (*FACTORS.values(), *CURVES.values(), *MOVES.values()):
        formula = _change_argument(exercise, term, number, change)
        place = n + rank(trace, n, change in FACTORS.values())
        yield Suspect(term, formula, place, is_result=False)


def rank(trace: Trace, n: int, is_factor: bool) -> int:
    """Of several terms that explain all, a factor is blamed on the last, all else on the first.

    A term that moves numbers, or says which, comes after those that compute some.
    """
    is_index = any(not leaf.is_floating_point() for leaf in _leaves(trace.result))
    return (n - trace.number if is_factor else trace.number) + 3 * n * (
        trace.is_routing or is_index
    )


def change_result(exercise: Exercise, term: str, change: Change) -> Exercise:
    """The formula with the result of one term changed."""
    wrong = copy.copy(exercise)
    method = getattr(exercise.__class__, term).__get__(wrong)
    setattr(wrong, term, lambda *args, **kwargs: change(method(*args, **kwargs)))
    return wrong


def _change_argument(exercise: Exercise, term: str, number: int, change: Change) -> Exercise:
    wrong = copy.copy(exercise)
    method = getattr(exercise.__class__, term).__get__(wrong)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [change(x) if i == number else x for i, x in enumerate(args)]
        return method(*given, **kwargs)

    setattr(wrong, term, call)
    return wrong


def _choose_changes(trace: Trace) -> Iterator[tuple[Change, bool]]:
    """The changes that suit the result of a term, and whether each is a factor."""
    leaves = _leaves(trace.result)
    if isinstance(trace.result, int | float) and not isinstance(trace.result, bool):
        yield from ((each, False) for each in COUNTS.values())
        return
    if any(x.is_floating_point() for x in leaves):
        yield from ((on_floats(each), True) for each in FACTORS.values())
        for each in CURVES.values():
            yield on_floats(each), False
            if len(leaves) > 1:
                yield from ((_on_one(i, each), False) for i in range(len(leaves)))
    if any(not x.is_floating_point() for x in leaves):
        whole = (_negate, *COUNTS.values(), *LENGTHS.values())
        yield from ((_on_whole(each), each in COUNTS.values()) for each in whole)
    for each in MOVES.values():
        yield _on_all(each), False
        if len(leaves) > 1:
            yield from ((_on_one(i, each), False) for i in range(len(leaves)))


def _negate(x: Tensor) -> Tensor:
    return ~x if x.dtype == torch.bool else -x


def count_numbers(results: Mapping[str, Any] | None) -> int:
    """How many numbers the tensors of a result have."""
    return sum(leaf.numel() for leaf in _leaves([*(results or {}).values()]))


def _leaves(value: Any) -> list[Tensor]:
    """The tensors in a result or in arguments."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in _leaves(each)]
    return []


def _on_all(change: Change) -> Change:
    def apply(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        if isinstance(value, tuple | list):
            return type(value)(apply(each) for each in value)
        return value

    return apply


def on_floats(change: Change) -> Change:
    """Apply a change to all floating-point tensors of a result."""
    return _on_all(lambda x: change(x) if x.is_floating_point() else x)


def _on_whole(change: Change) -> Change:
    return _on_all(lambda x: x if x.is_floating_point() else change(x))


def _on_one(number: int, change: Change) -> Change:
    """Change one tensor of a tuple."""

    def apply(value: Any) -> Any:
        return type(value)(change(x) if i == number else x for i, x in enumerate(value))

    return apply
