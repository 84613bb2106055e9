"""NaN and infinities stop a run and never reach a checkpoint."""

import pytest
import torch
from runs.tiny_runs import (
    checkpoints_of,
    poison,
    run_tiny,
)
from training.tiny_task import tiny

from clearhead.files.tensors import read_tensors
from clearhead.runs import find_runs
from clearhead.runs.checkpoint import find_checkpoints, load_newest
from clearhead.training import NotFinite
from clearhead.training.loop import Training


def no_nan_anywhere(out):
    for path in out.rglob("*.safetensors"):
        assert all(t.isfinite().all() for t in read_tensors(path, finite=False).values())


def test_T19_a_bad_batch_stops_the_run_and_is_named(folder, monkeypatch):
    bad = []

    def batch(self, before, plan):
        made = before(self, plan)
        if 13 in plan and not isinstance(plan, range):
            bad.append(made.targets)
        return made

    def loss(self, before, model, batch):
        is_bad = any(batch.targets is targets for targets in bad)
        return before(self, model, batch) * (torch.nan if is_bad else 1)

    poison(monkeypatch, "batch", batch)
    poison(monkeypatch, "loss", loss)
    with pytest.raises(NotFinite, match=r"the loss is nan at step \d, .*examples [^;]*\b13\b"):
        run_tiny(folder)
    no_nan_anywhere(folder)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_T19_a_much_too_high_learning_rate_stops_the_run(folder, optimizer):
    recipe = tiny(lr=1e20, matrix_lr=1e20, save_every=1, optimizer=optimizer, clip=None, warmup=0.0)
    with pytest.raises(NotFinite, match=r"step \d.*training\.lr"):
        run_tiny(folder, recipe)
    no_nan_anywhere(folder)


def test_T19_the_sentence_says_which_checkpoint_is_good(folder, monkeypatch):
    calls = []

    def loss(self, before, model, batch):
        calls.append(model.training)
        return before(self, model, batch) * (torch.inf if sum(calls) == 11 else 1)

    poison(monkeypatch, "loss", loss)
    with pytest.raises(
        NotFinite, match=r"is inf at step 5.*; the last checkpoint is that of step 4$"
    ):
        run_tiny(folder)
    assert load_newest(*checkpoints_of(folder)).step == 4


def test_T20_nan_in_a_gradient_alone_stops_the_run_and_names_the_tensor(folder, monkeypatch):
    init = Training.__init__

    def spoiled(self, *given, **named):
        init(self, *given, **named)
        weight = self.model.inner.weight
        weight.register_hook(lambda g: g * torch.nan if self.state.step == 5 else g)

    monkeypatch.setattr(Training, "__init__", spoiled)
    with pytest.raises(NotFinite, match=r"gradient of inner\.weight is not finite at step 5"):
        run_tiny(folder)
    no_nan_anywhere(folder)
    assert load_newest(*checkpoints_of(folder)).step == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("idle", torch.nan), ("table", torch.inf), ("adamw.exp_avg_sq.head.weight", torch.inf)],
)
def test_T20_nan_in_one_parameter_or_in_the_optimizer_is_never_saved(
    folder, monkeypatch, name, value
):
    update = Training.update

    def spoiled(self, plans):
        loss = update(self, plans)
        if self.state.step == 4:
            tensors = {**self.model.state_dict(), **self.optimizer.tensors()}
            tensors[name].view(-1)[0] = value
        return loss

    monkeypatch.setattr(Training, "update", spoiled)
    with pytest.raises(NotFinite, match=rf"{name} is not finite at step \d+.*not saved"):
        run_tiny(folder)
    no_nan_anywhere(folder)
    assert load_newest(*checkpoints_of(folder)).step == 4


def test_T20_nan_in_a_used_parameter_stops_the_run(folder, monkeypatch):
    update = Training.update

    def spoiled(self, plans):
        loss = update(self, plans)
        if self.state.step == 4:
            self.model.state_dict()["head.weight"][0, 0] = torch.nan
        return loss

    monkeypatch.setattr(Training, "update", spoiled)
    with pytest.raises(NotFinite, match="step"):
        run_tiny(folder)
    no_nan_anywhere(folder)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_T21_a_measure_that_is_no_number_is_never_the_best(folder, monkeypatch, bad):
    calls = []

    def evaluate(self, before, model):
        calls.append(1)
        return {"val_loss": [0.5, bad, 0.7][len(calls) - 1], "val_odd": bad}

    poison(monkeypatch, "evaluate", evaluate)
    said = []
    result = run_tiny(folder, tell=said.append)
    assert result.metrics == {"val_loss": 0.5}
    lines = find_runs(folder, "tiny")[0].read_metrics()
    assert [line.get("val_loss") for line in lines if line["step"] in (4, 8, 12)] == [
        0.5,
        None,
        0.7,
    ]
    assert any("val_loss is" in news for news in said if isinstance(news, str))
    names = [p.name for p in find_checkpoints(find_runs(folder, "tiny")[0].checkpoints)]
    assert "step-0000004" in names  # the best is kept


def test_T21_if_no_measure_is_a_number_there_is_no_best(folder, monkeypatch):
    poison(monkeypatch, "evaluate", lambda self, before, model: {"val_loss": float("nan")})
    assert run_tiny(folder).metrics == {}
