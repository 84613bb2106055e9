"""The memory of a process that trains a part of a model, against one that trains a copy of it.

The highest resident memory of each of two processes is measured in a whole run: the start, three
steps, an evaluation, a checkpoint and the end. What a process takes before, for Python and PyTorch,
is subtracted. The model is wide and the batch is small, so that weights, gradients and the tensors
of the optimizer are nearly all of it.
"""

import json
import sys
import tempfile
from pathlib import Path

from clearhead.bench.group import read_memory, run_group
from clearhead.bench.row import Row, Rows
from clearhead.bench.training import draw_text

N_PROCESSES = 2
CHANGES = ["model.d_model=768", "model.n_layers=12", "model.n_heads=8", "training.batch_size=2"]
CHANGES += ["training.steps=3", "training.eval_every=3", "training.save_every=3"]
CHANGES += ["training.accumulate=1", "training.optimizer=adamw", "training.workers=1"]
N_CHARACTERS = 4000  # of the generated text


def sharding(seconds: float) -> Rows:
    """Peak memory of fsdp and of ddp; `seconds` changes nothing."""
    most = {mode: max(_measure(mode)) for mode in ("fsdp", "ddp")}
    what = f"memory of a wide GPT, fsdp on {N_PROCESSES} processes"
    return [Row(what, most["fsdp"], "ddp", most["ddp"], "aim ≤ 0.6×", unit="MB")]


def _measure(mode: str) -> list[float]:
    """By how many bytes each process grew in a run."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text.txt").write_text(draw_text(N_CHARACTERS), encoding="utf-8")
        texts = run_group("clearhead.bench.sharding", [mode, folder], N_PROCESSES)
    return [float(json.loads(text)) for text in texts]


def _run(mode: str, folder: str) -> None:
    """In one of the processes: train, and print by how many bytes it grew."""
    import torch.distributed.fsdp  # noqa: F401  # takes memory, also where it is not used

    from clearhead.runs import train
    from clearhead.training import find_recipe, with_changes

    changes = [*CHANGES, f"data.path={folder}/text.txt", f"training.parallel={mode}"]
    recipe = with_changes(find_recipe("shakespeare-char"), changes)
    before = read_memory("VmRSS")
    train(recipe, Path(folder) / "runs", device="cpu", threads=1)
    print(read_memory("VmHWM") - before)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2])
