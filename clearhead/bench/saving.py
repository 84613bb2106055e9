"""What a checkpoint costs a training: waiting for it, or writing it in the background.

The model is a GPT of ten million parameters, for which the optimizer keeps twice as many numbers.
The save comes after the first of the measured steps: the others can go on while it is written.
"""

import tempfile
from functools import partial
from pathlib import Path

from clearhead.bench.row import Row, Rows, Work
from clearhead.bench.training import draw_text
from clearhead.runs.storage import DiskStorage
from clearhead.timing import best_seconds
from clearhead.training import find_recipe, with_changes
from clearhead.training.loop import Training

STEPS = 10  # between two saves
MODEL = ("model.d_model=384", "model.n_layers=6", "model.n_heads=6", "data.context=64")
TRAINING = ("training.optimizer=adamw", "training.accumulate=1", "training.workers=1")
N_CHARACTERS = 100_000
MODES = {"waits": False, "background": True}  # whether a save is written in the background


def saving(seconds: float, changes: tuple[str, ...] = (*MODEL, *TRAINING)) -> Rows:
    """Steps and a save, against the same steps without one."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(draw_text(N_CHARACTERS), encoding="utf-8")
        changes = (*changes, f"data.path={text}")
        runs = {name: _prepare(Path(folder) / name, changes, mode) for name, mode in MODES.items()}
        works: dict[str, Work] = {
            name: partial(_make_steps, training, has_save=True) for name, training in runs.items()
        }
        works["none"] = partial(_make_steps, runs["waits"], has_save=False)
        # Without this wait, the write in the background would slow down the next measurement.
        works["finish"] = runs["background"].storage.finish
        best = best_seconds(works, seconds=seconds, rounds=3)
    without = (f"{STEPS} steps without a save", best["none"])
    return [
        Row(f"{STEPS} steps, and a save that is waited for", best["waits"], *without),
        Row(f"{STEPS} steps, and a save in the background", best["background"], *without),
    ]


def _prepare(folder: Path, changes: tuple[str, ...], in_background: bool) -> Training:
    """A run before its first step, in a folder of its own."""
    recipe = with_changes(find_recipe("shakespeare-char"), list(changes))
    folder.mkdir()
    storage = DiskStorage(folder, keep=2, in_background=in_background)
    storage.describe(recipe.to_dict(), {})
    return Training(recipe, recipe.data.open(), storage)


def _make_steps(training: Training, *, has_save: bool) -> None:
    """Make STEPS steps; has_save: with a save after the first one."""
    for number in range(STEPS):
        training.update(training.next_plans())
        training.state.step += 1
        training.state.logged = training.state.step
        if has_save and number == 0:
            training.save()
