"""From examples to weights. Read in this order:

losses.py          what a wrong prediction costs
losses_fast.py     the vocabulary loss a few rows at a time
schedule.py        how the learning rate goes up and down
optimizer.py       how gradients become steps
answerers/         how a trained model is asked, and what its numbers mean
tasks/             what is predicted from what, and how well
ngrams.py          how well counting predicts, beside which every language model is shown
recipe.py          a run as a value, and changes of it
recipes/           complete named runs
loop.py            the one training loop
learner.py         the gradient of a step, by one worker or several side by side
place.py           how far a run has come, and what it tells
finite.py          no NaN enters a run
stopping.py        signals end a run after it is saved
checkpoint.py      a run's state on the disk: whole, checked, or not there
run_folder.py      all that a run leaves behind
starting.py        a new run, or one that goes on
run.py             a run that was trained, loaded for use

Names are imported when they are used, so that the command line can list the recipes at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.training.finite import NotFinite
    from clearhead.training.loop import Interrupted, Progress, RunResult, train
    from clearhead.training.losses import (
        class_loss,
        class_token_loss,
        mean_cross_entropy,
        next_token_loss,
    )
    from clearhead.training.losses_fast import vocabulary_loss
    from clearhead.training.optimizer import Optimizer
    from clearhead.training.recipe import Recipe, TrainingConfig, with_changes
    from clearhead.training.recipes import find_recipe
    from clearhead.training.run import Run, load_run
    from clearhead.training.schedule import WarmupCosine, WarmupLinear, WarmupStable

__all__ = [
    "Interrupted",
    "NotFinite",
    "Optimizer",
    "Progress",
    "Recipe",
    "Run",
    "RunResult",
    "TrainingConfig",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStable",
    "class_loss",
    "class_token_loss",
    "find_recipe",
    "load_run",
    "mean_cross_entropy",
    "next_token_loss",
    "train",
    "vocabulary_loss",
    "with_changes",
]

_HOMES = {
    "finite": ["NotFinite"],
    "loop": ["Interrupted", "Progress", "RunResult", "train"],
    "losses": ["class_loss", "class_token_loss", "mean_cross_entropy", "next_token_loss"],
    "losses_fast": ["vocabulary_loss"],
    "optimizer": ["Optimizer"],
    "recipe": ["Recipe", "TrainingConfig", "with_changes"],
    "recipes": ["find_recipe"],
    "run": ["Run", "load_run"],
    "schedule": ["WarmupCosine", "WarmupLinear", "WarmupStable"],
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"clearhead.training.{home}"), name)
    raise AttributeError(f"clearhead.training has no {name!r}")
