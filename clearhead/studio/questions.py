"""The questions that the worker answers: name → the function of views/ that answers it.

A function gets the Sources and the arguments of the question. It returns an answer, or a generator
of answers for a stream. The worker interleaves streams, so between two answers of a stream any
other question may run: a generator must not leave a model changed while it waits.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from clearhead.config import suggest

QUESTIONS = {
    "start_text": "generation.start_text",
    "show_next": "generation.show_next",
    "expand": "generation.expand",
    "write": "generation.write",
    "read_lens": "lens.read_lens",
    "list_writers": "completions.list_writers",
    "complete": "completions.complete",
    "complete_chat": "completions.complete_chat",
    "attend": "text.attend",
    "find_tokens": "tokens.find_tokens",
    "measure_heads": "effects.measure_heads",
    "sweep_patches": "effects.sweep_patches",
    "read_layers": "effects.read_layers",
    "attribute": "effects.attribute",
    "list_models": "models.list_models",
    "list_pictures": "pictures.list_pictures",
    "find_mistakes": "pictures.find_mistakes",
    "look_at_picture": "pictures.look_at_picture",
    "cover_picture": "pictures.cover_picture",
    "measure_covering": "pictures.measure_covering",
    "explain_patch": "pictures.explain_patch",
    "translate": "translation.translate",
    "explain_alignment": "translation.explain_alignment",
    "search_beams": "translation.search_beams",
    "add_run": "models.add_run",
    "describe_recipe": "recipes.describe_recipe",
    "summarise_weights": "weights.summarise_weights",
    "run_smallest": "smallest.run_smallest",
    "train_smallest": "smallest.train_smallest",
    "show_positions": "positions.show_positions",
    "compare_kernels": "kernels.compare_kernels",
    "measure_kernels": "kernels.measure_kernels",
}


@cache
def find_question(name: str) -> Callable[..., Any]:
    """The function that answers the question of this name."""
    if name not in QUESTIONS:
        raise KeyError(f"there is no question {name[:80]!r}{suggest(name, QUESTIONS)}")
    file, _, function = QUESTIONS[name].partition(".")
    found: Callable[..., Any] = getattr(import_module(f"clearhead.studio.views.{file}"), function)
    return found
