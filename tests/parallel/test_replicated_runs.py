"""training.parallel=ddp: whole runs, through kills and on other numbers of processes."""

import signal

import pytest
from parallel.forked_ranks import Ranks
from parallel.small_processes import (
    find_run,
    list_hashes,
    make_command,
    run_to_end,
    stop_after,
)

DDP = ("training.parallel=ddp", "training.workers=1")


def test_a_run_with_batch_norm_that_is_killed_ends_with_the_same_bytes(folder):
    """Also with batches that cannot be divided evenly. test_faults.py kills substring."""
    run_to_end(2, make_command("vit-digits", folder / "whole", *DDP), folder)
    words = make_command("vit-digits", folder / "killed", *DDP)
    ranks = Ranks(2, words, folder, prepare=stop_after(7, 1, signal.SIGKILL))
    assert ranks.end() == [8, -signal.SIGKILL], ranks.read()
    assert "resuming after step 5 of 12" in run_to_end(2, words, folder)
    assert list_hashes(folder / "killed") == list_hashes(folder / "whole")


def test_another_number_of_processes_is_announced_and_loses_no_step(folder):
    """Without dropout, each step has the loss that it has with one process."""
    words = make_command("substring", folder / "out", *DDP, "model.dropout=0")
    exact = make_command("substring", folder / "exact", "model.dropout=0")
    run_to_end(1, exact, folder)
    ranks = Ranks(2, words, folder, prepare=stop_after(6, 1))
    assert ranks.end() == [143, 143], ranks.read()
    said = run_to_end(3, words, folder)
    different = "so with ddp its last digits will be different"
    assert f"this run continues on 3 processes; before, it had 2, {different}" in said
    assert "resuming after step 6 of 12" in said
    found, wanted = (find_run(folder / name).read_metrics() for name in ("out", "exact"))
    assert [line["step"] for line in found] == list(range(1, 13))
    for one, other in zip(found, wanted, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3), one["step"]
    assert find_run(folder / "out").environment["processes"] == 3
