"""Kill random processes of real runs at random moments, and compare what the runs leave behind.

    python tests/parallel/many_kills.py --kills 20 --seed 0
    python tests/parallel/many_kills.py --mode fsdp --launch

Kills one of the ranks, or torchrun itself (with --launch: clearhead launch); then the same command
is started again. Each run must end with the bytes of a run that nobody kills. Minutes, so no test
runs it.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from os import kill
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from parallel.real_agent import Agent
from parallel.small_processes import count_lines, list_hashes, make_command

from clearhead.runs import find_runs


def describe_moment(out):
    """What the run is doing: before its first step, saving, or training."""
    runs = find_runs(out, "substring")
    if not runs or not (runs[-1] / "metrics.jsonl").exists():
        return "before the first step"
    return "during a save" if list(runs[-1].checkpoints.glob("*.part")) else "while it trains"


def choose_moment(agent, out, randomly, longest):
    """Wait for a random time: every third time since the start; else since the first steps that
    are made after the start, and half of these times then for a checkpoint that is being written.
    """
    kind, before = randomly.choice(["start", "steps", "save"]), count_lines(out)
    limit = time.monotonic() + 60.0
    while kind != "start" and count_lines(out) == before and time.monotonic() < limit:
        if agent.process.poll() is not None:
            return
        time.sleep(0.01)
    time.sleep(randomly.uniform(0.0, longest if kind == "start" else 1.0))
    limit = time.monotonic() + 2.0
    while kind == "save" and "save" not in describe_moment(out) and time.monotonic() < limit:
        time.sleep(0.0005)


def kill_one(agent, out, randomly):
    """Who was killed, and when; None if all had ended."""
    moment, found = describe_moment(out), agent.list_processes()
    ranks = sorted(its for its in found.values() if its is not None)
    targets = ["agent", *ranks] if agent.process.poll() is None else ranks
    if not targets:
        return None
    target = randomly.choice(targets)
    number = agent.process.pid if target == "agent" else agent.find_rank(target)
    try:
        kill(number, signal.SIGKILL)
    except (ProcessLookupError, TypeError):
        return None
    return ("the agent" if target == "agent" else f"rank {target}"), moment


def run_with_kills(size, words, out, folder, randomly, most, own):
    """Run a command to its end through up to `most` kills; returns these."""
    kills, attempts = [], 0
    while True:
        attempts += 1
        agent = Agent(size, words, folder, restarts=100, own=own)
        while agent.process.poll() is None and len(kills) < most:
            choose_moment(agent, out, randomly, 9.0)
            if (found := kill_one(agent, out, randomly)) is not None:
                kills.append(found)
                print(f"{len(kills):3} {found[0]:10} {found[1]}", flush=True)
                if found[0] == "the agent":
                    break
        code = agent.end(600)
        if code == 0:
            return kills
        if code != -signal.SIGKILL:
            print(agent.read()[-3000:])
            raise SystemExit(f"the agent ended with {code} after kill {len(kills)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", default="exact")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--launch", action="store_true")
    given = parser.parse_args()
    changes = [f"training.steps={given.steps}", "training.save_every=10", "training.eval_every=100"]
    changes += [f"training.parallel={given.mode}", "training.workers=1", "training.log_every=10"]
    randomly, kills = random.Random(given.seed), []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        size = 1 if given.mode == "exact" else given.processes
        whole = Agent(size, make_command("substring", folder / "whole", *changes), folder)
        assert whole.end(600) == 0, whole.read()
        expected, n_runs = list_hashes(folder / "whole"), 0
        began = time.monotonic()
        while len(kills) < given.kills:
            n_runs += 1
            out = folder / f"run {n_runs}"
            words, most = make_command("substring", out, *changes), given.kills - len(kills)
            kills += run_with_kills(
                given.processes, words, out, folder, randomly, most, given.launch
            )
            assert list_hashes(out) == expected, f"run {n_runs} differs"
    print(f"{len(kills)} kills, {n_runs} runs in {time.monotonic() - began:.0f} s, all equal")
    for title, which in (("who", 0), ("when", 1)):
        print(f"{title}: {dict(Counter(one[which] for one in kills))}")


if __name__ == "__main__":
    main()
