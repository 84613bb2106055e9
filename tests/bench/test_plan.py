"""The planned memory stands beside that of real processes."""

import pytest

from clearhead.bench import plan
from clearhead.bench.cases import CASES

SMALL = ["model.d_model=8", "model.n_heads=2", "model.n_layers=1", "training.batch_size=2"]


def test_the_command_line_knows_the_case():
    assert CASES["plan"] is plan.plan


def test_each_mode_of_each_model_has_a_row(monkeypatch):
    given = []

    def measure(changes, size, n_parameters):
        given.append((changes[-1], size, n_parameters))
        return 1e6

    monkeypatch.setattr(plan, "_measure", measure)
    monkeypatch.setattr(plan, "N_CHARACTERS", 3000)
    rows = plan.plan(0.0)
    names = [f"planned memory, {model}, {mode}" for model in plan.MODELS for mode in plan.MODES]
    assert [row.what for row in rows] == names
    assert {row.unit for row in rows} == {"MB"}
    assert all(row.ours > 1e6 for row in rows)
    sizes = [(f"training.parallel={mode}", size) for mode, size in plan.MODES.items()]
    assert [(word, size) for word, size, _ in given] == sizes * len(plan.MODELS)
    assert len({n for *_, n in given}) == len(plan.MODELS)


def test_a_process_is_measured_and_must_train_the_planned_model(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcde" * 200)
    words = [f"data.path={text}", *SMALL, "data.context=9", "training.workers=1"]
    with pytest.raises(RuntimeError, match=r"^\d+ parameters were trained, but 7 planned"):
        plan._measure(words, 1, 7)
    with pytest.raises(RuntimeError, match="a process failed, of those of clearhead"):
        plan._measure([*words, "model.nothing=1"], 1, 7)
