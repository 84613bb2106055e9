"""Complete named runs: `clearhead train NAME`. Each is a function that returns a Recipe.

substring.py       a needle in a haystack
shakespeare.py     Shakespeare, character by character
dialogue.py        speeches, word by word
translate.py       dates in words and digits, by both translators
vit_digits.py      drawn digits
vit_cifar10.py     photographs, by two Vision Transformers
parity.py          a start for a recipe of your own: `clearhead recipes new FILE`
smallest.py        identity, first, unique; two of them as in the published exercise

A model size that depends on the data, such as the vocabulary size, is UNDECIDED in a recipe. It is
filled in when the data are read (Task.complete).
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clearhead.config import find_nearest

if TYPE_CHECKING:
    from clearhead.training.recipe import Recipe

__all__ = ["RECIPES", "find_recipe", "read_source", "read_start"]


class Listed(NamedTuple):
    """A recipe in the list, with what was measured; docs/measurements.md says on which machine."""

    file: str
    about: str  # what it learns
    minutes: str  # the measured time; CPU: CPU time, because other programs ran
    result: str  # on validation or test examples


# A table, so that they are listed without importing torch.
RECIPES = {
    "substring": Listed(
        "substring", "whether a needle occurs in a haystack", "143 s CPU", "99.8–100.0 % right"
    ),
    "shakespeare-char": Listed(
        "shakespeare",
        "to write like Shakespeare, character by character",
        "17.5 s",
        "loss 1.790–1.805",
    ),
    "vit-digits": Listed(
        "vit_digits", "which digit is drawn; needs no download", "54 s CPU", "98.55 % right"
    ),
    "vit-cifar10": Listed(
        "vit_cifar10",
        "what a photograph shows, by convolutions and attention",
        "10 min 19 s",
        "87.9 % right",
    ),
    "vit-cifar10-plain": Listed(
        "vit_cifar10",
        "the same by the textbook's Vision Transformer",
        "2×30 min CPU",
        "80.6 % right",
    ),
    "dialogue": Listed(
        "dialogue", "to write speeches of a play, word by word", "2.6 min CPU", "perplexity 65.1"
    ),
    "translate-gru": Listed(
        "translate", "to translate dates, by two GRUs with attention", "38 s CPU", "100 % exact"
    ),
    "translate-transformer": Listed(
        "translate", "to translate dates, by encoder and decoder", "95 s CPU", "100 % exact"
    ),
    "identity": Listed(
        "smallest", "to repeat each token, by the smallest transformer", "1–2 s CPU", "loss 9e-9"
    ),
    "first": Listed(
        "smallest",
        "to repeat the first token, by the smallest transformer",
        "1–2 s CPU",
        "loss 2e-12",
    ),
    "unique": Listed(
        "smallest", "which tokens occur once, by the smallest transformer", "1–2 s CPU", "loss 1e-8"
    ),
    "identity-sgd": Listed(
        "smallest",
        "to repeat each token, by single steps of SGD, as published",
        "12–14 s CPU",
        "last loss 4e-4",
    ),
    "first-sgd": Listed(
        "smallest",
        "to repeat the first token, by single steps of SGD, as published",
        "12–14 s CPU",
        "last loss 9e-5",
    ),
}


def find_recipe(name: str) -> "Recipe":
    """Build the recipe with this name."""
    check_name(name)
    module = import_module(f"clearhead.training.recipes.{RECIPES[name].file}")
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
    return _read_file(RECIPES[name].file)


def read_start(name: str) -> str:
    """The text of the start file for a user's recipe, whose function has this name."""
    return (
        _read_file("parity").replace("def parity(", f"def {name}(").replace('"parity"', f'"{name}"')
    )


def _read_file(stem: str) -> str:
    return (Path(__file__).parent / f"{stem}.py").read_text(encoding="utf-8")
