"""A run that was trained, loaded for use.

    run = load_run("runs/substring-0001")
    run.predict("abccab|cca")           {"answer": "yes", "probability": 0.999, …}
    run.evaluate()                      {"val_loss": …, "val_accuracy": …}

The folder is all that a model needs to answer. The data are read when the task is asked for, to
measure or to draw, and then they must be those that the run learned from.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from clearhead.config import Config
from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.models import build_model
from clearhead.models.model import Model
from clearhead.renamed import rename_members
from clearhead.runs.checkpoint import Checkpoint, load, load_newest, places, step_of
from clearhead.runs.folder import CONFIG, RunFolder
from clearhead.runtime import pick_device
from clearhead.shapes import check_choice, check_positive
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.storage import load_weights
from clearhead.training.tasks.task import Predictor, Task

KEYS = {"recipe", "data", "model", "training", "overfit", "examples", "asked"}  # of config.json


@rename_members(answerer="predictor")
@dataclass(frozen=True)
class Run:
    """A trained model and all that belongs to it."""

    folder: RunFolder
    recipe: Recipe
    predictor: Predictor
    model: Model
    step: int

    @property
    def tokenizer(self) -> Tokenizer | None:
        """That of a model that reads one language; None for translators and pictures."""
        return self.predictor.tokenizer

    def predict(self, text: str) -> dict[str, Any]:
        """The model's answer to one input."""
        return self.predictor.predict(self.model, text)

    @cached_property
    def task(self) -> Task:
        """What it learned; the data are read, and must be those that it learned from."""
        config = self.folder.config
        try:
            task = self.recipe.data.open()
        except BadFile as fault:
            raise BadFile(f"{fault}{self._seen_from()}") from None
        if config["overfit"] is not None:
            task = task.overfit(config["overfit"])
        if task.fingerprint != config["examples"]:
            raise BadFile(
                f"the data of {quote(self.folder.path)} have changed since it was trained: bring "
                f"back those with the fingerprint {config['examples']!r:.14}…"
            )
        return task

    def _seen_from(self) -> str:
        """Where data are looked for whose path is relative."""
        path = getattr(self.recipe.data, "path", None)
        if path is None or os.path.isabs(path) or os.path.exists(path):
            return ""
        return f" ({CONFIG} says data.path={path}, seen from the folder where the run was started)"

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
    with prefix_errors(folder / CONFIG):
        recipe = read_recipe(folder.config)
    found = read_checkpoint(folder, which, tell)
    predictor = recipe.data.load_predictor(folder.path)
    predictor.check(recipe.model, folder.path)
    with prefix_errors(folder.path):
        model = build_model(recipe.model)
        load_weights(model, found.model)
    return Run(folder, recipe, predictor, model.to(pick_device(device)).eval(), found.step)


def read_recipe(config: Mapping[str, Any]) -> Recipe:
    """The recipe that config.json tells."""
    if odd := sorted(config.keys() ^ KEYS):
        word = "is not known" if odd[0] in config else "is missing"
        raise ValueError(f"{odd[0]!r:.80} {word}; it is no config of a run")
    if config["overfit"] is not None:
        check_positive(overfit=config["overfit"])
    return Recipe.from_dict(config, config_kinds())


@cache
def config_kinds() -> dict[str, type[Config]]:
    """Every config that a run can have, by its name."""
    from clearhead import models
    from clearhead.training import tasks

    found = [getattr(home, name) for home in (models, tasks) for name in home.__all__]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, Config)]
    return {kind.__name__: kind for kind in (*kinds, TrainingConfig)}


def read_checkpoint(folder: RunFolder, which: str, tell: Callable[[str], None]) -> Checkpoint:
    """The last checkpoint that is good, or the best; if that one is damaged, the last."""
    run = folder.identity
    newest = load_newest(folder.checkpoints, run, tell)
    if newest is None:
        raise BadFile(f"{quote(folder.path)} has no checkpoint yet; let it train a little longer")
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
