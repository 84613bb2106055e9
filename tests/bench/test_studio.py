"""The case of the studio runs, at sizes that take little time."""

import math

import pytest
from chromium import find_chromium

from clearhead.bench import studio, studio_load, studio_page
from clearhead.models import GPTConfig
from clearhead.timing import measure_seconds


def test_the_case_runs_and_gives_times(monkeypatch):
    monkeypatch.setattr(studio, "LENGTH", 7)
    config = GPTConfig(vocab_size=26, max_len=16, d_model=12, n_layers=3, n_heads=4)
    monkeypatch.setattr(studio, "MODEL", config)
    calls = {"best_seconds": lambda works, **_: {n: measure_seconds(w) for n, w in works.items()}}
    monkeypatch.setattr(studio, "best_seconds", calls["best_seconds"])
    monkeypatch.setattr(studio, "page", list)
    monkeypatch.setattr(studio, "load", lambda seconds: [])
    rows = studio.studio(0.0)
    assert len(rows) == 3
    assert all(0 < row.ours < math.inf and 0 < row.theirs < math.inf for row in rows)


def test_without_a_browser_a_sentence_says_that_the_page_is_not_measured(monkeypatch, capsys):
    monkeypatch.setattr(studio_page.shutil, "which", lambda _: None)
    assert studio_page.page() == []
    assert "chromium is missing (`make browser` installs it)" in capsys.readouterr().err


@pytest.mark.slow
def test_many_clients_are_answered_and_the_worker_keeps_its_size(monkeypatch):
    monkeypatch.setattr(studio_load, "N_BEFORE", 24)
    times, memory = studio_load.load(1.0, n_clients=5)
    assert times.what.endswith(" answers to 5 clients, 0 × busy")
    assert times.ours > 0
    assert memory.ours < memory.theirs + 30e6


@pytest.mark.slow
def test_the_page_is_measured(monkeypatch):
    find_chromium()
    monkeypatch.setattr(studio_page, "SIDE", 24)
    monkeypatch.setattr(studio_page, "LENGTH", 20)
    monkeypatch.setattr(studio_page, "D_MODEL", 24)
    rows = studio_page.page(n_times=1)
    assert [0.01 < row.ours < 60 for row in rows] == [True] * 5
