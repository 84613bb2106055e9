"""Small runs of several processes, and what they leave behind."""

import hashlib
import json
import os
import signal
from pathlib import Path

from parallel.forked_ranks import Ranks, wait_until
from small_runs import SMALL

from clearhead.runs import find_runs
from clearhead.runs.checkpoint import find_checkpoints
from clearhead.training.loop import Training

TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps in the sun.\n" * 30
BRIEF = ["training.steps=12", "training.eval_every=5", "training.save_every=4"]
BRIEF += ["training.log_every=1", "training.parallel=exact"]
RECIPES = {
    # Two workers where there is one process; Muon and AdamW.
    "substring": [*SMALL, "training.accumulate=2", "training.workers=2", *BRIEF],
    # Dropout; a text file of the user's own.
    "shakespeare-char": [
        *("data.context=16", "data.sample_length=20", "model.max_len=16", "model.d_model=16"),
        *("model.n_layers=1", "model.n_heads=2", "model.dropout=0.2", "training.workers=1"),
        *("training.batch_size=5", *BRIEF, "training.chunks=5"),
    ],
    # Batch norm, augmentation, and a last batch of an epoch that is smaller than its chunks.
    "vit-digits": [
        *("data.size=16", "data.n_train=31", "data.n_test=7", "data.mirror=true"),
        *("data.shift=1", "data.mixup=0.2", "data.keep=0.7", "model.stem=convolution"),
        *("model.patch_size=8", "model.class_token=false", "model.pool=mean", "model.d_model=12"),
        *("model.n_layers=1", "model.n_heads=3", "training.batch_size=7", *BRIEF),
    ],
    # Rows of unequal length: chunks with unequally many terms; dropout.
    "translate-transformer": [
        *("data.n_examples=40", "data.n_validation=4", "data.n_decoded=3", "model.d_model=8"),
        *("model.n_layers=1", "model.n_heads=2", "model.dropout=0.1", "training.batch_size=9"),
        *(*BRIEF, "training.accumulate=2", "training.chunks=6"),
    ],
}


def make_command(name, out, *changes):
    """The words after `clearhead`."""
    words = ["train", name, *RECIPES[name], *changes, "--out", out]
    if name == "shakespeare-char":
        path = Path(out).parent / "play.txt"
        path.write_text(TEXT)
        words.append(f"data.path={path}")
    return [str(word) for word in words]


def run_to_end(size, words, folder, **options):
    """What it has printed.

    A process that is forked beside threads may inherit a lock that nobody releases, and then hangs
    at its start. So a group that does not end is killed and started again, once, if it has made no
    step.
    """
    before = count_lines(folder)
    ranks = Ranks(size, words, folder, **options)
    try:
        codes = ranks.end(60)
    except AssertionError:
        if count_lines(folder) > before:
            raise
        print(f"started again after\n{ranks.read()}")
        ranks = Ranks(size, words, folder, **options)
        codes = ranks.end()
    assert codes == [0] * size, ranks.read()
    return ranks.read()


def count_lines(folder):
    """How many lines of metrics the runs below this folder have."""
    try:
        return sum(len(path.read_bytes().splitlines()) for path in folder.rglob("metrics.jsonl"))
    except FileNotFoundError:  # a new folder has got its name meanwhile
        return count_lines(folder)


def stop_after(step, which, number=signal.SIGTERM):
    """For `prepare`: one rank gets a signal in this step, when all have computed its gradient."""

    def prepare(rank):
        update = Training.update

        def signalled(self, plans):
            loss = update(self, plans)
            if rank == which and self.state.step + 1 == step:
                os.kill(os.getpid(), number)
            return loss

        Training.update = signalled

    return prepare


def find_run(out):
    """The run below this folder; there must be one."""
    (run,) = [run for name in RECIPES for run in find_runs(Path(out), name)]
    return run


def list_hashes(out):
    """SHA-256 of everything that must not depend on processes, kills and stops."""
    run = find_run(out)
    last = find_checkpoints(run.checkpoints)[-1]
    state = json.loads((last / "state.json").read_text())
    del state["seconds"]
    files = [*sorted(last.glob("*.safetensors")), run / "metrics.jsonl"]
    for kind in ("model", "optimizer"):
        assert any(path.name.startswith(kind) for path in files)
    samples = run / "samples.txt"
    writes_samples = run.config["training"]["parallel"] != "fsdp"
    assert samples.exists() == writes_samples
    found = {path.name: path.read_bytes() for path in files + [samples] * writes_samples}
    assert all(found.values())  # no file is empty
    found["state.json"] = json.dumps(state, sort_keys=True).encode()
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    return {"last": last.name, **hashes}


def wait_for_step(out, step, ranks=None):
    """Wait until a step is in the metrics of the run below this folder."""

    def look():
        if ranks is not None:
            assert None in ranks.look_all(), ranks.read()
        for path in Path(out).glob("*/metrics.jsonl"):
            lines = path.read_bytes().splitlines()
            if lines and json.loads(lines[-1])["step"] >= step:
                return True
        return False

    wait_until(look, f"step {step} in {out}")
