"""The settings of a recipe, for a form: name, type, value, meaning.

describe_recipe    the sections of a recipe and their fields
"""

import inspect
import re
import typing
from importlib import import_module
from typing import Any

from clearhead.config import Config, describe_type, write_text
from clearhead.layers.feed_forward import ACTIVATIONS
from clearhead.layers.norm import NORMS
from clearhead.positions.by_name import SCHEMES
from clearhead.studio.sources import Sources
from clearhead.training import find_recipe
from clearhead.training.optimizer import OPTIMIZERS
from clearhead.training.recipe import PRECISIONS
from clearhead.training.recipes import RECIPES
from clearhead.training.schedule import SCHEDULES
from clearhead.training.tasks.sequences import RULES

CHOICES: dict[str, tuple[str, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "norm": NORMS,
    "optimizer": tuple(OPTIMIZERS),
    "positions": tuple(SCHEMES),
    "precision": PRECISIONS,
    "rule": tuple(RULES),
    "schedule": tuple(SCHEDULES),
}
SECTIONS = ("training", "model", "data")  # in the order of the form: changed most often first
# A docstring explains fields in sentences, "name: words; name: words.", or in rows, "name    words"
# with further lines indented, as TrainingConfig does.
PHRASE = re.compile(r"\b(\w+): ([^;]+?)(?:;|\.(?:\s|$))")
ROW = re.compile(r"^(\w+) {2,}(.+(?:\n {8,}.+)*)", re.MULTILINE)


def describe_recipe(sources: Sources, name: str) -> dict[str, Any]:
    """All settings of a recipe: "sections", each with its "fields" and their values."""
    recipe, listed = find_recipe(name), RECIPES[name]
    sections = [_describe_section(each, recipe.sections[each]) for each in SECTIONS]
    function = getattr(
        import_module(f"clearhead.training.recipes.{listed.file}"), name.replace("-", "_")
    )
    python = [
        "from clearhead.training import find_recipe, train, with_changes",
        f"recipe = with_changes(find_recipe({name!r}), [])",
        "result = train(recipe, 'runs')",
    ]
    return {
        "name": name,
        "about": listed.about,
        "minutes": listed.minutes,
        "result": listed.result,
        "notes": inspect.getdoc(function) or "",
        "sections": sections,
        "python": "\n".join(python),
    }


def _describe_section(section: str, config: Config) -> dict[str, Any]:
    kind = type(config)
    text, hints = inspect.getdoc(kind) or "", typing.get_type_hints(kind)
    rows = dict(ROW.findall(text))
    meanings = {**dict(PHRASE.findall(text)), **rows}
    fields = [
        {
            "name": f"{section}.{name}",
            "type": describe_type(hints[name]),
            "value": write_text(value),
            "choices": _list_choices(name, hints[name]),
            "about": " ".join(meanings.get(name, "").split()),
            "is_decided_by_data": name in config.undecided,
        }
        for name, value in config.to_dict().items()
    ]
    about = "" if rows else " ".join(text.split())
    return {"name": section, "kind": kind.__name__, "about": about, "fields": fields}


def _list_choices(name: str, hint: Any) -> tuple[str, ...] | None:
    """The values to choose from; None if any text can be typed."""
    if hint is bool:
        return ("true", "false")
    if hint == bool | None:
        return ("none", "true", "false")
    return CHOICES.get(name) if hint is str else None
