"""The cost of a save is measured on runs that really save."""

from clearhead.bench import saving
from clearhead.bench.cases import CASES
from clearhead.runs import storage

SMALL = ("model.d_model=8", "model.n_heads=2", "model.n_layers=1", "training.batch_size=2")
QUICK = (*SMALL, "data.context=9", "training.accumulate=1", "training.workers=1")


def test_the_command_line_knows_the_case():
    assert CASES["saving"] is saving.saving


def test_both_ways_save_and_stand_beside_steps_without_a_save(monkeypatch):
    steps, save = [], storage.save
    monkeypatch.setattr(saving, "STEPS", 3)
    monkeypatch.setattr(saving, "N_CHARACTERS", 3000)
    monkeypatch.setattr(
        storage, "save", lambda folder, found: steps.append(found.step) or save(folder, found)
    )
    rows = saving.saving(0.0, QUICK)
    assert [row.what for row in rows] == [
        "3 steps, and a save that is waited for",
        "3 steps, and a save in the background",
    ]
    assert {row.other for row in rows} == {"3 steps without a save"}
    background = [1, 4, 7, 10]  # a first call, then three rounds, each of 3 steps
    waits = [1, 7, 13, 19]  # the same run also makes the 3 steps without a save
    assert sorted(steps) == sorted([*waits, *background])
