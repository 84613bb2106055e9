"""A training step on two processes of one thread each, against one process of one thread.

Starting a process takes seconds, so each reports the time of its steps only. The ways take turns,
and the best round of each counts. On a machine with two cores, nothing else should run.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clearhead.bench.group import LIMIT, run_group
from clearhead.bench.row import Row, Rows
from clearhead.bench.training import draw_text

RECIPES = ("shakespeare-char", "vit-digits")
WAYS = {  # mode, processes
    "one process": ("exact", 1),
    "exact": ("exact", 2),
    "ddp": ("ddp", 2),
    "plain": ("none", 1),
}
ROUNDS = 3
WARM_UP = 5  # steps
N_CHARACTERS = 1_000_000  # of the generated text


def processes(seconds: float) -> Rows:
    """The speed of exact and ddp on two processes, and what the chunks of exact cost."""
    rows = []
    for recipe in RECIPES:
        best = {way: float("inf") for way in WAYS}
        for _ in range(ROUNDS):
            for way, (mode, size) in WAYS.items():
                best[way] = min(best[way], _measure(recipe, mode, size, seconds))
        one, exact, ddp, plain = (best[way] for way in ("one process", "exact", "ddp", "plain"))
        rows += [
            Row(f"{recipe}, exact on 2 processes", exact, "on 1 process", one, "aim ≤ 0.56×"),
            Row(f"{recipe}, exact on 2 processes", exact, "ddp on 2", ddp, "aim ≤ 1.15×"),
            Row(f"{recipe}, exact on 1 process", one, "a step without chunks", plain),
        ]
    return rows


def _measure(recipe: str, mode: str, size: int, seconds: float) -> float:
    """The seconds of a step, by a group of this size."""
    arguments = [recipe, mode, str(seconds)]
    texts = run_group("clearhead.bench.processes", arguments, size, limit=LIMIT + seconds)
    return float(json.loads(texts[0]))


def _run(recipe_name: str, mode: str, seconds: float) -> None:
    """Make steps for so many seconds in a process of a group; the first prints their mean."""
    import torch

    from clearhead.parallel.group import join_group
    from clearhead.runtime import read_place
    from clearhead.training import find_recipe, with_changes
    from clearhead.training.loop import Training

    torch.set_num_threads(1)
    changes: list[Any] = ["training.workers=1", f"training.parallel={mode}"]
    with tempfile.TemporaryDirectory() as folder:
        if recipe_name == "shakespeare-char":
            text = Path(folder) / "text.txt"
            text.write_text(draw_text(N_CHARACTERS), encoding="utf-8")
            changes.append(f"data.path={text}")
        recipe = with_changes(find_recipe(recipe_name), changes)
        with join_group(recipe.training.parallel, torch.device("cpu"), read_place()) as group:
            training = Training(recipe, recipe.data.open(), group=group)
            training.join()

            def step() -> None:
                training.update(training.next_plans())
                training.state.step += 1

            for _ in range(WARM_UP):
                step()
            n, start = 0, time.perf_counter()
            while not group.any(time.perf_counter() - start > seconds):
                step()
                n += 1
            if group.rank == 0:
                print(json.dumps((time.perf_counter() - start) / n))


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], float(sys.argv[3]))
