"""Faults planted at chosen moments of a run: a rank signals itself, or the program that started it.

As a program it runs `clearhead` with the faults of CLEARHEAD_TEST_FAULTS, for torchrun:

    CLEARHEAD_TEST_FAULTS='[["step", 5, 1, "SIGKILL", "self", 0]]' torchrun … planted_faults.py …

A fault: its place, its step, its rank, the signal, who gets it ("self" or "agent"), and in which
attempt, counted from 0. Places: "step", when a rank knows the gradient; "evaluate"; "sync", when a
file of a checkpoint is written; "save", when all are, but not yet in their place; "result", when
the last checkpoint is saved.

Each prints on stderr when its signal was sent, by the clock that all processes share.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

FAULTS = "CLEARHEAD_TEST_FAULTS"
SENT = "planted: "


def read_moments(text):
    """When each planted signal in these messages was sent: seconds of time.monotonic()."""
    lines = [line for line in text.splitlines() if line.startswith(SENT)]
    return [float(line.rpartition(" at ")[2]) for line in lines]


def plant_faults(faults, rank, attempt=0):
    """Change this process so that these faults happen."""
    from clearhead.runs import train_recipe
    from clearhead.training.loop import Training

    def reached(place, step):
        for where, when, who, name, target, which in faults:
            if (where, when, who, which) == (place, step, rank, attempt):
                print(f"{SENT}{name} at {time.monotonic()}", file=sys.stderr, flush=True)
                os.kill(os.getppid() if target == "agent" else os.getpid(), getattr(signal, name))
                if name == "SIGKILL" or target == "agent":
                    time.sleep(0.5)  # let the signal arrive at the other process

    update, measure, save, replace = Training.update, Training._measure, Training.save, os.replace
    make_result, sync = train_recipe._make_result, os.fsync
    saving = []

    def update_and_fail(self, plans):
        loss = update(self, plans)
        reached("step", self.state.step + 1)
        return loss

    def fail_and_measure(self):
        found = measure(self)
        reached("evaluate", self.state.step)
        return found

    def save_and_fail(self):
        saving.append(self.state.step)
        try:
            save(self)
        finally:
            saving.pop()

    def fail_and_replace(*names, **options):
        if saving:
            reached("save", saving[-1])
        return replace(*names, **options)

    def fail_and_sync(number):
        if saving:
            reached("sync", saving[-1])
        return sync(number)

    def fail_and_make_result(training, *rest):
        reached("result", training.state.step)
        return make_result(training, *rest)

    Training.update, Training._measure = update_and_fail, fail_and_measure
    Training.save, os.replace, os.fsync = save_and_fail, fail_and_replace, fail_and_sync
    train_recipe._make_result = fail_and_make_result


def main():
    from clearhead.__main__ import end_with_agent

    end_with_agent()
    names = ("RANK", "TORCHELASTIC_RESTART_COUNT")
    plant_faults(json.loads(os.environ.get(FAULTS, "[]")), *(int(os.environ[n]) for n in names))
    from parallel.forked_ranks import run_command

    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
