"""A disk that fails during a run loses nothing."""

import ctypes
import errno
import os
from contextlib import suppress

import pytest
from runs.faulty_disk import FAULTS, Disk
from runs.tiny_runs import (
    in_child,
    left_behind,
    run_tiny,
    uninterrupted,
)
from training.tiny_task import tiny

from clearhead.runs import find_runs
from clearhead.runs.checkpoint import load_newest


@pytest.mark.parametrize(("first", "fault"), list(enumerate(FAULTS, 1)))
def test_T05_T06_T32_a_fault_of_the_disk_during_a_run_loses_nothing(folder, first, fault):
    recipe = tiny(6)
    expected = uninterrupted(folder, recipe)
    with Disk() as disk:
        run_tiny(folder / "counted", recipe)
    for at in range(2 * first, disk.n_calls + 1, 8):
        out = folder / f"{at}"
        with Disk(at, fault), suppress(OSError):
            run_tiny(out, recipe)
        assert not list(out.rglob("*.part")), at
        run_tiny(out, recipe)
        assert left_behind(out) == expected, at


def test_T05_a_full_small_disk_keeps_the_last_good_checkpoint(folder):
    recipe = tiny(20, d_model=200, save_every=2, eval_every=50, log_every=3)
    expected = uninterrupted(folder, recipe)
    (folder / "disk").mkdir()
    report = folder / "report"

    def work():
        libc = ctypes.CDLL(None, use_errno=True)
        out = folder / "disk"
        private = 1 << 18 | 1 << 14
        if libc.unshare(1 << 17) or libc.mount(b"none", b"/", None, private, None):
            os._exit(77)
        if libc.mount(b"tmpfs", str(out).encode(), b"tmpfs", 0, b"size=2m"):
            os._exit(77)
        (out / "ballast").write_bytes(bytes(1_300_000))
        with pytest.raises(OSError, match="No space left") as caught:
            run_tiny(out, recipe)
        assert caught.value.errno == errno.ENOSPC
        run = find_runs(out, "tiny")[0]
        found = load_newest(run.checkpoints, run.identity)
        assert found.step >= 2
        assert not list(run.path.rglob("*.part"))
        (out / "ballast").unlink()
        run_tiny(out, recipe)
        assert left_behind(out) == expected
        report.write_text(f"{found.step}")

    code = in_child(work)
    if code == 77:
        pytest.skip("this machine does not let us mount a small tmpfs")
    assert code == 0
    assert report.exists()
