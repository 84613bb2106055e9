"""What learning is: from examples to weights. Read in this order:

losses.py          what a wrong prediction costs
loss_inputs.py     the checks of predictions and targets
losses_fast.py     the vocabulary loss a few rows at a time
metrics.py         how often a prediction is right
schedule.py        the learning rate of every step
optimizer.py       how gradients become steps
gradient.py        the gradient of a step, by one worker or several side by side
chunks.py          the gradient of a step in chunks, the same on any number of processes
group.py           what several processes do together; here, one alone
state.py           the state of a run, and the order of its data
loop.py            the training loop
storage.py         where the loop keeps metrics, samples and snapshots
progress.py        what the loop reports: metrics, speed, time left
tasks/             what is predicted from what, how well, and how the trained model is used
recipe.py          a run as a value, and changes of it
recipes/           complete named runs

A run on a disk – its folder, checkpoints, resuming, `train` and `load_run` – is in clearhead/runs;
the names of its public door can be imported from here, too. All names are imported when they are
used, so that the command line can list the recipes at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.training.gradient import NotFinite
    from clearhead.training.loop import Training
    from clearhead.training.losses import (
        class_loss,
        class_token_loss,
        mean_cross_entropy,
        next_token_loss,
    )
    from clearhead.training.losses_fast import vocabulary_loss
    from clearhead.training.metrics import accuracy
    from clearhead.training.optimizer import Optimizer
    from clearhead.training.progress import Progress
    from clearhead.training.recipe import Recipe, TrainingConfig, with_changes
    from clearhead.training.recipes import find_recipe
    from clearhead.training.schedule import WarmupCosine, WarmupLinear, WarmupStable

__all__ = [
    "Interrupted",
    "NotFinite",
    "Optimizer",
    "Progress",
    "Recipe",
    "Run",
    "RunResult",
    "Training",
    "TrainingConfig",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStable",
    "accuracy",
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
    "clearhead.training.metrics": ["accuracy"],
    "clearhead.training.gradient": ["NotFinite"],
    "clearhead.training.loop": ["Training"],
    "clearhead.training.losses": [
        "class_loss",
        "class_token_loss",
        "mean_cross_entropy",
        "next_token_loss",
    ],
    "clearhead.training.losses_fast": ["vocabulary_loss"],
    "clearhead.training.optimizer": ["Optimizer"],
    "clearhead.training.progress": ["Progress"],
    "clearhead.training.recipe": ["Recipe", "TrainingConfig", "with_changes"],
    "clearhead.training.recipes": ["find_recipe"],
    "clearhead.training.schedule": ["WarmupCosine", "WarmupLinear", "WarmupStable"],
    "clearhead.runs": ["Interrupted", "Run", "RunResult", "load_run", "train"],
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"clearhead.training has no {name!r}")
