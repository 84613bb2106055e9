"""Runs on a disk. Read in this order:

folder.py          the folder of a run and its files
description.py     the facts about a run that a list of runs shows
following.py       what a run has written since one last looked
differences.py     what differs between two configs
checkpoint.py      everything a run needs to resume, written whole and checked when read
own_code.py        user-defined classes: their file in the run folder, executed only if trusted
storage.py         the storage that the training loop writes to
sharding.py        the same for processes that share one model
resume.py          which run is resumed, and whether it is still the same run
signals.py         Ctrl-C and SIGTERM stop a run after it is saved
train_recipe.py    train a recipe in a run folder
run.py             a trained run, loaded for use

Names are imported when they are used, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.files.lock import Busy
    from clearhead.runs.checkpoint import NoGoodCheckpoint
    from clearhead.runs.folder import RunFolder, find_runs
    from clearhead.runs.own_code import NotTrusted
    from clearhead.runs.run import Run, load_run
    from clearhead.runs.signals import Interrupted
    from clearhead.runs.train_recipe import Finished, RunResult, train

__all__ = [
    "Busy",
    "Finished",
    "Interrupted",
    "NoGoodCheckpoint",
    "NotTrusted",
    "Run",
    "RunFolder",
    "RunResult",
    "find_runs",
    "load_run",
    "train",
]

_HOMES = {
    "files.lock": ["Busy"],
    "runs.checkpoint": ["NoGoodCheckpoint"],
    "runs.folder": ["RunFolder", "find_runs"],
    "runs.own_code": ["NotTrusted"],
    "runs.run": ["Run", "load_run"],
    "runs.signals": ["Interrupted"],
    "runs.train_recipe": ["Finished", "RunResult", "train"],
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"clearhead.{home}"), name)
    raise AttributeError(f"clearhead.runs has no {name!r}")
