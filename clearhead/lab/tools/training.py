"""Train a recipe for an experiment, which needs the model and keeps no run."""

import signal
from tempfile import TemporaryDirectory
from typing import cast

import torch

from clearhead.models import SequenceClassifier
from clearhead.runs import Interrupted, RunResult, train
from clearhead.training import Recipe, with_changes
from clearhead.training.recipes.substring import substring
from clearhead.training.tasks.substrings import SubstringTask

SUBSTRING_STEPS = 1400  # of the recipe's 2,200


def train_temporarily(
    recipe: Recipe, device: torch.device | str, threads: int | str = "auto"
) -> RunResult:
    """Train in a temporary folder; `trained` of the result is the run, with its model and task.

    Random state and number of threads are afterwards as before. A signal ends the program and is
    not reported as a stopped run, because nothing is left that could be resumed.
    """
    n_threads = torch.get_num_threads()
    with TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        try:
            return train(recipe, folder, device=str(device), threads=threads)
        except Interrupted as stop:
            if stop.number == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + stop.number) from None
        finally:
            torch.set_num_threads(n_threads)


def train_substring_model(
    seed: int, full: bool, device: torch.device | str = "cpu"
) -> tuple[SequenceClassifier, SubstringTask]:
    """Train the recipe `substring` with Toeplitz positions, shortened or whole."""
    changes = ["model.positions=toeplitz", f"training.seed={seed}"]
    short = [f"training.{name}={SUBSTRING_STEPS}" for name in ("steps", "eval_every", "save_every")]
    recipe = with_changes(substring(), changes if full else [*changes, *short])
    run = train_temporarily(recipe, device).trained
    return cast(SequenceClassifier, run.model), cast(SubstringTask, run.task)
