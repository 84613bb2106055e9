"""What looking inside costs, at a size that takes no time."""

from clearhead.bench import inspection
from clearhead.bench.cases import CASES
from clearhead.models import GPTConfig
from clearhead.timing import measure_seconds


def test_recording_silencing_and_patching_are_measured_beside_the_plain_calls(monkeypatch):
    small = GPTConfig(vocab_size=11, max_len=12, d_model=6, n_layers=4, n_heads=3)
    monkeypatch.setattr(inspection, "MODEL", small)
    monkeypatch.setattr(inspection, "LENGTH", 7)
    monkeypatch.setattr(inspection, "NEW", 3)
    called = []

    def measure_once(works, **_):
        called.extend(works)
        return {name: measure_seconds(work) for name, work in works.items()}

    monkeypatch.setattr(inspection, "best_seconds", measure_once)
    rows = CASES["inspection"](0.0)
    assert called == ["plain", "recorded", "generate", "without", "rows", "sweep"]
    assert [row.what for row in rows] == [
        "recorded pass",
        "generate without a head",
        "12 heads patched",
    ]
    assert all(row.ours > 0 and row.theirs > 0 for row in rows)
