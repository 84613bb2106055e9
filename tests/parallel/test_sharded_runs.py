"""training.parallel=fsdp: whole runs and their checkpoints, on the same and on other numbers."""

import hashlib
import json
import os
import resource
import shutil
import signal

import pytest
import torch
from parallel.forked_ranks import Ranks, run_command
from parallel.small_processes import (
    RECIPES,
    find_run,
    list_hashes,
    make_command,
    run_to_end,
    stop_after,
)
from torch.distributed.tensor import DTensor

from clearhead.interop import export
from clearhead.interop import load as load_foreign
from clearhead.runs import checkpoint, load_run, sharding, train
from clearhead.runs.checkpoint import find_checkpoints, load, load_newest
from clearhead.runs.sharding import ShardedStorage
from clearhead.training import find_recipe, with_changes
from clearhead.training.loop import Training
from clearhead.training.tasks.characters import CharacterTask

FSDP = ("training.parallel=fsdp", "training.workers=1")
TEXT = "shakespeare-char"


def command(name, out, *changes):
    return make_command(name, out, *FSDP, *changes)


def hash_tensors(tensors):
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        digest.update(name.encode() + whole.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_that_is_stopped_ends_with_the_same_bytes(folder, name):
    """Also with the smallest batches, batch norm, rows of unequal length and dropout."""
    said = run_to_end(2, command(name, folder / "whole"), folder)
    assert "step 12/12" in said
    words = command(name, folder / "stopped")
    for step, which in ((3, 1), (7, 0)):
        ranks = Ranks(2, words, folder, prepare=stop_after(step, which))
        assert ranks.end() == [143, 143], ranks.read()
    run_to_end(2, words, folder)
    hashes = list_hashes(folder / "stopped")
    assert hashes == list_hashes(folder / "whole")
    assert "model-shard-00002-of-00002.safetensors" in hashes
    assert "samples.txt" not in hashes


@pytest.fixture(scope="module")
def stopped(warm, tmp_path_factory):
    """A run that two processes have left after step 6, and the words that resume it."""
    path = tmp_path_factory.mktemp("stopped")
    words = command(TEXT, path / "out", "training.optimizer=muon")
    ranks = Ranks(2, words, path, prepare=stop_after(6, 1))
    assert ranks.end() == [143, 143], ranks.read()
    return path / "out", words


def resume(stopped, folder, *changes):
    """A copy of the run, and the words that resume this copy."""
    out, words = stopped
    copy = folder / "copy"
    shutil.copytree(out, copy)
    return copy, [str(copy) if word == str(out) else word for word in words] + list(changes)


def tell_tensors(folder):
    """For `prepare`: write down what a rank continues from, and end."""

    def prepare(rank):
        def run(self):
            whole = {
                "model": hash_tensors(self.model.state_dict()),
                "optimizer": hash_tensors(self.optimizer.tensors()),
                "state": self.state.to_dict(),
            }
            (folder / f"{self.group.size}-{rank}.json").write_text(json.dumps(whole))
            self.is_stopped = True

        Training.run = run

    return prepare


def test_weights_optimizer_and_state_carry_over_to_any_number_of_processes(stopped, folder):
    copy, words = resume(stopped, folder)
    run = find_run(copy)
    kept = load_newest(run.checkpoints, run.identity)
    wanted = {"model": hash_tensors(kept.model), "optimizer": hash_tensors(kept.optimizer)}
    assert {name.partition(".")[0] for name in kept.optimizer} == {"adamw", "muon"}
    before = 2
    for size in (1, 2, 3, 4):
        ranks = Ranks(size, words, folder, prepare=tell_tensors(folder))
        assert ranks.end() == [143] * size, ranks.read()
        for rank in range(size):
            found = json.loads((folder / f"{size}-{rank}.json").read_text())
            assert found["state"] == {**kept.state, "step": 6}
            assert {name: found[name] for name in wanted} == wanted, size
        assert ("this run continues on" in ranks.read()) == (size != before)
        before = size


def test_another_number_of_processes_is_announced_and_every_step_is_made_once(stopped, folder):
    copy, words = resume(stopped, folder)
    said = run_to_end(3, words, folder)
    different = "so with fsdp its last digits will be different"
    assert f"this run continues on 3 processes; before, it had 2, {different}" in said
    assert "resuming after step 6 of 12" in said
    run = find_run(copy)
    assert run.environment["processes"] == 3
    assert [line["step"] for line in run.read_metrics()] == list(range(1, 13))
    shards = {path.name for path in find_checkpoints(run.checkpoints)[-1].glob("model*")}
    assert shards == {f"model-shard-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}


def test_one_process_without_torchrun_resumes_and_loads_it(stopped, folder):
    copy, words = resume(stopped, folder)

    def alone(rank):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
            del os.environ[name]
        assert run_command(words) == 0
        assert run_command(["eval", str(find_run(copy).path)]) == 0

    ranks = Ranks(1, alone, folder)
    assert ranks.end() == [0], ranks.read()
    assert "this run continues on 1 process; before, it had 2" in ranks.read()
    run = load_run(find_run(copy).path, device="cpu")
    metrics = run.evaluate()
    assert metrics["val_loss"] == pytest.approx(run.state.best_metrics["val_loss"], rel=1e-5)
    best = next(line for line in run.folder.read_metrics() if line["step"] == run.step)
    assert metrics["val_loss"] == pytest.approx(best["val_loss"], rel=1e-5)


def test_one_process_exports_it_and_writes_with_it(folder):
    """With the weights that the two processes had, to the bit."""

    def tell_weights(rank):
        save = Training.save

        def save_and_tell(self):
            save(self)
            (folder / f"{self.state.step}-{rank}").write_text(hash_tensors(self.model.state_dict()))

        Training.save = save_and_tell

    as_llama = [
        *("model.activation=swiglu", "model.qk_norm=false", "model.soft_cap=none"),
        *("model.zero_start=false", "training.steps=3"),
    ]
    run_to_end(2, command(TEXT, folder / "out", *as_llama), folder, prepare=tell_weights)
    run = load_run(find_run(folder / "out").path, device="cpu")
    export(run.model, folder / "exported")
    loaded = load_foreign(folder / "exported").model
    assert hash_tensors(loaded.state_dict()) == (folder / f"{run.step}-1").read_text()
    words = ["generate", str(run.folder.path), "--prompt", "the ", "--tokens", "5"]

    def alone(rank):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
            del os.environ[name]
        assert run_command(words) == 0

    ranks = Ranks(1, alone, folder)
    assert ranks.end() == [0], ranks.read()
    assert "\nthe " in ranks.read()


def test_the_first_process_has_the_best_weights_whole_and_a_sample(stopped, folder):
    copy, words = resume(stopped, folder)
    recipe = with_changes(find_recipe(TEXT), [word for word in words[2:] if "=" in word])

    def work(rank):
        CharacterTask.evaluate = lambda self, model: {"val_loss": 99.0}  # not the best any more
        result = train(recipe, copy, device="cpu", threads=1)
        model, best = result.trained.model, load_run(result.run, device="cpu")
        assert (result.steps, result.metrics) == (12, best.state.best_metrics)
        assert (result.sample is None) == (rank == 1)
        if rank == 0:
            assert result.trained.step == best.step == 5
            assert hash_tensors(model.state_dict()) == hash_tensors(best.model.state_dict())
            assert not any(isinstance(p, DTensor) for p in model.parameters())

    ranks = Ranks(2, work, folder)
    assert ranks.end() == [0, 0], ranks.read()


def test_a_mode_is_changed_by_force_only_and_both_ways(stopped, folder):
    copy, _ = resume(stopped, folder)
    run = find_run(copy)
    for mode, step, name in (("exact", 8, "model.safetensors"), ("fsdp", 10, "model-shard-")):
        words = ["train", f"training.parallel={mode}", "--resume", str(run.path)]
        ranks = Ranks(2, words, folder)
        assert 0 not in ranks.end()
        assert "training.parallel: " in ranks.read()
        ranks = Ranks(2, [*words, "--force"], folder, prepare=stop_after(step, 0))
        assert ranks.end() == [143, 143], ranks.read()
        newest = find_checkpoints(run.checkpoints)[-1]
        assert newest.name == f"step-{step:07}"
        assert any(file.name.startswith(name) for file in newest.iterdir())


# What stops all


def limit_files(step, which):
    """For `prepare`: this rank can write no file from this step on."""

    def prepare(rank):
        save = ShardedStorage.save

        def limited(self, snapshot):
            if rank == which and snapshot.state.step >= step:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
            save(self, snapshot)

        ShardedStorage.save = limited

    return prepare


def test_each_process_reads_back_its_own_shards_only(folder):
    """One process alone would need too long for the shards of all."""

    def prepare(rank):
        def note(path):
            with open(folder / f"read by {rank}", "a") as file:
                print(path.name, file=file)
            return hash_file(path)

        hash_file = checkpoint.hash_file
        checkpoint.hash_file = sharding.hash_file = note

    words = command("substring", folder / "out", "training.steps=1", "training.eval_every=2")
    run_to_end(2, words, folder, prepare=prepare)
    own = "model-shard-0000{0}-of-00002.safetensors optimizer-shard-0000{0}-of-00002.safetensors"
    saved = [(folder / f"read by {rank}").read_text().split() for rank in range(2)]
    assert saved[1] == own.format(2).split()
    assert saved[0][:4] == [*own.format(1).split(), "state.json", "state.json"]
    load(
        find_checkpoints(find_run(folder / "out").checkpoints)[-1],
        find_run(folder / "out").identity,
    )


def test_a_full_disk_of_one_rank_ends_all_and_the_checkpoint_before_stays(stopped, folder):
    copy, words = resume(stopped, folder)
    limit = limit_files(8, which=1)

    def prepare(rank):
        os.chdir(folder)
        limit(rank)

    relative = [str(copy.relative_to(folder)) if word == str(copy) else word for word in words]
    ranks = Ranks(2, relative, folder, prepare=prepare)
    assert ranks.end() == [8, 4], ranks.read()
    assert ranks.read(0).endswith(
        "error: rank 0: rank 1 ended with an error; its own message names the cause\n"
    )
    assert "error: rank 1: " in ranks.read(1)
    assert "step-0000008" in ranks.read(1)
    assert "file too large" in ranks.read(1)
    assert ".part" not in ranks.read()
    run = find_run(copy)
    assert not list(run.checkpoints.glob(".*"))
    assert [path.name for path in find_checkpoints(run.checkpoints)][-1] == "step-0000006"
    assert load(find_checkpoints(run.checkpoints)[-1], run.identity).step == 6
    run_to_end(2, words, folder)


def test_numbers_that_are_not_finite_are_not_saved_whoever_has_them(stopped, folder):
    copy, words = resume(stopped, folder)

    def spoil(rank):
        save = Training.save

        def spoiled(self):
            if rank == 1 and self.state.step == 8:
                with torch.no_grad():
                    self.model.head.weight.to_local()[-1, -1] = float("nan")
            save(self)

        Training.save = spoiled

    ranks = Ranks(2, words, folder, prepare=spoil)
    assert ranks.end() == [3, 3], ranks.read()
    sentences = [line for line in ranks.read().splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1  # both say the same
    assert "head.weight is not finite at step 8; it was not saved" in sentences[0]
    assert find_checkpoints(find_run(copy).checkpoints)[-1].name == "step-0000006"


def test_a_folder_that_not_all_see_is_refused(stopped, folder):
    _, words = resume(stopped, folder)

    def hide(rank):
        init = ShardedStorage.__init__

        def elsewhere(self, path, *given, **named):
            init(self, path if rank == 0 else folder / "elsewhere", *given, **named)

        ShardedStorage.__init__ = elsewhere

    ranks = Ranks(2, words, folder, prepare=hide)
    assert 0 not in ranks.end()
    assert "elsewhere is not seen by rank 1; with parallel=fsdp every process" in ranks.read(1)
    assert "give an --out that all machines share" in ranks.read(1)
    assert "rank 1 ended with an error; its own message names the cause" in ranks.read(0)


def test_a_damaged_shard_is_skipped_by_all(stopped, folder):
    copy, words = resume(stopped, folder)
    newest = find_checkpoints(find_run(copy).checkpoints)[-1]
    shard = newest / "optimizer-shard-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    said = run_to_end(2, words, folder)
    assert f"{shard.name} is damaged" in said
    assert "resuming after step 5 of 12" in said
