"""What the processes of a run return when it is done."""

import os

import pytest
from parallel.forked_ranks import Ranks
from parallel.small_processes import find_run, make_command, run_to_end
from small_runs import small_recipe

from clearhead.runs.train_recipe import train
from clearhead.training.loop import Training


@pytest.mark.parametrize("mode", ["exact", "ddp"])
def test_all_have_the_best_weights_and_only_the_first_needs_the_folder(folder, mode):
    def work(rank):
        (folder / f"machine-{rank}").mkdir()
        os.chdir(folder / f"machine-{rank}")  # a disk that no other process sees
        weights, note_best = {}, Training.note_best

        def note_first(self, metrics):
            weights[self.state.step] = [p.clone() for p in self.model.parameters()]
            note_best(self, {**metrics, self.task.best_by: 1 / self.state.step})

        Training.note_best = note_first
        result = train(small_recipe(f"training.parallel={mode}"))
        run = result.trained
        assert run.step == result.best_step == 2
        found = list(run.model.parameters())
        assert all(map(lambda a, b: a.equal(b), found, weights[2]))
        assert not all(map(lambda a, b: a.equal(b), found, weights[4]))

    ranks = Ranks(2, work, folder)
    assert ranks.end() == [0, 0], ranks.read()
    assert not list((folder / "machine-1").iterdir())


def test_fsdp_trains_batch_norm_in_bfloat16_beside_statistics_in_float32(folder):
    words = make_command("vit-digits", folder / "runs", "training.parallel=fsdp")
    changes = ["training.precision=bfloat16", "training.steps=2", "training.eval_every=2"]
    run_to_end(2, [*words, *changes], folder)
    assert find_run(folder / "runs").read_metrics()[-1]["step"] == 2
