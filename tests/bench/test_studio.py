"""The case of the studio runs, at a size that takes no time."""

import math

from clearhead.bench import studio
from clearhead.models import GPTConfig
from clearhead.timing import measure_seconds


def test_the_case_runs_and_gives_times(monkeypatch):
    monkeypatch.setattr(studio, "LENGTH", 7)
    config = GPTConfig(vocab_size=26, max_len=16, d_model=12, n_layers=3, n_heads=4)
    monkeypatch.setattr(studio, "MODEL", config)
    calls = {"best_seconds": lambda works, **_: {n: measure_seconds(w) for n, w in works.items()}}
    monkeypatch.setattr(studio, "best_seconds", calls["best_seconds"])
    rows = studio.studio(0.0)
    assert len(rows) == 3
    assert all(0 < row.ours < math.inf and 0 < row.theirs < math.inf for row in rows)
