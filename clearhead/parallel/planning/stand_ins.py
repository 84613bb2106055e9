"""The task of a recipe, for planning; the data are opened only if the model's sizes depend on them.

A plan needs the shapes of a batch, not its examples. Where the model's sizes are all given, made-up
examples of the same shapes take the place of texts and pictures that may not be here yet:

    clearhead plan shakespeare-char                             opens the plays, which decide the
                                                                size of the vocabulary
    clearhead plan shakespeare-char model.vocab_size=50257      opens nothing
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from clearhead.config import UNDECIDED
from clearhead.data.images import Pictures
from clearhead.files.reading import BadFile
from clearhead.layers.patches import read_size
from clearhead.training.recipe import Recipe
from clearhead.training.tasks.characters import CharacterData, CharacterTask
from clearhead.training.tasks.dialogue import DialogueData, DialogueTask
from clearhead.training.tasks.pictures import PictureData, PictureTask
from clearhead.training.tasks.task import Task


def open_task(recipe: Recipe) -> tuple[Task, Any]:
    """The task of a recipe, maybe with made-up examples, and the complete config of its model."""
    make_up = _MAKERS.get(type(recipe.data))
    undecided = recipe.model.undecided
    if make_up is not None and not undecided:
        task = make_up(recipe)
    else:
        try:
            task = recipe.data.open()
        except BadFile as fault:
            if make_up is None:
                raise
            sizes = " ".join(f"model.{name}=…" for name in undecided)
            raise BadFile(f"{fault}; to plan without it, give {sizes}") from None
    config = task.complete(recipe.model)
    given = getattr(recipe.model, "vocab_size", UNDECIDED)
    if given is not UNDECIDED:  # not the number of made-up words
        config = dataclasses.replace(config, vocab_size=given)
    return task, config


def _make_characters(recipe: Recipe) -> Task:
    """A text of as many windows as a batch has."""
    given: Any = recipe.data
    data = dataclasses.replace(given, path=None, byte_pairs=None)
    n_train = (recipe.training.batch_size + 1) * data.context
    n = n_train / (1 - data.validation) + (data.context + 2) / data.validation
    return CharacterTask(data, "a" * math.ceil(n))


def _make_dialogue(recipe: Recipe) -> Task:
    """Speeches that each fill a row."""
    given: Any = recipe.data
    data = dataclasses.replace(given, path=None)
    n = math.ceil((recipe.training.batch_size + 1) / (1 - data.validation)) + 1
    words = " ".join(["word"] * data.context)
    return DialogueTask(data, [f"ME:\n{words} {i}" for i in range(n)])


def _make_pictures(recipe: Recipe) -> Task:
    """A batch of grey noise."""
    data: Any = recipe.data
    model: Any = recipe.model
    n, size = recipe.training.batch_size, read_size("image_size", model.image_size)
    noise = torch.arange(256, dtype=torch.uint8).repeat(math.ceil(size[0] * size[1] / 256) + 1)
    images = noise[: size[0] * size[1]].view(1, 1, *size).expand(n, model.channels, *size)
    names = tuple(map(str, range(model.n_classes)))
    pictures = Pictures(images.contiguous(), torch.zeros(n, dtype=torch.long), names)
    return PictureTask(data, pictures, pictures)


_MAKERS: dict[type, Callable[[Recipe], Task]] = {
    CharacterData: _make_characters,
    DialogueData: _make_dialogue,
    PictureData: _make_pictures,
}
