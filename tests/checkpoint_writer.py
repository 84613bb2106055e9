"""A process that holds the lock of a run and saves checkpoint after checkpoint, until it is killed.

python tests/checkpoint_writer.py runs/substring-0001

In the checkpoint of step n all weights are n, so a reader sees whether what it read is whole.
"""

import sys
from dataclasses import replace

import torch

from clearhead.runs.checkpoint import load_newest, remove_old, save
from clearhead.runs.folder import RunFolder


def main() -> None:
    run = RunFolder(sys.argv[1])
    with run.lock():
        newest = load_newest(run.checkpoints, run.identity)
        assert newest is not None
        step = newest.step
        while True:
            step += 1
            weights = {name: torch.full_like(x, step) for name, x in newest.model.items()}
            own = {"logged": step, "best_step": step, "finished": False}
            state = newest.state | own
            save(run.checkpoints, replace(newest, step=step, model=weights, state=state))
            remove_old(run.checkpoints, step, keep=2, best=step)


if __name__ == "__main__":
    main()
