"""Each case of attention, memory and threads runs, at sizes that take no time."""

import math

import pytest
import torch

from clearhead.bench import Row, cases
from clearhead.timing import measure_seconds

TIMED = ["attention", "heads", "toeplitz", "linear", "crossover"]


@pytest.fixture
def small(monkeypatch):
    """Short sequences, each way once."""
    monkeypatch.setattr(cases, "SHORT", 32)
    monkeypatch.setattr(cases, "LONG", 48)
    monkeypatch.setattr(cases, "HEADS", (1024, 2048))  # in batches of two and one
    monkeypatch.setattr(cases, "CROSSOVER", (16, 24))
    monkeypatch.setattr(cases, "MAPS", {k: cases.MAPS[k] for k in ("elu+1", AN_AIM)})
    monkeypatch.setattr(cases, "best_seconds", seconds_of_one_call)


AN_AIM = "Fourier, 128 frequencies"


def seconds_of_one_call(works, **_):
    return {name: measure_seconds(work) for name, work in works.items()}


@pytest.mark.parametrize("name", TIMED)
def test_every_case_runs_and_gives_times(small, name):
    rows = cases.CASES[name](0.0)
    assert rows
    for row in rows:
        assert 0 < row.ours < math.inf
        assert 0 < row.theirs < math.inf
        assert row.text().startswith(row.what)


@pytest.mark.parametrize("name", TIMED)
def test_a_clock_that_stands_still_ends_no_case(small, monkeypatch, name):
    monkeypatch.setattr(cases, "best_seconds", lambda works, **_: dict.fromkeys(works, 0.0))
    for row in cases.CASES[name](0.0):
        assert row.ratio is None
        assert row.text().endswith("below what can be measured")


def test_all_lengths_are_tried_until_linear_attention_is_faster(small, monkeypatch):
    times = {"ours": 3.0, "softmax": 2.0}
    monkeypatch.setattr(cases, "best_seconds", lambda works, **_: times)
    assert [row.what for row in cases.crossover(0.0)] == [
        f"linear, {name}, T={T}" for name in ("elu+1", AN_AIM) for T in (16, 24)
    ]
    times["ours"] = 1.0
    assert [row.what[-4:] for row in cases.crossover(0.0)] == ["T=16", "T=16"]


def test_the_ways_to_build_a_toeplitz_bias_build_the_same(small, monkeypatch):
    built = {}

    def keep(works, **_):
        built.update({name: work() for name, work in works.items()})
        return dict.fromkeys(works, 1.0)

    monkeypatch.setattr(cases, "best_seconds", keep)
    cases.toeplitz(0.0)
    for way in ("fill", "add"):
        torch.testing.assert_close(built[way], built["ours"])


def test_memory_is_measured_beside_a_parent_that_holds_more(monkeypatch):
    """A process that is started inherits its parent's ru_maxrss, which hid its own."""
    monkeypatch.setattr(cases, "MEMORY", (2048, 4096))
    ballast = torch.ones(150_000_000)  # 600 MB
    rows = cases.memory(0.0)
    del ballast
    assert [row.unit for row in rows] == ["MB"] * 4
    for row in rows:
        assert 1e5 < row.ours < 1e9
        assert row.ratio is not None


def test_a_peak_of_zero_ends_no_case(monkeypatch):
    monkeypatch.setattr(cases, "_run_program", lambda program, **_: [0.0, 0.0])
    for name in ("memory", "threads"):
        rows = cases.CASES[name](0.0)
        assert all(row.text().endswith("below what can be measured") for row in rows)


def test_threads_are_tried_beside_a_quiet_and_a_busy_neighbour(monkeypatch):
    seen, processes = [], []

    class Process:
        def __init__(self, *_):
            processes.append(self)

        def kill(self):
            processes.remove(self)

        def wait(self):
            pass

    def run(program, OMP_WAIT_POLICY):
        seen.append((OMP_WAIT_POLICY, len(processes)))
        return [1.0, 2.0] if processes else [2.0, 1.0]

    monkeypatch.setattr(cases.subprocess, "Popen", Process)
    monkeypatch.setattr(cases, "_run_program", run)
    rows = cases.threads(0.0)
    assert seen == [("active", 0), ("active", 1), ("passive", 0), ("passive", 1)]
    assert [row.aim for row in rows] == ["auto chooses 2", "auto chooses 1"] * 2
    assert rows[1] == Row(
        "1 thread, one busy neighbour",
        1.0,
        "2 threads that spin while waiting",
        2.0,
        "auto chooses 1",
    )
    assert not processes
