"""What `clearhead plan` computes, against the memory that the processes of a run really take.

The growth of the resident memory of the first process is measured, from before its model is built
to the highest point of three steps. By default the C library of Linux keeps much of the memory that
a program frees, so a process has more memory than its tensors need; here the library returns larger
pieces at once. Without that setting the processes were measured at 1.0 to 1.6 times the plan.
"""

import sys
import tempfile
from pathlib import Path

from clearhead.bench.group import read_memory, run_group
from clearhead.bench.row import Row, Rows

MODES = {"none": 1, "exact": 2, "ddp": 2, "fsdp": 2}  # and the number of processes
COMMON = ["training.workers=1", "training.precision=float32", "model.n_heads=8"]
COMMON += ["data.context=128", "model.max_len=128"]
MODELS = {
    "much weight": ["model.d_model=512", "model.n_layers=8", "training.batch_size=4"],
    "large batch": ["model.d_model=192", "model.n_layers=4", "training.batch_size=64"],
    "muon": ["model.d_model=384", "model.n_layers=6", "training.batch_size=12"],
}
MODELS["much weight"] += ["training.accumulate=1", "training.optimizer=adamw"]
MODELS["large batch"] += ["training.accumulate=1", "training.optimizer=adamw"]
MODELS["muon"] += ["training.accumulate=2", "training.optimizer=muon"]
N_KINDS, N_CHARACTERS = 1000, 200_000  # of the generated text
N_STEPS = 3
# The C library returns each freed piece of 64 kB or more to the system at once.
RETURNS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
AIM = "aim ≥ 0.9×: the reserve"


def plan(seconds: float) -> Rows:
    """The planned memory of a process, against the measured one; `seconds` changes nothing."""
    from clearhead.parallel.plan import make_plan
    from clearhead.parallel.planning.cards import CARDS
    from clearhead.training import find_recipe, with_changes

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("".join(chr(0x4E00 + i % N_KINDS) for i in range(N_CHARACTERS)), "utf-8")
        for model, changes in MODELS.items():
            for mode, size in MODES.items():
                words = [f"data.path={text}", *COMMON, *changes, f"training.parallel={mode}"]
                recipe = with_changes(find_recipe("shakespeare-char"), words)
                step_plan = make_plan(recipe, CARDS["a100"], size)
                measured = _measure(words, size, step_plan.n_parameters)
                planned = step_plan.costs[mode].memory.total
                what = f"planned memory, {model}, {mode}"
                rows.append(Row(what, planned, "measured", measured, AIM, unit="MB"))
    return rows


def _measure(changes: list[str], size: int, n_parameters: int) -> float:
    """The memory of the first process of a group of this size."""
    texts = run_group("clearhead.bench.plan", changes, size, variables=RETURNS_MEMORY)
    memory, found = map(int, texts[0].split())
    if found != n_parameters:
        raise RuntimeError(f"{found} parameters were trained, but {n_parameters} planned")
    return memory


def _run(changes: list[str]) -> None:
    """Make some steps in a process of a group, and print by how much its memory grew."""
    import torch

    from clearhead.parallel.group import join_group
    from clearhead.runtime import read_place
    from clearhead.training import find_recipe, with_changes
    from clearhead.training.loop import Training

    torch.set_num_threads(1)
    recipe = with_changes(find_recipe("shakespeare-char"), changes)
    task = recipe.data.open()
    warm_up()
    with join_group(recipe.training.parallel, torch.device("cpu"), read_place()) as group:
        before = read_memory("VmRSS")
        training = Training(recipe, task, group=group)
        training.join()
        for _ in range(N_STEPS):
            training.update(training.next_plans())
            training.state.step += 1
        print(read_memory("VmHWM") - before, training.model.n_parameters)


def warm_up() -> None:
    """Make a step of a tiny model, after which PyTorch has imported what it needs."""
    import torch

    weight = torch.ones(8, 8, requires_grad=True)
    (weight @ weight).sum().backward()
    torch.optim.AdamW([weight], fused=True).step()


if __name__ == "__main__":
    _run(sys.argv[1:])
