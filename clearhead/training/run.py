"""A run that was trained, loaded for use.

run = load_run("runs/substring-0001")
run.predict("abccab|cca")           {"answer": "yes", "probability": 0.999, …}
run.model, run.task, run.recipe     what it learned, of what, and how
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from clearhead.files.regular import BadFile, named_faults, shown
from clearhead.models.model import Config, Model
from clearhead.runtime import pick_device
from clearhead.shapes import check_choice, check_positive
from clearhead.training.checkpoint import (
    Checkpoint,
    digest_of,
    load,
    load_newest,
    places,
    step_of,
)
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.run_folder import CONFIG, RunFolder
from clearhead.training.tasks.task import DataConfig, Task

__all__ = ["Run", "config_kinds", "fill", "load_run", "read_recipe"]

KEYS = {"recipe", "data", "model", "training", "overfit", "examples", "asked"}


@dataclass(frozen=True)
class Run:
    """A trained model and all that belongs to it."""

    folder: RunFolder
    recipe: Recipe
    task: Task
    model: Model
    step: int

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the task, None if it has none."""
        return getattr(self.task, "tokenizer", None)

    def predict(self, text: str) -> dict[str, Any]:
        """The model's answer to one input."""
        return self.task.predict(self.model, text)

    def evaluate(self) -> dict[str, float]:
        """Measures on the whole validation part."""
        return self.task.evaluate(self.model)


def load_run(
    path: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    tell: Callable[[str], None] = lambda sentence: None,
) -> Run:
    """The run in a folder, with the weights of its best or its last checkpoint."""
    check_choice("which", which, ("best", "last"))
    folder = RunFolder(path)
    config = folder.config
    with named_faults(folder / CONFIG):
        recipe = read_recipe(config)
    found = _checkpoint(folder, which, tell)
    task = _open(recipe, config, folder)
    with named_faults(folder.path):
        model = task.model_type(recipe.model)
        fill(model, found.model)
    return Run(folder, recipe, task, model.to(pick_device(device)).eval(), found.step)


def read_recipe(config: Mapping[str, Any]) -> Recipe:
    """The recipe that config.json tells."""
    if odd := sorted(config.keys() ^ KEYS):
        word = "is not known" if odd[0] in config else "is missing"
        raise ValueError(f"{odd[0]!r:.80} {word}; it is no config of a run")
    if config["overfit"] is not None:
        check_positive(overfit=config["overfit"])
    return Recipe.from_dict(config, config_kinds())


def _open(recipe: Recipe, config: Mapping[str, Any], folder: RunFolder) -> Task:
    """The data of the run; they must be those that it learned from."""
    if not isinstance(recipe.data, DataConfig):
        raise BadFile(f"{shown(folder / CONFIG)}: data is of a kind that holds no data")
    task = recipe.data.open()
    if config["overfit"] is not None:
        task = task.overfit(config["overfit"])
    if task.fingerprint != config["examples"]:
        raise BadFile(
            f"the data of {shown(folder.path)} have changed since it was trained: bring back "
            f"those with the fingerprint {config['examples']!r:.14}…"
        )
    return task


@cache
def config_kinds() -> dict[str, type[Config]]:
    """Every config that a run can have, by its name."""
    from clearhead import models
    from clearhead.training import tasks

    found = [getattr(home, name) for home in (models, tasks) for name in home.__all__]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Config)]
    return {kind.__name__: kind for kind in (*kinds, TrainingConfig)}


def _checkpoint(folder: RunFolder, which: str, tell: Callable[[str], None]) -> Checkpoint:
    """The best checkpoint if it is good, else the newest good one."""
    run = digest_of(folder.config)
    newest = load_newest(folder.checkpoints, run, tell)
    if newest is None:
        raise BadFile(f"{shown(folder.path)} has no checkpoint yet; let it train a little longer")
    best = newest.state.get("best_step")
    if which == "last" or best in (None, newest.step):
        return newest
    for place in places(folder.checkpoints):
        if step_of(place) == best:
            try:
                return load(place, run)
            except (BadFile, OSError) as fault:
                tell(f"{fault}; the newest checkpoint is taken for the best")
    return newest


def fill(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Put weights into a model; all of them must be there, of the right shapes, and no others."""
    own = model.state_dict()
    if odd := sorted(own.keys() ^ tensors.keys()):
        word = "is missing" if odd[0] in own else "is not part of the model"
        raise ValueError(f"the weights do not fit the config: {odd[0]!r} {word}")
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            raise ValueError(
                f"the weights do not fit the config: {name!r} has shape "
                f"{tuple(tensors[name].shape)}, not {tuple(tensor.shape)}"
            )
    model.load_state_dict(dict(tensors))
