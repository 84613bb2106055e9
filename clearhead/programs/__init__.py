"""Programs compiled into the weights of a transformer.

    length = selector_width(everything)
    reverse = aggregate(select(indices, length - 1 - indices, "=="), tokens)
    compile(reverse, "abc", max_len=5)("abca")            → ['a', 'c', 'b', 'a']

In reading order:

language.py      the language: tokens, indices, select, aggregate, selector_width
interpreter.py   what a program means: interpret(program, sequence)
library.py       example programs: reverse, sort, balanced brackets, induction, …
catalogue.py     their names, each with a vocabulary and a length
sequences.py     the sequences of the language and their arithmetic
selectors.py     the selectors of the language
compiler.py      compile(program, vocabulary, max_len): a model whose weights compute the program
plan.py          the layers of a compiled program: names, sizes and error bounds, without weights
planner.py       decides what each layer computes and what the residual stream stores
heads.py         the heads for aggregates and selector widths
clauses.py       any combination of selectors as a sum of tables
parts.py         heads and hidden units as lists of weights, and their errors
variables.py     the variables in the residual stream, and functions of them
weights.py       from a plan to the weights of a SequenceClassifier

Names are imported on first use, and only weights.py imports torch, so that the command line can
list and show programs without delay.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.programs.catalogue import PROGRAMS
    from clearhead.programs.compiler import CompiledProgram, compile
    from clearhead.programs.interpreter import interpret
    from clearhead.programs.language import (
        aggregate,
        everything,
        indices,
        select,
        selector_width,
        tokens,
        where,
    )
    from clearhead.programs.plan import Part, Plan, make_plan
    from clearhead.programs.selectors import Selector
    from clearhead.programs.sequences import Sequence

__all__ = [
    "PROGRAMS",
    "CompiledProgram",
    "Part",
    "Plan",
    "Selector",
    "Sequence",
    "aggregate",
    "compile",
    "everything",
    "indices",
    "interpret",
    "make_plan",
    "select",
    "selector_width",
    "tokens",
    "where",
]

_FILES = {
    "catalogue": ("PROGRAMS",),
    "compiler": ("CompiledProgram", "compile"),
    "interpreter": ("interpret",),
    "language": (
        "aggregate",
        "everything",
        "indices",
        "select",
        "selector_width",
        "tokens",
        "where",
    ),
    "plan": ("Part", "Plan", "make_plan"),
    "selectors": ("Selector",),
    "sequences": ("Sequence",),
}


def __getattr__(name: str) -> Any:
    for file, names in _FILES.items():
        if name in names:
            return getattr(import_module(f"clearhead.programs.{file}"), name)
    raise AttributeError(f"module 'clearhead.programs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
