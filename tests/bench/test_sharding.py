"""The comparison of fsdp and ddp: the largest process counts, in bytes."""

import torch

from clearhead.bench import group, sharding


def test_the_largest_process_of_each_mode_counts(monkeypatch):
    grown = {"fsdp": [3e8, 5e8], "ddp": [1e9, 9e8]}
    monkeypatch.setattr(sharding, "_measure", grown.get)
    (row,) = sharding.sharding(0.0)
    assert (row.ours, row.theirs, row.ratio, row.unit) == (5e8, 1e9, 0.5, "MB")
    assert "aim ≤ 0.6×" in row.text()


def test_memory_that_is_freed_counts_for_the_peak():
    x = torch.ones(20_000_000)
    while_held = group.read_memory("VmRSS")
    del x
    nearly = 1_000_000  # the system counts in steps
    assert group.read_memory("VmHWM") + nearly > while_held > 80_000_000
