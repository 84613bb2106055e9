"""A trained run, loaded for use.

    run = load_run("runs/substring-0001")
    run.predict("abccab|cca")           {"answer": "yes", "probability": 0.999, …}
    run.evaluate()                      {"val_loss": …, "val_accuracy": …}

Predictions need only the folder. `task`, for evaluations and pictures, reads the data, which must
be those that the run was trained on.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clearhead.config import Config
from clearhead.data.tokenizers import Tokenizer
from clearhead.files.reading import BadFile, prefix_errors, quote
from clearhead.models import build_model
from clearhead.models.model import Description, Model, load_weights
from clearhead.models.registry import check_config
from clearhead.runs.checkpoint import load_best, load_newest
from clearhead.runs.folder import CODE, CONFIG, RunFolder
from clearhead.runs.own_code import Kinds, config_kinds, find_kinds
from clearhead.runtime import pick_device
from clearhead.shapes import check_choice, check_positive
from clearhead.training.recipe import Recipe
from clearhead.training.state import State
from clearhead.training.tasks.task import Predictor, Task

KEYS = {"recipe", "data", "model", "training", "overfit", "examples", "asked"}  # of config.json


@dataclass(frozen=True, repr=False)
class Run:
    """A trained model and everything that belongs to it."""

    folder: RunFolder
    recipe: Recipe
    predictor: Predictor
    model: Model
    step: int  # of the checkpoint with these weights, the best or the last
    state: State  # of the last checkpoint

    def describe(self) -> Description:
        """Recipe, progress, best metrics and model, in a few lines."""
        state, steps = self.state, self.recipe.training.steps
        best = ", ".join(f"{name} {value:.4g}" for name, value in state.best_metrics.items())
        model = f"{type(self.model).__name__}, {self.model.n_parameters:,} parameters"
        return Description(
            f"{self.folder.path.name}, a run of {self.recipe.name}\n"
            f"  progress  step {state.step:,} of {steps:,}\n"
            f"  weights   of step {self.step:,}\n"
            f"  best      {best or 'not evaluated yet'}\n"
            f"  model     {model}"
        )

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of a model that reads one language; None for translators and pictures."""
        return self.predictor.tokenizer

    def predict(self, text: str, *, unknown: bool = False) -> dict[str, Any]:
        """The model's answer to one input. unknown: a model of words may write <unk>.

        "note", if there is one, says how the input differs from those the model was trained on.
        """
        predictor = self.predictor.allow_unknown() if unknown else self.predictor
        answer = predictor.predict(self.model, text)
        note = self.recipe.data.describe_unfamiliar(predictor, self.model, text)
        return answer if note is None else {**answer, "note": note}

    @cached_property
    def task(self) -> Task:
        """The task, with its data read, which must be those that the run was trained on."""
        config = self.folder.config
        try:
            task = self.recipe.data.open()
        except BadFile as fault:
            raise BadFile(f"{fault}{self._explain_path()}") from None
        if config["overfit"] is not None:
            task = task.overfit(config["overfit"])
        if task.fingerprint != config["examples"]:
            raise BadFile(
                f"the data of {quote(self.folder.path)} have changed since it was trained; "
                f"restore those with the fingerprint {config['examples']!r:.14}…"
            )
        return task

    def _explain_path(self) -> str:
        """A hint for an error: a relative path of data that is not found from here."""
        path = getattr(self.recipe.data, "path", None)
        if path is None or os.path.isabs(path) or os.path.exists(path):
            return ""
        return f" ({CONFIG} says data.path={path}, relative to where the run was started)"

    def evaluate(self) -> dict[str, float]:
        """Metrics on the whole validation part."""
        return self.task.evaluate(self.model)


def load_run(
    path: str | os.PathLike[str],
    *,
    which: str = "best",
    device: str = "auto",
    trust: bool = False,
    kinds: Sequence[type[Config]] = (),
    tell: Callable[[str], None] = lambda sentence: None,
) -> Run:
    """Load a run with the weights of its best or its last checkpoint.

    trust: if the folder has a recipe.py, execute it even if this user has not run it before
    (own_code.py). kinds: the classes that recipe.py defines; it is then not executed. tell: called
    with a sentence for each checkpoint that cannot be used.
    """
    check_choice("which", which, ("best", "last"))
    folder = RunFolder(path)
    known = find_kinds(folder, trust=trust, kinds=kinds)
    with prefix_errors(folder / CONFIG):
        recipe = read_recipe(folder.config, known)
    run = folder.identity
    newest = load_newest(folder.checkpoints, run, tell, with_optimizer=False)
    if newest is None:
        raise BadFile(f"{quote(folder.path)} has no checkpoint yet; let it train a little longer")
    with prefix_errors(folder.checkpoints):
        state = State.from_dict({**newest.state, "step": newest.step})
    found = newest
    if which == "best" and state.best_step not in (None, newest.step):
        found = load_best(folder.checkpoints, run, state.best_step, tell) or newest
    predictor = recipe.data.load_predictor(folder.path)
    predictor.check(recipe.model, folder.path)
    with prefix_errors(folder.path):
        check_config(recipe.model, found.model)
        model = build_model(recipe.model)
        load_weights(model, found.model)
    return Run(folder, recipe, predictor, model.to(pick_device(device)).eval(), found.step, state)


def read_recipe(config: Mapping[str, Any], kinds: Kinds | None = None) -> Recipe:
    """The recipe in the content of a config.json; kinds: the classes it may name."""
    if odd := sorted((config.keys() - {CODE}) ^ KEYS):
        word = "is not known" if odd[0] in config else "is missing"
        raise ValueError(f"{odd[0]!r:.80} {word}; it is not the config of a run")
    if config["overfit"] is not None:
        check_positive(overfit=config["overfit"])
    return Recipe.from_dict(config, config_kinds() if kinds is None else kinds)
