"""The published exercise: its sequences, its start, its losses, and resuming in the middle."""

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from runs.tiny_runs import Killed, memory_folder, stop_at_call
from torch import nn

from clearhead.models import TorchTransformerConfig
from clearhead.runs import RunFolder, train
from clearhead.training import find_recipe, with_changes
from clearhead.training.loop import Training
from clearhead.training.tasks import PublishedSequenceData, PublishedSequenceTask
from clearhead.training.tasks.published import draw_published

ONE_HOT = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
IDENTITY = [0.49116358, 0.00091494672, 0.0088817701, 0.017251905, 0.0098671289, 0.0049858144]
IDENTITY += [0.00068461342, 0.0010991251, 0.0020109559, 0.0018208892, 0.00041752230]
FIRST = [1.4877721, 3.6026709e-4, 1.4195357e-4, 4.8930855e-5, 2.1190377e-5, 1.3534550e-4]
FIRST += [6.3262276e-5, 3.3960107e-6, 7.4592346e-5, 1.6956596e-5, 9.2862552e-5]


class Exercise:
    """The exercise as it is written: global generators, one sequence a step, torch's own SGD."""

    def __init__(self, rule, seed, longest, sizes, d_pos=None, drawn_before=0):
        self.rule, self.longest = rule, longest
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        for _ in range(drawn_before):
            self.draw()
        d_input, self.d_qk, d_v = sizes
        self.pos = None if d_pos is None else nn.Embedding(longest, d_pos)
        width = d_input + (d_pos or 0)
        self.Qm, self.Km, self.Vm = (
            nn.Linear(width, d, bias=False) for d in (self.d_qk, self.d_qk, d_v)
        )
        layers = [self.Qm, self.Km, self.Vm, *([] if self.pos is None else [self.pos])]
        self.sgd = torch.optim.SGD([layer.weight for layer in layers], lr=0.03)

    def draw(self):
        n = np.random.randint(1, self.longest + 1)
        return torch.tensor(random.choices(ONE_HOT, k=n), dtype=torch.float32)

    def step(self):
        """The loss before the update."""
        seq = self.draw()
        right = seq if self.rule == "identity" else seq[:1].expand_as(seq)
        x = seq if self.pos is None else torch.cat([seq, self.pos.weight[: len(seq)]], dim=1)
        weights = torch.softmax(self.Qm(x) @ self.Km(x).T / math.sqrt(self.d_qk), dim=-1)
        loss = nn.functional.mse_loss(weights @ self.Vm(x), right)
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()
        return loss.item()


EXERCISES = {
    "identity-sgd": lambda: Exercise("identity", 227, 6, (3, 3, 3)),
    "first-sgd": lambda: Exercise("first", 2017, 4, (3, 1, 3), d_pos=4, drawn_before=1),
}


@pytest.fixture(autouse=True)
def _restore_global_generators():
    torch.set_num_threads(1)
    before = random.getstate(), np.random.get_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])


@pytest.mark.parametrize("name", EXERCISES)
def test_the_first_steps_are_those_of_the_exercise_as_it_is_written(name):
    recipe = with_changes(find_recipe(name), ["training.steps=60", "training.log_every=1"])
    training = Training(recipe, recipe.data.open())
    training.run()
    losses = [line["loss"] for line in training.storage.metrics if "loss" in line]
    exercise = EXERCISES[name]()
    assert losses == pytest.approx([exercise.step() for _ in range(60)], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "losses"), [("identity-sgd", IDENTITY), ("first-sgd", FIRST[:4])])
def test_the_recipes_print_the_published_losses(name, losses, tmp_path):
    """The second up to step 3000: every step is of the same length."""
    steps = list(range(0, 1000 * len(losses), 1000))
    recipe = with_changes(find_recipe(name), [f"training.steps={steps[-1] + 1}"])
    run = train(recipe, tmp_path, threads=1).run
    lines = [line for line in RunFolder(run).read_metrics() if "loss" in line]
    assert [line["step"] for line in lines] == steps
    assert [line["loss"] for line in lines] == pytest.approx(losses, rel=1e-4)


def test_the_page_has_these_losses():
    page = Path(__file__).parents[3] / "docs" / "training.md"
    rows = re.findall(r"^\| ([\d,]+) \| (\S+) \| (\S+) \| (\S+) \|$", page.read_text(), re.M)
    steps, printed, identity, first = zip(*rows, strict=True)
    assert [int(step.replace(",", "")) for step in steps] == list(range(0, 10_001, 1000))
    assert list(map(float, printed)) == IDENTITY
    assert list(map(float, identity)) == pytest.approx(IDENTITY, rel=1e-4)
    assert list(map(float, first)) == FIRST


@pytest.mark.parametrize(("seed", "longest"), [(227, 6), (2017, 4)])
def test_sequences_are_those_of_the_global_generators(seed, longest):
    random.seed(seed)
    np.random.seed(seed)
    expected = [tuple(random.choices(range(3), k=np.random.randint(1, longest + 1))) for _ in "abc"]
    assert draw_published(3, longest, seed) == expected


def test_opening_leaves_the_generators_of_the_caller_as_they_are():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    PublishedSequenceData("identity", n_examples=50, seed=3).open()
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.get_rng_state().equal(before[2])


def test_examples_come_in_their_order_and_the_skipped_ones_not_at_all():
    task = PublishedSequenceData("first", max_len=4, n_examples=7, seed=9, skipped=2).open()
    plans = task.plans(seed=0, epoch=1, batch_size=3)
    assert [list(plan) for plan in plans] == [[0, 1, 2], [3, 4, 5], [6]]
    for i, row in enumerate(draw_published(9, 4, 9)[2:]):
        assert task.batch([i]).inputs[0].argmax(-1).tolist() == list(row)


def test_it_is_evaluated_on_all_sequences():
    task = PublishedSequenceData("identity", max_len=3, n_examples=5).open()
    assert len(task.validation) == 3 + 9 + 27
    assert task.measured_on == "all 39 sequences of that length"


def test_the_start_is_what_torch_draws_after_the_seed():
    recipe = find_recipe("identity-sgd")
    model = Training(recipe, recipe.data.open()).model
    torch.manual_seed(227)
    assert model.Qm.weight.equal(nn.Linear(3, 3, bias=False).weight)


def test_another_seed_is_another_start_with_the_same_sequences():
    recipe = with_changes(find_recipe("identity-sgd"), ["training.seed=5"])
    training = Training(recipe, recipe.data.open())
    torch.manual_seed(5)
    assert training.model.Qm.weight.equal(nn.Linear(3, 3, bias=False).weight)
    assert training.task.fingerprint == find_recipe("identity-sgd").data.open().fingerprint


@pytest.mark.parametrize("number", [1, 30, 31, 60])
def test_T03_a_published_run_stopped_at_any_step_resumes_bit_for_bit(monkeypatch, number):
    changes = ["training.steps=60", "training.log_every=7", "training.save_every=10"]
    recipe = with_changes(find_recipe("first-sgd"), [*changes, "training.eval_every=20"])
    with memory_folder() as folder:
        whole = train(recipe, folder / "whole", threads=1).run
        undo = stop_at_call(monkeypatch, "batch", number, PublishedSequenceTask)
        with pytest.raises(Killed):
            train(recipe, folder / "stopped", threads=1)
        undo()
        stopped = train(recipe, folder / "stopped", threads=1).run
        for name in ("metrics.jsonl", "samples.txt", "checkpoints/step-*60/model.safetensors"):
            assert next(stopped.glob(name)).read_bytes() == next(whole.glob(name)).read_bytes()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"seed": 2**32}, "seed must be at most 4,294,967,295"),
        ({"skipped": -2}, "skipped must not be negative, got -2"),
        ({"rule": "last"}, "rule must be one of"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        PublishedSequenceData(**{"rule": "first", **settings})


def test_the_models_have_the_published_sizes():
    for name, sizes in (("identity-sgd", (3, 3, 3, None)), ("first-sgd", (3, 1, 3, 4))):
        recipe = find_recipe(name)
        config = recipe.data.open().complete(recipe.model)
        assert isinstance(config, TorchTransformerConfig)
        assert (config.d_input, config.d_qk, config.d_v, config.d_pos) == sizes
    assert config.max_len == 4
