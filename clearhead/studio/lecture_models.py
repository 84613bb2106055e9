"""The built-in models: trained by our own recipes, small enough to be part of the package.

    python -m clearhead.studio.lecture_models        trains them all again, in about five minutes

They are ordinary run folders, without the state of the optimizer. `clearhead studio --demo` opens
them, so the page is useful at once, with nothing trained and nothing downloaded.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from clearhead.runs import RunFolder, train
from clearhead.runs.checkpoint import load_best, load_newest, save
from clearhead.studio.listing import LECTURE
from clearhead.training import find_recipe, with_changes

MODELS = {  # name → recipe and its changes: smaller models, trained longer
    "substring": ["substring"],
    "shakespeare": [
        "shakespeare-char",
        "model.d_model=48",
        "model.n_layers=2",
        "training.steps=4000",
        "training.eval_every=1000",
        "training.save_every=1000",
    ],
    "digits": ["vit-digits", "model.d_model=48", "model.n_layers=2", "training.steps=2400"],
    "dates": [
        "translate-gru",
        "model.d_hidden=48",
        "model.d_embedding=16",
        "training.steps=3000",
    ],
}


def train_model(name: str) -> Path:
    """Train a built-in model and put its run folder in place."""
    recipe, *changes = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        result = train(with_changes(find_recipe(recipe), changes), folder, tell=print)
        _strip(RunFolder(result.run))
        (result.run / ".lock").unlink(missing_ok=True)
        target = LECTURE / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(result.run, target)
    return target


def _strip(run: RunFolder) -> None:
    """Keep only the best weights, as a checkpoint without the state of the optimizer."""
    newest = load_newest(run.checkpoints, run.identity, print)
    assert newest is not None
    step = newest.state.get("best_step")
    best = load_best(run.checkpoints, run.identity, step, print) if step else None
    best = best or newest
    shutil.rmtree(run.checkpoints)
    run.checkpoints.mkdir()
    state = {**newest.state, "best_step": best.step}
    save(run.checkpoints, replace(best, optimizer={}, state=state))


def main() -> None:
    """Train all built-in models."""
    for name in MODELS:
        print(f"{name}: {train_model(name)}")


if __name__ == "__main__":
    main()
