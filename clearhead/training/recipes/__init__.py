"""Complete named runs: `clearhead train NAME`. Each is a function that returns a Recipe.

substring.py       a needle in a haystack
shakespeare.py     Shakespeare, character by character
dialogue.py        speeches, word by word
translate.py       dates in words and digits, by both translators
vit_digits.py      drawn digits
vit_cifar10.py     photographs, by two Vision Transformers
smallest.py        identity, first, unique; two of them as in the published exercise

A size of the model that the data decide, such as the vocabulary size, is UNDECIDED in a recipe; it
is filled in when the data are opened (Task.complete).
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.config import find_nearest

if TYPE_CHECKING:
    from clearhead.training.recipe import Recipe

__all__ = ["RECIPES", "find_recipe", "read_source"]


# name: (file, what it learns). A table, so that they are listed without importing torch.
RECIPES = {
    "substring": ("substring", "whether a needle occurs in a haystack"),
    "shakespeare-char": ("shakespeare", "to write like Shakespeare, character by character"),
    "vit-digits": ("vit_digits", "which digit is drawn; needs no download"),
    "vit-cifar10": ("vit_cifar10", "what a photograph shows, by convolutions and attention"),
    "vit-cifar10-plain": ("vit_cifar10", "the same by the textbook's Vision Transformer"),
    "dialogue": ("dialogue", "to write speeches of a play, word by word"),
    "translate-gru": ("translate", "to translate dates, by two GRUs with attention"),
    "translate-transformer": ("translate", "to translate dates, by encoder and decoder"),
    "identity": ("smallest", "to repeat each token, by the smallest transformer"),
    "first": ("smallest", "to repeat the first token, by the smallest transformer"),
    "unique": ("smallest", "which tokens occur once, by the smallest transformer"),
    "identity-sgd": ("smallest", "to repeat each token, by single steps of SGD, as published"),
    "first-sgd": ("smallest", "to repeat the first token, by single steps of SGD, as published"),
}


def find_recipe(name: str) -> "Recipe":
    """Build the recipe with this name."""
    check_name(name)
    module = import_module(f"clearhead.training.recipes.{RECIPES[name][0]}")
    recipe: Recipe = getattr(module, name.replace("-", "_"))()
    return recipe


def check_name(name: str) -> None:
    """Refuse a name that is not in the table, and suggest the nearest."""
    if name not in RECIPES:
        near = find_nearest(name, RECIPES)
        raise ValueError(f"there is no recipe {name!r:.80}; the nearest is {near!r}")


def read_source(name: str) -> str:
    """The text of a recipe's file, to read or to copy."""
    check_name(name)
    return (Path(__file__).parent / f"{RECIPES[name][0]}.py").read_text(encoding="utf-8")
