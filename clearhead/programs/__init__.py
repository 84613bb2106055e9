"""Programs compiled into weights: what a transformer computes, written down and proved by running.

    length = selector_width(everything)
    reverse = aggregate(select(indices, length - 1 - indices, "=="), tokens)
    compile(reverse, "abc", max_len=5)("abca")            → ['a', 'c', 'b', 'a']

In reading order:

language.py      the language: tokens, indices, select, aggregate, selector_width
interpreter.py   what a program means: interpret(program, sequence)
library.py       programs worth reading: reverse, sort, balanced brackets, induction, …
catalogue.py     the same by name, with a size to compile them for
sequences.py     the sequences of the language and their arithmetic
selectors.py     its selectors
compiler.py      compile(program, vocabulary, max_len): a model whose weights are the program
plan.py          the layers of a program, with names, sizes and an error bound, before any weight
planner.py       what the residual stream stores, and what needs no layer
heads.py         which head serves which selector
clauses.py       any combination of selectors as a sum of bilinear forms
parts.py         heads and hidden units as lists of sentences, and their errors
variables.py     directions of the residual stream, and what is read from them
weights.py       from sentences to the weights of a SequenceClassifier

Names are imported when they are used, and only weights.py imports torch, so that the command line
can list and show programs at once.
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
