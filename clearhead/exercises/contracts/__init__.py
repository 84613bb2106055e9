"""The exercises, one file each: formula, named mistakes, cases. In the order of a course:

attention.py         scaled dot-product attention
self_attention.py    a module with its own queries, keys and values
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.exercises.exercise import Exercise

__all__ = ["EXERCISES", "find_exercise"]

# Name of the exercise → (file, class), in reading order.
EXERCISES = {
    "attention": ("attention", "Attention"),
    "self_attention": ("self_attention", "SelfAttention"),
}


def find_exercise(name: str) -> "Exercise":
    """The exercise of this name; it imports torch."""
    if name not in EXERCISES:
        from clearhead.config import suggest

        raise ValueError(
            f"exercise must be one of {', '.join(EXERCISES)}, got {name!r}"
            f"{suggest(name, EXERCISES)}"
        )
    file, kind = EXERCISES[name]
    found: Exercise = getattr(import_module(f"clearhead.exercises.contracts.{file}"), kind)()
    return found
