"""The processes of a comparison: their output by rank, and none of them left behind."""

import subprocess

import pytest

from clearhead.bench import group

SOURCE = """
import os, sys, time
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(rank, size, os.environ["OMP_NUM_THREADS"], os.environ.get("EXTRA"), *sys.argv[1:], flush=True)
if "hang" in sys.argv and rank == "1":
    time.sleep(600)
if "fail" in sys.argv and rank == "1":
    sys.exit(3)
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The processes that were started; each of them runs SOURCE, as the module `printer`."""
    (tmp_path / "printer.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    processes, start = [], subprocess.Popen

    def keep(*args, **kwargs):
        processes.append(start(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", keep)
    return processes


def test_each_process_knows_its_rank_and_prints_for_itself(started):
    texts = group.run_group("printer", ["a", "b"], 2, variables={"EXTRA": "more"})
    assert texts == ["0 2 1 more a b\n", "1 2 1 more a b\n"]


def test_a_process_that_fails_is_an_error_whatever_the_others_print(started):
    with pytest.raises(RuntimeError, match="a process failed, of those of printer fail"):
        group.run_group("printer", ["fail"], 2)


def test_a_process_that_hangs_is_killed(started):
    with pytest.raises(subprocess.TimeoutExpired):
        group.run_group("printer", ["hang"], 2, limit=3.0)
    first, hanging = (process.poll() for process in started)
    assert first is not None
    assert hanging == -9
